"""What all params and results have in common, and the words that several of them use.

Params keep the names that models know (snake_case). Result members are camelCase on the wire and
snake_case in Python; an id keeps one name in both directions. Every duration is in milliseconds,
every size and offset in bytes.

A parameter whose type does not admit None may still be sent as null, which means absent; where
the type admits None and the default is another value (`session`), null is a value of its own.
"""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct

MIN_TIMEOUT_MS: Final = 1_000
MAX_TIMEOUT_MS: Final = 600_000
MAX_IDLE_TIMEOUT_MS: Final = 3_600_000
MAX_WAIT_MS: Final = 600_000
MAX_GRACE_MS: Final = 60_000
MAX_READ_BYTES: Final = 16 * 1024 * 1024
DEFAULT_READ_BYTES: Final = 1024 * 1024

# How much of a command and of its description is listed, and kept once its shell has ended.
MAX_SHOWN_CHARACTERS: Final = 4_096
CUT_MARK: Final = "... (truncated)"

Status: TypeAlias = Literal["pending", "running", "completed", "failed", "killed", "timeout"]
SignalName: TypeAlias = Literal["TERM", "INT", "HUP", "QUIT", "KILL", "USR1", "USR2", "ABRT"]
# "lost": what guarded the command was killed, and with it the command or what that had left behind.
# "oom": the kernel killed it for want of memory. "idle": it wrote nothing for as long as its
# `idle_timeout`. Left out otherwise.
EndReason: TypeAlias = Literal["lost", "oom", "idle"]
# "re" is Python's, which backtracks, for what the linear-time engine RE2 refuses.
FilterEngine: TypeAlias = Literal["re2", "re"]
GuardVerdict: TypeAlias = Literal["allow", "block", "unresolved"]


class Unkept(enum.StrEnum):
    """Why a session does not remember what a command left. `text` says it in the reference."""

    text: str

    MISSING = ("missing", "bash could not tell it, as after exec, set -r or set -n")
    INCOMPLETE = ("incomplete", "bash told a part of it")
    TOO_LARGE = ("too_large", "it is more than 4 MiB")
    UNREADABLE = ("unreadable", "it is not in a form that the daemon knows")
    LOCAL_OPTIONS = ("local_options", "a function with local - has called exit")
    SIGNAL = ("signal", "a signal ended the command")
    UNAVAILABLE = (
        "unavailable",
        "the system has no /proc, or a limit on the size of files forbids it",
    )

    def __new__(cls, reason: str, text: str) -> Unkept:
        member = str.__new__(cls, reason)
        member._value_ = reason
        member.text = text
        return member


# Members that several results have.
ShellId: TypeAlias = Annotated[str, Meta(description="The shell's id.")]
Command: TypeAlias = Annotated[str, Meta(description="The command, as it was given.")]
KeptCommand: TypeAlias = Annotated[
    str,
    Meta(
        description="The command, as it was given. Once nothing is left of its shell, only the "
        "first 4,096 characters are kept, and ``... (truncated)`` follows."
    ),
]
Description: TypeAlias = Annotated[str | None, Meta(description="As it was given.")]
ExitCode: TypeAlias = Annotated[
    int | None, Meta(description="Once it has ended, unless by a signal.")
]
EndSignal: TypeAlias = Annotated[
    str | None, Meta(description="The name of the signal that has ended it, such as SIGKILL.")
]
DurationMs: TypeAlias = Annotated[
    int, Meta(description="Milliseconds from its start to its end, or until now.")
]
IsRunning: TypeAlias = Annotated[bool, Meta(description="Whether it has not ended.")]
Leftover: TypeAlias = Annotated[
    list[int], Meta(description="Pids of processes that are left of a command that has ended.")
]
Reason: TypeAlias = Annotated[
    EndReason | None,
    Meta(
        description="lost: what guarded the command was killed, and with it the command or what "
        "that had left behind. "
        "oom: the kernel killed something of it for want of memory. "
        "idle: it wrote nothing for idle_timeout."
    ),
]
StateReason: TypeAlias = Annotated[
    str | None,
    Meta(
        description="Why the session does not remember what the command left. "
        + " ".join(f"{reason.value}: {reason.text}." for reason in Unkept)
        + " There may be more."
    ),
]
SpoolError: TypeAlias = Annotated[
    str | None,
    Meta(description="The errno name for which output was dropped that the limits allow."),
]
GuardWarning: TypeAlias = Annotated[
    str | None, Meta(description="Why the guard would have blocked it, were it not to warn only.")
]
Survivors: TypeAlias = Annotated[
    list[int], Meta(description="Pids that were still alive at the deadline.")
]

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
