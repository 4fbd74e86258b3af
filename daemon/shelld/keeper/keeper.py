"""Runs the keeper, which forks runners and finishes the work of runners that die.

The keeper owns the runner processes and their cgroups, but not the commands. It runs in its own
interpreter, which imports only a few modules. So a fork is cheap and inherits no memory of the
daemon.

The keeper keeps the socket of every runner open. When a runner is killed, the keeper kills the
processes that the runner left. When no process is left, the keeper sends a report on the runner's
socket, with the messages that a runner would send. Without subreapers, the keeper cannot know which
processes a runner left. So it closes the socket, and the daemon kills these processes.

A failure of one message or one runner does not end the keeper. The keeper ends with an error if it
fails many times in a row, if it cannot list the processes that it must kill, or if a command has
changed the limits or the priority of the keeper. The daemon then starts another keeper. If the
daemon cannot adopt the runners, a keeper with changed limits or priority forks no more runners, and
ends after its last runner.
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
from shelld.keeper.inherited import SavedLimits, inherited
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
# The keeper ends when this many turns of its loop in a row have raised an unexpected exception.
_MAX_FAILURES: Final = 100
# The highest descriptor that the keeper closes at its start. closerange(3) may close descriptors
# one by one, so a limit of millions could take seconds.
_MAX_INHERITED: Final = 65_536
# Once the daemon is gone, the keeper checks at this interval for runners that do not end.
_GIVE_UP_INTERVAL_S: Final = 2 * KILL_DEADLINE_MS / 1000


class KeeperOptions(NamedTuple):
    """The options of a keeper. `file_limit` is the soft RLIMIT_NOFILE of commands.

    `mechanism` is the strongest containment to use: "cgroup", "subreaper" or "process-group".

    With `has_heir`, the daemon adopts all descendants of this process when this process ends.

    With `is_namespaced`, this process is in another PID namespace than the daemon.
    """

    file_limit: int
    mechanism: str
    has_heir: bool
    is_namespaced: bool = False


class _Runner:
    """What the keeper knows about a forked runner, until the runner's tree is empty. Owns a copy of
    the runner's socket.

    After the runner has died, this object reports which processes of the runner are left. A report
    never waits for a daemon that does not read. `others`: processes of runners that died earlier.
    Reports do not name these processes. With `is_given_up`, the keeper must kill the runner and all
    descendants of the runner.
    """

    def __init__(self, descriptor: int, cgroup: Cgroup | None) -> None:
        self.socket = descriptor
        self.cgroup = cgroup
        self.others: list[int] = []
        self.is_given_up = False
        self.announced = False
        self.reported = False

    def tell(self, message: Message) -> bool:
        """Send a message. Return False if this fails. In that case, the daemon sees end of file
        when this keeper closes the socket.
        """
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=self.socket)
        except OSError:
            return False
        try:
            # This also makes the runner's copy of the socket non-blocking, but the runner is dead.
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
        self._limits = SavedLimits()
        self._subreaper = options.mechanism != "process-group" and become_subreaper()
        self._cgroup_parent = usable_directory() if options.mechanism == "cgroup" else None
        if self._cgroup_parent is not None:
            remove_stale(self._cgroup_parent)
        self._channel = Channel(sock)
        self._wake = runner.WakeOnChild()
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._poll.register(self._wake.fileno(), select.POLLIN)
        self._is_listening = True
        # The time of the next check for runners that do not end, in monotonic seconds. It is None
        # while the daemon uses this keeper, and always None if the keeper is not a subreaper.
        self._give_up_at: float | None = None
        self._runners: dict[int, _Runner] = {}
        self._forked_count = 0
        # The runners that died before they could prove that no process of their command is left.
        self._lost: list[_Runner] = []
        self._orphan_reaper = OrphanReaper()
        self._cgroups_to_remove: list[Cgroup] = []
        self._childless = True
        self._must_reap = False

    def serve(self) -> None:
        """Fork runners until the channel is closed and this process has no descendants left."""
        failures = 0
        while self._is_listening or not self._childless:
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
        # A killed daemon may have left the cgroups of its limited sessions behind. Remove them.
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
                # Even if the daemon has started another keeper, it may still use runners of this
                # keeper.
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
            # Close the channel at end of file, and also after an error. After an error, this keeper
            # does not know how much of the channel it has read. The daemon then starts another
            # keeper.
            if messages is None:
                self._stop_listening()
        for message, descriptors in messages or ():
            if message[0] == SPAWN_RUNNER and descriptors:
                self._fork_runner(descriptors.pop())
            elif message[0] == SPAWN_RUNNER:
                # The kernel has dropped the runner's socket, because this process had no descriptor
                # left. The daemon sees end of file on its end of the socket, and asks for another
                # runner.
                self._retire_if_changed()
            elif message[0] == STOP_RUNNER and message[1] in self._runners:
                self._give_up(message[1])

    def _stop_listening(self) -> None:
        """Take no more messages from the daemon. The runners of this keeper continue."""
        if not self._is_listening:
            return
        self._poll.unregister(self._channel.fileno())
        self._channel.close()
        self._is_listening = False
        if self._subreaper:
            self._give_up_at = time.monotonic() + _GIVE_UP_INTERVAL_S

    def _give_up(self, pid: int) -> None:
        """SIGKILL a runner. If this process is a subreaper, also kill all descendants of the
        runner.

        One of these processes may trace the runner. Then the runner cannot be reaped before its
        tracer has ended.
        """
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        given_up = self._runners[pid]
        if not self._subreaper:
            # Close the socket, so that the daemon sees end of file now, even if a tracer keeps the
            # runner from being reaped.
            given_up.close()
        elif not given_up.is_given_up:
            given_up.is_given_up = True
            given_up.others = self._orphan_reaper.survivors
            self._orphan_reaper.must_start = True

    def _is_spared(self, pid: int) -> bool:
        return pid in self._runners and not self._runners[pid].is_given_up

    def _fork_runner(self, descriptor: int) -> None:
        self._retire_if_changed()
        if not self._is_listening:
            # The daemon sees end of file, and asks another keeper for a runner.
            os.close(descriptor)
            return
        cgroup = None
        try:
            if self._cgroup_parent is not None:
                self._forked_count += 1
                cgroup = Cgroup.create(self._cgroup_parent, self._forked_count)
            forked = _Runner(descriptor, cgroup)
            keeper_pid = os.getpid()
            pid = os.fork()
        except Exception:
            # The fork has failed. Close the socket, so that the daemon sees end of file.
            os.close(descriptor)
            if cgroup is not None:
                cgroup.remove()
            return
        if not pid:
            self._become_runner(descriptor, cgroup, keeper_pid)
        self._runners[pid] = forked
        self._childless = False

    def _retire_if_changed(self) -> None:
        """If a command has changed the limits or priority of this keeper, fork no more runners.

        New runners would inherit both. Raises KeeperError if the daemon can adopt the runners.
        Otherwise this keeper closes the channel, and continues until its last runner has ended.
        """
        self._limits.restore()
        if inherited() == self._inherited:
            return
        if self._options.has_heir:
            raise KeeperError
        self._stop_listening()

    def _become_runner(self, descriptor: int, cgroup: Cgroup | None, keeper_pid: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            # Close the sockets of the other runners. Otherwise the daemon would not see end of file
            # when these runners end.
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
            # Exit even after an exception, because this process must not continue as a second
            # keeper.
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
                # A command has stopped its runner, perhaps to avoid a kill. Continue the runner.
                if pid in self._runners:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGCONT)
            elif (ended := self._runners.pop(pid, None)) is not None:
                self._bury(ended, status)
        self._must_reap = True

    def _bury(self, ended: _Runner, status: int) -> None:
        if status == 0 or not self._subreaper:
            # The runner has proved that no process is left, or the keeper cannot know which
            # processes are left. In the second case, the daemon sees end of file, and looks for
            # processes in the command's session.
            ended.close()
        else:
            # Record the lost runner first, so that the daemon gets a report even if a later step
            # fails.
            self._lost.append(ended)
            self._orphan_reaper.must_start = True
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
        if self._orphan_reaper.is_blind and self._options.has_heir and self._is_listening:
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
    # A command may have lowered the soft and the hard limit since the daemon started.
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
    # Raise the limit on open files, because the keeper needs a descriptor for each runner.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Runners are forks of this process. They share its memory as long as the garbage collector does
    # not touch this memory.
    gc.freeze()
    options = KeeperOptions(int(file_limit) or soft, mechanism, has_heir == "1", is_namespaced)
    try:
        Keeper(socket.socket(fileno=descriptor), options).serve()
    except (KeeperError, OSError):
        # Print no error, because the daemon starts another keeper and no command is lost.
        os._exit(1)
