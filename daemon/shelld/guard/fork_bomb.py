"""Detects functions that start themselves without end."""

from __future__ import annotations

from typing import Final

from shelld.guard.verdict import Finding

FORK_BOMB: Final = Finding("fork-bomb", "it starts itself again and again, without end")


def is_fork_bomb_if_called(argv: list[str], calls: dict[str, list[tuple[str, bool]]]) -> bool:
    """Whether a function that gets its own name starts itself by this argument, as in ``$1 $1``."""
    name = argv[0]
    own = {f"${{{index}}}" for index, each in enumerate(argv) if index and each == name}
    own |= {each.replace("{", "").replace("}", "") for each in own}
    return any(is_spawned and callee in own for callee, is_spawned in calls.get(name, ()))


def is_fork_bomb_as_file(path: str, calls: list[tuple[str, bool]]) -> bool:
    """Whether a script in a file, which runs `calls`, starts itself several times in parallel."""
    names = {path, "$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE[0]}"}
    return any(is_spawned and callee in names for callee, is_spawned in calls)


def is_fork_bomb(name: str, calls: dict[str, list[tuple[str, bool]]]) -> bool:
    """Whether a function calls itself, directly or indirectly, several times in parallel."""
    seen: set[str] = set()
    todo = [(name, False)]
    while todo:
        current, spawned = todo.pop()
        for callee, is_spawned in calls.get(current, ()):
            is_itself = callee in (name, "$FUNCNAME", "${FUNCNAME}", "${FUNCNAME[0]}")
            if is_itself and (spawned or is_spawned):
                return True
            if callee in calls and callee not in seen:
                seen.add(callee)
                todo.append((callee, spawned or is_spawned))
    return False
