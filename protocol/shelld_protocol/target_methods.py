"""Defines the params and results of ``add_target``, ``list_targets`` and ``remove_target``.

A target is another daemon, to which this daemon passes requests on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from shelld_protocol.structs import Params, Result

MAX_TARGETS: Final = 256
MAX_TARGET_NAME: Final = 64
# Most systems refuse to start a program with a longer argument (MAX_ARG_STRLEN on Linux).
MAX_ARGV_WORDS: Final = 1_000
MAX_ARGV_BYTES: Final = 128 * 1024

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{MAX_TARGET_NAME - 1}}}")

TargetState: TypeAlias = Literal["unused", "connecting", "connected", "lost"]
# The target of a request; see `BashParams`.
Target: TypeAlias = Annotated[
    str,
    Meta(
        description="The target that answers. A target of a target has the names of both, joined "
        "with a colon: box:inner. Default: where the session is, else this daemon."
    ),
]


def is_target_name(name: str) -> bool:
    """Return whether a target may have this name.

    A name has no colon, because a colon ends the name in ids.
    """
    return _NAME.fullmatch(name) is not None


def problem_with_argv(argv: Sequence[str]) -> str | None:
    """Return what is wrong with a command line (as the end of a sentence), or None."""
    if not argv or not argv[0]:
        return "must name a program"
    if len(argv) > MAX_ARGV_WORDS or sum(map(len, argv)) > MAX_ARGV_BYTES:
        return f"must have at most {MAX_ARGV_WORDS} words and {MAX_ARGV_BYTES} bytes"
    if any("\0" in word for word in argv):
        return "must not contain NUL"
    return None


class AddTargetParams(Params):
    name: Annotated[
        str,
        Meta(
            description="The name: up to 64 letters, digits, `_`, `.` and `-`. With a colon, the "
            "target before the colon gets the new target."
        ),
    ]
    argv: Annotated[
        list[str],
        Meta(
            description="The program and its arguments. It must start a shelld that serves its "
            'standard input and output, as ["ssh", "host", "shelld"] does. No shell reads it.'
        ),
    ]
    bootstrap: Annotated[
        bool,
        Meta(
            description="argv connects to a machine or container without shelld. Send shelld there "
            "when the target connects. The machine needs sh, bash and the same version of Python, "
            "and must be of the same kind."
        ),
    ] = False


class AddTargetResult(Result):
    """The target connects when it is first used."""

    name: str


class ListTargetsParams(Params):
    target: Target | None = None


class TargetInfo(Result):
    """One target."""

    name: str
    argv: Annotated[list[str], Meta(description="The program that leads to it.")]
    state: Annotated[
        TargetState,
        Meta(
            description="unused: no request has needed it yet. lost: the last connection has "
            "ended, and the next request connects again."
        ),
    ]
    version: Annotated[
        str | None, Meta(description="The version of its shelld; null while that is not known.")
    ]
    bootstrap: Annotated[bool, Meta(description="Whether shelld is sent to it.")] = False


class ListTargetsResult(Result):
    targets: list[TargetInfo]


class RemoveTargetParams(Params):
    name: Annotated[str, Meta(description="The target.")]


class RemoveTargetResult(Result):
    """The target's daemon was told to end all its shells and itself, and the connection is gone."""

    name: str
    ended: Annotated[
        bool,
        Meta(
            description="Whether the target's daemon has ended. False if there was no connection, "
            "or if it did not end in time."
        ),
    ]
