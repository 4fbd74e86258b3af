"""Finds calls in code of any language, and the strings in their arguments. Pure.

An argument is known if it is a literal, a variable that the same code sets to a literal, or the
variable of a loop over literals. Text in quotes is never a call.

All patterns take linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from shelld.guard.literals import literal, with_line
from shelld.guard.markers import ACTIVE

# The guard reads at most `_MAX_LOOKS` calls, and in each call at most `_MAX_ARGUMENTS` characters
# and `_MAX_NAMES` names of the arguments. The guard treats code beyond these limits, and code that
# it cannot follow, as harmless.
_MAX_LOOKS: Final = 64
_MAX_ARGUMENTS: Final = 4 * 1024
_MAX_NAMES: Final = 16
# The guard looks for the list of a loop in the `_MAX_LIST` characters before ``.each``, and for the
# word ``glob`` in the `_MAX_GLOB` characters after ``for``.
_MAX_LIST: Final = 256
_MAX_GLOB: Final = 24
# The guard follows at most `_MAX_BODY` characters of the body of a loop. It repeats the body for
# each value of the loop. All repeated bodies together have at most `_MAX_UNROLLED` characters.
_MAX_BODY: Final = 1024
_MAX_UNROLLED: Final = 8 * 1024

# A search that starts at a quote fails only if no later quote ends the quotation. In that case, all
# later quotes of the same kind are escaped, and no search starts at an escaped quote. So the total
# time is linear.
LITERAL: Final = r"""(?<!\\)'(?>(?:[^'\\]|\\.)*)'|(?<!\\)"(?>(?:[^"\\]|\\.)*)"|`[^`]*+`"""


# The cache is limited, because some patterns contain names from the code.
@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.M)


def given(code: str, calls: str) -> Iterator[list[str]]:
    """For each call with known string arguments, yield these arguments. `calls` is a pattern.

    If an argument is the variable of a loop, yield the arguments once for each value of the loop.
    """
    # Match literals first, because text in quotes is not a call.
    pattern = compiled(rf"{LITERAL}|({calls})(?!\s*[:=])")
    found = (match for match in pattern.finditer(code) if match[1] is not None)
    # The number of calls is limited, because calls can be nested, and reading the arguments of each
    # call takes time.
    for match in islice(found, _MAX_LOOKS):
        arguments = _arguments_at(code, match.end())
        if values := values_in(arguments):
            yield values
            continue
        names = dict.fromkeys(_NAME.findall(arguments))
        rounds: list[str] = []
        for name in islice(names, _MAX_NAMES):
            if values := _assigned(code, name, match.start()):
                yield values
                break
            rounds += _looped(code, name, match.start())
        else:
            yield from ([each] for each in rounds)


def _arguments_at(code: str, position: int) -> str:
    text = code[position : position + _MAX_ARGUMENTS]
    return text[: end_of_arguments(text, 0)]


class _Place(NamedTuple):
    """Text that gives a value to a variable, such as ``name =``.

    `start` and `end` are the bounds of this text. The value comes after the text, or before it if
    `is_behind` is true.
    """

    start: int
    end: int
    is_behind: bool = False


@lru_cache(maxsize=2)
def _assignments(code: str) -> dict[str, list[_Place]]:
    places: dict[str, list[_Place]] = {}
    for match in _SET.finditer(code):
        places.setdefault(match[1], []).append(_Place(*match.span()))
    return places


@lru_cache(maxsize=2)
def _loops(code: str) -> dict[str, list[_Place]]:
    places: dict[str, list[_Place]] = {}
    for match in _LOOP.finditer(code):
        # In Perl, ``for (...)`` sets ``$_``.
        name = "_" if match[1] in ("for", "foreach") else match[1] or match[2]
        places.setdefault(name, []).append(_Place(*match.span(), match[1] is None))
    return places


_SET: Final = re.compile(r"\b([A-Za-z_]\w*+)\s{0,8}=(?!=)\s{0,8}")
_LOOP: Final = re.compile(
    r"\b([A-Za-z_]\w*+)\s{0,8}(?:\bin\b|\bof\b|(?=\(\s{0,8}(?:['\"q]|glob\b))|(?<=\s)(?=qw))"
    r"|\.(?:each|forEach|map)\b[^\n\w]{0,8}(?:(?:do|function)\b[^\n\w]{0,8})?\b([A-Za-z_]\w*+)"
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*+")
_LISTED: Final = re.compile(r"\s{0,8}[$@]?([A-Za-z_]\w*+)")
_FOR: Final = re.compile(r"\bfor\b")


def _nearest(places: list[_Place], code: str, position: int) -> _Place:
    """The code uses a variable at `position`. Find the assignment of the variable's value.

    Usually, this is the last assignment before the position. Return the first assignment after the
    position if no assignment comes before the position, or if a ``for`` on the same line makes the
    assignment.
    """
    index = bisect_left(places, (position,))
    if index == len(places):
        return places[-1]
    after = places[index]
    is_near = after.start - position <= _MAX_LIST and "\n" not in code[position : after.start]
    # In ``remove(p) for p in paths``, the use comes before the ``for`` that sets the variable.
    if index == 0 or (is_near and _FOR.search(code, position, after.end)):
        return after
    return places[index - 1]


def _assigned(code: str, name: str, position: int) -> list[str]:
    """Return the strings in the value of a variable. The code uses the variable at `position`."""
    places = _assignments(code).get(name)
    if not places:
        return []
    return values_in(_arguments_at(code, _nearest(places, code, position).end))


def _looped(code: str, name: str, position: int) -> list[str]:
    """Return the strings that a loop assigns to its variable, one after the other."""
    places = _loops(code).get(name)
    return _listed(code, _nearest(places, code, position)) if places else []


def _listed(code: str, place: _Place) -> list[str]:
    """Return the strings in the list over which a loop iterates."""
    if place.is_behind:
        before = code[max(0, place.start - _MAX_LIST) : place.start]
        return values_in(re.split("[;\n]", before)[-1])
    values = values_in(_arguments_at(code, place.end))
    if not values and (listed := _LISTED.match(code, place.end)) is not None:
        values = _assigned(code, listed[1], place.start)
    return values


def unrolled(code: str) -> Iterator[str]:
    """Yield the body of each loop over known strings, once for each string.

    Each body begins with an assignment to the variable of the loop.
    """
    rest = _MAX_UNROLLED
    for name, places in _loops(code).items():
        ends = [*(place.start for place in places[1:]), len(code)]
        for place, end in zip(places, ends, strict=True):
            body = code[place.end : min(end, place.end + _MAX_BODY)]
            is_pattern = _GLOB.search(code, place.start, place.end + _MAX_GLOB) is not None
            for value in _listed(code, place):
                rest -= len(body)
                if rest < 0:
                    return
                word = value.translate(ACTIVE) if is_pattern else value
                if name == "_":
                    # Perl stores the value of the loop in ``$_``.
                    yield with_line(body, word)
                else:
                    yield f"{name} = {literal(word)}\n{body}"


_GLOB: Final = re.compile(r"\bglob\b")
_QUOTED_WORDS: Final = r"(?:\bqw|%[wW])\s*+[(\[{/|]([^)\]}|]*+)(?:[)\]}|]|\Z)"


def values_in(text: str) -> list[str]:
    """Return the strings in code. Joins strings that stand side by side or around ``+``."""
    # ``qw`` and ``%w`` begin lists of words.
    text = compiled(_QUOTED_WORDS).sub(_quoted_words, text)
    values: list[str] = []
    end = -1
    for match in compiled(LITERAL).finditer(text):
        between = text[end : match.start()].strip() if end >= 0 else None
        if between in ("+", ".", "..", "+ f") or (between in ("", "f") and match.start() > end):
            values[-1] += unquoted(match[0])
        else:
            values.append(unquoted(match[0]))
        end = match.end()
    return values


def _quoted_words(match: re.Match[str]) -> str:
    return ", ".join(f"'{word}'" for word in match[1].split())


def unquoted(string: str) -> str:
    return re.sub(r"\\(.)", r"\1", string[1:-1])


def end_of_arguments(code: str, position: int) -> int:
    """Return the end of a call's arguments, which is ``)`` or the end of the statement."""
    depth = 0
    token = compiled(rf"{LITERAL}|[()\[\]{{}};\n]")
    while (match := token.search(code, position)) is not None:
        position = match.end()
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
            if depth <= 0:
                return position
        elif match[0] in ";\n" and depth <= 0:
            return match.start()
    return len(code)
