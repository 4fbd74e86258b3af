"""``bash``, ``bash_output``, ``kill_shell`` and ``list_shells``: their params and results."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.structs import (
    DEFAULT_READ_BYTES,
    MAX_GRACE_MS,
    MAX_IDLE_TIMEOUT_MS,
    MAX_READ_BYTES,
    MAX_TIMEOUT_MS,
    MAX_WAIT_MS,
    MIN_TIMEOUT_MS,
    Command,
    Description,
    DurationMs,
    EndSignal,
    ExitCode,
    FilterEngine,
    GuardVerdict,
    GuardWarning,
    IsRunning,
    KeptCommand,
    Leftover,
    Params,
    Reason,
    Result,
    ShellId,
    SignalName,
    SpoolError,
    StateReason,
    Status,
    Survivors,
)

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
    idle_timeout: (
        Annotated[
            int,
            Meta(
                ge=MIN_TIMEOUT_MS,
                le=MAX_IDLE_TIMEOUT_MS,
                description="Milliseconds without output until on_timeout applies. Default: none.",
            ),
        ]
        | None
    ) = None


class Usage(Result):
    """What the command and the children it waited for used, from wait4(2)."""

    user_ms: Annotated[int, Meta(description="Milliseconds of processor time.")]
    system_ms: Annotated[int, Meta(description="Milliseconds of processor time in the kernel.")]
    max_rss_bytes: Annotated[int, Meta(description="Of the largest process.")]


class BashResult(Result):
    """Of a foreground command. Either there is an exit code or a signal."""

    bash_id: ShellId
    command: Command
    stdout: Annotated[str, Meta(description="The head of it, up to 1,048,576 bytes of UTF-8.")]
    stderr: Annotated[str, Meta(description="The head of it, up to 1,048,576 bytes of UTF-8.")]
    exit_code: ExitCode
    signal: EndSignal
    status: Status
    duration_ms: DurationMs
    truncated: Annotated[bool, Meta(description="Whether bash_output has more of either.")]
    stdout_bytes: Annotated[int, Meta(description="All that the command wrote.")]
    stderr_bytes: Annotated[int, Meta(description="All that the command wrote.")]
    cwd: Annotated[str, Meta(description="Where the command was started.")]
    leftover: Leftover
    usage: Usage
    session_cwd: Annotated[
        str | None,
        Meta(
            description="The directory in which the session's next command will start. Left out "
            "for a command of no session."
        ),
    ] = None
    state_kept: Annotated[
        bool | None,
        Meta(
            description="False if the command ended by itself but its session does not remember "
            "what it left. Left out otherwise."
        ),
    ] = None
    state_reason: StateReason = None
    description: Description = None
    warning: GuardWarning = None
    reason: Reason = None
    spool_error: SpoolError = None


class BackgroundResult(Result):
    """Of a command that was started in, or at its timeout moved to, the background."""

    bash_id: ShellId
    command: Command
    status: Status
    pid: Annotated[int, Meta(description="Of its bash, which leads a session of its own.")]
    message: Annotated[str, Meta(description="For people and models.")]
    description: Description = None
    warning: GuardWarning = None
    reason: Reason = None


class DryRunResult(Result):
    """Of `dry_run`: nothing ran."""

    dry_run: Annotated[bool, Meta(description="Always true.")]
    command: Command
    stdout: Annotated[str, Meta(description="What would have been done.")]
    verdict: Annotated[GuardVerdict, Meta(description="What the guard says of it.")]
    description: Description = None


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
    """Byte offsets into all that the command wrote to one stream."""

    start: Annotated[int, Meta(description="Where the read was asked to begin.")]
    end: Annotated[int, Meta(description="Where the next one goes on.")]
    dropped: Annotated[int, Meta(description="Bytes between them that are not kept any more.")]


class BashOutputResult(Result):
    """With `filter`, the ranges are of what was consumed."""

    bash_id: ShellId
    command: KeptCommand
    stdout: Annotated[str, Meta(description="What is new, or was asked for.")]
    stderr: Annotated[str, Meta(description="What is new, or was asked for.")]
    status: Status
    is_running: IsRunning
    exit_code: ExitCode
    signal: EndSignal
    duration_ms: DurationMs
    stdout_range: OutputRange
    stderr_range: OutputRange
    dropped_bytes: Annotated[int, Meta(description="Of both ranges.")]
    more: Annotated[bool, Meta(description="Whether max_bytes has left something unread.")]
    reason: Reason = None
    filter_engine: Annotated[FilterEngine | None, Meta(description="The one that matched.")] = None
    spool_error: SpoolError = None


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
    """Without survivors, everything that the command started is dead."""

    shell_id: ShellId
    command: KeptCommand
    status: Status
    already_stopped: Annotated[bool, Meta(description="Whether there was nothing to kill.")]
    exit_code: ExitCode
    signal: EndSignal
    duration_ms: DurationMs
    survivors: Survivors
    message: Annotated[str, Meta(description="For people and models.")]
    reason: Reason = None


class ListShellsParams(Params):
    session: Annotated[str, Meta(description="Only the shells of this session.")] | None = None


class ShellInfo(Result):
    """One shell, running or retained."""

    bash_id: ShellId
    command: Annotated[
        str,
        Meta(description="The command: at most 4,096 characters of it, then ``... (truncated)``."),
    ]
    description: Annotated[str | None, Meta(description="As it was given; cut like the command.")]
    session: Annotated[str | None, Meta(description="Null for none.")]
    status: Status
    is_running: IsRunning
    exit_code: ExitCode
    signal: EndSignal
    pid: Annotated[int | None, Meta(description="Of its bash, once that was started.")]
    cwd: Annotated[str, Meta(description="Where it was started.")]
    started_at: Annotated[str, Meta(description="RFC 3339, in UTC.")]
    duration_ms: DurationMs
    unread_bytes: Annotated[int, Meta(description="Of both streams.")]
    leftover: Leftover
    reason: Reason = None


class ListShellsResult(Result):
    shells: Annotated[list[ShellInfo], Meta(description="In the order of their start.")]
