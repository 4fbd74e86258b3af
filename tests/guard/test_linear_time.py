"""Every regular expression of the guard takes linear time, because a command can control the text.

This module finds the expressions in the source of the guard, and in its tables. A search holds the
interpreter's lock, so a slow search would stop the whole daemon.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Iterator
from itertools import chain, product
from types import ModuleType
from typing import Any, cast

import pytest

import shelld.guard
from guard_lines import HERE
from shelld.guard import calls, interpreters, literals, speakers
from shelld.guard.judgement import judge

LENGTH = 8_000
# With texts of this length, even an exponential search ends.
SHORT = 24
MAX_PROCESSOR_SECONDS = 0.2
METHODS = frozenset({"search", "match", "fullmatch", "sub", "split", "finditer", "findall"})
MODULES = [
    importlib.import_module(f"shelld.guard.{each.name}")
    for each in pkgutil.iter_modules(shelld.guard.__path__)
    # The text of a policy comes from the operator, and not from a command.
    if each.name != "policy_file"
]


def as_pattern(value: object) -> re.Pattern[str] | None:
    return cast("re.Pattern[str]", value) if isinstance(value, re.Pattern) else None


def table(module: ModuleType, name: str) -> Any:
    """Return a module's private table of regular expressions."""
    names: dict[str, Any] = vars(module)
    return names[name]


def used(module: ModuleType) -> Iterator[tuple[str, int, str]]:
    """Yield the expressions that a module uses, with their flags and the methods that use them."""
    names: dict[str, Any] = vars(module)
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, of = node.func.attr, node.func.value
        if method not in METHODS:
            continue
        is_module = isinstance(of, ast.Name) and of.id == "re"
        flags = re.NOFLAG
        if is_module:
            of = node.args[0]
            flags = re.S if "re.S" in ast.unparse(node) else flags
        elif isinstance(of, ast.Call) and ast.unparse(of.func) in ("compiled", "re.compile"):
            of, flags = of.args[0], re.M
        try:
            found: object = eval(ast.unparse(of), names)
        except NameError:
            # The expression is in a local variable. `TABLES` lists all values of this variable.
            continue
        if (compiled := as_pattern(found)) is not None:
            yield compiled.pattern, compiled.flags, method
        elif isinstance(found, str) and (is_module or flags):
            yield found, flags, method


TABLES: list[tuple[str, int, str]] = [
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
# Helper functions of the guard call `match` on these patterns.
MATCHED = [
    (compiled.pattern, compiled.flags, "match")
    for module in MODULES
    for value in vars(module).values()
    if (compiled := as_pattern(value)) is not None
]
EXPRESSIONS = sorted({*chain.from_iterable(map(used, MODULES)), *TABLES, *MATCHED})
CHARACTERS = " \n\t0aZ_~'\"\\/()[]{}<>|;:=#!,.$%&+-*?^`@\ue000\ue001\ue002\ue003"
TELLING = " \n\\\"'([0x|"


def hostile(pattern: str) -> Iterator[tuple[str, str]]:
    """For each hostile text, yield its beginning, and the piece that repeats after the
    beginning.
    """
    words = re.findall(r"[A-Za-z]{2,}|\$\\\(shell", re.sub(r"\\[A-Za-z]", "", pattern))
    words = [each.replace("\\", "") for each in dict.fromkeys(words)]
    heads = [f"{word}{between}" for word in words for between in ("", " ", "(", " '", ' "', " '>")]
    yield from (("", each) for each in CHARACTERS)
    yield from (("", a + b) for a, b in product(TELLING, repeat=2) if a != b)
    yield from (("", each) for each in heads)
    yield from product((*heads, *"%\"'/=:!s@{["), TELLING)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "flags", "method"), EXPRESSIONS)
def test_search_takes_linear_time(pattern: str, flags: int, method: str) -> None:
    compiled = re.compile(pattern, flags)

    def seconds(text: str) -> float:
        began = time.thread_time()
        if method == "sub":
            compiled.sub("", text)
        elif method == "finditer":
            for _ in compiled.finditer(text):
                pass
        else:
            getattr(compiled, method)(text)
        return time.thread_time() - began

    for head, unit in hostile(pattern):
        for end in ("", "\x01"):
            for length in (SHORT, LENGTH):
                text = head + unit * (length // len(unit)) + end
                assert seconds(text) < MAX_PROCESSOR_SECONDS, (head, unit, end)


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
