"""Manages tasks: calls of `Bash` that were answered before their command had ended.

Owns the part of a task's state that its shell does not have. A task has the id of its shell, and
lives as long as its shell is retained. This module does not keep a shell alive. The output stays
with the shell. Whenever a client asks for the result, the result is made from that output.

A task never changes how its command runs. The command's limits still apply, and its session keeps
its state, as if the call still waited. The call's request is over, so nobody can cancel the command
by cancelling the request.

- A task is over once its result is settled, and stays over.
- A question has one key, and no key is used for two questions.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import anyio
from msgspec import Raw

from shelld.audit import timestamp
from shelld.mcp.progress import MAX_MESSAGE_CHARACTERS
from shelld.mcp.questions import Questions, next_prompt
from shelld.mcp.results import IMPLEMENTATION, call_result, complete
from shelld.methods.bash import is_answerable
from shelld.methods.context import DeferredResult, RequestContext
from shelld.output.excerpt import last_line
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import takes_input
from shelld_protocol.encoding import encode
from shelld_protocol.errors import ErrorKind, RpcError, invalid_params
from shelld_protocol.mcp import SERVER_INFO_KEY
from shelld_protocol.mcp_tasks import InputRequest, TaskState, TaskStatus

POLL_INTERVAL_MS: Final = 5_000


class Task:
    """One task. It keeps no reference to its shell. The methods get the shell as an argument."""

    def __init__(self, manager: Manager, shell: Shell, result: DeferredResult) -> None:
        self.id = shell.id
        self.deferred = result
        self.questions = Questions(manager.check_turns)
        # Whether the result is settled.
        self.is_over = False
        # Whether `tasks/cancel` arrived before the task was over.
        self.is_cancelled = False
        self._retain_ms = manager.options.retain_seconds * 1000
        self._created_at = time.time()
        # The time.time() at which the result was settled, or 0.
        self._over_at = 0.0
        self._began = time.monotonic()
        self._lasted_ms = 0

    def status(self, shell: Shell) -> TaskStatus:
        """Return the status. A task that asks something counts as "working" here."""
        if not self.is_over:
            return "working"
        killed = self.is_cancelled and shell.status is ShellStatus.KILLED
        return "cancelled" if killed else "completed"

    async def settle_at_end(self, shell: Shell) -> None:
        """Wait until the command has ended, and settle the result."""
        await shell.wait_until(partial(_has_result, shell))
        if shell.recorder is not None:
            await shell.recorder.settle()
        self.deferred.settle(shell)
        self._over_at, self._lasted_ms = time.time(), self._age_ms()
        self.is_over = True
        shell.notify()

    def first_state(self, shell: Shell) -> TaskState:
        """Return the state of the new task, which is the answer to the call."""
        state = self._state("working", _progress(shell))
        # The task is created now, so its age is 0.
        state.ttl_ms = self._retain_ms
        state.result_type = "task"
        state.meta = {SERVER_INFO_KEY: IMPLEMENTATION}
        return state

    async def _current_state(self, shell: Shell, *, forms_allowed: bool) -> TaskState:
        """Return the state without the result."""
        message, requests = None, None
        if not self.is_over:
            message, requests = await self.questions.ask(shell, forms_allowed=forms_allowed)
        # The task may be over by now.
        status = self.status(shell)
        if status == "working":
            status = "working" if requests is None else "input_required"
            return self._state(status, message or _progress(shell), requests)
        return self._state(
            status, "The client has cancelled the task" if status == "cancelled" else None
        )

    def _state(
        self,
        status: TaskStatus,
        message: str | None,
        requests: dict[str, InputRequest] | None = None,
    ) -> TaskState:
        updated_at = self._over_at or max(self._created_at, self.questions.changed_at)
        return TaskState(
            task_id=self.id,
            status=status,
            status_message=message,
            created_at=timestamp(self._created_at),
            last_updated_at=timestamp(updated_at),
            # The client may forget the task when this time has passed since its creation. The
            # output is retained for `_retain_ms` after the command has ended, so add the time from
            # the creation of the task to the end of the command.
            ttl_ms=self._retain_ms + (self._lasted_ms if self.is_over else self._age_ms()),
            poll_interval_ms=POLL_INTERVAL_MS,
            input_requests=requests,
        )

    async def detailed(self, manager: Manager, shell: Shell, *, forms_allowed: bool) -> TaskState:
        """Return the state, with the result if there is one.

        `forms_allowed`: the client can show forms.
        """
        state = await self._current_state(shell, forms_allowed=forms_allowed)
        if state.status == "completed":
            with manager.reading(shell):
                result = await self.deferred.result(shell)
            state.result = complete(call_result(result, Raw(encode(result))))
        return state

    def _age_ms(self) -> int:
        return round((time.monotonic() - self._began) * 1000)


class Tasks:
    """All tasks of one client."""

    def __init__(self) -> None:
        self._tasks: WeakKeyDictionary[Shell, Task] = WeakKeyDictionary()

    def add(self, manager: Manager, shell: Shell, result: DeferredResult) -> Task:
        """Make a task for a running command."""
        task = Task(manager, shell, result)
        manager.attend(partial(task.settle_at_end, shell))
        self._tasks[shell] = task
        return task

    def find(self, manager: Manager, task_id: str) -> tuple[Shell, Task]:
        """Return a task and its shell. Raises `RpcError` (invalid_params)."""
        try:
            shell = manager.get(task_id)
        except RpcError as error:
            expired = error.kind is ErrorKind.SHELL_NOT_FOUND and error.data["expired"]
            raise _unknown("Task has expired" if expired else "Task not found") from None
        task = self._tasks.get(shell)
        if task is None:
            raise _unknown("Task not found")
        return shell, task


class TaskDeferral:
    """Lets a call become a task. `created` is None until there is a task."""

    def __init__(self, context: RequestContext, tasks: Tasks) -> None:
        self._manager = context.daemon.manager
        self._tasks = tasks
        self._due_at = anyio.current_time() + context.daemon.options.task_after / 1000
        self.created: TaskState | None = None

    @property
    def seconds_left(self) -> float:
        return max(0, self._due_at - anyio.current_time())

    async def wait(self, shell: Shell) -> None:
        """Wait until a command has its result, or asks something, or takes too long."""
        has_result = partial(is_answerable, shell)
        with anyio.CancelScope(deadline=self._due_at):
            if takes_input(shell):
                pauses = Pauses(self._manager.check_turns)
                await next_prompt(shell, has_result, pauses, only_proved=True)
            else:
                await shell.wait_until(has_result)
        # Also wait for the start, because a command that cannot be started gets an error and not a
        # task.
        await shell.wait_until(lambda: shell.pid is not None or has_result())

    def defer(self, shell: Shell, result: DeferredResult) -> None:
        self.created = self._tasks.add(self._manager, shell, result).first_state(shell)


def _has_result(shell: Shell) -> bool:
    """Return whether the result of a task is complete."""
    return shell.has_ended and is_answerable(shell)


def _progress(shell: Shell) -> str | None:
    """Return the last line of the stream that has the newest output; None if there is none."""
    return last_line(shell.latest_stream.store, MAX_MESSAGE_CHARACTERS) or None


def _unknown(message: str) -> RpcError:
    return invalid_params(message, "taskId")
