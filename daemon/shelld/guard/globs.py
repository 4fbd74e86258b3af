"""Matches bash patterns against paths, in time linear in the length of the path. Pure."""

from __future__ import annotations

import re
import string
from fnmatch import translate
from functools import lru_cache
from typing import Final

from shelld.guard.markers import ANY, ONE, SET

_LITERAL: Final = re.compile(r"[*?\[]")
_CLASSES: Final = {"[:alpha:]": "a-zA-Z", "[:lower:]": "a-z", "[:alnum:]": "a-zA-Z0-9"}
# The maximum length in characters of a pattern for one component of a path. No name that the guard
# knows needs a longer pattern.
_MAX_PATTERN: Final = 200


def has_glob(field: str) -> bool:
    return ANY in field or ONE in field or SET in field


@lru_cache(maxsize=256)
def _matcher(step: str) -> re.Pattern[str] | None:
    if len(step) > _MAX_PATTERN:
        return None
    pattern = _LITERAL.sub(r"[\g<0>]", step)
    pattern = pattern.replace(f"{SET}^", "[!").translate({ord(ANY): "*", ord(ONE): "?"})
    pattern = pattern.replace(SET, "[")
    for name, members in _CLASSES.items():
        pattern = pattern.replace(name, members).replace("[[]" + name[1:], members)
    try:
        return re.compile(translate(pattern))
    except re.error:
        return None


def matches(pattern: str, path: str) -> bool:
    """Return whether `pattern` matches `path`, component by component."""
    steps, names = pattern.split("/"), path.split("/")
    if len(steps) != len(names):
        return False
    for step, name in zip(steps, names, strict=True):
        if step == name:
            continue
        matcher = _matcher(step) if has_glob(step) else None
        if matcher is None or not matcher.match(name):
            return False
    return True


@lru_cache(maxsize=64)
def matches_most_letters(step: str) -> bool:
    """Return whether a pattern, without its leading dots, matches most one-letter names."""
    matcher = _matcher(step.lstrip("."))
    if matcher is None:
        return True
    letters = string.ascii_lowercase
    return sum(matcher.match(letter) is not None for letter in letters) * 2 > len(letters)
