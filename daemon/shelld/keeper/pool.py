"""Starts the keeper for the daemon, hands out the keeper's runners, and takes the runners back.

The pool owns the keeper process and the channels of idle runners. An acquired channel belongs to
the shell for which it was acquired. Every call is synchronous, so no other task can run after a
runner was acquired and before its command starts.

Only `prepare` and `acquire` raise OSError. The error concerns only one command, because the next
command tries all steps again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from shelld.keeper.channel import SPAWN_RUNNER, STOP_RUNNER, Channel
from shelld.keeper.idle_runners import IdleRunners
from shelld.keeper.inherited import environment
from shelld.keeper.orphan_reaper import KILL_INTERVAL_MS, REAPED_AT_ONCE, OrphanReaper
from shelld.keeper.proc import info_of, own_children, processes, session_of

# The keeper and the runners end in a few milliseconds if they need not kill any process.
CLOSE_TIMEOUT_MS: Final = 200

# If more than `MAX_SHORT_LIVES` keepers in a row lived for less than this, the next keeper starts
# only when a command needs it. Perhaps shelld was uninstalled, and no keeper can run.
MIN_KEEPER_LIFE_S: Final = 1.0
MAX_SHORT_LIVES: Final = 3

# The processor time that `clean_up` may use for rounds without a pause. Such rounds catch processes
# that only fork and end. Meanwhile, other requests wait.
CLEAN_UP_S: Final = 0.005

_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from shelld.keeper.keeper import main; main(3, *sys.argv[2:])"
)
_ROOT: Final = str(Path(__file__).parents[2])


class RunnerPool:
    """Hands out runners. If this process raises its own soft RLIMIT_NOFILE, `file_limit` is the
    soft RLIMIT_NOFILE of commands.

    `mechanism` is the strongest containment to use, if the system has it: "cgroup", "subreaper" or
    "process-group". With `adopts`, this process is a subreaper, and all its own children are
    keepers and runners. So `clean_up` may kill any other child.
    """

    def __init__(
        self,
        *,
        file_limit: int | None = None,
        mechanism: str = "cgroup",
        adopts: bool = False,
    ) -> None:
        self._file_limit = file_limit
        self.mechanism = mechanism
        self.adopts = adopts
        self._keeper: Channel | None = None
        self._keeper_pid: int | None = None
        # When the keeper started (time.monotonic()), and how many keepers in a row had a short
        # life.
        self._keeper_started_at = 0.0
        self._short_lives = 0
        self._idle = IdleRunners()
        # Children that this process has adopted or no longer uses: runners whose keeper was killed,
        # and keepers that no longer listen.
        self._adopted: set[int] = set()
        # The pids of the replaced keepers. Each pid is also the session id of the keeper's runners.
        self._replaced: set[int] = set()
        # The keepers and adopted runners that have ended. The daemon must adopt the runners of such
        # a keeper.
        self._ended: set[int] = set()
        self._orphan_reaper = OrphanReaper()
        self._next_clean_up_ms: int | None = None
        # A descriptor of the directory in which each keeper starts, even if this process has
        # changed to another directory.
        self._directory: int | None = None

    @property
    def directory(self) -> str:
        """A path to the directory in which commands start by default.

        It is the directory in which this process was when the property was first used. The path
        leads there even if the directory was renamed or deleted. The value is "." if the system has
        no such path.
        """
        if self._directory is None:
            with contextlib.suppress(OSError):
                self._directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return "." if self._directory is None else f"/proc/{os.getpid()}/fd/{self._directory}"

    def prepare(self) -> None:
        """Start the keeper and one runner before a command needs them.

        Raises OSError if that fails.
        """
        self._idle.add(self._new_runner())

    def acquire(self) -> Channel:
        """Return a runner that has no command. Raises OSError if no runner is idle and no runner
        can start.

        The caller should start no more than a few dozen runners at a time, and wait for their
        READY. Otherwise the keeper's socket may become full, and requests for runners fail with
        EAGAIN.
        """
        return self._idle.take() or self._new_runner()

    def release(self, channel: Channel) -> None:
        """Take back a runner whose tree is empty, or end it if the pool does not need it."""
        if self._keeper is None:
            channel.close()
        else:
            self._idle.add(channel)

    def trim(self) -> None:
        """End idle runners that no command has needed since the last call, except for a few."""
        self._idle.trim()
        self._reap_replaced()
        if self._replaced and not self.adopts and (running := processes()) is not None:
            # If a session has no process any more, forget its id, because the system may reuse the
            # id.
            self._replaced &= {session_of(pid) for pid in running}

    def close(self) -> None:
        """End the idle runners and, once the last runner has ended, the keeper.

        Waits at most `CLOSE_TIMEOUT_MS` for orphans, and then at most the same time for the keeper.
        A runner that is still killing processes then continues without the daemon.
        """
        self._idle.close()
        self._continue_runners_without_keeper()
        deadline = time.monotonic() + CLOSE_TIMEOUT_MS / 1000
        while not self._orphan_reaper.is_done and time.monotonic() < deadline:
            self.clean_up()
            time.sleep(KILL_INTERVAL_MS / 1000)
        self._forget_keeper()
        self._reap_replaced()
        self._close_directory()

    def abandon(self) -> None:
        """In a forked child, close the child's copies of the channels.

        The keeper belongs to the parent.
        """
        self._idle.close()
        if self._keeper is not None:
            self._keeper.close()
        self._keeper = self._keeper_pid = None
        self._close_directory()

    def _close_directory(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    # -- failures ---------------------------------------------------------------------------

    def stop_runner(self, pid: int) -> None:
        """SIGKILL an unresponsive runner.

        If the keeper is the runner's parent and still listens, the keeper sends the signal and then
        finishes the runner's work. Otherwise, this process sends the signal.
        """
        with contextlib.suppress(OSError):
            if pid in self._adopted:
                # Also kill all descendants of the runner, because one of them may trace the runner
                # and so keep it from being reaped.
                self._adopted.discard(pid)
                self._orphan_reaper.must_start = True
                self.clean_up()
            elif self._has_lost_its_keeper(pid):
                os.kill(pid, signal.SIGKILL)
            elif self._keeper is not None:
                # The keeper sends the signal. Only the parent, which reaps the runner, can be sure
                # that the pid was not reused.
                self._keeper.send((STOP_RUNNER, pid))
                self._continue_keeper()

    def replace_keeper_of(self, channel: Channel) -> None:
        """SIGKILL the keeper, because it does not start the runner of `channel`. Start another one.

        This does nothing if the keeper was already replaced. Perhaps a command has stopped the
        keeper with ptrace(2), as a debugger does.
        """
        if self.adopts:
            self._reap()
        if self._keeper_pid is not None and channel.keeper == self._keeper_pid:
            with contextlib.suppress(OSError):
                os.kill(self._keeper_pid, signal.SIGKILL)
            # The keeper may be reaped much later, when its tracer detaches.
            self._adopted.add(self._keeper_pid)
            self._replace_keeper()

    def _has_lost_its_keeper(self, runner: int) -> bool:
        """Return whether the keeper of a runner has ended or no longer listens.

        A session of a keeper contains only the keeper and its runners. So if `runner` is in such a
        session, its pid was not reused.
        """
        session = session_of(runner)
        if session == self._keeper_pid:
            return self._keeper_is_gone()
        return session in self._replaced

    def _keeper_is_gone(self) -> bool:
        return self._keeper is not None and self._keeper.receive() is None

    def _continue_runners_without_keeper(self) -> None:
        """Send SIGCONT to the runners whose keeper has ended or no longer listens.

        Otherwise a stopped runner would not see that its channel has ended.
        """
        if self.adopts or not (self._replaced or self._keeper_is_gone()):
            return
        for pid in processes() or ():
            if self._has_lost_its_keeper(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)

    def _continue_keeper(self) -> None:
        # Only `_reap` sees that the keeper was stopped. If this process does not adopt orphans,
        # `_reap` does not run, so continue the keeper here.
        if not self.adopts and self._keeper_pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._keeper_pid, signal.SIGCONT)

    def is_dying(self, runner: int | None) -> bool:
        """After the socket of a runner has ended, return whether the runner or its keeper still
        runs.

        Until both have ended, the runner's processes are not children of this process.
        """
        self.clean_up()
        if self._keeper_is_gone():
            return True
        # A replaced keeper may not have ended yet. A keeper leads its session, but a runner does
        # not.
        if any(session_of(pid) == pid for pid in self._adopted):
            return True
        if runner is None:
            return False
        process = info_of(runner)
        # A dead runner has no children any more. But if its parent is a keeper, the keeper may have
        # adopted those children.
        return process.state != "X" and (not process.is_dead or process.parent != os.getpid())

    def expect_orphans(self) -> None:
        """Make `clean_up` kill the processes that a runner and its keeper have left."""
        if self.adopts:
            self._orphan_reaper.must_start = True

    def orphans(self) -> list[int] | None:
        """Return the orphans that survived SIGKILL; None while the orphans are still being
        killed.
        """
        self.clean_up()
        return self._orphan_reaper.survivors if self._orphan_reaper.is_done else None

    @property
    def is_blind(self) -> bool:
        """Whether the deadline to kill orphans has passed and the orphans cannot be listed."""
        return self._orphan_reaper.is_blind

    def clean_up(self) -> int | None:
        """Reap children and kill orphans; return the time in ms until the next call is due, or
        None.

        Call this when that time is over, and on SIGCHLD. It also replaces a keeper that was killed,
        and continues a stopped keeper and stopped runners whose keeper has ended.
        """
        if not self.adopts:
            return None
        end_at = time.thread_time() + CLEAN_UP_S
        while self._clean_up_once() and time.thread_time() < end_at:
            pass
        return self._next_clean_up_ms

    def _clean_up_once(self) -> bool:
        """Do one round of `clean_up`; return whether there may be more to reap."""
        has_more = self._reap()
        if self._orphan_reaper.interval_ms is not None:
            self._adopt_runners()
            self._orphan_reaper.kill_round(self._is_ours)
            has_more = self._reap()
        self._next_clean_up_ms = 0 if has_more else self._orphan_reaper.interval_ms
        return has_more

    def _reap(self) -> bool:
        """Reap children that have ended; return whether there may be more to reap."""
        for _ in range(REAPED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return False
            if pid == 0:
                return False
            if os.WIFSTOPPED(status):
                if pid == self._keeper_pid or pid in self._adopted:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGCONT)
            elif pid == self._keeper_pid or pid in self._adopted:
                # The children of `pid` are now children of this process. All of them except runners
                # are orphans.
                self._adopted.discard(pid)
                self._ended.add(pid)
                self._orphan_reaper.must_start = True
                self._adopt_runners()
                if pid == self._keeper_pid:
                    is_short = time.monotonic() - self._keeper_started_at < MIN_KEEPER_LIFE_S
                    self._short_lives = self._short_lives + 1 if is_short else 0
                    self._replace_keeper(at_once=self._short_lives <= MAX_SHORT_LIVES)
        return True

    def _is_ours(self, pid: int) -> bool:
        # A keeper may be killed at any moment, and its runners become children of this process. An
        # orphan of a command also becomes a child of this process. But only a runner is in the
        # session of its keeper, because no command can join this session.
        if pid in self._adopted:
            return True
        session = session_of(pid)
        return session == self._keeper_pid or session in self._adopted or session in self._ended

    def _adopt_runners(self) -> None:
        """Adopt the runners of keepers that have ended, if the children of this process can be
        listed.
        """
        if self._ended and (own := own_children()) is not None:
            self._adopted.update(pid for pid in own if session_of(pid) in self._ended)
            self._ended.clear()

    def _replace_keeper(self, *, at_once: bool = True) -> None:
        if self._keeper_pid is not None:
            self._replaced.add(self._keeper_pid)
        self._keeper_pid = None
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
            # If the start fails, the next command tries again.
            with contextlib.suppress(OSError):
                self._keeper = self._start_keeper() if at_once else None

    def _reap_replaced(self) -> None:
        """Reap replaced keepers that have ended, if `_reap` does not reap them."""
        if not self.adopts:
            for pid in list(self._adopted):
                with contextlib.suppress(OSError):
                    if os.waitpid(pid, os.WNOHANG)[0]:
                        self._adopted.discard(pid)

    def _wait_for_keeper(self) -> None:
        """Wait at most `CLOSE_TIMEOUT_MS` for the keeper to end. Does not reap it."""
        if self._keeper_pid is None:
            return
        deadline = time.monotonic() + CLOSE_TIMEOUT_MS / 1000
        has_ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(OSError):
            while os.waitid(os.P_PID, self._keeper_pid, has_ended) is None:
                if time.monotonic() >= deadline:
                    return
                time.sleep(KILL_INTERVAL_MS / 1000)

    def _new_runner(self) -> Channel:
        channel, theirs = Channel.pair()
        with theirs:
            try:
                if self._keeper is None:
                    self._keeper = self._start_keeper()
                try:
                    self._keeper.send((SPAWN_RUNNER,), (theirs.fileno(),))
                except ConnectionError:
                    # The keeper was killed, or has closed its channel. Its runners continue with
                    # their commands.
                    keeper = self._other_keeper(self._keeper)
                    keeper.send((SPAWN_RUNNER,), (theirs.fileno(),))
                channel.keeper = self._keeper_pid
                self._continue_keeper()
            except BaseException:
                channel.close()
                raise
        return channel

    def _other_keeper(self, silent: Channel) -> Channel:
        """Replace the keeper that does not listen on `silent`. Return the channel of the new
        keeper.
        """
        if self.adopts:
            self._reap()
        if self._keeper is silent and self._keeper_pid is not None:
            # The old keeper has not ended yet. It ends immediately if it was killed, and otherwise
            # together with its last runner.
            self._adopted.add(self._keeper_pid)
            self._replace_keeper()
        if self._keeper is None:
            self._keeper = self._start_keeper()
        return self._keeper

    def _start_keeper(self) -> Channel:
        channel, theirs = Channel.pair()
        self._keeper_started_at = time.monotonic()
        with theirs:
            try:
                self._keeper_pid = os.posix_spawn(
                    sys.executable,
                    # These options isolate the interpreter and skip `site`. So it starts in a few
                    # ms, and imports no foreign modules.
                    [
                        *(sys.executable, "-I", "-S", "-c", _BOOT, _ROOT),
                        *(str(self._file_limit or 0), self.mechanism, str(int(self.adopts))),
                        self.directory,
                    ],
                    environment(),
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        # The keeper must not wait for a host that does not read stderr.
                        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(signal.SIGCHLD,),
                )
            except BaseException:
                channel.close()
                raise
        return channel

    def _forget_keeper(self) -> None:
        """Close the keeper's channel, so that the keeper ends; reap it if it ends in time."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        if self._keeper_pid is not None:
            self._wait_for_keeper()
            with contextlib.suppress(OSError):
                os.waitpid(self._keeper_pid, os.WNOHANG)
            self._keeper_pid = None
