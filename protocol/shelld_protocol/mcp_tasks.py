"""Defines MCP's Tasks extension. It allows a server to answer a call with a task.

Pure. A client declares the extension in each request that may use it. The extension also defines
the requests about a task. All names come from the schema of the extension.

References: https://github.com/modelcontextprotocol/ext-tasks (schema and specification), and
``subscriptions/listen`` of https://modelcontextprotocol.io/specification/2026-07-28.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Raw, Struct, field

from shelld_protocol.mcp import CallToolMcpResult, McpParams, McpResult
from shelld_protocol.structs import Result

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"

# Clients and servers declare the extension with this member of their capabilities.
TASKS_CAPABILITY: Final[dict[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}

TASK_NOTIFICATION: Final = "notifications/tasks"
ACKNOWLEDGED_NOTIFICATION: Final = "notifications/subscriptions/acknowledged"

# The name of the answer in an elicitation form.
ANSWER_NAME: Final = "answer"

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "cancelled"]


# -- params -----------------------------------------------------------------------------------


class TaskParams(McpParams, kw_only=True):
    """The params of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str | None = field(name="taskId", default=None)


class UpdateTaskParams(TaskParams, kw_only=True):
    """The params of ``tasks/update``.

    `input_responses` has the responses to `input_requests` of a task, by their keys.
    """

    input_responses: dict[str, Any] | None = field(name="inputResponses", default=None)


class ListenParams(McpParams, kw_only=True):
    """The params of ``subscriptions/listen``. `notifications` may have `taskIds`."""

    notifications: dict[str, Any] | None = None


# -- results ----------------------------------------------------------------------------------


class TextField(Struct):
    """The schema of a text that a form asks for."""

    type: Literal["string"] = "string"
    title: str = "Answer"


class AnswerForm(Struct):
    """The schema of an input form with a single text field."""

    type: Literal["object"] = "object"
    properties: dict[str, TextField] = field(default_factory=lambda: {ANSWER_NAME: TextField()})
    required: list[str] = field(default_factory=lambda: [ANSWER_NAME])


class ElicitParams(Result, kw_only=True):
    message: str
    # The base class omits a member that equals its default. These two members must be sent, so they
    # have no default.
    mode: Literal["form"]
    requested_schema: AnswerForm = field(name="requestedSchema")


class InputRequest(Result, kw_only=True):
    """A request that asks the client to show a form to a person."""

    method: Literal["elicitation/create"]
    params: ElicitParams


class TaskState(McpResult, kw_only=True):
    """The state of a task.

    In the answer to a call, `result_type` is "task". Answers to ``tasks/get`` and notifications
    also have `input_requests` or `result` if the status requires them.
    """

    task_id: str = field(name="taskId")
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int
    input_requests: dict[str, InputRequest] | None = None
    result: CallToolMcpResult | None = None


class Acknowledged(Result, kw_only=True):
    """The params of the first notification of a subscription."""

    meta: dict[str, Raw] = field(name="_meta")
    notifications: dict[str, list[str]]
