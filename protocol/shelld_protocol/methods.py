"""Defines the table of shelld's own methods, with the params, results and summary of each.

The table's types define the protocol on the wire. The daemon validates params with these types, and
the client decodes results with them. The OpenRPC document and the reference are generated from
them. `structs` has the types that several methods share.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shelld_protocol.about import ServerInfoResult
from shelld_protocol.event_methods import SubscribeParams, SubscribeResult, UnsubscribeParams
from shelld_protocol.input_methods import (
    ResizeShellParams,
    ResizeShellResult,
    WriteStdinParams,
    WriteStdinResult,
)
from shelld_protocol.screen_methods import ReadScreenParams, ReadScreenResult
from shelld_protocol.session_methods import (
    CloseSessionParams,
    CloseSessionResult,
    ConfigureSessionParams,
    ConfigureSessionResult,
    ExplainCommandParams,
    ExplainCommandResult,
    GetSessionParams,
    GetSessionResult,
    ListSessionsResult,
)
from shelld_protocol.shell_methods import (
    BackgroundParams,
    BackgroundResult,
    BashOutputParams,
    BashOutputResult,
    BashParams,
    BashResult,
    DryRunResult,
    HandOverResult,
    KillShellParams,
    KillShellResult,
    ListShellsParams,
    ListShellsResult,
)
from shelld_protocol.structs import Empty, NoParams, Params
from shelld_protocol.target_methods import (
    AddTargetParams,
    AddTargetResult,
    ListTargetsParams,
    ListTargetsResult,
    RemoveTargetParams,
    RemoveTargetResult,
)
from shelld_protocol.tool_methods import CallToolParams, ListToolsParams, ListToolsResult
from shelld_protocol.tools import ToolResult


class MethodTypes(NamedTuple):
    """Holds the types of a method.

    `results` lists the possible types of the result; it is empty if the result is null.
    """

    params: type[Params]
    results: tuple[Any, ...]
    summary: str


METHODS: Final[dict[str, MethodTypes]] = {
    "bash": MethodTypes(
        BashParams, (BashResult, BackgroundResult, DryRunResult), "Run a command in bash."
    ),
    "bash_output": MethodTypes(
        BashOutputParams, (BashOutputResult,), "Read the output of a shell since the last read."
    ),
    "write_stdin": MethodTypes(
        WriteStdinParams,
        (WriteStdinResult,),
        "Write to a shell's standard input, then read its output.",
    ),
    "resize_shell": MethodTypes(
        ResizeShellParams, (ResizeShellResult,), "Change the size of a shell's terminal."
    ),
    "read_screen": MethodTypes(
        ReadScreenParams, (ReadScreenResult,), "Return what a shell's terminal shows."
    ),
    "kill_shell": MethodTypes(
        KillShellParams, (KillShellResult,), "Kill a shell and every process it started."
    ),
    "list_shells": MethodTypes(
        ListShellsParams, (ListShellsResult,), "List running and retained shells, oldest first."
    ),
    "background": MethodTypes(
        BackgroundParams,
        (HandOverResult,),
        "Answer a foreground call now, and let its command continue in the background.",
    ),
    "subscribe": MethodTypes(
        SubscribeParams, (SubscribeResult,), "Send events of shells, or continue a subscription."
    ),
    "unsubscribe": MethodTypes(UnsubscribeParams, (Empty,), "End a subscription."),
    "configure_session": MethodTypes(
        ConfigureSessionParams,
        (ConfigureSessionResult,),
        "Choose the environment of a session, before its first command.",
    ),
    "get_session": MethodTypes(
        GetSessionParams,
        (GetSessionResult,),
        "Return the state in which a session's next command starts.",
    ),
    "list_sessions": MethodTypes(NoParams, (ListSessionsResult,), "List the sessions."),
    "close_session": MethodTypes(
        CloseSessionParams,
        (CloseSessionResult,),
        "Kill a session's shells and their leftover processes, and delete the session.",
    ),
    "explain_command": MethodTypes(
        ExplainCommandParams, (ExplainCommandResult,), "Return the guard's verdict on a command."
    ),
    "add_target": MethodTypes(
        AddTargetParams, (AddTargetResult,), "Name another daemon, to pass requests on to it."
    ),
    "list_targets": MethodTypes(ListTargetsParams, (ListTargetsResult,), "List the targets."),
    "remove_target": MethodTypes(
        RemoveTargetParams, (RemoveTargetResult,), "End a target's daemon and forget the target."
    ),
    "list_tools": MethodTypes(
        ListToolsParams, (ListToolsResult,), "Return the tool definitions for a language model."
    ),
    "call_tool": MethodTypes(
        CallToolParams, (ToolResult,), "Execute a tool; a failure is a result, not an error."
    ),
    "server_info": MethodTypes(
        NoParams, (ServerInfoResult,), "Return the daemon's version, limits and counters."
    ),
    "ping": MethodTypes(NoParams, (Empty,), "Answer at once."),
    "rpc.discover": MethodTypes(NoParams, (dict[str, Any],), "Return this OpenRPC document."),
    "shutdown": MethodTypes(NoParams, (), "Refuse new requests; send `exit` next."),
    "exit": MethodTypes(NoParams, (), "End the daemon."),
}
