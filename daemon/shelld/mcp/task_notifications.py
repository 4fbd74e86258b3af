"""Serves one ``subscriptions/listen`` with notifications about tasks, until the tasks are over.

Keeps track of the state that the client knows. The client knows that a task begins as "working". So
the first notification comes when the status or the program's prompt first changes. The last
notification has the result. Each notification has the whole task, as ``tasks/get`` would return it
at that moment.

This module and other waiting code take turns in checking for prompts. While a shell is quiet, this
module checks less and less often. The shell reports all other changes. While the client does not
read, nothing is sent. Once the client reads again, it gets the state of that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
from msgspec import Raw, to_builtins

from shelld.mcp.questions import next_prompt
from shelld.mcp.tasks import Task
from shelld.methods.context import RequestContext
from shelld.shells.shell import Shell
from shelld_protocol.mcp_tasks import (
    ACKNOWLEDGED_NOTIFICATION,
    SUBSCRIPTION_ID_KEY,
    TASK_NOTIFICATION,
    TaskState,
)

# The state of a task as the client knows it: its status, the keys of its open questions, and the
# number of the question that its program asks.
_KnownState = tuple[str, tuple[str, ...], int | None]

_AT_FIRST: Final[_KnownState] = ("working", (), None)


class TaskNotifications:
    """The notifications of one request. The request's id is the id of the subscription."""

    def __init__(self, context: RequestContext, request_id: bytes, *, forms_allowed: bool) -> None:
        self._subscription_id = Raw(request_id)
        self._context = context
        self._manager = context.daemon.manager
        self._forms_allowed = forms_allowed
        # Notifications do not count towards the size of a batch's answer.
        context.has_room = lambda: True
        # One notification at a time waits for the client to read.
        self._sending = anyio.Lock()

    async def acknowledge(self, ids: list[str] | None) -> None:
        """Tell the client which tasks the notifications will be about. This method must be called
        first.
        """
        agreed = {} if ids is None else {"taskIds": ids}
        while not self._notify(ACKNOWLEDGED_NOTIFICATION, {"notifications": agreed}):
            await self._context.recipient.wait_until_read()

    async def follow(self, shell: Shell, task: Task) -> None:
        """Send each change of a task. Returns after the last change."""
        # Retain the shell's output until the last notification, which has the result. A slow client
        # may delay that notification.
        with self._manager.reading(shell):
            await self._follow(shell, task)

    async def _follow(self, shell: Shell, task: Task) -> None:
        known = _AT_FIRST
        pauses = task.questions.pauses
        while True:
            before = task.questions.activity(shell)
            known = await self._tell(shell, task, known)
            if known[0] in {"completed", "cancelled"}:
                return

            def may_have_changed(before: tuple[object, ...] = before) -> bool:
                return task.is_over or task.questions.activity(shell) != before

            if task.questions.seen is None:
                await next_prompt(shell, lambda: task.is_over, pauses)
            else:
                # A prompt can also go away by itself, like the prompt of `read -t`.
                with anyio.move_on_after(pauses.next(shell)):
                    await shell.wait_until(may_have_changed)

    async def _tell(self, shell: Shell, task: Task, known: _KnownState) -> _KnownState:
        """Send the state of a task if it has changed. Return the state that the client knows."""
        async with self._sending:
            while True:
                if task.is_over:
                    # The notification has the result, which may be large.
                    await self._context.begin_large_answer()
                try:
                    state = await task.detailed(
                        self._manager, shell, forms_allowed=self._forms_allowed
                    )
                    now = state.status, tuple(state.input_requests or ()), task.questions.seen
                    if now == known or self._notify(TASK_NOTIFICATION, _members(state)):
                        return now
                finally:
                    self._context.end_large_answer()
                await self._context.recipient.wait_until_read()

    def _notify(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. Return False if the client must read first."""
        if self._context.is_over:
            return True
        meta = {SUBSCRIPTION_ID_KEY: self._subscription_id}
        return self._context.notify(method, {"_meta": meta, **params})


def _members(state: TaskState) -> dict[str, Any]:
    members: dict[str, Any] = to_builtins(state, builtin_types=(Raw,))
    return members
