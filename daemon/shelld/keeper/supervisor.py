"""The keeper: forks runners, and finishes the work of those that die.

Owns the runners as processes, and their cgroups, not what they do. It runs in an interpreter of
its own that imported nothing it does not need, so a fork of it is cheap and inherits nothing of
the daemon.

It keeps every runner's socket open. When a runner is killed, the keeper kills what that leaves and
tells the daemon on the same socket, in the same words, when nothing is left. Without subreapers it
cannot know what that is, and closes the socket: the daemon does it then.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
from typing import Final, NamedTuple

from shelld.keeper import runner
from shelld.keeper.cgroup import Cgroup, remove_stale, usable_directory
from shelld.keeper.channel import EMPTY, LOST, SPAWN_RUNNER, STOP_RUNNER, SURVIVORS, Channel
from shelld.keeper.strangers import Strangers
from shelld.keeper.tree import become_subreaper, set_process_name

_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
# Where closerange(3) closes one by one, a limit of millions would take seconds.
_MAX_INHERITED: Final = 65_536


class KeeperOptions(NamedTuple):
    """`file_limit`: the soft RLIMIT_NOFILE of commands.

    `mechanism`: the strongest to be used, of "cgroup", "subreaper" and "process-group".
    """

    file_limit: int
    mechanism: str


class _Runner(NamedTuple):
    socket: int
    cgroup: Cgroup | None


class _LostRunner:
    """One whose tree is not known to be empty yet; `others` survived the death of earlier ones."""

    def __init__(self, descriptor: int, others: list[int]) -> None:
        self.socket = descriptor
        self.others = frozenset(others)
        self.reported = False


class Keeper:
    def __init__(self, sock: socket.socket, options: KeeperOptions) -> None:
        set_process_name(b"shelld-keeper")
        self._options = options
        self._subreaper = options.mechanism != "process-group" and become_subreaper()
        self._cgroup_parent = usable_directory() if options.mechanism == "cgroup" else None
        if self._cgroup_parent is not None:
            remove_stale(self._cgroup_parent)
        self._channel = Channel(sock)
        self._wake = runner.WakeOnChild()
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._poll.register(self._wake.fileno(), select.POLLIN)
        self._daemon_alive = True
        self._runners: dict[int, _Runner] = {}
        self._forked_count = 0
        self._lost: list[_LostRunner] = []
        self._strangers = Strangers()
        self._cgroups_to_remove: list[Cgroup] = []
        self._childless = True

    def serve(self) -> None:
        """Fork runners until the daemon is gone and nothing is left below this process."""
        while self._daemon_alive or not self._childless:
            events = {fd for fd, _ in self._poll.poll(self._strangers.interval_ms)}
            if self._wake.fileno() in events:
                self._wake.drain()
                self._reap()
            if self._strangers.interval_ms is not None:
                self._kill_strangers()
            if self._channel.fileno() in events:
                self._receive()
        self._remove_cgroups()
        if self._cgroup_parent is not None:
            remove_stale(self._cgroup_parent)

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
            elif message[0] == STOP_RUNNER and message[1] in self._runners:
                os.kill(message[1], signal.SIGKILL)

    def _fork_runner(self, descriptor: int) -> None:
        cgroup = None
        if self._cgroup_parent is not None:
            self._forked_count += 1
            cgroup = Cgroup.create(self._cgroup_parent, self._forked_count)
        keeper_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            # The daemon sees end of file on the other side.
            os.close(descriptor)
            if cgroup is not None:
                cgroup.remove()
            return
        if pid:
            self._runners[pid] = _Runner(descriptor, cgroup)
            self._childless = False
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            # The sockets of the others: their ends are to be seen as such.
            for other in self._runners.values():
                os.close(other.socket)
            for lost in self._lost:
                os.close(lost.socket)
            self._channel.close()
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._options.file_limit, hard))
            runner.main(
                socket.socket(fileno=descriptor),
                subreaper=self._subreaper,
                cgroup=cgroup,
                keeper_pid=keeper_pid,
            )
            status = 0
        finally:
            os._exit(status)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                # By a command that wants to be left alone.
                if pid in self._runners:
                    os.kill(pid, signal.SIGCONT)
            elif (ended := self._runners.pop(pid, None)) is not None:
                self._bury(ended, status)

    def _bury(self, ended: _Runner, status: int) -> None:
        if ended.cgroup is not None:
            if status:
                ended.cgroup.kill()
            if not ended.cgroup.remove():
                self._cgroups_to_remove.append(ended.cgroup)
        if status == 0 or not self._subreaper:
            # It has proved that nothing was left, or nothing can be said of it here: the daemon
            # sees end of file, and knows the session.
            os.close(ended.socket)
            return
        self._lost.append(_LostRunner(ended.socket, self._strangers.survivors))
        self._strangers.expect()
        self._tell(ended.socket, (LOST,))

    def _kill_strangers(self) -> None:
        self._strangers.kill_round(self._runners.__contains__)
        self._reap()
        if self._strangers.settled:
            self._lost = [lost for lost in self._lost if not self._is_finished(lost)]
            self._remove_cgroups()

    def _is_finished(self, lost: _LostRunner) -> bool:
        survivors = [pid for pid in self._strangers.survivors if pid not in lost.others]
        if survivors and not lost.reported:
            lost.reported = True
            self._tell(lost.socket, (SURVIVORS, survivors))
        if not survivors:
            self._tell(lost.socket, (EMPTY,))
            os.close(lost.socket)
        return not survivors

    def _remove_cgroups(self) -> None:
        self._cgroups_to_remove = [
            cgroup for cgroup in self._cgroups_to_remove if not cgroup.remove()
        ]

    def _tell(self, descriptor: int, message: tuple[object, ...]) -> None:
        # A daemon that is gone needs no telling.
        with contextlib.suppress(OSError):
            channel = Channel(socket.socket(fileno=os.dup(descriptor)))
            channel.send(message)
            channel.close()


def main(descriptor: int, file_limit: str, mechanism: str) -> None:
    """Serve the socket `descriptor`; called by `pool`, in a new interpreter and session."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, min(os.sysconf("SC_OPEN_MAX"), _MAX_INHERITED))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # One for every runner. Where that is refused, the number of runners is limited.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Runners are forks of this process: what is not looked at stays shared with them.
    gc.freeze()
    options = KeeperOptions(int(file_limit) or soft, mechanism)
    Keeper(socket.socket(fileno=descriptor), options).serve()
