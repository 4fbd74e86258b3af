"""The keeper: forks runners, and finishes the work of runners that die.

Owns the runner processes and their cgroups, but not the commands. It runs in its own interpreter,
which imports only what the keeper needs. So a fork is cheap and inherits nothing of the daemon.

It keeps every runner's socket open. When a runner is killed, the keeper kills the processes that
the runner left. When no process is left, the keeper reports this on the runner's socket, with the
messages that a runner would send. Without subreapers it cannot know what a runner left, so it
closes the socket, and the daemon does the work.

A failure of one message or one runner does not end the keeper. It ends with an error if it fails
again and again, cannot list the processes that it must kill, or has limits or a priority that a
command has changed. The daemon then starts another keeper.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import time
from typing import Final, NamedTuple, NoReturn

from shelld.keeper import runner
from shelld.keeper.cgroup import Cgroup, remove_stale, usable_directory
from shelld.keeper.channel import (
    EMPTY,
    KILL_DEADLINE_MS,
    LOST,
    SPAWN_RUNNER,
    STOP_RUNNER,
    SURVIVORS,
    Channel,
    Message,
)
from shelld.keeper.inherited import Limits, inherited
from shelld.keeper.orphan_reaper import KILL_INTERVAL_MS, REAPED_AT_ONCE, OrphanReaper
from shelld.keeper.own_cgroups import own_cgroups
from shelld.keeper.prctl import become_subreaper, continue_when_parent_ends, set_process_name

_IGNORED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGXCPU,
)
# How many turns in a row may raise an unexpected exception before the keeper ends.
_MAX_FAILURES: Final = 100
# closerange(3) may close descriptors one by one; a limit of millions would then take seconds.
_MAX_INHERITED: Final = 65_536
# How often to look for runners that do not end, once the daemon is gone.
_GIVE_UP_INTERVAL_S: Final = 2 * KILL_DEADLINE_MS / 1000


class KeeperOptions(NamedTuple):
    """`file_limit`: the soft RLIMIT_NOFILE of commands.

    `mechanism`: the strongest containment to use: "cgroup", "subreaper" or "process-group".

    `has_heir`: when this process ends, the daemon adopts everything below it.

    `is_namespaced`: this process is in another PID namespace than the daemon.
    """

    file_limit: int
    mechanism: str
    has_heir: bool
    is_namespaced: bool = False


class _Runner:
    """A forked runner, until its tree is known to be empty. Owns a copy of its socket.

    After the runner has died, this object reports what is left. It never waits for a daemon that
    does not read. `others`: survivors of runners that died earlier. `is_given_up`: the keeper must
    kill the runner and everything below it.
    """

    def __init__(self, descriptor: int, cgroup: Cgroup | None) -> None:
        self.socket = descriptor
        self.cgroup = cgroup
        self.others: list[int] = []
        self.is_given_up = False
        self.announced = False
        self.reported = False

    def tell(self, message: Message) -> bool:
        """Send a message; return whether that worked. If not, the daemon sees end of file later."""
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=self.socket)
        except OSError:
            return False
        try:
            # This also sets the flag for the runner, but the runner is dead.
            sock.setblocking(False)
            Channel(sock).send(message)
        except OSError:
            return False
        finally:
            sock.detach()
        return True

    @property
    def is_abandoned(self) -> bool:
        """Whether the daemon has closed its end of the socket."""
        poll = select.poll()
        poll.register(self.socket, 0)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self.socket >= 0:
            os.close(self.socket)
            self.socket = -1


class KeeperError(Exception):
    """This keeper cannot continue."""


class Keeper:
    def __init__(self, sock: socket.socket, options: KeeperOptions) -> None:
        set_process_name(b"shelld-keeper")
        continue_when_parent_ends()
        self._options = options
        self._inherited = inherited()
        self._limits = Limits()
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
        # When to look next for runners that do not end, in monotonic seconds. None while the daemon
        # uses this keeper. Always None if the keeper is no subreaper.
        self._give_up_at: float | None = None
        self._runners: dict[int, _Runner] = {}
        self._forked_count = 0
        # Runners that died before they could prove that nothing is left.
        self._lost: list[_Runner] = []
        self._orphan_reaper = OrphanReaper()
        self._cgroups_to_remove: list[Cgroup] = []
        self._childless = True
        self._must_reap = False

    def serve(self) -> None:
        """Fork runners until the daemon is gone and nothing is left below this process."""
        failures = 0
        while self._daemon_alive or not self._childless:
            try:
                self._turn()
                failures = 0
            except KeeperError:
                raise
            except Exception:
                failures += 1
                if failures == _MAX_FAILURES:
                    raise
                self._limits.restore()
                # The failed turn may have missed a child that ended or stopped.
                time.sleep(KILL_INTERVAL_MS / 1000)
                self._must_reap = True
        self._remove_cgroups()
        # If the daemon was killed, it has left the cgroups of limited sessions.
        for place in {path for own in own_cgroups() for path in (own.directory, own.parent)}:
            remove_stale(place)

    def _turn(self) -> None:
        events = {fd for fd, _ in self._poll.poll(self._next_timeout_ms())}
        if self._wake.fileno() in events or self._must_reap:
            self._must_reap = False
            self._wake.drain()
            self._reap()
        if self._orphan_reaper.interval_ms is not None:
            self._kill_orphans()
        if self._channel.fileno() in events:
            self._receive()
        now = time.monotonic()
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = now + _GIVE_UP_INTERVAL_S
            for pid, each in self._runners.items():
                # A daemon that has started another keeper may still use the runners of this one.
                if each.is_abandoned:
                    self._give_up(pid)

    def _next_timeout_ms(self) -> float | None:
        if self._must_reap:
            return 0
        if self._orphan_reaper.interval_ms is not None or self._give_up_at is None:
            return self._orphan_reaper.interval_ms
        return max(0.0, (self._give_up_at - time.monotonic()) * 1000)

    def _receive(self) -> None:
        messages: list[tuple[Message, list[int]]] | None = None
        try:
            messages = self._channel.receive()
        finally:
            # Close the channel after an error too: nobody knows how much was read. The daemon then
            # starts another keeper.
            if messages is None:
                self._poll.unregister(self._channel.fileno())
                self._channel.close()
                self._daemon_alive = False
                if self._subreaper:
                    self._give_up_at = time.monotonic() + _GIVE_UP_INTERVAL_S
        for message, descriptors in messages or ():
            if message[0] == SPAWN_RUNNER and descriptors:
                self._fork_runner(descriptors.pop())
            elif message[0] == SPAWN_RUNNER:
                # This process had no descriptor left for the runner's socket. The daemon sees end
                # of file and asks again.
                self._limits.restore()
                self._check_inheritance()
            elif message[0] == STOP_RUNNER and message[1] in self._runners:
                self._give_up(message[1])

    def _give_up(self, pid: int) -> None:
        """SIGKILL a runner. If this is a subreaper, also kill everything below the runner at once.

        A process below may trace the runner. Then the runner cannot be reaped before its tracer
        has ended.
        """
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        given_up = self._runners[pid]
        if not self._subreaper:
            # Let the daemon see end of file now, even if a tracer keeps the runner from being
            # reaped.
            given_up.close()
        elif not given_up.is_given_up:
            given_up.is_given_up = True
            given_up.others = self._orphan_reaper.survivors
            self._orphan_reaper.start_round()

    def _is_spared(self, pid: int) -> bool:
        return pid in self._runners and not self._runners[pid].is_given_up

    def _fork_runner(self, descriptor: int) -> None:
        self._limits.restore()
        self._check_inheritance()
        cgroup = None
        try:
            if self._cgroup_parent is not None:
                self._forked_count += 1
                cgroup = Cgroup.create(self._cgroup_parent, self._forked_count)
            forked = _Runner(descriptor, cgroup)
            keeper_pid = os.getpid()
            pid = os.fork()
        except Exception:
            # The daemon sees end of file.
            os.close(descriptor)
            if cgroup is not None:
                cgroup.remove()
            return
        if not pid:
            self._become_runner(descriptor, cgroup, keeper_pid)
        self._runners[pid] = forked
        self._childless = False

    def _check_inheritance(self) -> None:
        """End this keeper if a command has changed its limits or priority. Runners inherit both."""
        if self._options.has_heir and inherited() != self._inherited:
            raise KeeperError

    def _become_runner(self, descriptor: int, cgroup: Cgroup | None, keeper_pid: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            # Close the sockets of the other runners, so that the daemon can see them end.
            for other in self._runners.values():
                other.close()
            for lost in self._lost:
                lost.close()
            self._channel.close()
            _limit_files(self._options.file_limit)
            runner.main(
                socket.socket(fileno=descriptor),
                subreaper=self._subreaper,
                cgroup=cgroup,
                keeper_pid=keeper_pid,
                is_namespaced=self._options.is_namespaced,
            )
            status = 0
        finally:
            # Exit after any exception, too: this process must not continue as a second keeper.
            os._exit(status)

    def _reap(self) -> None:
        for _ in range(REAPED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                # A command has stopped its runner, perhaps to avoid a kill.
                if pid in self._runners:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGCONT)
            elif (ended := self._runners.pop(pid, None)) is not None:
                self._bury(ended, status)
        self._must_reap = True

    def _bury(self, ended: _Runner, status: int) -> None:
        if status == 0 or not self._subreaper:
            # The runner has proved that nothing is left, or the keeper cannot know what is left. In
            # the second case, the daemon sees end of file, and looks in the command's session.
            ended.close()
        else:
            # Do this first, so that the daemon gets a report even if a later step fails.
            self._lost.append(ended)
            self._orphan_reaper.start_round()
            if not ended.is_given_up:
                ended.others = self._orphan_reaper.survivors
            ended.announced = ended.tell((LOST,))
        if ended.cgroup is not None:
            if status:
                ended.cgroup.kill()
            if not ended.cgroup.remove():
                self._cgroups_to_remove.append(ended.cgroup)

    def _kill_orphans(self) -> None:
        self._limits.restore()
        self._orphan_reaper.kill_round(self._is_spared)
        if self._orphan_reaper.is_blind and self._options.has_heir and self._daemon_alive:
            raise KeeperError
        self._reap()
        if self._orphan_reaper.is_done:
            for lost in [lost for lost in self._lost if self._is_finished(lost)]:
                self._lost.remove(lost)
                lost.close()
            self._remove_cgroups()

    def _is_finished(self, lost: _Runner) -> bool:
        survivors = [pid for pid in self._orphan_reaper.survivors if pid not in lost.others]
        # The daemon understands no other message before LOST.
        lost.announced = lost.announced or lost.tell((LOST,))
        if survivors and not lost.reported:
            lost.reported = lost.announced and lost.tell((SURVIVORS, survivors))
        if not survivors and lost.announced:
            lost.tell((EMPTY,))
        return not survivors

    def _remove_cgroups(self) -> None:
        self._cgroups_to_remove = [
            cgroup for cgroup in self._cgroups_to_remove if not cgroup.remove()
        ]


def _limit_files(soft: int) -> None:
    # Both limits may have been lowered since the daemon started.
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def main(
    descriptor: int,
    file_limit: str,
    mechanism: str,
    has_heir: str,
    directory: str = ".",
    *,
    is_namespaced: bool = False,
) -> None:
    """Serve the socket `descriptor`. `pool` calls this in a new interpreter and session."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, min(os.sysconf("SC_OPEN_MAX"), _MAX_INHERITED))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.chdir(directory)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Each runner takes one descriptor. Without the higher limit, fewer runners fit.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Runners are forks of this process: memory that the collector does not touch stays shared.
    gc.freeze()
    options = KeeperOptions(int(file_limit) or soft, mechanism, has_heir == "1", is_namespaced)
    try:
        Keeper(socket.socket(fileno=descriptor), options).serve()
    except (KeeperError, OSError):
        # Print no error: the daemon starts another keeper, and nothing is lost.
        os._exit(1)
