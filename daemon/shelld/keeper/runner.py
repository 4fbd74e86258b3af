"""Runs a runner, which starts one command at a time and proves that none of its processes is left.

A runner owns the process tree of its command. It never reads output, because the daemon owns the
pipes. It never decides when to kill: it kills when the daemon orders it, or when the daemon ends.
It has one thread, which polls the socket and SIGCHLD.

Invariants:

* `_leader` is bash's pid from the start of bash until this runner reaps it. No other process can
  reap it. The runner uses the pid as a process group only during that time, so the number cannot
  belong to another group.
* The runner reports a tree as empty only on ECHILD. Without subreapers, a scan of all processes
  must also find no process of the tree.
* The runner starts a command only when no process of the last command is left, and never after the
  runner has read end of file on the channel.
* A runner takes no other command once a command has changed the runner's directory, limits or
  priority.
* A runner that cannot do its job ends with an error. Its keeper then kills the processes that the
  runner left, and reports to the daemon. See "Failures" in the docstring of the package.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from typing import Final

from shelld.keeper.cgroup import Cgroup
from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    FAILED,
    FILE_LOST,
    KILL,
    KILL_DEADLINE_MS,
    LEFTOVER,
    READY,
    RETIRES,
    RUN,
    STARTED,
    STOPPED,
    SURVIVORS,
    Channel,
    Message,
)
from shelld.keeper.inherited import SavedLimits, inherited
from shelld.keeper.orphan_reaper import (
    KILL_INTERVAL_MS,
    REAPED_AT_ONCE,
    ROUNDS_BEFORE_GIVING_UP,
    SURVIVOR_INTERVAL_MS,
)
from shelld.keeper.prctl import become_subreaper, continue_when_parent_ends, set_process_name
from shelld.keeper.start import Program, Restrictions, start
from shelld.keeper.tree import Descendants, SessionMembers

# When memory runs out, the kernel should kill a command, and not the daemon or its parents.
OOM_SCORE_ADJUSTMENT: Final = 500

_WAKE_BYTES: Final = 4_096
# These errors mean a shortage of memory, processes or descriptors. Without the shortage, the same
# command would start.
_SHORTAGES: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_BASH_ERRORS: Final = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP)


class RunnerError(Exception):
    """This runner cannot continue."""


class WakeOnChild:
    """Owns a descriptor that becomes readable when SIGCHLD arrives."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> None:
        try:
            while len(os.read(self._read, _WAKE_BYTES)) == _WAKE_BYTES:
                pass
        except BlockingIOError:
            pass


class Runner:
    """Serves one channel. `cgroup` is this runner's own cgroup. `keeper_pid` is the pid of the
    keeper, which later removes the cgroup.

    With `is_namespaced`, the daemon is in another PID namespace, so each message with a pid also
    carries a pidfd.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        subreaper: bool,
        cgroup: Cgroup | None,
        keeper_pid: int,
        is_namespaced: bool = False,
    ) -> None:
        set_process_name(b"shelld-runner")
        continue_when_parent_ends()
        subreaper = subreaper and become_subreaper()
        self._tree = Descendants() if subreaper else SessionMembers()
        self._cgroup = cgroup if cgroup is not None and cgroup.enter() else None
        self._keeper_pid = keeper_pid
        self._is_namespaced = is_namespaced
        self._channel = Channel(sock)
        self._wake = WakeOnChild()
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._poll.register(self._wake.fileno(), select.POLLIN)
        self._arrivals = select.poll()
        self._arrivals.register(self._channel.fileno(), select.POLLIN)
        self._home = _open_working_directory()
        # Whether this process is in the directory of a command. This process may be unable to
        # return to `_home`.
        self._is_away = False
        # The limits and priority that each command should inherit. A command can change the limits
        # and the priority of its runner.
        self._inherited = inherited()
        self._limits = SavedLimits()
        self._is_needed = True
        self._leader: int | None = None
        # The indexes of the cgroups that bash could not enter.
        self._refused: tuple[int, ...] = ()
        self._busy = False
        self._signalled = False
        self._leftover: list[int] = []
        # When to send SIGKILL, and when to report survivors, in monotonic seconds. Both are None
        # while no kill is under way. `_give_up_at` is also None once survivors were reported.
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._has_had_sigterm: bool = False
        # Whether the grace period of the kill is over.
        self._killing = False
        self._rounds = 0
        self._must_reap = False
        _be_killed_first()
        self._send_pid((READY, os.getpid(), subreaper, self._cgroup is not None))

    def serve(self) -> None:
        """Run commands until no command can come any more and no process of the last one is
        left.
        """
        while self._is_needed or self._busy:
            events = self._wait()
            # Reap before reading the channel. If a kill arrives after the command has ended, this
            # runner must already know that the command has ended.
            if self._busy:
                self._reap()
            if self._wake.fileno() in events:
                # Drain `_wake` only after the first reap, because the daemon waits for the report
                # that the command has ended. Then reap again, because the drain discards the
                # wake-up of any child that ended since the first reap.
                self._wake.drain()
                if self._busy:
                    self._reap()
            if self._channel.fileno() in events:
                self._receive()
            if self._busy and self._kill_at is not None:
                self._escalate(self._kill_at)
        if os.getppid() == self._keeper_pid:
            # Perhaps a command has stopped the keeper. The keeper must continue, so that it sees
            # that this runner has ended, and can end itself.
            with contextlib.suppress(OSError):
                os.kill(self._keeper_pid, signal.SIGCONT)
        elif self._cgroup is not None:
            # The keeper is gone, so it cannot remove the cgroup after this process has ended.
            self._cgroup.leave()
            self._cgroup.remove()

    def _wait(self) -> dict[int, int]:
        """Wait for the next event; return the descriptors that are ready."""
        timeout = self._next_timeout_ms()
        try:
            return dict(self._poll.poll(timeout))
        except OSError:
            # A command may have lowered the limit on open files. poll(2) takes no more descriptors
            # than the limit allows.
            self._limits.restore()
            return dict(self._poll.poll(timeout))

    def _next_timeout_ms(self) -> float | None:
        if not self._busy:
            return None
        if self._must_reap:
            return 0
        if self._kill_at is None:
            return self._tree.poll_interval_ms if self._leader is None else None
        if self._killing:
            return KILL_INTERVAL_MS if self._give_up_at is not None else SURVIVOR_INTERVAL_MS
        return max(0.0, (self._kill_at - time.monotonic()) * 1000)

    def _receive(self) -> None:
        messages = self._channel.receive()
        # A RUN message carries descriptors, so it is always the last message of a read.
        if messages and messages[-1][0][0] == RUN:
            messages = self._unless_abandoned(messages)
        if messages is None:
            self._poll.unregister(self._channel.fileno())
            self._is_needed = False
            if self._busy:
                self._kill(signal.SIGKILL, 0)
            return
        for message, descriptors in messages:
            if message[0] == RUN:
                self._run(message, descriptors)
            elif message[0] == FILE_LOST:
                # Only a RUN message can be long enough to travel as a file, so the lost message was
                # a command.
                self._retire_if_spoilt(is_short=True)
                self._send((FAILED, errno.EMFILE, "exec"))
                for descriptor in descriptors:
                    os.close(descriptor)
            elif message[0] == KILL and self._busy:
                self._kill(message[1], message[2])

    def _unless_abandoned(
        self, messages: list[tuple[Message, list[int]]]
    ) -> list[tuple[Message, list[int]]] | None:
        """Return `messages` and all messages that have arrived since; None if the channel has
        ended.

        The daemon may have closed the channel to give up the command, perhaps even before this
        process existed.
        """
        while self._arrivals.poll(0):
            later = self._channel.receive()
            if later is None:
                return None
            if not later:
                break
            messages = messages + later
        return messages

    def _send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        try:
            self._channel.send(message, descriptors)
        except ConnectionError:
            # The daemon is gone. The next read sees end of file, and this process kills the tree.
            self._channel.shut_down()

    def _send_pid(self, message: Message) -> None:
        """Send a message whose second member is the pid of this process or a child."""
        if not self._is_namespaced:
            self._send(message)
            return
        handle = os.pidfd_open(message[1])
        try:
            self._send(message, (handle,))
        finally:
            os.close(handle)

    # -- starting ---------------------------------------------------------------------------

    def _run(self, message: Message, descriptors: list[int]) -> None:
        failure = self._spawn(message, descriptors)
        if failure is not None:
            self._go_home()
            # If a resource is short, perhaps only this process is short of it. Its next command
            # would fail in the same way, so this runner retires.
            self._retire_if_spoilt(is_short=failure[0] in _SHORTAGES)
            self._send((FAILED, *failure))
        else:
            assert self._leader is not None
            # Send the pid before anything else. If this process were killed without sending the
            # pid, the daemon would never know the pid.
            self._send_pid((STARTED, self._leader, self._refused))
            self._tree.begin(self._leader)
            self._busy = True
            self._signalled = False
        for descriptor in descriptors:
            os.close(descriptor)
        self._go_home()

    def _go_home(self) -> None:
        # Go back to the directory in which the daemon was started. If the user may not enter this
        # directory, this command is the runner's last.
        if self._is_away and self._home is not None:
            with contextlib.suppress(OSError):
                os.fchdir(self._home)
                self._is_away = False

    def _retire_if_spoilt(self, *, is_short: bool = False) -> None:
        """Retire if the next command would start in a wrong directory, inherit changed limits, or
        fail to start.

        Call this before the last message about a command.
        """
        if is_short or self._is_away or inherited() != self._inherited:
            self._send((RETIRES,))
            self._is_needed = False

    def _spawn(self, message: Message, descriptors: list[int]) -> tuple[int, str] | None:
        """Start the command; return (errno, what) on failure."""
        _, program, argv, env, cwd, count, has_terminal, restrictions = message
        if len(descriptors) != count:
            # The kernel has dropped descriptors, because this process has no room for them.
            return errno.EMFILE, "exec"
        try:
            if cwd:
                os.chdir(cwd)
                self._is_away = True
        except OSError as error:
            return error.errno or errno.EIO, "cwd"
        except ValueError:
            return errno.EINVAL, "cwd"
        terminal = b"/proc/self/fd/%d" % descriptors[0] if has_terminal else None
        if restrictions is not None:
            limits, cgroups, *number = restrictions
            # The last descriptors are the handles of the cgroups.
            first = count - (number[0] if number else 0)
            restrictions = (limits, cgroups, tuple(descriptors[first:]))
            descriptors = descriptors[:first]
        try:
            self._leader, self._refused = start(
                Program(program, argv, env, descriptors, terminal),
                None if restrictions is None else Restrictions(*restrictions),
            )
        except OSError as error:
            number = error.errno or errno.EIO
            return number, "bash" if number in _BASH_ERRORS else "exec"
        except ValueError:
            # A string contains a NUL, or the name of a variable contains "=". The daemon checks for
            # both. The runner must still survive such strings.
            return errno.EINVAL, "exec"
        return None

    # -- ending -----------------------------------------------------------------------------

    def _reap(self) -> None:
        childless = reaped = False
        exited: Message | None = None
        self._must_reap = False
        for _ in range(REAPED_AT_ONCE):
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                childless = True
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                if pid == self._leader:
                    self._send((STOPPED,))
                continue
            reaped = True
            if pid == self._leader:
                self._leader = None
                # ru_maxrss is in KiB on Linux, in bytes on macOS.
                rss = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
                user, system = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
                exited = (EXITED, status, user, system, rss, self._signalled)
        else:
            self._must_reap = True
        if self._leader is not None or not (reaped or childless):
            return
        leftover = self._tree.remaining(childless=childless)
        if leftover is None:
            self._limits.restore()
            leftover = self._tree.remaining(childless=childless)
        if leftover is None:
            # Report the command's end first. When this runner has ended, the keeper kills the
            # leftover processes and reports that they have ended.
            if exited is not None:
                self._send((*exited, None, False))
            raise RunnerError
        is_empty = childless and not leftover
        if is_empty:
            self._finish()
            self._retire_if_spoilt()
        self._tell(exited, leftover, is_empty=is_empty)

    def _tell(self, exited: Message | None, leftover: list[int], *, is_empty: bool) -> None:
        if exited is not None:
            self._send((*exited, leftover, is_empty))
        elif is_empty:
            self._send((EMPTY,))
        elif leftover != self._leftover:
            self._send((LEFTOVER, leftover))
        self._leftover = leftover

    def _finish(self) -> None:
        """Get ready for the next command, once no process of the last command is left."""
        if self._killing and self._cgroup is not None and not self._cgroup.enter():
            self._cgroup = None
        self._busy = False
        self._kill_at = self._give_up_at = None
        self._has_had_sigterm = False
        self._killing = False

    def _kill(self, number: int | None, grace_ms: int) -> None:
        """Signal the tree now, and kill it after the grace.

        If `number` is None, send SIGTERM, or no signal if the command has already got SIGTERM. Two
        callers may ask for SIGTERM, for example a call that ends and then the daemon that stops.
        Many programs take a second SIGTERM as an order to exit without cleaning up.
        """
        if number is None:
            number = 0 if self._has_had_sigterm else signal.SIGTERM
        self._has_had_sigterm |= number == signal.SIGTERM
        self._limits.restore()
        now = time.monotonic()
        kill_at = now if number == signal.SIGKILL else now + grace_ms / 1000
        # A second kill can make the deadline earlier, but not later.
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        self._give_up_at = self._kill_at + KILL_DEADLINE_MS / 1000
        self._rounds = 0
        if self._leader is not None:
            self._signalled = True
        if number not in (0, signal.SIGKILL):
            self._tree.signal(number, self._leader)
            # A stopped process does not handle the signal until it is continued.
            self._tree.signal(signal.SIGCONT, self._leader)

    def _escalate(self, kill_at: float) -> None:
        now = time.monotonic()
        if now < kill_at:
            return
        self._killing = True
        self._rounds += 1
        self._limits.restore()
        if self._cgroup is not None and self._cgroup.leave():
            self._cgroup.kill()
        can_kill = self._tree.kill(self._leader)
        self._reap()
        if self._busy and not can_kill:
            raise RunnerError
        if self._busy and self._is_late(now):
            living = self._tree.living()
            if living is None:
                raise RunnerError
            self._give_up_at = None
            # If no process is alive, there may be dead processes that a debugger keeps from being
            # reaped. Report those.
            self._send((SURVIVORS, living or self._tree.unreaped()))

    def _is_late(self, now: float) -> bool:
        is_over = self._give_up_at is not None and now >= self._give_up_at
        return is_over and self._rounds >= ROUNDS_BEFORE_GIVING_UP


def _open_working_directory() -> int | None:
    try:
        return os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    except OSError:
        return None


def _be_killed_first() -> None:
    """When memory runs out, make the kernel kill this runner or its commands before the daemon and
    the parents of the daemon.
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+") as file:
        adjusted = min(1000, int(file.read()) + OOM_SCORE_ADJUSTMENT)
        file.seek(0)
        file.write(str(adjusted))


def main(
    sock: socket.socket,
    *,
    subreaper: bool,
    cgroup: Cgroup | None,
    keeper_pid: int,
    is_namespaced: bool = False,
) -> None:
    """Serve the daemon on `sock` until the daemon is gone and no process is left to kill."""
    Runner(
        sock,
        subreaper=subreaper,
        cgroup=cgroup,
        keeper_pid=keeper_pid,
        is_namespaced=is_namespaced,
    ).serve()
