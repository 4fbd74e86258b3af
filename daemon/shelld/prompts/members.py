"""Lists the processes of a command, as far as this process can see them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shelld.keeper.tree import children_of
from shelld.prompts.kernel import process


def members(top: int) -> Iterator[int]:
    """Yield the pids of a command, parents first. `top` is its bash.

    Each is found only when the caller asks for it, so the caller decides how long this takes.
    """
    with contextlib.suppress(OSError, ValueError):
        # Processes whose parent has ended belong to the runner.
        waiting = _children(process(top).parent)
        while waiting:
            pid = waiting.pop()
            waiting += _children(pid)
            yield pid


def _children(pid: int) -> list[int]:
    try:
        return children_of(pid)
    except (OSError, ValueError):
        return []
