"""Computes the output of programs that work on whole lines, such as sort and uniq.

Pure. The module runs nothing. None means that an output is unknown. An unknown line stays in the
output as `UNKNOWN`. If `UNKNOWN` follows the path of a known directory, it stands for everything
below the directory. So the guard still sees that the next program may get all these paths.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final

from shelld.guard.inputs import Inputs, Output
from shelld.guard.markers import ENDLESS
from shelld.guard.options import all_options


def _lines(operands: Sequence[str], inputs: Inputs) -> list[str] | None:
    """Return the lines of a filter's input, or None if the input is unknown."""
    text = inputs.read(operands)
    return None if text is None else text.partition(ENDLESS)[0].splitlines()


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _sort(arguments: Sequence[str], inputs: Inputs) -> str | None:
    options, operands = all_options(arguments, "kStTo", ("key", "field-separator", "output"))
    names = {name for name, _ in options}
    lines = _lines(operands, inputs)
    if lines is None or not names <= _SORTS:
        return None
    if not names.isdisjoint({"u", "unique"}):
        lines = list(dict.fromkeys(lines))
    return _joined(sorted(lines, reverse=not names.isdisjoint({"r", "reverse"})))


# Options of sort(1) that do not change the text of lines.
_SORTS: Final = frozenset(
    {
        *("b", "d", "f", "g", "h", "i", "M", "n", "r", "R", "u", "V", "z", "numeric-sort"),
        *("reverse", "unique", "ignore-case", "version-sort", "human-numeric-sort"),
    }
)


def _uniq(arguments: Sequence[str], inputs: Inputs) -> str | None:
    options, operands = all_options(arguments, "fsw", ())
    lines = _lines(operands, inputs)
    if lines is None or any(name not in ("i", "ignore-case") for name, _ in options):
        return None
    return _joined([line for line, _ in itertools.groupby(lines)])


def _turned(arguments: Sequence[str], inputs: Inputs) -> str | None:
    lines = None if arguments[:1] and arguments[0].startswith("-") else _lines(arguments, inputs)
    return None if lines is None else _joined(lines[::-1])


def _mirrored(arguments: Sequence[str], inputs: Inputs) -> str | None:
    lines = None if arguments[:1] and arguments[0].startswith("-") else _lines(arguments, inputs)
    return None if lines is None else _joined([line[::-1] for line in lines])


def _shuf(arguments: Sequence[str], inputs: Inputs) -> str | None:
    options, operands = all_options(arguments, "nio", ("head-count", "input-range", "output"))
    names = {name for name, _ in options}
    if "e" in names or "echo" in names:
        return _joined(operands)
    return inputs.read(operands) if not names else None


def _nl(arguments: Sequence[str], inputs: Inputs) -> str | None:
    options, operands = all_options(arguments, "bdfhilnsvw", ())
    values = dict(options)
    lines = _lines(operands, inputs)
    if lines is None or not values.keys() <= {"b", "w", "s", "n"}:
        return None
    width, between = values.get("w") or "6", values.get("s")
    if not re.fullmatch(r"\d{1,3}", width):
        return None
    numbers = itertools.count(1)
    numbers_all = values.get("b") == "a"
    return _joined(
        [
            f"{next(numbers):>{width}}{between if between is not None else chr(9)}{line}"
            if line or numbers_all
            else ""
            for line in lines
        ]
    )


def _paste(arguments: Sequence[str], inputs: Inputs) -> str | None:
    options, operands = all_options(arguments, "d", ("delimiters",))
    values = dict(options)
    given = values.get("d") if "d" in values else values.get("delimiters", "\t")
    delimiter = (given or "")[:1]
    files = operands or ["-"]
    lines = _lines(files[:1], inputs)
    if lines is None or len(set(files)) > 1 or "z" in values:
        return None
    if "s" in values or "serial" in values:
        return delimiter.join(lines) + "\n"
    # In ``paste - -``, each operand takes one line, so two lines become one.
    columns = len(files)
    rows = (lines[start : start + columns] for start in range(0, len(lines), columns))
    return _joined([delimiter.join(row) for row in rows])


LINE_FILTERS: Final[dict[str, Output]] = {
    "sort": _sort,
    "uniq": _uniq,
    "tac": _turned,
    "rev": _mirrored,
    "shuf": _shuf,
    "nl": _nl,
    "paste": _paste,
}
