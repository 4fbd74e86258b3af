"""A host that supports MCP's tasks, and checks each message against the official schemas.

``tests/schemas/mcp_tasks`` is the schema of github.com/modelcontextprotocol/ext-tasks (commit
e434597), unchanged, with its licence. The messages of the base protocol are checked with the types
of the official SDK.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema
import msgspec
from mcp_types import _v2026_07_28 as base

from mcp_messages import CAPABILITIES_KEY, META
from support import Json, RawDaemon

EXTENSION = "io.modelcontextprotocol/tasks"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
CAPABILITIES: Json = {"elicitation": {}, "extensions": {EXTENSION: {}}}
META_WITH_TASKS: Json = {**META, CAPABILITIES_KEY: CAPABILITIES}

_SCHEMA = msgspec.json.decode(
    (Path(__file__).parents[1] / "schemas" / "mcp_tasks" / "schema.json").read_bytes()
)
_RESULTS = {
    "tasks/get": "GetTaskResult",
    "tasks/update": "UpdateTaskResult",
    "tasks/cancel": "CancelTaskResult",
}
_REQUESTS = {
    "tasks/get": "GetTaskRequest",
    "tasks/update": "UpdateTaskRequest",
    "tasks/cancel": "CancelTaskRequest",
}
OVER = {"completed", "cancelled", "failed"}


def validate(value: object, name: str) -> None:
    """Check a value against a definition of the extension's schema."""
    _validator_of(name).validate(value)


@cache
def _validator_of(name: str) -> Any:
    # The type stubs leave out some types.
    validator: Any = jsonschema.Draft202012Validator
    return validator({**_SCHEMA, "$ref": f"#/$defs/{name}"})


def check_result(method: str, result: Json) -> None:
    if method in _RESULTS:
        validate(result, _RESULTS[method])
    elif method == "subscriptions/listen":
        base.SubscriptionsListenResult.model_validate(result)
        assert result.keys() == {"resultType", "_meta"}
    elif result["resultType"] == "task":
        assert method == "tools/call"
        validate(result, "CreateTaskResult")
    elif method == "tools/call":
        base.CallToolResult.model_validate(result)
    if "status" in result:
        _check_task(result)


def check_notification(message: Json) -> None:
    if message["method"] == "notifications/tasks":
        validate(message, "TaskStatusNotification")
        _check_task(message["params"])
    else:
        assert message["method"] == "notifications/subscriptions/acknowledged", message
        base.SubscriptionsAcknowledgedNotification.model_validate(message)
        agreed = message["params"]["notifications"]
        validate(agreed, "TaskSubscriptionAcknowledgedNotifications")


def _check_task(task: Json) -> None:
    """Check the promises that the schema cannot express."""
    assert ("result" in task) == (task["status"] == "completed")
    if "result" in task:
        base.CallToolResult.model_validate(task["result"])
        assert task["result"]["resultType"] == "complete"
    if task.get("resultType") == "complete":
        assert ("inputRequests" in task) == (task["status"] == "input_required")
    for request in task.get("inputRequests", {}).values():
        validate(request, "ElicitRequest")
    assert "error" not in task


class TaskHost:
    """A client that declares tasks. It checks that each message it gets is valid."""

    def __init__(self, daemon: RawDaemon, capabilities: Json = CAPABILITIES) -> None:
        self.daemon = daemon
        self.meta: Json = {**META, CAPABILITIES_KEY: capabilities}

    def request(self, method: str, /, **params: Any) -> Any:
        """Send a request; return its id."""
        params = {**params, "_meta": self.meta}
        if method in _REQUESTS:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            validate(message, _REQUESTS[method])
        return self.daemon.request(method, params)

    def call(self, method: str, /, **params: Any) -> Json:
        answer = self.daemon.answer(self.request(method, **params))
        assert "error" not in answer, answer
        check_result(method, answer["result"])
        return cast("Json", answer["result"])

    def fail(self, method: str, /, **params: Any) -> Json:
        return cast("Json", self.daemon.answer(self.request(method, **params))["error"])

    def bash(self, command: str, /, **arguments: Any) -> Json:
        arguments = {"command": command, **arguments}
        return self.call("tools/call", name="Bash", arguments=arguments)

    def task(self, command: str, /, **arguments: Any) -> str:
        """Start a command that becomes a task; return its id."""
        created = self.bash(command, **arguments)
        assert created["resultType"] == "task", created
        return cast("str", created["taskId"])

    def get(self, task_id: str) -> Json:
        return self.call("tasks/get", taskId=task_id)

    def answer(self, task_id: str, key: str, text: str) -> None:
        response = {"action": "accept", "content": {"answer": text}}
        self.call("tasks/update", taskId=task_id, inputResponses={key: response})

    def end_of(self, task_id: str) -> Json:
        """Return the final state of a task."""
        return list(self.states(task_id))[-1]

    def result_of(self, task_id: str) -> Json:
        """Return the result of a task that completes."""
        return cast("Json", self.end_of(task_id)["result"])

    def states(self, *task_ids: str) -> Iterator[Json]:
        """Listen to tasks from now on.

        Return an iterator over the params of the notifications. It ends when all tasks have ended.
        """
        request_id = self.request("subscriptions/listen", notifications={"taskIds": task_ids})
        self._check_acknowledged(request_id, list(task_ids))
        return self._rest(request_id)

    def heard(self, request_id: Any, task_ids: list[str]) -> Iterator[Json]:
        """Yield the params of a subscription's notifications, until the subscription ends."""
        self._check_acknowledged(request_id, task_ids)
        yield from self._rest(request_id)

    def _check_acknowledged(self, request_id: Any, task_ids: list[str]) -> None:
        message = self.daemon.receive()
        assert message["method"].endswith("acknowledged"), message
        assert message["params"]["_meta"][SUBSCRIPTION_KEY] == request_id
        check_notification(message)
        assert message["params"]["notifications"] == {"taskIds": task_ids}

    def _rest(self, request_id: Any) -> Iterator[Json]:
        while (message := self.daemon.receive()).get("id") != request_id:
            assert message.get("method") == "notifications/tasks", message
            assert message["params"]["_meta"][SUBSCRIPTION_KEY] == request_id
            check_notification(message)
            yield message["params"]
        check_result("subscriptions/listen", message["result"])
        assert message["result"]["_meta"][SUBSCRIPTION_KEY] == request_id
