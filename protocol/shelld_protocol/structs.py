"""Defines the base classes of all params and results, and the types that several of these share.

Params keep the names that models know (snake_case). Result members are camelCase on the wire and
snake_case in Python. As an exception, an id has the same name (snake_case) in params and results.
Every duration is in milliseconds, every size and offset in bytes.

If the type of a parameter does not admit None, a client may still send null: the parameter then
counts as absent. If the type admits None, and the default is not None, as for `session`, null has a
meaning of its own.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct

# The default session of a command.
DEFAULT_SESSION: Final = "main"

MIN_TIMEOUT_MS: Final = 1_000
MAX_TIMEOUT_MS: Final = 600_000
MAX_IDLE_TIMEOUT_MS: Final = 3_600_000
MAX_WAIT_MS: Final = 600_000
DEFAULT_QUIET_MS: Final = 500
MAX_GRACE_MS: Final = 60_000
MAX_READ_BYTES: Final = 16 * 1024 * 1024
MIN_TERMINAL_SIZE: Final = 1
MAX_TERMINAL_SIZE: Final = 1_000
# The maximum length of an idempotency key.
MAX_KEY_CHARACTERS: Final = 128
DEFAULT_ROWS: Final = 30
DEFAULT_COLS: Final = 120
DEFAULT_READ_BYTES: Final = 1024 * 1024
# The smallest allowed limits on resources. A bash with one small program fits into them.
MIN_MEMORY_BYTES: Final = 16 * 1024 * 1024
MIN_PROCESSES: Final = 2
MIN_CPU_SECONDS: Final = 1
MIN_FILE_BYTES: Final = 0
MIN_OPEN_FILES: Final = 16
# Every client can represent this integer.
MAX_RESOURCE: Final = 2**53 - 1

# Lists show at most this many characters of a command or its description. After the shell has
# ended, the daemon keeps only these characters.
MAX_SHOWN_CHARACTERS: Final = 4_096
CUT_MARK: Final = "... (truncated)"

Status: TypeAlias = Literal["pending", "running", "completed", "failed", "killed", "timeout"]
SignalName: TypeAlias = Literal["TERM", "INT", "HUP", "QUIT", "KILL", "USR1", "USR2", "ABRT"]
# The reasons for the end of a command. "lost": the command's runner was killed, so the command or
# its leftover processes were killed, too. "oom": the kernel killed a process of the command because
# memory was short. "idle": the command wrote nothing for its `idle_timeout`. "prompt": the command
# waited for input, and `on_prompt` is "kill". "memory", "processes", "cpu", "file_size": the
# command reached this limit of its session. If a command ended in another way, `reason` is None.
EndReason: TypeAlias = Literal[
    "lost", "oom", "idle", "prompt", "memory", "processes", "cpu", "file_size"
]
# The values that `reason` can have in the result of a read. "no_input": the call asked to wait for
# a prompt, but the command takes no input.
ReadReason: TypeAlias = Literal[
    "lost", "oom", "idle", "prompt", "memory", "processes", "cpu", "file_size", "no_input"
]
# "re" is Python's backtracking engine, used for patterns that the linear-time engine RE2 refuses.
FilterEngine: TypeAlias = Literal["re2", "re"]
GuardVerdict: TypeAlias = Literal["allow", "block", "unresolved"]


class Unkept(enum.StrEnum):
    """The reasons why a session did not keep a command's state.

    `text` is the explanation in the reference.
    """

    text: str

    MISSING = ("missing", "bash could not report it, as after exec, set -r or set -n")
    INCOMPLETE = ("incomplete", "bash has reported only a part of it")
    TOO_LARGE = ("too_large", "it is more than 4 MiB")
    UNREADABLE = ("unreadable", "the daemon does not know its form")
    LOCAL_OPTIONS = ("local_options", "a function with local - has called exit")
    FUNCTIONS = (
        "functions",
        "bash has printed a function with a here-document in a form that it cannot read, and "
        "everything else is kept",
    )
    SIGNAL = ("signal", "a signal ended the command")
    UNAVAILABLE = (
        "unavailable",
        "the system has no /proc, or a limit on the size of files forbids it",
    )
    SANDBOX = ("sandbox", "the sandbox of the call was tighter than that of the session")
    BACKGROUND = ("background", "the command had moved to the background before it ended")

    def __new__(cls, reason: str, text: str) -> Unkept:
        member = str.__new__(cls, reason)
        member._value_ = reason
        member.text = text
        return member


# Params and members shared by several methods.
Rows: TypeAlias = Annotated[
    int,
    Meta(
        ge=MIN_TERMINAL_SIZE, le=MAX_TERMINAL_SIZE, description="Height of the terminal in lines."
    ),
]
Cols: TypeAlias = Annotated[
    int,
    Meta(
        ge=MIN_TERMINAL_SIZE,
        le=MAX_TERMINAL_SIZE,
        description="Width of the terminal in characters.",
    ),
]
Wait: TypeAlias = Annotated[
    int, Meta(ge=0, le=MAX_WAIT_MS, description="Milliseconds to wait for `until`.")
]
OnPrompt: TypeAlias = Literal["wait", "background", "kill"]
UntilName: TypeAlias = Literal["output", "exit", "prompt", "match", "quiet", "listening"]
Until: TypeAlias = Annotated[
    UntilName,
    Meta(
        description="What to wait for. output: output to return. exit: the end of the command. "
        "prompt: the command waits for input. match: a line that pattern matches. quiet: no output "
        "for quiet_ms. listening: a process of the command listens on a TCP port. The end of the "
        "command ends every wait."
    ),
]
Pattern: TypeAlias = Annotated[
    str,
    Meta(
        description="For until match: a regular expression (RE2, or else Python's). It is matched "
        "against the lines of the output from the start of this read."
    ),
]
QuietMs: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_WAIT_MS,
        description="For until quiet: milliseconds without output, and without input.",
    ),
]
Port: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=65_535, description="For until listening: the port. Default: any."),
]
StripAnsi: TypeAlias = Annotated[bool, Meta(description="Remove terminal escape sequences.")]
ShellId: TypeAlias = Annotated[str, Meta(description="The shell's id.")]
RequestId: TypeAlias = (
    Annotated[
        int,
        Meta(description="In place of bash_id: the id of a request in flight that runs a command."),
    ]
    | str
)
Command: TypeAlias = Annotated[str, Meta(description="The command as given.")]
KeptCommand: TypeAlias = Annotated[
    str,
    Meta(
        description="The command as given. After the last process of its shell has ended, a "
        "command longer than 4,096 characters is cut there and ``... (truncated)`` follows."
    ),
]
Description: TypeAlias = Annotated[str | None, Meta(description="The description as given.")]
ExitCode: TypeAlias = Annotated[
    int | None, Meta(description="Exit code; null while the command runs, or if a signal ended it.")
]
EndSignal: TypeAlias = Annotated[
    str | None, Meta(description="Name of the signal that ended the command, such as SIGKILL.")
]
DurationMs: TypeAlias = Annotated[
    int, Meta(description="Milliseconds from the start of the command to its end, or to now.")
]
IsRunning: TypeAlias = Annotated[bool, Meta(description="True until the command has ended.")]
IsStopped: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether a signal, such as SIGSTOP, has stopped the command's bash, or the "
        "program in the foreground of its terminal. SIGCONT continues it. Left out if false."
    ),
]
Leftover: TypeAlias = Annotated[
    list[int],
    Meta(
        description="Pids of leftover processes, after the command has ended. Empty once the last "
        "one has ended. Until then, these are the processes that were left when the daemon last "
        "looked."
    ),
]
Reason: TypeAlias = Annotated[
    EndReason | None,
    Meta(
        description="lost: the command's runner was killed, and with it the command or its "
        "leftover processes. "
        "oom: the kernel killed a process of the command because memory was short. "
        "idle: the command wrote nothing for idle_timeout. "
        "prompt: the command waited for input, and on_prompt is kill. "
        "memory, processes, cpu, file_size: the command reached that limit of its session, and was "
        "killed or has failed."
    ),
]
StateReason: TypeAlias = Annotated[
    str | None,
    Meta(
        description="Why the session did not keep the state that the command left. "
        + " ".join(f"{reason.value}: {reason.text}." for reason in Unkept)
        + " Later versions may add reasons."
    ),
]
SpoolError: TypeAlias = Annotated[
    str | None,
    Meta(
        description="Name of the errno, such as ENOSPC, if an error of the disk or of a pipe made "
        "the daemon lose output."
    ),
]
GuardWarning: TypeAlias = Annotated[
    str | None, Meta(description="With --guard warn, why the guard would have blocked the command.")
]
Survivors: TypeAlias = Annotated[
    list[int], Meta(description="Pids of processes still alive at the deadline.")
]

_WIRE_NAMES: Final = frozenset({"bash_id", "shell_id"})


def _wire_name(name: str) -> str:
    if name in _WIRE_NAMES:
        return name
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


class Params(Struct, forbid_unknown_fields=True, kw_only=False):
    """The base of all params. `aliases` maps alternative names to parameters."""

    aliases: ClassVar[dict[str, str]] = {}


class Result(Struct, rename=_wire_name, omit_defaults=True):
    """The base of all results. The JSON omits a member that equals its default."""


class ResourceLimits(Params, omit_defaults=True, frozen=True):  # type: ignore[misc]
    """Limits on the resources of commands. A limit that is left out does not apply."""

    memory_bytes: (
        Annotated[
            int,
            Meta(
                ge=MIN_MEMORY_BYTES,
                le=MAX_RESOURCE,
                description="Memory of all running commands of the session together, in bytes.",
            ),
        ]
        | None
    ) = None
    processes: (
        Annotated[
            int,
            Meta(
                ge=MIN_PROCESSES,
                le=MAX_RESOURCE,
                description="Processes and threads of all running commands of the session "
                "together, their bash included.",
            ),
        ]
        | None
    ) = None
    cpu_seconds: (
        Annotated[
            int,
            Meta(
                ge=MIN_CPU_SECONDS,
                le=MAX_RESOURCE,
                description="Processor time of each command, with all its processes, in seconds.",
            ),
        ]
        | None
    ) = None
    file_bytes: (
        Annotated[
            int,
            Meta(
                ge=MIN_FILE_BYTES,
                le=MAX_RESOURCE,
                description="Size up to which a process may write a file, in bytes.",
            ),
        ]
        | None
    ) = None
    open_files: (
        Annotated[
            int,
            Meta(ge=MIN_OPEN_FILES, le=MAX_RESOURCE, description="Descriptors of each process."),
        ]
        | None
    ) = None


NO_LIMITS: Final = ResourceLimits()

LimitMechanism: TypeAlias = Literal["cgroup", "watch", "none"]


class EnforcedLimits(Result):
    """How each limit on the resources of a command is enforced. none: there is no such limit.

    cgroup: the kernel enforces it. watch: the daemon measures the command several times a second,
    and kills it if it is above its limit. rlimit: the kernel enforces it for each process.
    """

    memory: Annotated[LimitMechanism, Meta(description="The limit memory_bytes.")]
    processes: Annotated[LimitMechanism, Meta(description="The limit processes.")]
    cpu: Annotated[Literal["watch", "none"], Meta(description="The limit cpu_seconds.")]
    file_size: Annotated[Literal["rlimit", "none"], Meta(description="The limit file_bytes.")]
    open_files: Annotated[Literal["rlimit", "none"], Meta(description="The limit open_files.")]


Enforced: TypeAlias = Annotated[
    EnforcedLimits | None,
    Meta(
        description="How the limits of the command are enforced. Left out if the command has none."
    ),
]


class Usage(Result):
    """The resources used by the command and by the children that it waited for, from wait4(2)."""

    user_ms: Annotated[int, Meta(description="User CPU time in milliseconds.")]
    system_ms: Annotated[int, Meta(description="System CPU time in milliseconds.")]
    max_rss_bytes: Annotated[
        int, Meta(description="Peak resident set size of the largest process.")
    ]


class Prompt(Result):
    """A running command waits for input. This is known from the kernel, not from the output."""

    certainty: Annotated[
        Literal["proved", "likely"],
        Meta(
            description="proved: a process of the command sleeps until it can read the terminal or "
            "the open stdin. likely: the process cannot be inspected, or runs elsewhere, but the "
            "modes of the terminal and a second of silence suggest it."
        ),
    ]
    blocking: Annotated[
        bool,
        Meta(
            description="Whether it waits only for input, and not also for a timer or the network."
        ),
    ]
    line_mode: Annotated[
        bool | None,
        Meta(description="Whether the terminal passes on whole lines. Null for an open stdin."),
    ]
    echo: Annotated[
        bool | None,
        Meta(
            description="Whether the terminal shows what is typed. If this is false in line mode, "
            "the program asks for a secret. Null for an open stdin."
        ),
    ]
    pid: Annotated[int, Meta(description="The process that waits.")]
    program: Annotated[str, Meta(description="Its name; empty if that is hidden.")]
    since_ms: Annotated[
        int, Meta(description="Milliseconds since the command last wrote, or since its start.")
    ]
    text: Annotated[
        str,
        Meta(description="The end of the last line of output, at most 500 characters."),
    ]


PromptNow: TypeAlias = Annotated[
    Prompt | None,
    Meta(description="What the command waits for now; null if it does not wait for input."),
]


class Matched(Result):
    """The first line that `pattern` matches."""

    line: Annotated[
        str, Meta(description="The line, without its end. After 4,096 characters, it is cut.")
    ]
    stream: Annotated[Literal["stdout", "stderr"], Meta(description="The stream of the line.")]
    start: Annotated[int, Meta(description="Byte offset of the line in its stream.")]
    end: Annotated[
        int, Meta(description="Byte offset of the end of the line, without the line end.")
    ]


class Listener(Result):
    """A TCP port on which a process of the command listens."""

    port: Annotated[int, Meta(description="The port.")]
    address: Annotated[
        str, Meta(description="The address, such as 127.0.0.1; 0.0.0.0 and :: are all addresses.")
    ]
    pid: Annotated[int, Meta(description="The process that listens.")]
    program: Annotated[str, Meta(description="Its name; empty if that is hidden.")]


Reached: TypeAlias = Annotated[
    UntilName | None,
    Meta(
        description="What ended the wait: the value of until, or exit if the command ended first. "
        "Null if the time was over, or until cannot be reached."
    ),
]


class NoParams(Params):
    """For methods without parameters: `params` may be missing, null, [] or {}."""


class Empty(Result):
    """The result ``{}``."""
