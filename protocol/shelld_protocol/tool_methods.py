"""The tool layer on the wire: ``list_tools`` and ``call_tool``, whose result is a `ToolResult`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.structs import Params, Result

ToolFormat: TypeAlias = Literal["openai", "anthropic", "mcp"]


class ListToolsParams(Params):
    format: Annotated[ToolFormat, Meta(description="Whose way to describe a tool.")] = "openai"


class ListToolsResult(Result):
    """`tools`: what the API of that provider takes as its tools."""

    tools: list[dict[str, Any]]


class CallContext(Params):
    """The members of `ExecutionContext`, each of which may be left out."""

    working_dir: Annotated[str, Meta(description="Where commands of this call run.")] | None = None
    session_id: (
        Annotated[str, Meta(description="The session of the call; main unless given.")] | None
    ) = None
    agent_id: Annotated[str, Meta(description="The caller's own.")] | None = None
    dry_run: Annotated[bool, Meta(description="Validate and judge the call only.")] = False
    timeout: (
        Annotated[
            float,
            Meta(ge=0, description="Seconds for the call, unless the tool's own timeout is given."),
        ]
        | None
    ) = None
    max_output_size: (
        Annotated[int, Meta(ge=1, description="Characters of output at most.")] | None
    ) = None
    metadata: Annotated[dict[str, Any], Meta(description="The caller's own.")] | None = None


class CallToolParams(Params):
    name: Annotated[str, Meta(description="A tool's name, or another one that it is known by.")]
    arguments: (
        Annotated[dict[str, Any], Meta(description="As the tool's schema has them.")] | None
    ) = None
    context: Annotated[CallContext, Meta(description="StartState of the call.")] | None = None
