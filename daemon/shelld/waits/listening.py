"""Finds the TCP ports on which the processes of a command listen, and waits for them.

When a socket begins to listen in a network namespace of the daemon or of the command, a waiting
task checks the processes of its command. `SocketNews` notices such sockets for all waiting tasks.
But it does not notice if one process passes a socket to another, or if a process enters another
namespace. So even if `SocketNews` notices nothing, the task checks the processes, at growing
intervals. A check of many processes is done in slices, so that other requests need not wait.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from typing import Final
from weakref import WeakKeyDictionary, ref

import anyio

from shelld.eventloop.turns import Turns, do_serially
from shelld.inspection import ports, sockets
from shelld.inspection.kernel import name_of
from shelld.inspection.members import members
from shelld.inspection.ports import Listening
from shelld.inspection.socket_news import SocketNews, SocketWatch
from shelld.inspection.sockets import Socket
from shelld.shells.shell import Shell
from shelld.waits.pauses import Pauses
from shelld_protocol.errors import unavailable
from shelld_protocol.structs import Listener

# Sockets of other programs can end the pause between two checks of the processes. If this happens
# after each check, the shortest pause grows up to this limit.
_BUSY_PAUSE_S: Final = 0.2
# While no socket begins to listen, the pause between two checks is as long as the wait has lasted
# so far, within these limits.
_FIRST_PAUSE_S: Final = 0.5
_LAST_PAUSE_S: Final = 8.0
# The longest pause if a process is in another network namespace. Other processes may soon enter
# more namespaces.
_LAST_PAUSE_ELSEWHERE_S: Final = 2.0
# `basis_of_ports` lists at most this number of processes. This takes less than a millisecond.
_FEW: Final = 32
# The processor time of one slice.
_SLICE_S: Final = 0.005


def check_ports() -> None:
    """Raise `RpcError` (unavailable) if this system does not list listening sockets."""
    if not sockets.can_be_listed():
        raise unavailable("listening", "a list of listening sockets", "Mount /proc")


async def wait_for_port(
    shell: Shell, port: int | None, give_up_at: float, check_turns: Turns, news: SocketNews
) -> list[Listener]:
    """Wait until the command listens, and return its ports.

    Return an empty list at `give_up_at`, or if the shell ends.

    `give_up_at` is a time of the event loop's clock. If this time has passed, check once.
    """
    pauses = Pauses(check_turns)
    began = anyio.current_time()
    # The shortest pause. This pause grows as long as checks find only sockets of other commands.
    least_s = 0.0
    if began < give_up_at:
        # The deadline also applies while this task waits for its turn to check.
        with SocketWatch(news, shell.notify) as watch, anyio.CancelScope(deadline=give_up_at):
            while not shell.has_ended:
                # If a socket begins to listen during the check, the next pause ends early.
                seen = watch.count
                check = await _checked(shell, port, pauses, watch.listening)
                if check.found:
                    return check.found
                watch.follow(check.elsewhere)
                last_s = _LAST_PAUSE_ELSEWHERE_S if check.elsewhere else _LAST_PAUSE_S
                waited_s = anyio.current_time() - began
                pause_s = min(max(waited_s, _FIRST_PAUSE_S), last_s)
                least_s = max(least_s, pauses.shortest)
                await _wait_for_sockets(shell, watch, seen, least_s, pause_s)
                least_s = min(2 * least_s, _BUSY_PAUSE_S) if watch.count != seen else 0.0
    if shell.has_ended:
        return []
    last = _last_checks.setdefault(shell, _LastCheck(shell))
    return [each for each in await last.found() if port in {None, each.port}]


async def _wait_for_sockets(
    shell: Shell, watch: SocketWatch, seen: int, least_s: float, most_s: float
) -> None:
    """Wait until a socket begins to listen, but at least `least_s` and at most `most_s` seconds.

    `seen`: the value of `watch.count` before the last check. The wait also ends when the shell
    ends.
    """
    with anyio.move_on_after(least_s):
        await shell.wait_until(lambda: shell.has_ended)
    with anyio.move_on_after(most_s - least_s):
        await shell.wait_until(lambda: shell.has_ended or watch.count != seen)


async def _checked(
    shell: Shell, port: int | None, pauses: Pauses, here: Iterable[Socket]
) -> _Check:
    """Check all processes of a command. Each slice of the check waits for its own turn."""
    check = _Check(shell, port, here)
    pauses.begin_check()
    while not await pauses.in_turn(check.go_on):
        pass
    return check


async def listening_ports(shell: Shell, pauses: Pauses, watch: SocketWatch) -> list[Listener]:
    """Return the ports of a command. From now on, `watch` follows the command's namespaces."""
    check = await _checked(shell, None, pauses, sockets.listening("/proc/self"))
    watch.follow(check.elsewhere)
    return check.found


def basis_of_ports(shell: Shell) -> object | None:
    """Return what the ports of a command depend on: the listening sockets, and the command's
    processes.

    The caller compares the result with an earlier result.

    Return None if the command has many processes, or has a process in another network namespace.
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
        # For example, a process has just ended, or it belongs to another user.
        return None


class _LastCheck:
    """The last check of the processes of a shell, at the end of a wait for its ports.

    Waits that end at the same time share this check, because a check takes almost a second if the
    command has thousands of processes.
    """

    def __init__(self, shell: Shell) -> None:
        # The dictionary `_last_checks` keeps this object until the shell is gone. So this object
        # must not keep the shell alive.
        self._shell = ref(shell)
        self._lock = anyio.Lock()
        self._found: list[Listener] = []
        self._began_at = -math.inf

    async def found(self) -> list[Listener]:
        """Return all ports of the shell, from a check that begins after this call."""
        called_at = time.monotonic()
        async with self._lock:
            if self._began_at < called_at and (shell := self._shell()) is not None:
                began_at = time.monotonic()
                check = _Check(shell, None, sockets.listening("/proc/self"))
                while not await do_serially(check.go_on):
                    pass
                self._found, self._began_at = check.found, began_at
            return self._found


_last_checks: Final[WeakKeyDictionary[Shell, _LastCheck]] = WeakKeyDictionary()


class _Check:
    """A check of all processes of a command, with the ports that the check has found so far.

    `here`: the sockets that listen in the network namespace of the daemon. `elsewhere`: the
    command's other namespaces, as `ports.find` reports them.
    """

    def __init__(self, shell: Shell, port: int | None, here: Iterable[Socket]) -> None:
        self._found: list[Listener] = []
        self.elsewhere = dict[int, str]()
        self._rest: Iterator[Listening | None] = iter(())
        if shell.pid is not None:
            self._rest = ports.find(shell.pid, port, here, self.elsewhere)

    @property
    def found(self) -> list[Listener]:
        return sorted(self._found, key=lambda each: (each.port, each.address))

    def go_on(self) -> bool:
        """Continue the check for one slice of time.

        Return whether the check has covered all processes.
        """
        until = time.thread_time() + _SLICE_S
        for each in self._rest:
            if each is not None:
                self._found.append(Listener(each.port, each.address, each.pid, each.program))
            if time.thread_time() > until:
                return False
        return True
