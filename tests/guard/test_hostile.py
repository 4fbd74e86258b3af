"""No text makes the guard fail or take long, and no judgement affects another."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard_lines import ALLOWED_LINES, BLOCKED_LINES, HERE, PLAIN_LINES
from shelld.guard.budget import MAX_SECONDS, Budget
from shelld.guard.judgement import judge
from shelld.guard.policy import DEFAULT_POLICY
from support import in_threads

HOSTILE = {
    "parentheses": "(" * 500_000,
    "substitutions": "$(" * 300_000,
    "quotes": '"' * 1_000_000,
    "here-documents": "<<E" * 300_000,
    "shifts": "echo '" + "x = y<<z; " * 100_000 + "'",
    "blank lines": "cat <<E\n" + "\n" * 300_000 + "x " * 40_000,
    "closing parentheses": ")" * 60_000,
    "parameters": "${" * 400_000,
    "braces": "{" * 300_000,
    "brace pairs": "echo " + "{a,b}" * 1_000,
    "a range": "echo {1..99999999}",
    "words": "rm " + "a " * 500_000,
    "one word": "rm " + "a" * 1_000_000,
    "lines": "\n" * 1_000_000,
    "globs": "*" * 1_000_000,
    "evals": "eval " * 100_000 + "x",
    "doubling": "x=a; " + "x=$x$x; " * 60 + "echo $x",
    "loops": "for i in {1..500}; do " * 3 + ":; " + "done; " * 3,
    "recursion": "f() { f; f; f; }; f",
    "a backtracking pattern": "echo " + "a" * 50_000 + r" | sed 's/\(a*\)*b/x/'",
    "arithmetic": "echo $((" + "x" * 1_000_000 + "))",
    "arithmetic of a variable": "x=" + "a" * 20_000 + "; echo $((x))",
    "arithmetic of subscripts": "echo $((" + "x[" * 400_000 + "))",
    "a test": "[[ x == " + "a=" * 20_000 + " ]]",
    "a test of numbers": "[[ " + "a=1 -eq b=2 && " * 20_000 + "x ]]",
    "a backtracking glob": "x=" + "a" * 3_000 + "; echo ${x//*a*a*a*b/}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_takes_little_time(name: str) -> None:
    began = time.process_time()
    assert judge(HOSTILE[name][: 1 << 20], HERE).verdict in ("allow", "unresolved")
    # On an idle machine, a judgement needs only a part of this time.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "large",
    [
        "x=a; " + "x=$x$x; " * 100,
        "x=" + "a" * 1_000 + "; " + "x=$x$x; " * 6 + ": " + "$x" * 1_000,
        'x=a; while read -r l; do x="$x$x"; done < f; ' + "x=$x$x; " * 40,
    ],
)
def test_large_value_hides_nothing_after_it(large: str) -> None:
    assert judge(f"{large}; rm -rf /".replace("; ;", ";"), HERE).verdict == "block"
    # `x` is not empty, so this line is harmless. The guard must not block it, even if the guard
    # does not know the value.
    assert judge(f"{large}; rm -rf /$x".replace("; ;", ";"), HERE).verdict != "block"


@pytest.mark.parametrize(
    "command",
    [
        *("echo $(rm -rf /){}", "echo {}$(rm -rf /)", "x={}`rm -rf /`"),
        *("cat <<E\n{}\n$(rm -rf /)\nE", "for i in {}$(rm -rf /); do :; done"),
        "case {}$(rm -rf /) in a) ;; esac",
    ],
)
def test_long_word_hides_no_danger(command: str) -> None:
    assert judge(command.format("a" * 65_000), HERE).verdict == "block"
    assert judge(command.format("a" * 65_000).replace("rm", "ls"), HERE).verdict != "block"


@pytest.mark.slow
@settings(max_examples=400)
@given(st.data())
def test_arbitrary_text_never_makes_guard_fail(data: st.DataObject) -> None:
    line = data.draw(st.sampled_from([line for _, line in BLOCKED_LINES] + ALLOWED_LINES))
    position = data.draw(st.integers(0, len(line)))
    garbage = data.draw(st.text("\\'\"$`(){}[]<>|&;*?~!#\n\0 aé=:/-%@,.", max_size=6))
    for text in (line[:position], line[:position] + garbage + line[position:], garbage):
        assert judge(text, HERE).verdict in ("allow", "block", "unresolved")


@pytest.mark.parametrize(
    "command",
    [
        *("shift ²", "x=a; echo ${x:²}", "echo ${a[--1]}", "head -n ² f", "echo $((²))"),
        *("printf '%²d' 1", "seq ²", "echo ${²}", "xargs -n", "find -exec", "sudo -u", "env -S"),
        *(
            "xargs -d '' rm",
            "find",
            "xargs",
            "flock",
            "timeout",
            "sed",
            "awk",
            "tr",
            "printf",
            "base64",
            "cut -c²",
        ),
        *("trap", "eval", ".", "read", "mapfile", "export", "docker run -v", "parallel :::"),
    ],
)
def test_malformed_commands_are_followed(command: str) -> None:
    for text in (command, f"echo 1 2 3 | {command}", f"$({command})"):
        assert judge(text, HERE).verdict in ("allow", "unresolved")


def test_commands_are_judged_in_many_threads_at_once() -> None:
    lines = [(line, judge(line, HERE)) for line in [*ALLOWED_LINES, *PLAIN_LINES]]

    def work(_number: int) -> None:
        for _ in range(5):
            for line, verdict in lines:
                assert judge(line, HERE) == verdict

    in_threads(4, work)


def test_judgement_is_bounded_by_steps_not_time() -> None:
    budget = Budget(policy=DEFAULT_POLICY, traces=False)
    began, spent = time.monotonic(), time.process_time()

    def take_the_processor(_number: int) -> None:
        while min(time.monotonic() - began, time.process_time() - spent) < 1.2 * MAX_SECONDS:
            pass

    in_threads(1, take_the_processor)
    # Only the processor time of this thread counts.
    assert budget.has_time()
