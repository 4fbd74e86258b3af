"""Computes the output of jq(1) for simple programs. Pure.

Such a program consists of strings with interpolation, paths, ``+``, ``|`` and ``join``. None means
that an output is unknown.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from shelld.guard.inputs import Inputs
from shelld.guard.options import options_of
from shelld.guard.specification import specification

_OPTIONS: Final = specification("fL from-file= indent=")
# The options with two values.
_PAIRS: Final = frozenset({"arg", "argjson", "slurpfile", "rawfile"})
_MAX_RESULTS: Final = 64
_MAX_PROGRAM: Final = 4 * 1024
_STRING: Final = re.compile(r'"(?>(?:[^"\\]|\\.)*)"', re.S)
# One step of a path, such as ``.name``, ``["name"]``, ``[0]`` or ``[]``.
_STEP: Final = re.compile(r'\.?(?:([A-Za-z_]\w*)|\["([^"\\]*)"\]|"([^"\\]*)"|\[(\d{0,6})\])\??')
# A string without an end reaches to the end of the program, so that nothing is searched twice.
_TOKEN: Final = re.compile(rf"{_STRING.pattern}?|[()\[\]|+]", re.S)
_JOIN: Final = re.compile(r'join\(("[^"\\]*")\)')


class _Unknown(Exception):
    """The module does not know how to compute the output of a program."""


def jq(arguments: Sequence[str], inputs: Inputs) -> str | None:
    names: set[str] = set()
    values: dict[str, Any] = {}
    operands: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument[:2] == "--" and argument[2:] in _PAIRS and len(rest) > 1:
            name = rest.pop(0)
            values[name] = rest.pop(0)
        elif argument.startswith("-") and len(argument) > 1:
            names.update(
                name for name, _ in options_of(argument, rest, _OPTIONS.letters, _OPTIONS.names)
            )
        else:
            operands.append(argument)
    if not operands or len(operands[0]) > _MAX_PROGRAM:
        return None
    text = inputs.read(operands[1:])
    if names.isdisjoint({"n", "null-input"}):
        if text is None:
            return None
        given = text if not names.isdisjoint({"R", "raw-input"}) else json.loads(text)
    else:
        given = None
    is_raw = not names.isdisjoint({"r", "raw-output", "j", "join-output"})
    end = "\n" if names.isdisjoint({"j", "join-output"}) else ""
    try:
        results = _results(operands[0], [given], values)
    except (_Unknown, RecursionError):
        return None
    shown = [each if is_raw and isinstance(each, str) else json.dumps(each) for each in results]
    return "".join(each + end for each in shown)


def _results(program: str, given: list[Any], values: dict[str, Any]) -> list[Any]:
    for stage in _divided(program, "|"):
        given = [found for each in given for found in _one(stage.strip(), each, values)]
        if len(given) > _MAX_RESULTS:
            raise _Unknown
    return given


def _divided(program: str, operator: str) -> Iterator[str]:
    """Split a program at each `operator` that is outside of brackets and strings."""
    depth = start = 0
    for match in _TOKEN.finditer(program):
        if match[0] in "([":
            depth += 1
        elif match[0] in ")]":
            depth -= 1
        elif match[0] == operator and not depth:
            yield program[start : match.start()]
            start = match.end()
    yield program[start:]


def _one(stage: str, given: Any, values: dict[str, Any]) -> list[Any]:  # noqa: PLR0911
    terms = list(_divided(stage, "+"))
    if len(terms) > 1:
        added = [_results(each, [given], values) for each in terms]
        if any(len(each) != 1 or not isinstance(each[0], str) for each in added):
            raise _Unknown
        return ["".join(each[0] for each in added)]
    if _STRING.fullmatch(stage):
        return [_interpolated(stage, given, values)]
    if stage.startswith("$") and stage[1:] in values:
        return [values[stage[1:]]]
    if stage.startswith("(") and stage.endswith(")"):
        return _results(stage[1:-1], [given], values)
    if stage == "@base64d" and isinstance(given, str):
        return [base64.b64decode(given + "=" * (-len(given) % 4)).decode("utf-8", "replace")]
    if (joined := _JOIN.fullmatch(stage)) is not None and isinstance(given, list):
        return [json.loads(joined[1]).join(map(str, cast("list[object]", given)))]
    return _at_path(stage, given)


def _interpolated(string: str, given: Any, values: dict[str, Any]) -> str:
    """Return the text of a string after replacing each ``\\(...)`` by its result."""
    parts: list[str] = []
    for part in re.split(r"(\\\([^()]*\))", string[1:-1]):
        if part.startswith("\\("):
            results = _results(part[2:-1], [given], values)
            parts += [each if isinstance(each, str) else json.dumps(each) for each in results]
        else:
            parts.append(json.loads(f'"{part}"'))
    return "".join(parts)


def _at_path(path: str, given: Any) -> list[Any]:
    if not path.startswith("."):
        raise _Unknown
    found, position = [given], 1 if path[1:2] in ("", "[") else 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise _Unknown
        position = step.end()
        found = [inner for each in found for inner in _members(each, step)]
    return found


def _members(value: object, step: re.Match[str]) -> list[Any]:
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    members = cast("list[object]", value) if isinstance(value, list) else []
    name = next((each for each in step.groups()[:3] if each is not None), None)
    if name is not None:
        return [table.get(name)]
    if step[4]:
        index = int(step[4])
        return [members[index] if index < len(members) else None]
    if not isinstance(value, dict | list):
        raise _Unknown
    return [*table.values(), *members]
