"""Is this command dangerous? Asked before a command runs, and instead of it in a dry run.

Pure: a verdict is made from the text of a command, nothing is run or looked up.

There are no rules yet, so the guard says of every command that it cannot tell; what it cannot
tell is let through.
"""

from __future__ import annotations

from msgspec import Struct

from shelld_protocol.structs import GuardVerdict


class Verdict(Struct, frozen=True):
    """`verdict`: "unresolved" means that no rule could decide."""

    verdict: GuardVerdict


_UNRESOLVED = Verdict("unresolved")


def judge(command: str) -> Verdict:
    """Return the verdict on one command."""
    return _UNRESOLVED
