"""The quick check, which skips the guard for commands that name nothing dangerous."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pytest

from guard_classes import DANGEROUS
from guard_lines import BLOCKED_LINES, HERE
from shelld.guard.judgement import judge
from shelld.guard.quick import is_plainly_harmless
from shelld.guard.vocabulary import (
    EVERYDAY_WRAPPERS,
    JUDGED,
    LANGUAGES,
    LISTENERS,
    SHELLS,
    SPEAKERS,
    STARTERS,
    TELLING_BUILTINS,
    WRAPPERS,
    WRITERS,
)


def harmless(commands: Iterable[str]) -> list[str]:
    return [command for command in commands if is_plainly_harmless(command)]


def test_quick_check_passes_nothing_dangerous() -> None:
    assert harmless(line for _, line in [*BLOCKED_LINES, *DANGEROUS]) == []


def test_quick_check_stops_at_every_judged_program() -> None:
    tables = (JUDGED, WRAPPERS, STARTERS, SHELLS, LANGUAGES, LISTENERS, TELLING_BUILTINS)
    for program in chain.from_iterable(tables):
        assert harmless([program, f"true; /usr/bin/{program} a", f"x | {program}"]) == []


def test_quick_check_stops_at_dangerous_everyday_programs() -> None:
    for program in {*WRITERS, *SPEAKERS, *EVERYDAY_WRAPPERS}:
        commands = [
            *(f"{program} a /dev/sda", f"{program} x --option=rm -rf a", f"A=rm {program} a"),
            *(f"{program} -c '!ls'", f'{program} "$x"', f"{program} -f -"),
        ]
        assert harmless(commands) == []


def test_quick_check_accepts_everyday_commands() -> None:
    for command in (
        *("git status && npm test; make -j4 | head -5", "cp -a src/a.py b", "curl -s x.org"),
        *("tar xzf a.tgz", "sort -u a", "npm run build", "uv sync", "git log --oneline"),
    ):
        assert is_plainly_harmless(command)
        assert judge(command, HERE).verdict == "allow"


def test_quick_check_accepts_assignments_of_calculated_numbers() -> None:
    for command in ("x=$((x + 1))", "i=$((i-1)); make", "export_=$((2 * 3)) && echo a"):
        assert is_plainly_harmless(command)
        assert judge(command, HERE).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "python$((3)) x",
        "x=python$((3))",
        "x=$((3))python",
        "$((3))",
        "x=$(date)",
        "x=$((a[$(date)]))",
        "x=$((1)",
        "rm=$((1))",
        "x=$((1)) rm a",
        "x=$((a\nb))",
    ],
)
def test_quick_check_stops_at_other_expansions(command: str) -> None:
    assert not is_plainly_harmless(command)


@pytest.mark.parametrize("program", ["python3.12", "perl5", "/usr/bin/pypy3", "node20", "lua5.4"])
def test_quick_check_stops_at_every_interpreter_version(program: str) -> None:
    assert not is_plainly_harmless(f"{program} x")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("f", "f"),
        ("true; f", "f"),
        ("a=1 f x", "f"),
        ("true|f&", "f"),
        # This text is not an assignment, because a function can have this name.
        ("./a=b", "./a=b"),
        ("true && x/y", "x/y"),
        ("nosuchprogram", "command_not_found_handle"),
    ],
)
def test_quick_check_stops_at_redefined_names(command: str, name: str) -> None:
    assert is_plainly_harmless(command)
    assert not is_plainly_harmless(command, defined=frozenset((b"other", name.encode())))
    assert is_plainly_harmless(command, defined=frozenset((b"other", b"ff", b"fx")))


def test_quick_check_accepts_no_long_command() -> None:
    words = "a " * 2_000
    assert is_plainly_harmless(f"echo {words}")
    assert not is_plainly_harmless(f"echo {words * 2}")
