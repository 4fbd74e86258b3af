"""Defines the params and results of ``list_tools`` and ``call_tool``.

``call_tool`` returns a `ToolResult`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.structs import Params, Result

ToolFormat: TypeAlias = Literal["openai", "anthropic", "mcp"]


class ListToolsParams(Params):
    format: Annotated[ToolFormat, Meta(description="The provider whose format to use.")] = "openai"


class ListToolsResult(Result):
    """`tools`: the definitions, as the API of the chosen provider takes them."""

    tools: list[dict[str, Any]]


class CallContext(Params):
    """The members of `ExecutionContext`, all optional."""

    working_dir: Annotated[str, Meta(description="Working directory for this call.")] | None = None
    session_id: (
        Annotated[str, Meta(description="The session of the call. Default: main.")] | None
    ) = None
    agent_id: Annotated[str, Meta(description="For the caller's own use.")] | None = None
    dry_run: Annotated[
        bool, Meta(description="Only validate the call and let the guard judge it.")
    ] = False
    timeout: (
        Annotated[
            float,
            Meta(ge=0, description="Timeout in seconds, unless the arguments have a timeout."),
        ]
        | None
    ) = None
    max_output_size: (
        Annotated[int, Meta(ge=1, description="Maximum length of the output in characters.")] | None
    ) = None
    metadata: Annotated[dict[str, Any], Meta(description="For the caller's own use.")] | None = None


class CallToolParams(Params):
    name: Annotated[str, Meta(description="Name or alias of the tool.")]
    arguments: (
        Annotated[dict[str, Any], Meta(description="Arguments that match the tool's schema.")]
        | None
    ) = None
    context: Annotated[CallContext, Meta(description="Execution context of the call.")] | None = (
        None
    )
