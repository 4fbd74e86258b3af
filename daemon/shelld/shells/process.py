"""One shell as others see it: its command, its state, its outcome, its output, its leftovers.

A shell *ends* when bash does. It is *empty* when every process that bash left behind is gone too.

Only `supervision` moves a shell from state to state. Everybody else reads, asks (`kill`) and
waits (`wait_until`).
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import anyio
from msgspec import Struct

from shelld.output.retention import ShellOutput
from shelld.shells.launch import StartRequest
from shelld.shells.lifecycle import LIVE, ShellEvent, ShellStatus, next_status
from shelld_protocol.structs import EndReason


class CommandUsage(Struct, frozen=True):
    """From wait4(2), in microseconds and bytes."""

    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0


class _Waiter(NamedTuple):
    condition: Callable[[], bool]
    met: anyio.Event


class Killer(Protocol):
    """What `kill` needs of the supervision: to start a kill and be told no more."""

    def begin_kill(self, number: int, grace_ms: int, event: ShellEvent) -> None: ...


class ShellProcess:
    """`created_at`, `started_at` and `completed_at` are seconds as of time.time().

    Who and what it is, `assign` tells: a bash may be there before its command is known.
    """

    id = command = working_dir = ""
    description: str | None = None
    session: str | None = None
    verdict = ""
    # Somebody waits for its end.
    in_foreground = False

    def __init__(self, output: ShellOutput | None = None) -> None:
        self.output = output or ShellOutput()
        self.stdout = self.output.stdout
        self.stderr = self.output.stderr
        self.status = ShellStatus.PENDING
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.signal: str | None = None
        self.usage = CommandUsage()
        # Pids that were alive after bash had ended, as last seen.
        self.leftover: list[int] = []
        # Pids that were alive after the last kill's deadline.
        self.survivors: list[int] = []
        # Why it ended as it did, where that is not what it looks like.
        self.reason: EndReason | None = None
        # (errno, what) if nothing could be started.
        self.failure: tuple[int, str] | None = None
        # The timeout has passed and was to move the shell to the background.
        self.released = False
        # Nothing that the command started is left, or nothing was started.
        self.is_empty = False
        self.created_at = 0.0
        self.started_at: float | None = None
        self.completed_at: float | None = None
        self.supervision: Killer | None = None
        self._began = 0.0
        self._lasted = math.nan
        self._waiters: list[_Waiter] = []

    @property
    def is_running(self) -> bool:
        return self.status in LIVE

    @property
    def duration_ms(self) -> int:
        lasted = self._lasted
        return round((time.monotonic() - self._began if math.isnan(lasted) else lasted) * 1000)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at whenever something happened here."""
        while not condition():
            waiter = _Waiter(condition, anyio.Event())
            self._waiters.append(waiter)
            try:
                await waiter.met.wait()
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def notify(self) -> None:
        """Something happened: wake those for whom it makes a difference."""
        for waiter in [waiter for waiter in self._waiters if waiter.condition()]:
            self._waiters.remove(waiter)
            waiter.met.set()

    async def kill(
        self, number: int, grace_ms: int, event: ShellEvent = ShellEvent.KILLED
    ) -> list[int]:
        """Signal the whole tree, SIGKILL it after the grace; return once it is dead.

        Returns the pids that are still alive a second after the grace, else []. `event` says
        what the shell ends with if this is what ends it.
        """
        if self.supervision is not None and not self.is_empty:
            self.survivors = []
            self.supervision.begin_kill(number, grace_ms, event)
            await self.wait_until(lambda: self.is_empty or bool(self.survivors))
        return self.survivors

    def assign(self, shell_id: str, request: StartRequest, working_dir: str) -> None:
        """From now on this is the shell of that request."""
        self.id = shell_id
        self.command = request.command
        self.working_dir = working_dir
        self.description = request.description
        self.session = request.session
        self.verdict = request.verdict
        self.in_foreground = request.in_foreground
        self.created_at = time.time()
        self._began = time.monotonic()

    # -- for supervision --------------------------------------------------------------------

    def started(self) -> None:
        """The command runs, or has run; `pid` is None if it was gone before it could be known."""
        self.started_at = time.time()
        self.status = next_status(self.status, ShellEvent.STARTED)

    def stop_clock(self) -> None:
        """Bash has ended now, although its outcome is still to be settled."""
        self._lasted = time.monotonic() - self._began

    def end(self, wait_status: int, kill_event: ShellEvent | None) -> None:
        """Settle the outcome; `kill_event` if a kill of ours is what ended it."""
        code = os.waitstatus_to_exitcode(wait_status)
        if code >= 0:
            self.exit_code = code
        else:
            self.signal = _signal_name(-code)
        own = ShellEvent.EXITED_ZERO if code == 0 else ShellEvent.EXITED_NONZERO
        self.status = next_status(self.status, kill_event or own)
        self.completed_at = time.time()
        if math.isnan(self._lasted):
            self.stop_clock()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Real-time signals between SIGRTMIN and SIGRTMAX have no name of their own.
        return f"SIG{number}"
