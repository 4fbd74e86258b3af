"""The short way past the guard, for commands that name nothing that could be dangerous."""

from __future__ import annotations

import pytest

from guard_lines import BLOCKED_LINES
from shelld.guard.launchers import SHELLS, STARTERS
from shelld.guard.quick import TELLING, is_plainly_harmless
from shelld.guard.rules import CHECKS
from shelld.guard.wrappers import WRAPPERS


@pytest.mark.parametrize("line", [line for _, line in BLOCKED_LINES])
def test_the_short_way_lets_nothing_through(line: str) -> None:
    assert not is_plainly_harmless(line)


def test_the_short_way_knows_every_name_that_means_something() -> None:
    named = {*CHECKS, *WRAPPERS, *STARTERS, *SHELLS, "env", "command", "busybox", "toybox"}
    named |= {"eval", "source", "trap", "alias", "cd", "pushd", "python3", "perl", "ruby", "node"}
    assert named <= TELLING
    assert is_plainly_harmless("git status && npm test; make -j4 | head -5")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("f", "f"),
        ("true; f", "f"),
        ("a=1 f x", "f"),
        ("true|f&", "f"),
        # Not an assignment, but what a function can be called.
        ("./a=b", "./a=b"),
        ("true && x/y", "x/y"),
        ("nosuchprogram", "command_not_found_handle"),
    ],
)
def test_the_short_way_is_not_for_names_that_stand_for_something_else(
    command: str, name: str
) -> None:
    assert is_plainly_harmless(command)
    assert not is_plainly_harmless(command, names=frozenset((b"other", name.encode())))
    assert is_plainly_harmless(command, names=frozenset((b"other", b"ff", b"fx")))
