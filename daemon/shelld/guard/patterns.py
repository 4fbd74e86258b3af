"""Applies bash patterns in parameter expansions. Each match takes linear time."""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any, Final, cast

from shelld.guard.markers import ANY, ONE, SET, UNKNOWN

# The maximum length of a value to match, in characters. For a longer value, the result is
# `UNKNOWN`.
MAX_MATCHED: Final = 4 * 1024


@lru_cache(maxsize=64)
def linear_regex(pattern: str) -> Any | None:
    """Compile a regular expression that matches in linear time. Return None if it is invalid."""
    # The import is in this function, because most commands need no pattern.
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except cast("type[Exception]", re2.error):
        return None


def _regex(pattern: str) -> str:
    """Return a regular expression that matches the same text as a glob."""
    result = ""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character in (ANY, "*"):
            result += ".*"
        elif character in (ONE, "?"):
            result += "."
        elif character in (SET, "[") and (end := pattern.find("]", position + 2)) > 0:
            members = pattern[position + 1 : end].replace("\\", r"\\")
            result += "[" + ("^" + members[1:] if members[:1] in "!^" else members) + "]"
            position = end
        else:
            result += re.escape(character)
        position += 1
    return result


def matches_whole(value: str, pattern: str) -> bool | None:
    """Return whether a pattern matches a value.

    Return None if the guard cannot tell, or if the result depends on upper and lower case.
    """
    result = _matches_whole(value, pattern)
    return result if _matches_whole(value.lower(), pattern.lower()) is result else None


def _matches_whole(value: str, pattern: str) -> bool | None:
    if UNKNOWN in value + pattern or _UNSUPPORTED.search(pattern) or len(value) > MAX_MATCHED:
        return None
    if not _ACTIVE.search(pattern) or pattern == ANY:
        return pattern in (ANY, value)
    matcher = linear_regex(f"(?s:{_regex(pattern)})")
    return None if matcher is None else matcher.fullmatch(value) is not None


# `_UNSUPPORTED` matches quoted globs, extended globs, and classes such as ``[[:alpha:]]``.
_EXTENDED: Final = re.compile(rf"[{ANY}{ONE}+@!]\(")
_UNSUPPORTED: Final = re.compile(rf"[*?\[]|{_EXTENDED.pattern}|{SET}[^]{SET}]*+:")
_ACTIVE: Final = re.compile(f"[{ANY}{ONE}{SET}]")


def trimmed(value: str, pattern: str, *, at_start: bool, greedy: bool) -> str:
    """Return the result of ``${name#pattern}`` or ``${name%pattern}`` for a value."""
    matcher = linear_regex(f"(?s:{_regex(pattern)})")
    if matcher is None or len(value) > MAX_MATCHED or _EXTENDED.search(pattern):
        return UNKNOWN
    ends = range(len(value) + 1)
    if at_start:
        for end in reversed(ends) if greedy else ends:
            if matcher.fullmatch(value[:end]):
                return value[end:]
    else:
        for start in ends if greedy else reversed(ends):
            if matcher.fullmatch(value[start:]):
                return value[:start]
    return value


def replaced(value: str, pattern: str, new: str, *, every: bool) -> str:
    """Return the result of ``${name/pattern/new}`` for a value."""
    anchor = pattern[:1] if pattern[:1] in ("#", "%") and not every else ""
    expression = _regex(pattern[len(anchor) :])
    expression = {"#": rf"\A{expression}", "%": rf"{expression}\z"}.get(anchor, expression)
    matcher = linear_regex(f"(?s:{expression})")
    if matcher is None or len(value) > MAX_MATCHED or _EXTENDED.search(pattern):
        return UNKNOWN

    def substitute(_match: object) -> str:
        return new

    return str(matcher.sub(substitute, value, 0 if every else 1))
