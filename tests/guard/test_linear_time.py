"""Every regular expression of the guard takes linear time, because a command can control the text.

This module finds the expressions in the source of the guard, and in its tables.
"""

from __future__ import annotations

import re
import time
from itertools import chain
from types import ModuleType
from typing import Any

import pytest

import shelld.guard
from expressions import (
    MAX_PROCESSOR_SECONDS,
    Expression,
    check_linear_time,
    matched,
    modules_of,
    used,
)
from guard_lines import HERE
from shelld.guard import calls, interpreters, literals, speakers
from shelld.guard.judgement import judge

# The text of a policy comes from the operator, and not from a command.
MODULES = [each for each in modules_of(shelld.guard) if not each.__name__.endswith(".policy_file")]


def table(module: ModuleType, name: str) -> Any:
    """Return a module's private table of regular expressions."""
    names: dict[str, Any] = vars(module)
    return names[name]


TABLES: list[Expression] = [
    *(
        (each, re.M, "finditer")
        for each in chain.from_iterable(table(speakers, "_COMMANDS").values())
    ),
    *((each, re.M, "finditer") for each in table(interpreters, "_WRITES")),
    *(
        (each, re.M, "finditer")
        for effects in table(speakers, "_EFFECTS").values()
        for each, _ in effects
    ),
    *((each.pattern, each.flags, "sub") for each in table(literals, "_LONG").values()),
    *(
        (
            rf"{calls.LITERAL}|({table(interpreters, name)})(?!\s*[:=])",
            re.M,
            "finditer",
        )
        for name in ("_CALLS", "_REMOVES", "_EVALUATES", "_OPENS")
    ),
]
FOUND = chain.from_iterable(chain(used(each), matched(each)) for each in MODULES)
EXPRESSIONS = sorted({*FOUND, *TABLES}, key=repr)


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=repr)
def test_search_takes_linear_time(expression: Expression) -> None:
    check_linear_time(expression)


def test_expressions_are_found() -> None:
    methods = {method for _, _, method in EXPRESSIONS}
    assert {"search", "match", "fullmatch", "sub", "finditer"} <= methods
    assert len(EXPRESSIONS) > 90


@pytest.mark.parametrize(
    "command",
    [
        *('python3 -c \'print("x"' + " " * 3_000 + end for end in ("y)' | sh", ")' | sh")),
        'awk \'BEGIN{print "x"' + " " * 20_000 + "y}' | sh",
        "rm -rf /" + "[" * 40_000,
        "[[ $x == " + "[" * 40_000 + " ]]",
        "printf '%" + "0" * 20_000 + "' | sh",
        "echo a | cut -c " + "0" * 20_000 + "x | sh",
        "vim -c '" + "1" * 10_000 + "'",
        "python3 -c '" + 'x = "' + r"\"" * 8_000 + "'",
        "perl -e '" + "open " * 3_000 + "'",
        "awk '" + "print " * 8_000 + "'",
        "awk '" + "system(" * 2_300 + "'",
        "awk '" + r"\"" * 8_000 + "'",
        "sed '/" + r"\/" * 8_000 + "'",
        "sed '" + "s/a/" * 4_000 + "'",
        "python3 -c '" + r'\"""' * 4_000 + "'",
        "lua -e '" + "[[" * 8_000 + "'",
        "x='" + "!(" * 20_000 + "'; echo $x",
        "x='" + "@(a|b)" * 4_000 + "'; echo $x",
        "x='a[" + "$(" * 8_000 + "]'; echo $((x))",
        "while read x; do ls; done <<< '" + r"a" * 20_000 + "'",
    ],
)
def test_long_text_is_judged_in_linear_time(command: str) -> None:
    began = time.thread_time()
    judge(command, HERE)
    # An idle machine needs a tenth of this limit. In quadratic time, it would need minutes.
    assert time.thread_time() - began < 6 * MAX_PROCESSOR_SECONDS
