"""Finds out whether a signal has stopped a command. This module only reads /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from shelld.inspection.kernel import process, waits_for_child
from shelld.inspection.member import Member

# If each process waits for the next one in a chain, at most this number of processes is examined.
_MAX_DEPTH: Final = 64


def is_stopped(top: int, group: int | None, members: Sequence[Member]) -> bool:
    """Return whether a signal has stopped the bash `top`, or all processes of a group.

    A process of the group that waits for its children, such as a shell, counts as stopped if all
    its children are stopped. If some of its children still run, the process itself is ignored. The
    children may be in another group, as the children of timeout(1) are.
    """
    if _is_bash_stopped(top, members):
        return True
    found: list[Member] = []
    children: dict[int, list[Member]] = {}
    for each in members:
        if each.process is not None and not each.process.is_dead:
            children.setdefault(each.process.parent, []).append(each)
            found += [each] if each.process.group == group else []
    return any(_has_stopped(each, children) for each in found) and all(
        _has_stopped(each, children) or (each.pid in children and waits_for_child(each.pid))
        for each in found
    )


def _is_bash_stopped(top: int, members: Sequence[Member]) -> bool:
    for each in members:
        if each.pid == top and each.process is not None:
            return each.process.is_stopped
    with contextlib.suppress(OSError, ValueError):
        return process(top).is_stopped
    return False


def _has_stopped(
    member: Member, children: Mapping[int, Sequence[Member]], depth: int = _MAX_DEPTH
) -> bool:
    """Return whether a signal has stopped a process, or all the children that the process waits
    for.
    """
    if member.process is not None and member.process.is_stopped:
        return True
    own = children.get(member.pid, ())
    return (
        depth > 0
        and len(own) > 0
        and all(_has_stopped(each, children, depth - 1) for each in own)
        and waits_for_child(member.pid)
    )
