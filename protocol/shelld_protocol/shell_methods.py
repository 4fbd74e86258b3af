"""Defines the params and results of ``bash``, ``bash_output`` and other methods of shells."""

from __future__ import annotations

import base64
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.event_methods import EventName
from shelld_protocol.sandboxes import Denials, Enforcement, Sandbox
from shelld_protocol.structs import (
    DEFAULT_COLS,
    DEFAULT_QUIET_MS,
    DEFAULT_READ_BYTES,
    DEFAULT_ROWS,
    DEFAULT_SESSION,
    MAX_GRACE_MS,
    MAX_IDLE_TIMEOUT_MS,
    MAX_KEY_CHARACTERS,
    MAX_READ_BYTES,
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    Cols,
    Command,
    Description,
    DurationMs,
    EndSignal,
    Enforced,
    ExitCode,
    FilterEngine,
    GuardVerdict,
    GuardWarning,
    IsRunning,
    IsStopped,
    KeptCommand,
    Leftover,
    Listener,
    Matched,
    OnPrompt,
    Params,
    Pattern,
    Port,
    PromptNow,
    QuietMs,
    Reached,
    ReadReason,
    Reason,
    RequestId,
    Result,
    Rows,
    ShellId,
    SignalName,
    SpoolError,
    StateReason,
    Status,
    StripAnsi,
    Survivors,
    Until,
    Usage,
    Wait,
)
from shelld_protocol.target_methods import Target

# The number of bytes that are not UTF-8. In the text, each invalid sequence is one U+FFFD.
InvalidBytes: TypeAlias = Annotated[
    int | None,
    Meta(
        description="Bytes of both streams that are not UTF-8, in all the output that the result "
        "covers. Left out if there are none."
    ),
]
Encoding: TypeAlias = Literal["utf-8", "base64"]

# -- bash -------------------------------------------------------------------------------------


class BashParams(Params):
    command: Annotated[
        str, Meta(min_length=1, description="The command, run with the semantics of bash -c.")
    ]
    description: (
        Annotated[str, Meta(description="What the command does; echoed in results.")] | None
    ) = None
    timeout: (
        Annotated[
            int,
            Meta(
                ge=MIN_TIMEOUT_MS,
                le=MAX_TIMEOUT_MS,
                description="Milliseconds until on_timeout applies. Default: the daemon's "
                "--default-timeout in the foreground; none in the background.",
            ),
        ]
        | None
    ) = None
    run_in_background: Annotated[
        bool, Meta(description="Return at once; read the output with bash_output.")
    ] = False
    cwd: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="Working directory of this command, relative to the session's.",
            ),
        ]
        | None
    ) = None
    env: (
        Annotated[
            dict[str, str | None],
            Meta(
                description="Variables to set for this command, on top of the session's "
                "environment; null removes a variable."
            ),
        ]
        | None
    ) = None
    session: Annotated[
        str | None, Meta(description="The session of the command; null for none.")
    ] = DEFAULT_SESSION
    stdin: (
        Annotated[
            str,
            Meta(
                description="Standard input of the command, followed by end of file. With tty or "
                "open_stdin, write_stdin continues it."
            ),
        ]
        | None
    ) = None
    strip_ansi: StripAnsi = True
    dry_run: Annotated[
        bool, Meta(description="Only validate the command and let the guard judge it.")
    ] = False
    on_timeout: Annotated[
        Literal["kill", "background"],
        Meta(
            description="At the timeout, kill the command, or return and let it run on. "
            "A background command is always killed."
        ),
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
    tty: Annotated[
        bool,
        Meta(
            description="Run the command in a terminal. Its only stream is stdout, and "
            "write_stdin types into it."
        ),
    ] = False
    rows: Rows = DEFAULT_ROWS
    cols: Cols = DEFAULT_COLS
    open_stdin: Annotated[
        bool,
        Meta(description="After the text of stdin, leave standard input open for write_stdin."),
    ] = False
    on_prompt: Annotated[
        OnPrompt,
        Meta(
            description="What to do once it is proved that the command waits for input: nothing; "
            "answer now, as for a background start; or kill the command. Needs tty or open_stdin."
        ),
    ] = "wait"
    notify: (
        Annotated[
            list[EventName],
            Meta(
                description="The events to send about this command, as subscribe does. They have "
                "the id of this request.",
            ),
        ]
        | None
    ) = None
    merge: Annotated[
        bool,
        Meta(
            description="Give the command one pipe for both streams, so that the order of its "
            "output stays. All of it is stdout. A terminal always has one stream."
        ),
    ] = False
    stdin_base64: (
        Annotated[str, Meta(description="As stdin, for any bytes. Not together with stdin.")] | None
    ) = None
    idempotency_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=MAX_KEY_CHARACTERS,
                description="A key of the client's choice. As long as the shell is retained, "
                "another request with this key starts nothing and returns the same shell.",
            ),
        ]
        | None
    ) = None
    key_must_exist: Annotated[
        bool,
        Meta(
            description="Start nothing. If no request with this idempotency_key has started the "
            "command, the error is shell_not_found."
        ),
    ] = False
    target: Target | None = None
    sandbox: Sandbox | None = None
    on_disconnect: Annotated[
        Literal["background", "kill"],
        Meta(
            description="If a lasting daemon loses its client, move a foreground command to the "
            "background, or kill it. Any other daemon ends with its client."
        ),
    ] = "background"


class BashResult(Result):
    """The result of a foreground command. It has either an exit code or a signal."""

    bash_id: ShellId
    command: Command
    stdout: Annotated[
        str, Meta(description="The beginning of stdout, up to 1,048,576 bytes of UTF-8.")
    ]
    stderr: Annotated[
        str, Meta(description="The beginning of stderr, up to 1,048,576 bytes of UTF-8.")
    ]
    exit_code: ExitCode
    signal: EndSignal
    status: Status
    duration_ms: DurationMs
    truncated: Annotated[bool, Meta(description="Whether bash_output has more of either stream.")]
    stdout_bytes: Annotated[int, Meta(description="Total bytes that the command wrote to stdout.")]
    stderr_bytes: Annotated[int, Meta(description="Total bytes that the command wrote to stderr.")]
    cwd: Annotated[str, Meta(description="The directory in which the command started.")]
    leftover: Leftover
    usage: Usage
    session_cwd: Annotated[
        str | None,
        Meta(
            description="The directory in which the session's next command starts. Left out for "
            "a command without a session."
        ),
    ] = None
    state_kept: Annotated[
        bool | None,
        Meta(
            description="False if the command ended by itself, but its session could not keep the "
            "state that it left. Left out otherwise."
        ),
    ] = None
    state_reason: StateReason = None
    description: Description = None
    warning: GuardWarning = None
    reason: Reason = None
    limits: Enforced = None
    spool_error: SpoolError = None
    subscription: Annotated[
        str | None, Meta(description="The name of the subscription that notify has begun.")
    ] = None
    invalid_bytes: InvalidBytes = None
    sandbox: Enforcement = None
    denied: Denials = None


class BackgroundResult(Result):
    """The result of a command that was started in the background, or was moved there."""

    bash_id: ShellId
    command: Command
    status: Status
    pid: Annotated[
        int | None,
        Meta(
            description="Pid of its bash, which leads its own POSIX session. Null if the command "
            "killed its runner before the daemon knew the pid."
        ),
    ]
    message: Annotated[str, Meta(description="A sentence for people and models.")]
    prompt: PromptNow
    description: Description = None
    warning: GuardWarning = None
    reason: Reason = None
    limits: Enforced = None
    subscription: Annotated[
        str | None, Meta(description="The name of the subscription that notify has begun.")
    ] = None
    sandbox: Enforcement = None
    denied: Denials = None


class DryRunResult(Result):
    """The result of `dry_run`. Nothing ran."""

    dry_run: Annotated[bool, Meta(description="Always true.")]
    command: Command
    stdout: Annotated[str, Meta(description="A sentence that says what would have run.")]
    verdict: Annotated[GuardVerdict, Meta(description="The guard's verdict.")]
    description: Description = None


# -- bash_output ------------------------------------------------------------------------------

Offset: TypeAlias = Annotated[
    int,
    Meta(ge=0, description="Read this stream from this offset. Plain reads keep their position."),
]
MaxBytes: TypeAlias = Annotated[
    int, Meta(ge=1, le=MAX_READ_BYTES, description="Limit per stream; the rest stays unread.")
]


class BashOutputParams(Params):
    bash_id: Annotated[str, Meta(description="The id that bash returned.")]
    filter: (
        Annotated[
            str,
            Meta(
                description="Regular expression (RE2, or else Python's). Only matching lines are "
                "returned; the others are consumed, too."
            ),
        ]
        | None
    ) = None
    wait: Wait = 0
    until: Until = "output"
    stdout_offset: Offset | None = None
    stderr_offset: Offset | None = None
    max_bytes: MaxBytes = DEFAULT_READ_BYTES
    strip_ansi: StripAnsi = True
    pattern: Pattern | None = None
    quiet_ms: QuietMs = DEFAULT_QUIET_MS
    port: Port | None = None
    encoding: Annotated[
        Encoding,
        Meta(
            description="How to return output: as text, or all its bytes in base64, without "
            "strip_ansi. A filter needs text."
        ),
    ] = "utf-8"


class OutputRange(Result):
    """Byte offsets into everything that the command wrote to one stream."""

    start: Annotated[int, Meta(description="The requested start of the read.")]
    end: Annotated[int, Meta(description="Where the next read continues.")]
    dropped: Annotated[int, Meta(description="Bytes of the range that are no longer kept.")]


class BashOutputResult(Result):
    """With `filter`, the ranges cover all output that was read, not only the matching lines."""

    bash_id: ShellId
    command: KeptCommand
    stdout: Annotated[str, Meta(description="New output, or the output at the given offset.")]
    stderr: Annotated[str, Meta(description="New output, or the output at the given offset.")]
    status: Status
    is_running: IsRunning
    exit_code: ExitCode
    signal: EndSignal
    duration_ms: DurationMs
    stdout_range: OutputRange
    stderr_range: OutputRange
    dropped_bytes: Annotated[int, Meta(description="Sum of `dropped` of both ranges.")]
    more: Annotated[bool, Meta(description="Whether max_bytes left output unread.")]
    prompt: PromptNow
    reached: Reached
    matched: Annotated[
        Matched | None,
        Meta(description="The line, if a match ended the wait. Left out otherwise."),
    ] = None
    listening: Annotated[
        list[Listener] | None,
        Meta(
            description="The TCP ports of the command, if one of them ended the wait. Left out "
            "otherwise."
        ),
    ] = None
    is_stopped: IsStopped = False
    reason: Annotated[
        ReadReason | None,
        Meta(
            description="As in the result of bash. Or no_input: until is prompt, and the command "
            "takes no input."
        ),
    ] = None
    limits: Enforced = None
    filter_engine: Annotated[
        FilterEngine | None, Meta(description="The engine that matched the filter.")
    ] = None
    spool_error: SpoolError = None
    invalid_bytes: InvalidBytes = None
    encoding: Annotated[
        Encoding | None, Meta(description="base64 if the request asked for it. Left out otherwise.")
    ] = None
    sandbox: Enforcement = None
    denied: Denials = None

    @property
    def stdout_data(self) -> bytes:
        """Stdout as bytes.

        If `encoding` is base64, they are the bytes that the command wrote. Otherwise they are
        UTF-8.
        """
        return self._data(self.stdout)

    @property
    def stderr_data(self) -> bytes:
        """Stderr as bytes.

        If `encoding` is base64, they are the bytes that the command wrote. Otherwise they are
        UTF-8.
        """
        return self._data(self.stderr)

    def _data(self, text: str) -> bytes:
        return base64.b64decode(text) if self.encoding == "base64" else text.encode()


# -- background, kill_shell, list_shells ------------------------------------------------------


class BackgroundParams(Params):
    """Exactly one of `request_id` and `bash_id` is given."""

    request_id: RequestId | None = None
    bash_id: Annotated[str, Meta(description="The id of a shell in the foreground.")] | None = None


class HandOverResult(Result):
    """The foreground call was answered.

    The command continues; its timeouts and `on_prompt` no longer apply.
    """

    bash_id: ShellId


class KillShellParams(Params):
    aliases: ClassVar[dict[str, str]] = {"bash_id": "shell_id"}

    shell_id: Annotated[str, Meta(description="The id that bash returned.")]
    signal: Annotated[
        SignalName, Meta(description="First signal, sent to the whole process group.")
    ] = "TERM"
    grace: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=MAX_GRACE_MS,
                description="Milliseconds until SIGKILL. Default: the daemon's --grace (1000).",
            ),
        ]
        | None
    ) = None


class KillShellResult(Result):
    """If `survivors` is empty, every process that the command started is dead."""

    shell_id: ShellId
    command: KeptCommand
    status: Status
    already_stopped: Annotated[bool, Meta(description="True if there was nothing to kill.")]
    exit_code: ExitCode
    signal: EndSignal
    duration_ms: DurationMs
    survivors: Survivors
    message: Annotated[str, Meta(description="A sentence for people and models.")]
    reason: Reason = None


class ListShellsParams(Params):
    session: Annotated[str, Meta(description="Only the shells of this session.")] | None = None
    target: Target | None = None


class ShellInfo(Result):
    """One shell, running or retained."""

    bash_id: ShellId
    command: Annotated[
        str,
        Meta(
            description="The command. If it is longer than 4,096 characters, it is cut there and "
            "``... (truncated)`` follows."
        ),
    ]
    description: Annotated[
        str | None, Meta(description="The given description, cut like the command.")
    ]
    session: Annotated[str | None, Meta(description="Its session; null for none.")]
    status: Status
    is_running: IsRunning
    exit_code: ExitCode
    signal: EndSignal
    pid: Annotated[int | None, Meta(description="Pid of its bash; null before the start.")]
    cwd: Annotated[str, Meta(description="The directory in which it started.")]
    started_at: Annotated[str, Meta(description="Start time in RFC 3339 format, in UTC.")]
    duration_ms: DurationMs
    unread_bytes: Annotated[int, Meta(description="Unread bytes of both streams.")]
    leftover: Leftover
    prompt: PromptNow
    in_foreground: Annotated[
        bool, Meta(description="Whether a call of bash waits for it. Left out if false.")
    ] = False
    is_stopped: IsStopped = False
    reason: Reason = None


class ListShellsResult(Result):
    shells: Annotated[list[ShellInfo], Meta(description="The shells, oldest first.")]
