"""What the guard says of a command, and what a rule says of a program."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from shelld_protocol.structs import GuardVerdict


class Finding(NamedTuple):
    """`rule` is a stable name, `reason` a sentence. `is_certain` false: it may be harmless."""

    rule: str
    reason: str
    is_certain: bool = True


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
