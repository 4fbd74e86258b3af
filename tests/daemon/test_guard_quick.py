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
