"""The guard ends each part of a text where bash ends it. The tests compare these ends with bash,
which parses the text but runs nothing.
"""

from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelld.guard.ends import Ends, is_arithmetic

SIMPLE = st.sampled_from(
    [
        *("a", "case=1", "echo case a in b", "a # )", "a a#", "a ')' \")\" \\)", "a `b)`"),
        *("a <<E\n:)\nE", "a <<'E' <<-F\n(\nE\n\t)\n\tF", "a <<< b > f 2>&1", "((1 << 2))"),
        *("a ${x:-)}", "x=(a b)", "a $((1 << (2)))", "a $'\\')'", "[[ a =~ (b) ]]"),
        *("x=(case a in # )\n)", "a <<\\E\n)\nE"),
    ]
)
FRAMES = (
    *("( {} )", "{{ {}\n}}", "$({}\n)", 'a "$({}\n)"', "a <({}\n) b", "{}\n{}", "{}\n! {}"),
    *("case a in b) {}\n;; esac", "case $a\nin (b|c) {}\n;& *) {}\nesac", "case a in esac; {}"),
    *("case a in @(b|c)|\\)) {}\n;;& ')') esac", "if {}\nthen {}\nelse {}\nfi", "((a)\n{}\n)"),
    *("while {}\ndo {}\ndone > f", "for case in in; do {}\ndone", "for ((;;)); do {}\ndone"),
    *("f() {{ {}\n}}", "function f {{ {}\n}}", "f () ( {}\n)", "coproc {}", "coproc N {{ {}\n}}"),
    *("time -p {}", "a || {}", "a & {}", "case $({}\n) in a) esac", "((a); {}\n)"),
    "select a in b; do {}\ndone",
)


def framed(scripts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(FRAMES), scripts, scripts, scripts).map(
        lambda parts: parts[0].format(*parts[1:])
    )


SCRIPTS = st.recursive(SIMPLE, framed, max_leaves=8)


def is_valid(script: str) -> bool:
    """Return whether bash accepts a script and finds the end of every here-document. Bash only
    parses the script.
    """
    check = subprocess.run(
        ["/bin/bash", "-n"], input=script, text=True, capture_output=True, timeout=100, check=False
    )
    return check.returncode == 0 and not check.stderr


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(SCRIPTS)
def test_substitution_ends_where_its_script_ends(script: str) -> None:
    text = f"$( {script}\n)"
    if is_valid(f": {text}\n"):
        assert Ends(f"{text})").of_unit(0) == len(text)
        assert Ends(f'"{text})" )').of_unit(0) == len(text) + 3


@pytest.mark.parametrize(
    "text",
    [
        *("$(case)", "$(case a)", "$(echo case a in b)", "$(a=1 case)", "$(a <<F)", "$(case a b)"),
        *("$(case a; b)", "$(case (a))", "$((1 + 2))", "$((1 << 2))", "$(((1) + (2)))", "$((a) )"),
        *("${x:-$(a)}", "<(a)", ">((a) )", "$(a\n)", "$(# )\n)", "`\\`)`", "$(a <<E\nE)"),
    ],
)
def test_end_is_found_in_short_texts(text: str) -> None:
    assert Ends(f"{text})\nE\n)").of_unit(0) == len(text)


@pytest.mark.parametrize("text", ["$(", "$((", "$(case a in (a", "${", '"', "'", "`", "$'", "\\"])
def test_part_without_an_end_reaches_to_the_end_of_the_text(text: str) -> None:
    assert Ends(text).of_unit(0) == len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("(1)", True), ("(1 + (2))", True), ("((1) + (2))", True), ("(", True)),
        *(("(a) ", False), ("(a); (b)", False), ("(1)-(2)", False), ("(a)\n", False)),
        *(("(a ')' \")\" \\))", True), ("($(case a in a) b;; esac))", False)),
    ],
)
def test_arithmetic_differs_from_a_script(text: str, expected: bool) -> None:
    assert is_arithmetic(text) is expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("$( ((" * 90 + ") ) )" * 90, "$((" * 90 + ") )" * 90, "$( " + "((" * 30_000),
        *("$( " + "( (" * 20_000, "$(a " + "<<E\n" * 16_000, "$(a " + "<<E " * 16_000 + "\n)"),
        *("$( " + "case a in " * 6_000, "$( " + "case a in a) " * 5_000, "$( " + "x=(" * 20_000),
        *("$(" + "$(a) " * 13_000, '$( "' + "$(a " * 90, "$( " + "((a) " * 13_000 + ")" * 13_000),
        *("$( " + "".join(f"<<E{n}\n" for n in range(9_000)), "$(" + "coproc " * 9_000),
        *("time " * 13_000 + "a", "! " * 30_000 + "{", "! time ; " * 7_000),
    ],
)
def test_ends_are_found_in_linear_time(text: str) -> None:
    began = time.thread_time()
    Ends(text).of_unit(0)
    Ends(text).rewritten()
    # On an idle machine, the search needs only a small part of this time.
    assert time.thread_time() - began < 2
