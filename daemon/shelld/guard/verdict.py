"""Defines the guard's verdict on a command, and a rule's finding on a program."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from shelld_protocol.structs import GuardVerdict

# The guard quotes at most this many characters of a command, or of a part of it.
MAX_SEGMENT: Final = 200


class Finding(NamedTuple):
    """The result of a rule. `rule` is the rule's stable name, and `reason` is a sentence.

    If `is_certain` is false, the program may be harmless. If `suggests_allowing` is true, the
    refusal quotes the line for ``--guard-rules`` that allows the command.
    """

    rule: str
    reason: str
    is_certain: bool = True
    suggests_allowing: bool = False


class Verdict(Struct, frozen=True):
    """The result of judging a command.

    If the guard blocks the command, it sets `rule`, `reason` and `segment`, which is the matched
    text.

    "unresolved" means that the guard cannot know which programs would run. `reason` says why. On
    request, `trace` lists the commands that the guard found, with expanded words.
    """

    verdict: GuardVerdict
    rule: str | None = None
    segment: str | None = None
    reason: str | None = None
    trace: list[str] = []
