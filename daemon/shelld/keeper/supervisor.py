"""The keeper: forks runners, and kills what a runner that died has left behind.

Owns the runners as processes, not what they do. It runs in an interpreter of its own that
imported nothing it does not need, so a fork of it is cheap and inherits nothing of the daemon.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from typing import Final

from shelld.keeper import runner
from shelld.keeper.channel import SPAWN_RUNNER, Channel
from shelld.keeper.tree import become_subreaper, descendants

_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Keeper:
    def __init__(self, sock: socket.socket) -> None:
        become_subreaper(b"shelld-keeper")
        self._channel = Channel(sock)
        self._wake = runner.WakeOnChild()
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._poll.register(self._wake.fileno(), select.POLLIN)
        self._daemon_alive = True
        self._runners: set[int] = set()
        self._childless = True

    def serve(self) -> None:
        """Fork runners until the daemon is gone and nothing is left below this process."""
        while self._daemon_alive or not self._childless:
            events = {descriptor for descriptor, _ in self._poll.poll()}
            if self._wake.fileno() in events:
                self._wake.drain()
                self._reap()
            if self._channel.fileno() in events:
                self._receive()

    def _receive(self) -> None:
        messages = self._channel.receive()
        if messages is None:
            self._poll.unregister(self._channel.fileno())
            self._daemon_alive = False
            return
        for message, descriptors in messages:
            # Without its socket, which there was no room for, the daemon sees end of file.
            if message[0] == SPAWN_RUNNER and descriptors:
                self._fork_runner(descriptors.pop())

    def _fork_runner(self, descriptor: int) -> None:
        try:
            pid = os.fork()
        except OSError:
            # The daemon sees end of file on the other side.
            os.close(descriptor)
            return
        if pid:
            os.close(descriptor)
            self._runners.add(pid)
            self._childless = False
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            self._channel.close()
            runner.main(socket.socket(fileno=descriptor))
            status = 0
        finally:
            os._exit(status)

    def _reap(self) -> None:
        reaped = True
        while reaped:
            reaped = False
            try:
                while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                    reaped = True
                    self._runners.discard(pid)
            except ChildProcessError:
                self._childless = True
                return
            if reaped:
                self._kill_strangers()

    def _kill_strangers(self) -> None:
        """A runner ends only when its tree is empty: other children are of one that was killed.

        Each round may bring up the children of the last; their ends are SIGCHLDs of their own.
        """
        us = os.getpid()
        for pid, parent in descendants().items():
            if parent == us and pid not in self._runners:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def main(descriptor: int) -> None:
    """Serve the socket `descriptor`; called by `pool`, in a new interpreter and session."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    Keeper(socket.socket(fileno=descriptor)).serve()
