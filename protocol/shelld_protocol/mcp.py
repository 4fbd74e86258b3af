"""Defines the revisions, requests and results of the Model Context Protocol.

Pure. The protocol has two eras. Up to 2025-11-25, a handshake (``initialize``) negotiates the
revision. Since 2026-07-28 (the modern era), every request names its revision in ``_meta``. Results
omit the members that a revision does not define.

References: https://modelcontextprotocol.io/specification/2026-07-28, .../2025-11-25 and earlier.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

from shelld_protocol.structs import Params, Result

MODERN_REVISIONS: Final = ("2026-07-28",)
HANDSHAKE_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

# Revisions are ISO dates, so the code compares known revisions as strings.
ANNOTATIONS_SINCE: Final = "2025-03-26"
STRUCTURED_SINCE: Final = "2025-06-18"

PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN_KEY: Final = "progressToken"

CacheScope: TypeAlias = Literal["public", "private"]


# -- params -----------------------------------------------------------------------------------


class McpParams(Params, forbid_unknown_fields=False, kw_only=True):
    """Base of all MCP params, and the params of ``server/discover``.

    Unknown members are ignored, because a later revision may add members. The types require no
    member, because the daemon must first read `meta`, which tells whether the request is for an MCP
    method.
    """

    meta: Annotated[dict[str, Any], Meta(description="Metadata of the MCP request.")] | None = (
        field(name="_meta", default=None)
    )


class PingParams(McpParams, forbid_unknown_fields=True, kw_only=True):
    """Refuses unknown members, unlike other MCP params.

    ``ping`` is also a method of shelld, and shelld's own methods refuse unknown members.
    """


class InitializeParams(McpParams, kw_only=True):
    protocol_version: str | None = field(name="protocolVersion", default=None)
    capabilities: dict[str, Any] | None = None
    client_info: dict[str, Any] | None = field(name="clientInfo", default=None)


class ListToolsMcpParams(McpParams, kw_only=True):
    cursor: str | None = None


class CallToolMcpParams(McpParams, kw_only=True):
    name: str | None = None
    arguments: dict[str, Any] | None = None


# -- results ----------------------------------------------------------------------------------


class Implementation(Result):
    name: str
    version: str


class McpResult(Result, kw_only=True):
    """Base of all MCP results. `result_type` and `meta` are set only in the modern era."""

    result_type: Literal["complete", "task"] | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class InitializeResult(McpResult, kw_only=True):
    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str


class DiscoverResult(McpResult, kw_only=True):
    """Answers ``server/discover``. A client may cache the result for `ttl_ms` milliseconds."""

    supported_versions: list[str]
    capabilities: dict[str, Any]
    instructions: str
    ttl_ms: int
    cache_scope: CacheScope


class ListToolsMcpResult(McpResult, kw_only=True):
    tools: list[dict[str, Any]]
    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None


class TextContent(Struct, tag_field="type", tag="text"):
    text: str


class CallToolMcpResult(McpResult, kw_only=True):
    """Answers ``tools/call``. `structured_content` is a `ToolResult` as JSON."""

    content: list[TextContent]
    is_error: bool
    structured_content: Raw | None = None
