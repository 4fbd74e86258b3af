"""The state that a task reports about itself."""

from __future__ import annotations

import time

import anyio

from shelld.audit import timestamp
from task_listener import Listen, Listening

# A pause between polls.
POLL_S = 0.02


async def last_updated_at(listening: Listening, *, forms_allowed: bool = True) -> str:
    """Wait until the clock shows another timestamp, and return the `lastUpdatedAt` that a client
    then gets.
    """
    now = timestamp(time.time())
    while timestamp(time.time()) == now:
        await anyio.sleep(POLL_S)
    task, manager = listening.task, listening.context.daemon.manager
    state = await task.detailed(manager, listening.shell, forms_allowed=forms_allowed)
    return state.last_updated_at


async def test_a_task_was_updated_when_it_ended(listen: Listen) -> None:
    listening = await listen("true")
    await listening.shell.wait_until(lambda: listening.task.is_over)
    ended_at = timestamp(time.time())
    assert await last_updated_at(listening) <= ended_at


async def test_a_task_was_updated_when_its_question_opened(listen: Listen) -> None:
    listening = await listen("read -p 'Name? ' name")
    created_at = updated_at = await last_updated_at(listening)
    while updated_at == created_at:
        updated_at = await last_updated_at(listening)
    for forms_allowed in (True, False, True):
        assert await last_updated_at(listening, forms_allowed=forms_allowed) == updated_at
