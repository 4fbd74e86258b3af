"""Detects functions and scripts that start more and more copies of themselves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from shelld.guard.callees import Call
from shelld.guard.verdict import Finding

FORK_BOMB: Final = Finding("fork-bomb", "it starts itself again and again, without end")

# The expansions with which a function can call itself without writing its own name.
_OWN_NAME: Final = ("$FUNCNAME", "${FUNCNAME}", "${FUNCNAME[0]}")


def _among(calls: Iterable[Call], names: Collection[str]) -> list[Call]:
    return [each for each in calls if each.name in names]


def _multiply(calls: Sequence[Call]) -> bool:
    """Return whether `calls` start several copies of a function, and start at least one copy in
    parallel.
    """
    return sum(each.times for each in calls) > 1 and any(each.is_spawned for each in calls)


def is_fork_bomb_if_called(argv: Sequence[str], calls: Mapping[str, Sequence[Call]]) -> bool:
    """Return whether a function call is a fork bomb because the function gets its own name as an
    argument.

    The function must use this argument to start itself several times in parallel. For example, the
    function has the body ``$1 $1 &``, and gets its own name as ``$1``.
    """
    name = argv[0]
    own = {f"${{{index}}}" for index, each in enumerate(argv) if index and each == name}
    own |= {each.replace("{", "").replace("}", "") for each in own}
    return _multiply(_among(calls.get(name, ()), own))


def is_fork_bomb_as_file(path: str, calls: Sequence[Call]) -> bool:
    """Return whether a script file starts itself several times in parallel.

    `calls`: the calls in the file.
    """
    return _multiply(_among(calls, (path, "$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE[0]}")))


def is_fork_bomb(name: str, calls: Mapping[str, Sequence[Call]]) -> bool:
    """Return whether a function calls itself, directly or indirectly, several times in parallel.

    The circle consists of the function and of all functions through which it can call itself. The
    function is a fork bomb if both of these statements are true: some function in the circle makes
    several calls to functions in the circle, and at least one call within the circle runs in
    parallel.
    """
    circle = _circle(name, calls)
    inner = [_among(calls[each], {*circle, *_OWN_NAME}) for each in circle]
    branches = any(sum(call.times for call in each) > 1 for each in inner)
    return branches and any(call.is_spawned for each in inner for call in each)


def _circle(name: str, calls: Mapping[str, Sequence[Call]]) -> set[str]:
    """Return a function and the functions through which it can call itself."""
    callers: dict[str, set[str]] = {}
    seen, todo = {name}, [name]
    while todo:
        current = todo.pop()
        for each in calls.get(current, ()):
            if each.name in calls:
                callers.setdefault(each.name, set()).add(current)
                if each.name not in seen:
                    seen.add(each.name)
                    todo.append(each.name)
    circle, todo = {name}, [name]
    while todo:
        new = callers.get(todo.pop(), set()) - circle
        circle |= new
        todo += new
    return circle
