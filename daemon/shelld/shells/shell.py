"""Keeps the record of one shell: its command, state, outcome, output and leftover processes.

A shell *ends* when its bash ends. A shell is *empty* when its bash and every process that bash has
started are gone.

Only the supervisor of a shell writes to its record. All other code reads the record, asks to end
the shell (`end_tree`) and waits (`wait_until`). All of this happens on the event loop of the
shells.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple, Protocol

import anyio
from msgspec import Struct

from shelld.eventloop.readiness import Wakeup
from shelld.output.retention import OutputStream, ShellOutput
from shelld.process.options import Options
from shelld.sandbox.denials import Denials
from shelld.sessions.recorder import Recorder
from shelld.sessions.text import beginning
from shelld.shells.launch import StartRequest
from shelld.shells.lifecycle import LIVE, ShellEvent, ShellStatus, next_status
from shelld.terminals.input import PipeInput, TerminalInput
from shelld_protocol.sandboxes import EnforcedSandbox
from shelld_protocol.structs import EndReason, EnforcedLimits, Prompt, Usage


class CommandUsage(Struct, frozen=True):
    """The resource usage that wait4(2) reports, in microseconds and bytes."""

    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0

    def in_milliseconds(self) -> Usage:
        """Return the usage in the form in which results report it."""
        return Usage(round(self.user_us / 1000), round(self.system_us / 1000), self.max_rss_bytes)


NO_USAGE: Final = CommandUsage()


class _Waiter(NamedTuple):
    condition: Callable[[], bool]
    met: Wakeup


class SeenPrompt(NamedTuple):
    """A prompt, with the `activity` of its shell and the time when the prompt was seen.

    The time is a reading of time.monotonic().
    """

    prompt: Prompt
    activity: tuple[int, float]
    seen_at: float

    @staticmethod
    def now(prompt: Prompt, shell: Shell) -> SeenPrompt:
        return SeenPrompt(prompt, shell.activity, time.monotonic())


class Owner(Protocol):
    """An object that owns a shell's processes and pipes."""

    @property
    def is_being_ended(self) -> bool: ...

    def begin_kill(
        self, number: int | None, grace_ms: int, event: ShellEvent, reason: EndReason | None = None
    ) -> None: ...

    def discard(self) -> None: ...

    def release(self) -> bool: ...

    def catch_up(self) -> None: ...


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Shell:
    """The record of one shell. `created_at`, `started_at` and `completed_at` are readings of
    time.time().

    These times are only for display. Expiry uses the monotonic clock.

    `assign` sets the command. A spare shell has a record even before its command is known.
    """

    id: str = ""
    command: str = ""
    working_dir: str = ""
    _: KW_ONLY
    output: ShellOutput = field(default_factory=ShellOutput)
    # Whether the command has no process, because it has not started or because all processes have
    # ended.
    is_empty: bool = True
    stdout: OutputStream = field(init=False)
    stderr: OutputStream = field(init=False)
    description: str | None = field(default=None, init=False)
    session: str | None = field(default=None, init=False)
    verdict: str = field(default="", init=False)
    warning: str | None = field(default=None, init=False)
    timeout_ms: int | None = field(default=None, init=False)
    idle_timeout_ms: int | None = field(default=None, init=False)
    # Whether the command started as a foreground command.
    in_foreground: bool = field(default=False, init=False)
    # How many repeated calls for this command (with the same key) wait for it to end.
    repeats: int = field(default=0, init=False)
    # How many times `hand_over_repeats` has succeeded.
    hand_overs: int = field(default=0, init=False)
    # The time from SIGTERM to SIGKILL.
    grace_ms: int = field(default=Options().grace, init=False)
    pid: int | None = field(default=None, init=False)
    exit_code: int | None = field(default=None, init=False)
    signal: str | None = field(default=None, init=False)
    usage: CommandUsage = field(default=NO_USAGE, init=False)
    # The pids of the processes that have outlived bash, according to the newest report.
    leftover: list[int] = field(init=False)
    # Whether bash left any processes when it ended.
    left_processes: bool = field(default=False, init=False)
    # The pids of the processes that were alive after the deadline of the last kill.
    survivors: list[int] = field(init=False)
    # Why the shell ended, if status and signal do not show the reason.
    reason: EndReason | None = field(default=None, init=False)
    # How the limits of the session are enforced for this command; None without limits.
    limits: EnforcedLimits | None = field(default=None, init=False)
    # Which parts of the policy the sandbox enforces; None for a command without a sandbox.
    sandbox: EnforcedSandbox | None = field(default=None, init=False)
    denials: Denials = field(default_factory=Denials, init=False)
    # The errno and the failed step if bash could not be started; otherwise None.
    failure: tuple[int, str] | None = field(default=None, init=False)
    # Whether the call that started the command was answered before the command ended.
    released: bool = field(default=False, init=False)
    # If the call was answered early because of a prompt, this is the prompt; otherwise None.
    released_at: SeenPrompt | None = field(default=None, init=False)
    created_at: float = field(init=False)
    started_at: float | None = field(default=None, init=False)
    # The command's input; None if the command has neither a terminal nor an open stdin.
    input: PipeInput | TerminalInput | None = field(default=None, init=False)
    # Reads the command's state, if the session keeps it.
    recorder: Recorder | None = field(default=None, init=False)
    # The owner of the processes and pipes; None once no process is left.
    owner: Owner | None = field(default=None, init=False)
    status: ShellStatus = field(default=ShellStatus.PENDING, init=False)
    _began: float = field(init=False)
    _lasted: float = field(default=math.nan, init=False)
    _completed_at: float | None = field(default=None, init=False)
    # The time until the shell expires counts from this moment (time.monotonic()).
    _expires_from: float = field(default=math.inf, init=False)
    _waiters: list[_Waiter] = field(init=False)

    def __post_init__(self) -> None:
        self.stdout = self.output.stdout
        self.stderr = self.output.stderr
        self.leftover = []
        self.survivors = []
        self._waiters = []
        self.begin()

    @property
    def began(self) -> float:
        """When the shell was made, or when the spare shell got the command (time.monotonic())."""
        return self._began

    @property
    def has_terminal(self) -> bool:
        return isinstance(self.input, TerminalInput)

    @property
    def open_input(self) -> PipeInput | TerminalInput | None:
        """The command's input; None if nobody can write to the input any more."""
        stdin = self.input
        return stdin if stdin is not None and stdin.is_open and not self.has_ended else None

    @property
    def is_running(self) -> bool:
        """Whether bash runs now. This is false before the start and after the end."""
        return self.status is ShellStatus.RUNNING

    @property
    def is_in_foreground(self) -> bool:
        """Whether a caller waits now for the command to end."""
        return self.in_foreground and not (self.released or self.has_ended)

    @property
    def latest_stream(self) -> OutputStream:
        """The stream to which the command wrote last."""
        return max((self.stdout, self.stderr), key=lambda each: each.written_at)

    @property
    def silent_s(self) -> float:
        """How many seconds ago the command last wrote something. If the command has written
        nothing, the result is the number of seconds since its start.
        """
        return min(time.monotonic() - self.latest_stream.written_at, self.elapsed_ms / 1000)

    @property
    def quiet_s(self) -> float:
        """How many seconds ago the newest of these events happened: the command wrote something,
        got input or started.
        """
        if self.input is None:
            return self.silent_s
        return min(self.silent_s, time.monotonic() - self.input.written_at)

    @property
    def activity(self) -> tuple[int, float]:
        """A value that changes when the command writes output or gets input."""
        return self.output.written, 0.0 if self.input is None else self.input.written_at

    @property
    def has_ended(self) -> bool:
        return self.status not in LIVE

    @property
    def output_is_complete(self) -> bool:
        """Whether no process can write more output, as far as shelld knows."""
        return self.has_ended and (self.is_empty or not self.leftover)

    @property
    def returncode(self) -> int | None:
        """The return code as in `subprocess`: negative for a signal, None while bash runs."""
        if not self.has_ended:
            return None
        if self.signal is not None:
            return -_signal_number(self.signal)
        return self.exit_code

    @property
    def elapsed_ms(self) -> int:
        """How long bash ran, or has run until now, by the monotonic clock."""
        lasted = self._lasted
        return round((time.monotonic() - self._began if math.isnan(lasted) else lasted) * 1000)

    @property
    def completed_at(self) -> float | None:
        return self._completed_at

    @completed_at.setter
    def completed_at(self, seconds: float | None) -> None:
        self._completed_at = seconds
        if seconds is None:
            self._expires_from = math.inf
        else:
            self._expires_from = time.monotonic() - (time.time() - seconds)

    def ended_before(self, seconds: float) -> bool:
        """Whether the shell became empty at least `seconds` ago."""
        return self.is_empty and self._expires_from <= time.monotonic() - seconds

    # -- for all ----------------------------------------------------------------------------

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` is true. Calls `condition` after each event of the shell."""
        while not condition():
            waiter = _Waiter(condition, Wakeup())
            self._waiters.append(waiter)
            try:
                await waiter.met.wait()
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def wait_for_news(self, deadline: float, written: int | None = None) -> bool:
        """Wait until the command writes something or the shell ends. Return False at the deadline.

        `deadline` is a reading of the event loop's clock. `written` is the number of bytes that the
        command had written when the caller last read the output. By default, only output that the
        command writes after this call counts.
        """
        before = self.output.written if written is None else written

        def has_news() -> bool:
            return self.has_ended or self.output.written != before

        with anyio.CancelScope(deadline=deadline):
            await self.wait_until(has_news)
        return has_news()

    def notify(self) -> None:
        """Wake the waiters whose condition holds now."""
        for waiter in [waiter for waiter in self._waiters if _is_met(waiter)]:
            waiter.met.set()
            self._waiters.remove(waiter)

    def discard(self) -> None:
        """Ask the owner to kill the whole tree. Does not wait."""
        if self.owner is not None:
            self.owner.discard()

    def release(self) -> bool:
        """Move the command to the background, and lift its time limits. Does not wait.

        A command that has not started yet moves to the background once it runs. Returns False if
        the command has ended, or is being ended.
        """
        is_possible = self.owner is not None and not self.has_ended and self.owner.release()
        self.notify()
        return is_possible

    def hand_over_repeats(self) -> bool:
        """Let all repeated calls for this command return now, before it has ended.

        Returns False if the command has ended, or is being ended.
        """
        if self.owner is None or self.has_ended or self.owner.is_being_ended:
            return False
        self.hand_overs += 1
        self.notify()
        return True

    def catch_up(self) -> None:
        """Store all output that was written before this call. Does not wait."""
        if self.owner is not None:
            self.owner.catch_up()

    async def end_tree(
        self,
        number: int | None,
        grace_ms: int,
        event: ShellEvent = ShellEvent.KILLED,
        reason: EndReason | None = None,
    ) -> list[int]:
        """Signal the whole tree, SIGKILL the tree after the grace, and return once it is dead.

        If `number` is None, send SIGTERM, or no signal if the command has already got SIGTERM.
        Returns the pids of the processes that are alive a second after the grace. If this call ends
        the shell, `event` and `reason` become part of the outcome.
        """
        if self.owner is not None and not self.is_empty:
            self.survivors = []
            self.owner.begin_kill(number, grace_ms, event, reason)
            await self.wait_until(lambda: self.is_empty or bool(self.survivors))
        return self.survivors

    def begin(self) -> None:
        """Set the creation time to the present time."""
        self.created_at = time.time()
        self._began = time.monotonic()

    def assign(self, shell_id: str, request: StartRequest, working_dir: str) -> None:
        """Copy the values of a request."""
        self.id = shell_id
        self.command = request.command
        self.working_dir = working_dir
        self.description = request.description
        self.session = request.session
        self.verdict = request.verdict
        self.warning = request.warning
        self.timeout_ms = None if request.timeout is None else request.timeout.timeout_ms
        idle = request.idle_timeout
        self.idle_timeout_ms = None if idle is None else idle.timeout_ms
        self.in_foreground = request.in_foreground

    def shorten(self) -> None:
        """Cut a long command or description to the length that `list_shells` shows."""
        self.command = beginning(self.command)
        if self.description is not None:
            self.description = beginning(self.description)

    # -- for its supervisor -----------------------------------------------------------------

    def started(self) -> None:
        """Record that the command runs, or has run. `pid` is None if it was never known."""
        self.started_at = time.time()
        self.status = next_status(self.status, ShellEvent.STARTED)

    def become_empty(self) -> None:
        """Record that no process is left. The time until the shell expires starts now."""
        if self.has_ended:
            self._expires_from = time.monotonic()
        self.is_empty = True
        self.owner = None
        self.notify()

    def stop_clock(self) -> None:
        """Record the time at which bash ended. `end` sets the outcome later."""
        self._lasted = time.monotonic() - self._began

    def end(self, wait_status: int, kill_event: ShellEvent | None) -> None:
        """Set the outcome. `kill_event` says why shelld has killed the command, or is None."""
        code = os.waitstatus_to_exitcode(wait_status)
        if code >= 0:
            self.exit_code = code
        else:
            self.signal = _signal_name(-code)
        own = ShellEvent.EXITED_ZERO if code == 0 else ShellEvent.EXITED_NONZERO
        self.status = next_status(self.status, kill_event or own)
        self._completed_at = time.time()
        if math.isnan(self._lasted):
            self.stop_clock()


def _is_met(waiter: _Waiter) -> bool:
    try:
        return waiter.condition()
    except Exception:
        # The condition has raised. Wake the waiter, which checks the condition again and gets the
        # exception.
        return True


def _signal_number(name: str) -> int:
    try:
        return signal.Signals[name]
    except KeyError:
        return int(name.removeprefix("SIG"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Real-time signals between SIGRTMIN and SIGRTMAX have no name of their own.
        return f"SIG{number}"
