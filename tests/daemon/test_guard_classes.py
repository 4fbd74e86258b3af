"""The guard against whole classes of commands; those in a class differ only in what they do."""

from __future__ import annotations

import pytest

import guard_classes
import guard_more_classes
from guard_lines import HERE
from shelld.guard.judgement import judge
from shelld.guard.quick import is_plainly_harmless


def is_blocked(line: str) -> bool:
    """Judge as the daemon does: at a glance first."""
    return not is_plainly_harmless(line) and judge(line, HERE).verdict == "block"


DANGEROUS = [*guard_classes.DANGEROUS, *guard_more_classes.DANGEROUS]
HARMLESS = [*guard_classes.HARMLESS, *guard_more_classes.HARMLESS]


@pytest.mark.parametrize(("name", "line"), DANGEROUS)
def test_dangerous_line_of_a_class_is_blocked(name: str, line: str) -> None:
    assert is_blocked(line), name


@pytest.mark.parametrize(("name", "line"), HARMLESS)
def test_harmless_line_of_a_class_is_not(name: str, line: str) -> None:
    assert not is_blocked(line), name
