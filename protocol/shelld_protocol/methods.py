"""One params Struct and one result Struct per method, and the table that joins them.

These types are the documentation of the wire: the daemon validates with them, the client decodes
with them, and the OpenRPC document is generated from them. `structs` says what they have in common.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta

from shelld_protocol.about import ServerInfoResult
from shelld_protocol.structs import (
    DEFAULT_READ_BYTES,
    MAX_GRACE_MS,
    MAX_READ_BYTES,
    MAX_TIMEOUT_MS,
    MAX_WAIT_MS,
    MIN_TIMEOUT_MS,
    Empty,
    EndReason,
    FilterEngine,
    GuardVerdict,
    NoParams,
    Params,
    Result,
    SignalName,
    Status,
)
from shelld_protocol.tool_methods import CallToolParams, ListToolsParams, ListToolsResult
from shelld_protocol.tools import ToolResult

# -- bash -------------------------------------------------------------------------------------


class BashParams(Params):
    command: Annotated[
        str, Meta(min_length=1, description="The command, run with the semantics of bash -c.")
    ]
    description: Annotated[str, Meta(description="What the command does, echoed.")] | None = None
    timeout: (
        Annotated[
            int,
            Meta(
                ge=MIN_TIMEOUT_MS,
                le=MAX_TIMEOUT_MS,
                description="Milliseconds until on_timeout applies. Default: the daemon's "
                "--default-timeout in the foreground, none in the background.",
            ),
        ]
        | None
    ) = None
    run_in_background: Annotated[
        bool, Meta(description="Answer at once; read the output with bash_output.")
    ] = False
    cwd: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="Working directory of this command; relative to the session's.",
            ),
        ]
        | None
    ) = None
    env: (
        Annotated[
            dict[str, str | None],
            Meta(description="Environment of this command, over the session's; null removes."),
        ]
        | None
    ) = None
    session: Annotated[
        str | None, Meta(description="The session the command belongs to; null for none.")
    ] = "main"
    stdin: Annotated[str, Meta(description="Given to the command, then end of file.")] | None = None
    strip_ansi: Annotated[bool, Meta(description="Remove terminal escape sequences.")] = True
    dry_run: Annotated[bool, Meta(description="Validate and judge the command only.")] = False
    on_timeout: Annotated[
        Literal["kill", "background"],
        Meta(description="At the timeout: kill the command, or answer and let it go on."),
    ] = "kill"


class Usage(Result):
    """What the command and the children it waited for used, from wait4(2)."""

    user_ms: int
    system_ms: int
    max_rss_bytes: int


class BashResult(Result):
    """Of a foreground command. Exactly one of `exit_code` and `signal` is set.

    `spool_error`: the errno name for which output was dropped that the limits would have kept.
    `warning`: why the guard would have blocked the command, had it not been told only to warn.
    """

    bash_id: str
    command: str
    stdout: str
    stderr: str
    exit_code: int | None
    signal: str | None
    status: Status
    duration_ms: int
    truncated: bool
    stdout_bytes: int
    stderr_bytes: int
    cwd: str
    leftover: list[int]
    usage: Usage
    description: str | None = None
    warning: str | None = None
    reason: EndReason | None = None
    spool_error: str | None = None


class BackgroundResult(Result):
    """Of a command that was started in, or at its timeout moved to, the background."""

    bash_id: str
    command: str
    status: Status
    pid: int
    message: str
    description: str | None = None
    warning: str | None = None


class DryRunResult(Result):
    """Of `dry_run`: nothing ran. `verdict` is the guard's."""

    dry_run: bool
    command: str
    stdout: str
    verdict: GuardVerdict
    description: str | None = None


# -- bash_output ------------------------------------------------------------------------------

Offset: TypeAlias = Annotated[
    int, Meta(ge=0, description="Read this stream from here; moves no shared position.")
]


class BashOutputParams(Params):
    bash_id: Annotated[str, Meta(description="The id that bash returned.")]
    filter: (
        Annotated[
            str,
            Meta(
                description="A regular expression (RE2, or else Python's): only lines that it "
                "matches are returned, the others are consumed too."
            ),
        ]
        | None
    ) = None
    wait: Annotated[
        int, Meta(ge=0, le=MAX_WAIT_MS, description="Milliseconds to wait for `until`.")
    ] = 0
    until: Annotated[
        Literal["output", "exit"], Meta(description="What to wait for: anything to return, or exit")
    ] = "output"
    stdout_offset: Offset | None = None
    stderr_offset: Offset | None = None
    max_bytes: Annotated[
        int, Meta(ge=1, le=MAX_READ_BYTES, description="Per stream; the rest stays unread.")
    ] = DEFAULT_READ_BYTES
    strip_ansi: Annotated[bool, Meta(description="Remove terminal escape sequences.")] = True


class OutputRange(Result):
    """Byte offsets into all that the command wrote to one stream.

    `start` is where the read was asked to begin, `end` where the next one goes on, `dropped` how
    many bytes between them the retention limit had discarded.
    """

    start: int
    end: int
    dropped: int


class BashOutputResult(Result):
    """`filter_engine` is the one that matched, `spool_error` as in `BashResult`."""

    bash_id: str
    command: str
    stdout: str
    stderr: str
    status: Status
    is_running: bool
    exit_code: int | None
    signal: str | None
    duration_ms: int
    stdout_range: OutputRange
    stderr_range: OutputRange
    dropped_bytes: int
    more: bool
    reason: EndReason | None = None
    filter_engine: FilterEngine | None = None
    spool_error: str | None = None


# -- kill_shell, list_shells ------------------------------------------------------------------


class KillShellParams(Params):
    aliases: ClassVar[dict[str, str]] = {"bash_id": "shell_id"}

    shell_id: Annotated[str, Meta(description="The id that bash returned.")]
    signal: Annotated[SignalName, Meta(description="Sent first, to the whole group.")] = "TERM"
    grace: (
        Annotated[
            int,
            Meta(
                ge=0, le=MAX_GRACE_MS, description="Milliseconds before SIGKILL; 1000 unless given."
            ),
        ]
        | None
    ) = None


class KillShellResult(Result):
    """`survivors` lists the pids that were still alive at the deadline; empty is success."""

    shell_id: str
    command: str
    status: Status
    already_stopped: bool
    exit_code: int | None
    signal: str | None
    duration_ms: int
    survivors: list[int]
    message: str
    reason: EndReason | None = None


class ListShellsParams(Params):
    session: Annotated[str, Meta(description="Only the shells of this session.")] | None = None


class ShellInfo(Result):
    """`started_at` is RFC 3339 in UTC; `leftover` the pids that outlived an ended shell."""

    bash_id: str
    command: str
    description: str | None
    session: str | None
    status: Status
    is_running: bool
    exit_code: int | None
    signal: str | None
    pid: int | None
    cwd: str
    started_at: str
    duration_ms: int
    unread_bytes: int
    leftover: list[int]
    reason: EndReason | None = None


class ListShellsResult(Result):
    shells: list[ShellInfo]


# -- explain_command --------------------------------------------------------------------------


class ExplainCommandParams(Params):
    command: Annotated[str, Meta(min_length=1, description="The command; it is not run.")]
    session: Annotated[
        str | None, Meta(description="The session it would run in; null for none.")
    ] = "main"
    env: Annotated[dict[str, str | None], Meta(description="As in bash; null removes.")] | None = (
        None
    )
    cwd: Annotated[str, Meta(min_length=1, description="As in bash.")] | None = None


class ExplainCommandResult(Result):
    """`rule`, `segment` (the text that the rule is about) and `reason` say why, if anything does.

    `trace` are the commands that were found, as they would run.
    """

    verdict: GuardVerdict
    rule: str | None
    segment: str | None
    reason: str | None
    trace: list[str]


# -- sessions ---------------------------------------------------------------------------------


class GetSessionParams(Params):
    session: Annotated[str, Meta(description="The session to look at.")] = "main"


class GetSessionResult(Result):
    """What the next command of a session starts from.

    `env`: the exported variables that differ from the daemon's own; null for those removed.
    `shells`: the ids of its shells that are running.
    """

    session: str
    cwd: str
    env: dict[str, str | None]
    shells: list[str]


class SessionInfo(Result):
    """`shells`: how many are running."""

    session: str
    cwd: str
    shells: int


class ListSessionsResult(Result):
    sessions: list[SessionInfo]


class CloseSessionParams(Params):
    session: Annotated[str, Meta(description="The session to close.")]


class CloseSessionResult(Result):
    """`killed`: how many shells were running or had processes left.

    `survivors`: pids that were still alive at the deadline; left out if there are none.
    """

    session: str
    killed: int
    survivors: list[int] = []  # noqa: RUF012 - msgspec copies it


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
