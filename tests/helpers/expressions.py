"""Finds the regular expressions in the source of packages, and texts that are hard for them.

A search holds the interpreter's lock, so a slow search would stop the whole daemon. Commands,
clients and targets control much of the text that the daemon searches.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import random
import re
import time
from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any, Final, cast

LENGTH: Final = 8_000
# With texts of this length, even an exponential search ends.
SHORT: Final = 24
MAX_PROCESSOR_SECONDS: Final = 0.2
METHODS: Final = frozenset({"search", "match", "fullmatch", "sub", "split", "finditer", "findall"})
CHARACTERS: Final = " \n\t0aZ_~'\"\\/()[]{}<>|;:=#!,.$%&+-*?^`@\ue000\ue001\ue002\ue003"
TELLING: Final = " \n\\\"'([0x|"
PIECES: Final = [*" \n!0a'\"\\/()[{}<|;:=#!,.$%&+-*", "$a", "a=", "$(", "${", "ab", "\\\n", "--"]
RANDOM_TEXTS: Final = 200

# A pattern, its flags, and the method that uses it.
Expression = tuple[str | bytes, int, str]


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Return all modules of a package and its packages."""
    return [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not each.name.endswith("__main__")
    ]


def as_pattern(value: object) -> re.Pattern[str] | None:
    return cast("re.Pattern[str]", value) if isinstance(value, re.Pattern) else None


def used(module: ModuleType) -> Iterator[Expression]:
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
        except (NameError, AttributeError):
            # The expression is in a local variable or in an attribute, so this function cannot find
            # it.
            continue
        if (compiled := as_pattern(found)) is not None:
            yield compiled.pattern, compiled.flags, method
        elif isinstance(found, str) and (is_module or flags):
            yield found, flags, method


def matched(module: ModuleType) -> Iterator[Expression]:
    """Yield the expressions of a module, for helper functions that call `match`."""
    for value in vars(module).values():
        if (compiled := as_pattern(value)) is not None:
            yield compiled.pattern, compiled.flags, "match"


def hostile(pattern: str | bytes) -> Iterator[tuple[str, str, str]]:
    """For each hostile text, yield its beginning, the piece that repeats after the beginning, and
    its end.
    """
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    words = re.findall(r"[A-Za-z]{2,}|\$\\\(shell", re.sub(r"\\[A-Za-z]", "", text))
    words = [each.replace("\\", "") for each in dict.fromkeys(words)]
    heads = [f"{word}{between}" for word in words for between in ("", " ", "(", " '", ' "', " '>")]
    for end in ("", "\x01"):
        yield from (("", each, end) for each in CHARACTERS)
        yield from (("", a + b, end) for a, b in product(TELLING, repeat=2) if a != b)
        yield from (("", each, end) for each in heads)
        yield from ((a, b, end) for a, b in product((*heads, *"%\"'/=:!s@{["), TELLING))
    # Names of variables, and then something that few expressions match.
    yield from product(("", '"', "x="), ("$ab", "$ab ", "ab=$ab "), ("${x}", "`", '${x}"'))
    chosen = random.Random(text)
    pieces = [*PIECES, *words]

    def some(least: int, most: int) -> str:
        return "".join(chosen.choices(pieces, k=chosen.randint(least, most)))

    for _ in range(RANDOM_TEXTS):
        yield some(0, 2), some(1, 3), some(0, 2)


def check_linear_time(expression: Expression) -> None:
    """Search hostile texts. Raises AssertionError if a search is slow."""
    pattern, flags, method = expression
    compiled: re.Pattern[Any] = re.compile(pattern, flags)

    def seconds(text: str) -> float:
        data = text if isinstance(pattern, str) else text.encode()
        began = time.thread_time()
        if method == "sub":
            compiled.sub(data[:0], data)
        elif method == "finditer":
            for _ in compiled.finditer(data):
                pass
        else:
            getattr(compiled, method)(data)
        return time.thread_time() - began

    for head, unit, end in hostile(pattern):
        for length in (SHORT, LENGTH):
            text = head + unit * (length // len(unit)) + end
            assert seconds(text) < MAX_PROCESSOR_SECONDS, (head, unit, end)
