"""The notifications that a client gets about its tasks, and when it gets them."""

from __future__ import annotations

import math

import anyio
import pytest

from shelld.shells.shell import Shell
from shelld.waits.pauses import Pauses
from task_listener import Listen

# A pause between polls.
POLL_S = 0.02
NAME = "read -p 'Name? ' name"


async def test_a_client_that_reads_late_gets_the_start_of_its_subscription(
    listen: Listen,
) -> None:
    listening = await listen("sleep 300")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.notifications.acknowledge, ["shell_1"])
        await listening.client.read_late()
    assert listening.client.told[0]["notifications"] == {"taskIds": ["shell_1"]}


async def test_a_client_that_reads_late_gets_the_question(listen: Listen) -> None:
    listening = await listen(NAME)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.follow)
        await listening.client.read_late()
        assert (await listening.client.hear(1))["status"] == "input_required"
        tasks.cancel_scope.cancel()


async def test_a_client_that_reads_late_gets_the_result(listen: Listen) -> None:
    listening = await listen("echo hi")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.follow)
        await listening.client.read_late()
    (over,) = listening.client.told
    assert over["result"]["content"][0]["text"] == "hi\n"


async def test_a_declined_question_wakes_the_listener(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = await listen(NAME)
    client = listening.client
    client.read()

    def pause(_pauses: Pauses, _shell: Shell) -> float:
        # By itself, the listener would never check the task again.
        return math.inf if client.told else POLL_S

    monkeypatch.setattr(Pauses, "next", pause)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.follow)
        (key,) = (await client.hear(1))["inputRequests"]
        # Let the listener begin to wait.
        await anyio.wait_all_tasks_blocked()
        answers = {key: {"action": "decline"}}
        await listening.task.questions.answer(listening.context, listening.shell, answers)
        assert (await client.hear(2))["status"] == "working"
        tasks.cancel_scope.cancel()
