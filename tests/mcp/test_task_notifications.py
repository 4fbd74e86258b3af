"""What a client is told of its tasks, and when."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest

from shelld.mcp.task_notifications import TaskNotifications
from shelld.mcp.tasks import Task, Tasks
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.terminals.pty import Size
from shelld.tools.bash_result import LateResult
from shelld.waits.prompts import Pauses
from shelld_protocol.event_methods import Event
from support import DEADLINE_S, Json

# A pause between polls.
POLL_S = 0.02
NAME = "read -p 'Name? ' name"


class Client:
    """A client that can be sent nothing until it reads. Keeps the params of notifications."""

    backlog = 0

    def __init__(self) -> None:
        self.told: list[Json] = []
        self._refused, self._reads = anyio.Event(), anyio.Event()
        self._news = anyio.Event()

    def notify(self, _method: str, params: Mapping[str, Any]) -> bool:
        if not self._reads.is_set():
            self._refused.set()
            return False
        self.told.append(dict(params))
        self._news.set()
        return True

    def send(self, method: str, params: Event) -> None:
        raise NotImplementedError

    async def wait_until_read(self) -> None:
        await self._reads.wait()

    def read(self) -> None:
        """Read from now on."""
        self._reads.set()

    async def read_late(self) -> None:
        """Read, once there was something that it could not be sent."""
        await self._refused.wait()
        self.read()

    async def hear(self, count: int) -> Json:
        """Return the params of a notification: 1 for the first."""
        while len(self.told) < count:
            self._news = anyio.Event()
            await self._news.wait()
        return self.told[count - 1]


class Listening:
    """A client that listens to a task."""

    def __init__(self, manager: Manager, shell: Shell) -> None:
        self.client = Client()
        self.shell = shell
        self.task: Task = Tasks().add(manager, shell, LateResult([], 1_000, lambda: "/"))
        self.context = RequestContext(
            Daemon(Options(), manager), self.client.notify, recipient=self.client
        )
        self.notifications = TaskNotifications(self.context, b"1", is_for_forms=True)

    async def follow(self) -> None:
        await self.notifications.follow(self.shell, self.task)


Listen = Callable[[str], Awaitable[Listening]]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    async with Manager() as manager:

        async def start(command: str) -> Listening:
            request = StartRequest(command, terminal=Size(30, 120), in_foreground=True)
            return Listening(manager, await manager.start(request))

        with anyio.fail_after(DEADLINE_S):
            yield start


async def test_a_client_that_reads_late_is_told_that_its_subscription_began(
    listen: Listen,
) -> None:
    listening = await listen("sleep 300")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.notifications.acknowledge, ["shell_1"])
        await listening.client.read_late()
    assert listening.client.told[0]["notifications"] == {"taskIds": ["shell_1"]}


async def test_a_client_that_reads_late_is_asked(listen: Listen) -> None:
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
        # It would never look again by itself.
        return math.inf if client.told else POLL_S

    monkeypatch.setattr(Pauses, "next", pause)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.follow)
        (key,) = (await client.hear(1))["inputRequests"]
        # The listener waits.
        await anyio.wait_all_tasks_blocked()
        answers = {key: {"action": "decline"}}
        await listening.task.questions.answer(listening.context, listening.shell, answers)
        assert (await client.hear(2))["status"] == "working"
        tasks.cancel_scope.cancel()
