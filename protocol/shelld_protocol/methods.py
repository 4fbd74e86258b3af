"""The table of the plain methods: of each, its params, the shapes of its result, and what it does.

These types are the documentation of the wire: the daemon validates with them, the client decodes
with them, and the OpenRPC document and the reference are generated from them. `structs` says what
they have in common.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shelld_protocol.about import ServerInfoResult
from shelld_protocol.session_methods import (
    CloseSessionParams,
    CloseSessionResult,
    ExplainCommandParams,
    ExplainCommandResult,
    GetSessionParams,
    GetSessionResult,
    ListSessionsResult,
)
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputParams,
    BashOutputResult,
    BashParams,
    BashResult,
    DryRunResult,
    KillShellParams,
    KillShellResult,
    ListShellsParams,
    ListShellsResult,
)
from shelld_protocol.structs import Empty, NoParams, Params
from shelld_protocol.tool_methods import CallToolParams, ListToolsParams, ListToolsResult
from shelld_protocol.tools import ToolResult


class MethodTypes(NamedTuple):
    """`results` lists the shapes of an answer; empty where it is null."""

    params: type[Params]
    results: tuple[Any, ...]
    summary: str


METHODS: Final[dict[str, MethodTypes]] = {
    "bash": MethodTypes(
        BashParams, (BashResult, BackgroundResult, DryRunResult), "Run a command in bash."
    ),
    "bash_output": MethodTypes(
        BashOutputParams, (BashOutputResult,), "Read what a shell wrote since the last read."
    ),
    "kill_shell": MethodTypes(
        KillShellParams, (KillShellResult,), "End a shell and every process it started."
    ),
    "list_shells": MethodTypes(
        ListShellsParams, (ListShellsResult,), "List running and retained shells in start order."
    ),
    "get_session": MethodTypes(
        GetSessionParams, (GetSessionResult,), "Tell what a session's next command starts from."
    ),
    "list_sessions": MethodTypes(NoParams, (ListSessionsResult,), "List the sessions."),
    "close_session": MethodTypes(
        CloseSessionParams,
        (CloseSessionResult,),
        "Kill a session's shells and all they left, and forget the session.",
    ),
    "explain_command": MethodTypes(
        ExplainCommandParams, (ExplainCommandResult,), "Tell what the guard sees in a command."
    ),
    "list_tools": MethodTypes(
        ListToolsParams, (ListToolsResult,), "Describe the tools for a language model."
    ),
    "call_tool": MethodTypes(
        CallToolParams, (ToolResult,), "Execute a tool; what goes wrong is a failed result."
    ),
    "server_info": MethodTypes(
        NoParams, (ServerInfoResult,), "Tell the daemon's version, limits and counters."
    ),
    "ping": MethodTypes(NoParams, (Empty,), "Answer at once."),
    "rpc.discover": MethodTypes(NoParams, (dict[str, Any],), "Return this OpenRPC document."),
    "shutdown": MethodTypes(NoParams, (), "Refuse new requests; `exit` is expected next."),
    "exit": MethodTypes(NoParams, (), "End the daemon."),
}
