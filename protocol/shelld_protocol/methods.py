"""One params Struct and one result Struct per method, and the table that joins them.

These types are the documentation of the wire: the daemon validates with them, the client decodes
with them, and the OpenRPC document is generated from them.

Params keep the names that models know (snake_case). Result members are camelCase on the wire and
snake_case in Python; an id keeps one name in both directions. Every duration is in milliseconds,
every size and offset in bytes.

A parameter whose type does not admit None may still be sent as null, which means absent; where
the type admits None and the default is another value (`session`), null is a value of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Struct

MIN_TIMEOUT_MS: Final = 1_000
MAX_TIMEOUT_MS: Final = 600_000
MAX_WAIT_MS: Final = 600_000
MAX_GRACE_MS: Final = 60_000
MAX_READ_BYTES: Final = 16 * 1024 * 1024
DEFAULT_READ_BYTES: Final = 1024 * 1024

Status: TypeAlias = Literal["pending", "running", "completed", "failed", "killed", "timeout"]
SignalName: TypeAlias = Literal["TERM", "INT", "HUP", "QUIT", "KILL", "USR1", "USR2", "ABRT"]
# "lost": what guarded the command was killed, and the command with it. "oom": the kernel killed it
# for want of memory. Left out otherwise.
EndReason: TypeAlias = Literal["lost", "oom"]
# "re" is Python's, which backtracks, for what the linear-time engine RE2 refuses.
FilterEngine: TypeAlias = Literal["re2", "re"]
GuardVerdict: TypeAlias = Literal["allow", "block", "unresolved"]

_WIRE_NAMES: Final = frozenset({"bash_id", "shell_id"})


def _wire_name(name: str) -> str:
    if name in _WIRE_NAMES:
        return name
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


class Params(Struct, forbid_unknown_fields=True, kw_only=False):
    """Base of all params. `aliases` maps another accepted name to the parameter it stands for."""

    aliases: ClassVar[dict[str, str]] = {}


class Result(Struct, rename=_wire_name, omit_defaults=True):
    """Base of all results. A member with a default is left out while it has that value."""


class NoParams(Params):
    """Of methods that take nothing: `params` may be missing, null, [] or {}."""


class Empty(Result):
    """The result ``{}``."""


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
    survivors: list[int] = []


# -- about the daemon -------------------------------------------------------------------------


class Limits(Result):
    max_message_bytes: int
    max_in_flight: int
    max_shells: int
    max_retained: int
    retain_seconds: int
    retain_bytes: int
    retain_total_bytes: int
    default_timeout_ms: int
    grace_ms: int


class Counters(Result):
    """Since the daemon started; but `shells_running`, `shells_retained` and `spool_bytes`, the disk
    space that output takes, are of this moment.
    """

    requests: int
    shells_started: int
    # Of those, how many had a bash that was waiting for them.
    spares_used: int
    shells_running: int
    shells_retained: int
    spool_bytes: int


class Containment(Result):
    """What guarantees that nothing outlives its command, as found out on this machine.

    `mechanism`: "subreaper" (Linux: all descendants, wherever they hide, and the end of the last
    one is proved) or "process-group" (elsewhere: what stays in the command's session, or can be
    traced to it). `cgroup_kill`: the kernel ends all of a command's processes at once, also those
    that fork faster than they are found or have changed their user.
    """

    mechanism: Literal["subreaper", "process-group"]
    cgroup_kill: bool


class ServerInfoResult(Result):
    """`containment` is null while no process can be started to find it out."""

    name: str
    version: str
    pid: int
    uptime_ms: int
    limits: Limits
    containment: Containment | None
    counters: Counters


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
    "server_info": MethodTypes(
        NoParams, (ServerInfoResult,), "Tell the daemon's version, limits and counters."
    ),
    "ping": MethodTypes(NoParams, (Empty,), "Answer at once."),
    "rpc.discover": MethodTypes(NoParams, (dict[str, Any],), "Return this OpenRPC document."),
    "shutdown": MethodTypes(NoParams, (), "Refuse new requests; `exit` is expected next."),
    "exit": MethodTypes(NoParams, (), "End the daemon."),
}
