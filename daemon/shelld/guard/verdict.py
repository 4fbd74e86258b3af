"""What the guard says of a command, and what a rule says of a program."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from shelld_protocol.structs import GuardVerdict

# Of a command or a part of one that is quoted, how many characters are shown.
MAX_SEGMENT: Final = 200


class Finding(NamedTuple):
    """`rule` is a stable name, `reason` a sentence. `is_certain` false: it may be harmless.

    `suggests_allowing`: the refusal quotes the line for ``--guard-rules`` that allows the command.
    """

    rule: str
    reason: str
    is_certain: bool = True
    suggests_allowing: bool = False


class Verdict(Struct, frozen=True):
    """`rule`, `segment` (the matched text) and `reason` are set if it is blocked.

    "unresolved": what would run cannot be known before it does; `reason` says why. `trace`, if it
    was asked for: the commands that were found, as they would run.
    """

    verdict: GuardVerdict
    rule: str | None = None
    segment: str | None = None
    reason: str | None = None
    trace: list[str] = []
