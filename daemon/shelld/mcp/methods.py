"""Implements ``initialize``, ``server/discover``, ``ping``, ``tools/list`` and ``tools/call``.

Owns the revision of the last ``initialize``, and no other state. The arguments of a call name its
session or its shell. All requests on a stream share the same sessions and shells.

If a tool fails, the result of the call has ``isError``. Only a mistake in the request itself, such
as an unknown tool or a missing revision, leads to an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from shelld.mcp.capabilities import declares_tasks
from shelld.mcp.progress import progress_of
from shelld.mcp.results import IMPLEMENTATION, call_result, complete
from shelld.mcp.revisions import agreed_on, is_modern, refuse_modern, revision_of
from shelld.mcp.tasks import TaskDeferral, Tasks
from shelld.mcp.toolbox import Toolbox, execute, is_bash
from shelld.methods.context import RequestContext, ToolContext
from shelld_protocol.errors import invalid_params, missing_parameter
from shelld_protocol.mcp import (
    ANNOTATIONS_SINCE,
    MODERN_REVISIONS,
    STRUCTURED_SINCE,
    CallToolMcpParams,
    CallToolMcpResult,
    DiscoverResult,
    InitializeParams,
    InitializeResult,
    ListToolsMcpParams,
    ListToolsMcpResult,
    McpParams,
    PingParams,
)
from shelld_protocol.mcp_tasks import TASKS_CAPABILITY, TaskState
from shelld_protocol.structs import Empty

# The daemon loads its tools once, so they never change while it runs.
TTL_MS: Final = 3_600_000

_INSTRUCTIONS: Final = (
    "Runs commands on this machine, as its user. Commands of one session follow each other as in "
    "one terminal; another session is another terminal. What runs in the background is named by "
    "its bash_id, and ends with this server."
)
_CAPABILITIES: Final[dict[str, Any]] = {"tools": {}}


class McpMethods:
    """The methods of MCP for one client."""

    def __init__(self, toolbox: Toolbox, tasks: Tasks) -> None:
        self.tasks = tasks
        # The revision of the last handshake.
        self.agreed: str | None = None
        self._toolbox = toolbox

    async def ping(self, _context: RequestContext, params: PingParams) -> Empty:
        refuse_modern(params.meta, "ping")
        return Empty()

    async def initialize(
        self, _context: RequestContext, params: InitializeParams
    ) -> InitializeResult:
        refuse_modern(params.meta, "initialize")
        if params.protocol_version is None:
            raise missing_parameter("protocolVersion")
        self.agreed = agreed_on(params.protocol_version)
        return InitializeResult(
            protocol_version=self.agreed,
            capabilities=_CAPABILITIES,
            server_info=IMPLEMENTATION,
            instructions=_INSTRUCTIONS,
        )

    async def discover(self, _context: RequestContext, params: McpParams) -> DiscoverResult:
        # This method exists in the modern era only.
        revision_of(params.meta, None)
        result = DiscoverResult(
            supported_versions=list(MODERN_REVISIONS),
            capabilities={**_CAPABILITIES, **TASKS_CAPABILITY},
            instructions=_INSTRUCTIONS,
            ttl_ms=TTL_MS,
            cache_scope="private",
        )
        return complete(result)

    async def list_tools(
        self, _context: RequestContext, params: ListToolsMcpParams
    ) -> ListToolsMcpResult:
        revision = revision_of(params.meta, self.agreed)
        if params.cursor is not None:
            raise invalid_params("Invalid value for cursor: all tools are on one page", "cursor")
        tools = [_as_of(revision, tool) for tool in await self._toolbox.schemas("mcp")]
        result = ListToolsMcpResult(tools=tools)
        if is_modern(revision):
            # The scope is "private", because the list depends on the plug-ins that are installed
            # beside the daemon.
            result.ttl_ms, result.cache_scope = TTL_MS, "private"
            return complete(result)
        return result

    async def call_tool(
        self, context: RequestContext, params: CallToolMcpParams
    ) -> CallToolMcpResult | TaskState:
        revision = revision_of(params.meta, self.agreed)
        if (name := params.name) is None:
            raise missing_parameter("name")
        tool = await self._toolbox.find(name)
        if tool is None:
            raise invalid_params(f"Unknown tool: {name[:100]}", "name")
        deferral: TaskDeferral | None = None
        if is_modern(revision) and declares_tasks(params.meta) and is_bash(tool):
            deferral = context.deferral = TaskDeferral(context, self.tasks)
        tool_context = ToolContext("", timeout=math.inf, request=context)
        with progress_of(context, params.meta):
            tool_result, encoded = await execute(tool, params.arguments, tool_context)
        if deferral is not None and deferral.created is not None:
            return deferral.created
        result = call_result(tool_result, encoded if revision >= STRUCTURED_SINCE else None)
        return complete(result) if is_modern(revision) else result


def _as_of(revision: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's description with only the members that exist in `revision`."""
    unknown: set[str] = set()
    if revision < ANNOTATIONS_SINCE:
        unknown.add("annotations")
    if revision < STRUCTURED_SINCE:
        unknown.add("outputSchema")
    return {key: value for key, value in tool.items() if key not in unknown}
