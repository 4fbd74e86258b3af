"""Lists the processes of a command, as far as this process can see them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shelld.inspection.kernel import process, threads_of
from shelld.keeper.proc import children_of, exists, lister, read_file


def members(top: int) -> Iterator[int | None]:
    """Yield the pids of a command's processes, each before the pids of its children.

    Yield None whenever the caller may stop. `top` is the command's bash. Looks for a process only
    when the caller asks for the next item.
    """
    with contextlib.suppress(OSError, ValueError):
        # A process whose parent ends becomes a child of the runner. This may happen during the
        # search, so the runner's children are listed last.
        runner = _parent(top)
        waiting = [top] if runner is None else [runner, top]
        list_children = lister() or _no_children
        while waiting:
            pid = waiting.pop()
            if pid != runner:
                yield pid
            by_threads = list_children is children_of
            for child in _children(pid) if by_threads else list_children(pid):
                if child not in (None, top):
                    waiting.append(child)
                yield None


def _parent(pid: int) -> int | None:
    """Return the parent of a process; None if the system hides the process (hidepid in proc(5)).

    The system may hide the process of the command's bash after bash has replaced itself with
    another user's program, such as sudo. Raises OSError or ValueError if the process is gone.
    """
    try:
        return process(pid).parent
    except (PermissionError, FileNotFoundError):
        if not exists(pid):
            raise
        return None


def _no_children(_pid: int) -> list[int]:
    return []


def _children(pid: int) -> Iterator[int | None]:
    """Yield the children of each thread, and None for a thread without children."""
    with contextlib.suppress(OSError, ValueError):
        for thread in threads_of(pid):
            # The thread may have ended after the threads were listed.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children = read_file(f"/proc/{pid}/task/{thread}/children").split()
                yield from map(int, children) if children else (None,)
