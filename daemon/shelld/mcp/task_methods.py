"""Implements ``tasks/get``, ``tasks/update``, ``tasks/cancel`` and ``subscriptions/listen``.

Keeps the number of tasks that clients listen to, and no other state. Each method first checks that
the request declares the extension for tasks.

When ``subscriptions/listen`` ends, the tasks continue. The daemon sends the notifications of
``subscriptions/listen`` after the acknowledgement and before the answer.
"""

from __future__ import annotations

import signal
from typing import Final, cast

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Raw

from shelld.mcp.capabilities import accepts_forms, declares_tasks, require_tasks
from shelld.mcp.methods import McpMethods
from shelld.mcp.results import complete
from shelld.mcp.task_notifications import TaskNotifications
from shelld.mcp.tasks import Task
from shelld.methods.context import RequestContext
from shelld.shells.shell import Shell
from shelld_protocol.errors import (
    RpcError,
    invalid_params,
    invalid_request,
    method_not_found,
    missing_parameter,
    resource_exhausted,
)
from shelld_protocol.mcp import McpResult
from shelld_protocol.mcp_tasks import (
    SUBSCRIPTION_ID_KEY,
    ListenParams,
    TaskParams,
    TaskState,
    UpdateTaskParams,
)

# For each task that a client listens to, the daemon needs some memory and looks for prompts.
MAX_LISTENED: Final = 1_024
# After this number of task ids, other requests may run. A client may send millions of ids.
_LOOKED_UP_IN_A_ROW: Final = 256


class TaskMethods:
    """The methods of tasks for one client."""

    def __init__(self, mcp: McpMethods) -> None:
        self._mcp = mcp
        self._listened = 0

    async def get(self, context: RequestContext, params: TaskParams) -> TaskState:
        shell, task = self._find(context, params, "tasks/get")
        forms_allowed = accepts_forms(params.meta)
        manager = context.daemon.manager
        return complete(await task.detailed(manager, shell, forms_allowed=forms_allowed))

    async def update(self, context: RequestContext, params: UpdateTaskParams) -> McpResult:
        shell, task = self._find(context, params, "tasks/update")
        if params.input_responses is None:
            raise missing_parameter("inputResponses")
        await task.questions.answer(context, shell, params.input_responses)
        return complete(McpResult())

    async def cancel(self, context: RequestContext, params: TaskParams) -> McpResult:
        """Kill the command with all its processes. If the command has already finished, the
        processes that it left behind keep running.
        """
        shell, task = self._find(context, params, "tasks/cancel")
        if not task.is_over:
            task.is_cancelled = True
            await shell.end_tree(signal.SIGTERM, context.daemon.manager.options.grace_ms)
        return complete(McpResult())

    async def listen(self, context: RequestContext, params: ListenParams) -> McpResult:
        """Send the state of each task whenever it changes, until all of the tasks are over."""
        ids = self._ids_in(params)
        manager, request_id = context.daemon.manager, context.request_id
        if request_id is None:
            raise invalid_request("a subscription needs an id")
        found: dict[Shell, Task] = {}
        for number, task_id in enumerate(ids or (), 1):
            if number % _LOOKED_UP_IN_A_ROW == 0:
                await checkpoint()
            try:
                shell, task = self._mcp.tasks.find(manager, task_id)
            except RpcError:
                continue
            found[shell] = task
        if ids and not found:
            raise invalid_params("Task not found", "notifications.taskIds")
        result = complete(McpResult())
        assert result.meta is not None
        result.meta[SUBSCRIPTION_ID_KEY] = Raw(request_id)
        self._check_room(len(found))
        self._listened += len(found)
        try:
            notifications = TaskNotifications(
                context, request_id, forms_allowed=accepts_forms(params.meta)
            )
            agreed = None if ids is None else [task.id for task in found.values()]
            await notifications.acknowledge(agreed)
            # If the daemon stops, the request is answered with the result, because the
            # specification has no error for this case.
            context.result_at_stop = result
            async with anyio.create_task_group() as following:
                for shell, task in found.items():
                    following.start_soon(notifications.follow, shell, task)
        finally:
            self._listened -= len(found)
        return result

    def _find(self, context: RequestContext, params: TaskParams, method: str) -> tuple[Shell, Task]:
        require_tasks(params.meta, self._mcp.agreed, method)
        if params.task_id is None:
            raise missing_parameter("taskId")
        return self._mcp.tasks.find(context.daemon.manager, params.task_id)

    def _check_room(self, count: int) -> None:
        if self._listened + count > MAX_LISTENED:
            message = f"Subscriptions have at most {MAX_LISTENED} tasks together"
            raise resource_exhausted("subscriptions", message)

    def _ids_in(self, params: ListenParams) -> list[str] | None:
        """Return the ids of the tasks to listen to; None if the request has no `taskIds`. Raises
        `RpcError`.

        A client without the extension has nothing to listen to, so the method does not exist for
        it.
        """
        name = "notifications.taskIds"
        ids = None if params.notifications is None else params.notifications.get("taskIds")
        if ids is None and not declares_tasks(params.meta):
            raise method_not_found("subscriptions/listen")
        require_tasks(params.meta, self._mcp.agreed, "subscriptions/listen")
        if params.notifications is None:
            raise missing_parameter("notifications")
        if ids is None:
            return None
        if not isinstance(ids, list):
            raise invalid_params(f"Invalid type for {name}: expected array", name)
        texts = [each for each in cast("list[object]", ids) if isinstance(each, str)]
        if len(texts) < len(cast("list[object]", ids)):
            raise invalid_params(f"Invalid type for {name}: expected strings", name)
        return texts
