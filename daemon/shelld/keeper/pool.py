"""The daemon's end of the keeper: runners to take and give back, without waiting.

Owns the keeper process and the channels of idle runners; a channel that was acquired belongs to
the shell it was acquired for. Every call is synchronous, so that nothing can come between taking
a runner and owning what it starts.

Only `prepare` and `acquire` raise OSError. What is short then is short for that one command: the
next one tries everything again.
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
from shelld.keeper.orphan_reaper import KILL_INTERVAL_MS, REAPED_AT_ONCE, OrphanReaper
from shelld.keeper.tree import look, own_children, processes, session_of

# Enough for a burst of short commands; an idle runner costs about 1.3 MiB.
MAX_IDLE: Final = 8
# This many stay even if nothing has needed them.
SPARE: Final = 2

# With nothing left to kill, the family ends in a few milliseconds.
CLOSE_TIMEOUT_MS: Final = 200

# After more than `MAX_SHORT_LIVES` keepers in a row that have lived for less than this, the next
# one starts only when a command needs it: perhaps none can run, because the program was removed.
MIN_KEEPER_LIFE_S: Final = 1.0
MAX_SHORT_LIVES: Final = 3

# Processor time for reaping children that end meanwhile. Looking again at once catches processes
# that only fork and end, but other requests wait for that.
CLEAN_UP_S: Final = 0.005

_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from shelld.keeper.keeper import main; main(3, *sys.argv[2:])"
)
_ROOT: Final = str(Path(__file__).parents[2])


class RunnerPool:
    """`file_limit`: the soft RLIMIT_NOFILE of commands, if this process raises its own.

    `mechanism`: the strongest that may be used, of "cgroup", "subreaper" and "process-group", as
    far as the system has it. `adopts`: this process is a subreaper and has no children but the
    keeper's family, so that `clean_up` may kill all others.
    """

    def __init__(
        self,
        *,
        file_limit: int | None = None,
        mechanism: str = "cgroup",
        adopts: bool = False,
    ) -> None:
        self._file_limit = file_limit
        self._mechanism = mechanism
        self.adopts = adopts
        self._keeper: Channel | None = None
        self._keeper_pid: int | None = None
        # When the keeper started, by time.monotonic(); how many in a row have ended at once.
        self._keeper_started_at = 0.0
        self._short_lives = 0
        # The most recently used is last, and is used next.
        self._idle: list[Channel] = []
        self._fewest_idle = 0
        # Children of this process: runners whose keeper was killed, and keepers that no longer
        # listen.
        self._adopted: set[int] = set()
        # Keepers that were replaced. Each has led the session of its runners.
        self._replaced: set[int] = set()
        # Our processes that have ended. If one was a keeper, its runners must be adopted.
        self._ended: set[int] = set()
        self._orphan_reaper = OrphanReaper()
        self._next_clean_up_ms: int | None = None

    def prepare(self) -> None:
        """Start the keeper and one runner ahead of need. Raises OSError if that fails."""
        self._idle.append(self._new_runner())

    def acquire(self) -> Channel:
        """Return a runner that has no command. Raises OSError if none can be had.

        Runners that were asked for and have not said READY yet should be tens at most: more
        requests than the keeper can hold are refused (EAGAIN).
        """
        while self._idle:
            channel = self._idle.pop()
            self._fewest_idle = min(self._fewest_idle, len(self._idle))
            # An idle runner sends nothing but READY. Anything else means that it has died.
            if channel.receive() == []:
                return channel
            channel.close()
        return self._new_runner()

    def release(self, channel: Channel) -> None:
        """Take back a runner whose tree is empty, unless its channel is closed."""
        if channel.is_open and len(self._idle) < MAX_IDLE and self._keeper is not None:
            self._idle.append(channel)
        else:
            channel.close()

    def trim(self) -> None:
        """End the idle runners that nothing has needed since the last call, except `SPARE`."""
        for channel in self._idle[: max(0, self._fewest_idle - SPARE)]:
            self._idle.remove(channel)
            channel.close()
        self._fewest_idle = len(self._idle)
        self._reap_replaced()
        if self._replaced and not self.adopts and (running := processes()) is not None:
            # The system may use the number again once nobody is in that session.
            self._replaced &= {session_of(pid) for pid in running}

    def close(self) -> None:
        """End the idle runners and, once the last runner has ended, the keeper.

        Waits for that at most `CLOSE_TIMEOUT_MS`: a runner that is still killing goes on alone.
        """
        for channel in self._idle:
            channel.close()
        self._idle.clear()
        self._continue_runners_without_keeper()
        deadline = time.monotonic() + CLOSE_TIMEOUT_MS / 1000
        while not self._orphan_reaper.is_done and time.monotonic() < deadline:
            self.clean_up()
            time.sleep(KILL_INTERVAL_MS / 1000)
        self._forget_keeper()
        self._reap_replaced()

    def abandon(self) -> None:
        """Close the channels in a forked child. The keeper belongs to the parent."""
        for channel in self._idle:
            channel.close()
        self._idle.clear()
        if self._keeper is not None:
            self._keeper.close()
        self._keeper = self._keeper_pid = None

    # -- what goes wrong --------------------------------------------------------------------

    def stop_runner(self, pid: int) -> None:
        """SIGKILL an unresponsive runner.

        The runner's parent does it: this process, or the keeper, which then finishes the work. The
        parent may also be gone, or no longer listen.
        """
        with contextlib.suppress(OSError):
            if pid in self._adopted:
                # And everything below it: a tracer there would keep it from being reaped.
                self._adopted.discard(pid)
                self._orphan_reaper.start_round()
                self.clean_up()
            elif self._has_lost_its_keeper(pid):
                os.kill(pid, signal.SIGKILL)
            elif self._keeper is not None:
                # Not by us: only its parent, which reaps it, can be sure whose pid that is.
                self._keeper.send((STOP_RUNNER, pid))
                self._continue_keeper()

    def replace_keeper_of(self, channel: Channel) -> None:
        """SIGKILL a keeper that makes no runner, unless that was done already, and start another.

        A command may have stopped the keeper as a debugger does.
        """
        if self.adopts:
            self._reap()
        if self._keeper_pid is not None and channel.keeper == self._keeper_pid:
            with contextlib.suppress(OSError):
                os.kill(self._keeper_pid, signal.SIGKILL)
            # It may be reaped much later: its tracer must let it go first.
            self._adopted.add(self._keeper_pid)
            self._replace_keeper()

    def _has_lost_its_keeper(self, runner: int) -> bool:
        """Whether the keeper of a runner has ended, or no longer listens.

        A keeper and its runners are alone in their session, so no pid in it was reused.
        """
        session = session_of(runner)
        if session == self._keeper_pid:
            return self._keeper_is_gone()
        return session in self._replaced

    def _keeper_is_gone(self) -> bool:
        return self._keeper is not None and self._keeper.receive() is None

    def _continue_runners_without_keeper(self) -> None:
        """Continue runners without a keeper: a stopped one does not see the end of its channel."""
        if self.adopts or not (self._replaced or self._keeper_is_gone()):
            return
        for pid in processes() or ():
            if self._has_lost_its_keeper(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)

    def _continue_keeper(self) -> None:
        # Without reaping all children, nobody learns that the keeper was stopped.
        if not self.adopts and self._keeper_pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._keeper_pid, signal.SIGCONT)

    def is_dying(self, runner: int | None) -> bool:
        """Whether a runner whose socket has ended, or its keeper, still runs.

        Until both have ended, the processes of the runner are not children of this process.
        """
        self.clean_up()
        if self._keeper_is_gone():
            return True
        # A keeper leads its session; a runner does not. A replaced keeper may be ending.
        if any(session_of(pid) == pid for pid in self._adopted):
            return True
        if runner is None:
            return False
        process = look(runner)
        # A zombie has no children. But a keeper that is ending may still have its children.
        return process.state != "X" and (not process.is_dead or process.parent != os.getpid())

    def expect_orphans(self) -> None:
        """Look for processes of a runner that has ended with its keeper; `clean_up` kills them."""
        if self.adopts:
            self._orphan_reaper.start_round()

    def orphans(self) -> list[int] | None:
        """Return the survivors of such processes; None while they are still being killed."""
        self.clean_up()
        return self._orphan_reaper.survivors if self._orphan_reaper.is_done else None

    @property
    def is_blind(self) -> bool:
        """Whether such processes could not even be listed during the last second."""
        return self._orphan_reaper.is_blind

    def clean_up(self) -> int | None:
        """Reap children and kill orphans; return in how many ms to call again, if at all.

        Call this on SIGCHLD, too. It replaces a keeper that was killed, and continues a keeper that
        was stopped, and the runners that a keeper has left.
        """
        if not self.adopts:
            return None
        end_at = time.thread_time() + CLEAN_UP_S
        while self._clean_up_once() and time.thread_time() < end_at:
            pass
        return self._next_clean_up_ms

    def _clean_up_once(self) -> bool:
        """Return whether there may be more to reap."""
        has_more = self._reap()
        if self._orphan_reaper.interval_ms is not None:
            self._adopt_runners()
            self._orphan_reaper.kill_round(self._is_ours)
            has_more = self._reap()
        self._next_clean_up_ms = 0 if has_more else self._orphan_reaper.interval_ms
        return has_more

    def _reap(self) -> bool:
        """Return whether there may be more to reap."""
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
                # What else there is among this process's children now is of a runner that was
                # killed.
                self._adopted.discard(pid)
                self._ended.add(pid)
                self._orphan_reaper.start_round()
                self._adopt_runners()
                if pid == self._keeper_pid:
                    is_short = time.monotonic() - self._keeper_started_at < MIN_KEEPER_LIFE_S
                    self._short_lives = self._short_lives + 1 if is_short else 0
                    self._replace_keeper(at_once=self._short_lives <= MAX_SHORT_LIVES)
        return True

    def _is_ours(self, pid: int) -> bool:
        # A keeper may be killed, and leave us its runners, between any two lines. They are in its
        # session, which no command can join.
        if pid in self._adopted:
            return True
        session = session_of(pid)
        return session == self._keeper_pid or session in self._adopted or session in self._ended

    def _adopt_runners(self) -> None:
        """Make the runners of a keeper that has ended our own, if they can be listed."""
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
            # If that is impossible now, the next command tries again.
            with contextlib.suppress(OSError):
                self._keeper = self._start_keeper() if at_once else None

    def _reap_replaced(self) -> None:
        """Reap keepers that were replaced and have ended, where `_reap` leaves children alone."""
        if not self.adopts:
            for pid in list(self._adopted):
                with contextlib.suppress(OSError):
                    if os.waitpid(pid, os.WNOHANG)[0]:
                        self._adopted.discard(pid)

    def _wait_for_keeper(self) -> None:
        """Give the keeper a moment to end. It is not reaped."""
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
                    # The keeper was killed, or has given up its channel. Its runners live on with
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
        """Return the channel of one that takes the place of a keeper that does not listen."""
        if self.adopts:
            self._reap()
        if self._keeper is silent and self._keeper_pid is not None:
            # It has not ended, but will: at once if it was killed, else with its last runner.
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
                    # Isolated and without site: start-up in a few ms, and nothing to import from.
                    [
                        *(sys.executable, "-I", "-S", "-c", _BOOT, _ROOT),
                        *(str(self._file_limit or 0), self._mechanism, str(int(self.adopts))),
                    ],
                    os.environ,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        # It must not wait for who does not read our stderr.
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
        """Close a keeper that has ended or is to end, and reap it."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        if self._keeper_pid is not None:
            self._wait_for_keeper()
            with contextlib.suppress(OSError):
                os.waitpid(self._keeper_pid, os.WNOHANG)
            self._keeper_pid = None
