"""Finds out whether input is still on its way to a program behind relays.

What a relay writes to a terminal arrives a moment later. Until then, the relay sleeps again, and
the program that is about to get the input still sleeps in its read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from shelld.inspection.kernel import can_end
from shelld.inspection.member import Member, look_at
from shelld.inspection.waiting_calls import Wait
from shelld.terminals.source import Source

_STANDARD: Final = (0, 1, 2)
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Hop(NamedTuple):
    """A process that waits to read a source: a relay, or the program at the end."""

    member: Member
    source: Source


def wait_on(member: Member, source: Source) -> tuple[Wait, int] | None:
    """Return how a process waits until it can read from a source, and the descriptor.

    Returns None if it does not wait for that.
    """
    about = member.process
    if about is None:
        return None
    if (about.terminal,) == source.file:
        group = about.terminal_group if source.group is None else source.group
        if about.group != group:
            # The terminal would stop a process in the background.
            return None
    for wait, descriptor in (member.reads or {}).get(source.file, ()):
        with contextlib.suppress(OSError):
            if can_end(wait, descriptor):
                return wait, descriptor
    return None


def is_on_its_way(hops: Sequence[Hop]) -> bool:
    """Return whether input is between the first and the last of `hops`, which follow each other.

    Looks at the hops in the order in which input passes them. A relay that sleeps has passed on all
    input that it has read. So if the terminal behind the relay is then empty, and the next process
    sleeps, all input up to there has arrived.
    """
    for number, (member, source) in enumerate(hops):
        found = wait_on(member, source)
        if found is None or (number and _has_input(*found, source)):
            return True
        with contextlib.suppress(OSError, ValueError):
            now = look_at(member.pid, lambda: False, with_reads=True, known=source.mount)
            if wait_on(now, source) is not None:
                continue
        return True
    return False


def _has_input(wait: Wait, descriptor: int, source: Source) -> bool:
    """Return whether a terminal has input to read. Returns False if nobody can tell.

    Before the kernel answers that there is none, it passes on all bytes that are on their way.
    """
    # /dev/tty does not lead to the terminal, but another descriptor may.
    for each in (descriptor, *_STANDARD):
        with contextlib.suppress(OSError):
            terminal = _opened(f"{wait.place}/fd/{each}", source)
            try:
                ready = select.poll()
                ready.register(terminal, select.POLLIN)
                return bool(ready.poll(0))
            finally:
                os.close(terminal)
    return False


def _opened(path: str, source: Source) -> int:
    """Open a terminal by a link in /proc. Raises OSError, also if the link leads elsewhere."""
    # Open the path first: the descriptor may be another file by now, and that may hang.
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        about = os.fstat(place)
        if not stat.S_ISCHR(about.st_mode) or (about.st_rdev,) != source.file:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        return os.open(f"/proc/self/fd/{place}", _OPEN)
    finally:
        os.close(place)
