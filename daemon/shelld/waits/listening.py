"""The TCP ports on which the processes of a command listen.

Many processes are looked at in slices, so that other requests need not wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

import anyio

from shelld.eventloop.turns import Turns
from shelld.inspection import ports, sockets
from shelld.inspection.kernel import name_of
from shelld.inspection.members import members
from shelld.inspection.ports import Listening
from shelld.shells.shell import Shell
from shelld.waits.pauses import Pauses
from shelld_protocol.errors import unavailable
from shelld_protocol.structs import Listener

# A server may be silent for a long time before it listens. So even a silent command is looked at
# this often.
_LONGEST_PAUSE_S: Final = 0.2
# The maximum number of processes to list. That takes less than a millisecond.
_FEW: Final = 32
# The processor time of one slice.
_SLICE_S: Final = 0.005


def check_ports() -> None:
    """Raise `RpcError` (unavailable) if this system does not list listening sockets."""
    if not sockets.can_be_listed():
        raise unavailable("listening", "a list of listening sockets", "Mount /proc")


async def wait_for_port(
    shell: Shell, port: int | None, give_up_at: float, looks: Turns
) -> list[Listener]:
    """Return the ports once the command listens; none at `give_up_at`, or if the shell ends.

    `give_up_at` is a moment of the event loop's clock. If it has passed, look once.
    """
    pauses = Pauses(looks, _LONGEST_PAUSE_S)
    while not shell.has_ended:
        if anyio.current_time() >= give_up_at:
            look = _Look(shell, port)
            while not await looks.do_now(look.go_on):
                pass
            return look.found
        # The deadline also ends the wait for a turn.
        with anyio.CancelScope(deadline=give_up_at):
            if found := await listening_ports(shell, port, pauses):
                return found
            await pauses.pause(shell)
    return []


async def listening_ports(shell: Shell, port: int | None, pauses: Pauses) -> list[Listener]:
    """Return the ports of a command. Each slice of the look has a turn of its own."""
    look = _Look(shell, port)
    pauses.begin_look()
    while not await pauses.in_turn(look.go_on):
        pass
    return look.found


def basis_of_ports(shell: Shell) -> object | None:
    """Return facts on which the ports of a command depend. Compare them with earlier facts.

    Return None if the command has many processes, or has one in another network namespace.
    """
    try:
        here = os.stat("/proc/self/ns/net").st_ino
        found: list[tuple[int, str]] = []
        for pid in () if shell.pid is None else members(shell.pid):
            if pid is not None:
                found.append((pid, name_of(pid)))
                if len(found) > _FEW or os.stat(f"/proc/{pid}/ns/net").st_ino != here:
                    return None
        return frozenset(sockets.listening("/proc/self")), tuple(found)
    except OSError:
        # For example, a process has just ended, or belongs to another user.
        return None


class _Look:
    """A look at all processes of a command, and the ports that it has found so far."""

    def __init__(self, shell: Shell, port: int | None) -> None:
        self._found: list[Listener] = []
        none = iter(())
        self._rest: Iterator[Listening | None] = (
            none if shell.pid is None else ports.find(shell.pid, port)
        )

    @property
    def found(self) -> list[Listener]:
        return sorted(self._found, key=lambda each: (each.port, each.address))

    def go_on(self) -> bool:
        """Continue for the time of one slice. Return whether all processes have been looked at."""
        until = time.thread_time() + _SLICE_S
        for each in self._rest:
            if each is not None:
                self._found.append(Listener(each.port, each.address, each.pid, each.program))
            if time.thread_time() > until:
                return False
        return True
