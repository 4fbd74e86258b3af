"""One shell as others see it: its command, its state, its outcome, its output, its leftovers.

A shell *ends* when bash does. It is *empty* when every process that bash left behind is gone too.

Only `supervision` moves a shell that has a process from state to state. Everybody else reads, asks
(`end_tree`) and waits (`wait_until`), on the event loop of the manager's scope. What a program in
the same process needs works on any: `wait`, `kill`, `terminate`, `read_output`, the buffers.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Struct

from shelld.output.reader import read_all
from shelld.output.retention import OutputStream, ShellOutput
from shelld.readiness import Wakeup, new_wakeup
from shelld.shells.home import Home
from shelld.shells.launch import StartRequest
from shelld.shells.lifecycle import LIVE, STEPS, ShellEvent, ShellStatus, next_status
from shelld.shells.recorder import Recorder
from shelld.shells.text import beginning
from shelld_protocol.structs import EndReason

T = TypeVar("T")

# Of the event loop, from a write to a pipe that it watches to the bytes being taken.
_TURNS_TO_READ: Final = 3


class CommandUsage(Struct, frozen=True):
    """From wait4(2), in microseconds and bytes."""

    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0


NO_USAGE: Final = CommandUsage()


class _Waiter(NamedTuple):
    condition: Callable[[], bool]
    met: Wakeup


class Killer(Protocol):
    """What a shell asks of who can kill it."""

    def begin_kill(self, number: int, grace_ms: int, reason: ShellEvent) -> None: ...

    def discard(self) -> None: ...


class BashProcess(NamedTuple):
    """`returncode` as `subprocess` has it: negative for a signal, None while it runs."""

    pid: int
    returncode: int | None


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class ShellProcess:
    """`created_at`, `started_at` and `completed_at` are seconds as of time.time().

    They are for people. When an ended shell expires, a clock tells that nobody sets.

    Who and what it is, `assign` tells: a bash may be there before its command is known. One that is
    made by hand has no process, and is what its attributes are set to.
    """

    id: str = ""
    command: str = ""
    working_dir: str = ""
    _: KW_ONLY
    output: ShellOutput = field(default_factory=ShellOutput)
    # Nothing that the command started is left, or nothing was started.
    is_empty: bool = True
    stdout: OutputStream = field(init=False)
    stderr: OutputStream = field(init=False)
    description: str | None = field(default=None, init=False)
    session: str | None = field(default=None, init=False)
    verdict: str = field(default="", init=False)
    warning: str | None = field(default=None, init=False)
    timeout_ms: int | None = field(default=None, init=False)
    # Somebody waits for its end.
    in_foreground: bool = field(default=False, init=False)
    # From SIGTERM to SIGKILL.
    grace_ms: int = field(default=1_000, init=False)
    pid: int | None = field(default=None, init=False)
    exit_code: int | None = field(default=None, init=False)
    signal: str | None = field(default=None, init=False)
    usage: CommandUsage = field(default=NO_USAGE, init=False)
    # Pids that were alive after bash had ended, as last seen.
    leftover: list[int] = field(init=False)
    # Pids that were alive after the last kill's deadline.
    survivors: list[int] = field(init=False)
    # Why it ended as it did, where that is not what it looks like.
    reason: EndReason | None = field(default=None, init=False)
    # (errno, what) if nothing could be started.
    failure: tuple[int, str] | None = field(default=None, init=False)
    # The timeout has passed and was to move the shell to the background.
    released: bool = field(default=False, init=False)
    created_at: float = field(init=False)
    started_at: float | None = field(default=None, init=False)
    # Took down what the command has left, if that was to be kept and it ended by itself.
    recorder: Recorder | None = field(default=None, init=False)
    # None once nothing is left to kill.
    killer: Killer | None = field(default=None, init=False)
    home: Home | None = field(default=None, init=False)
    _began: float = field(init=False)
    _lasted: float = field(default=math.nan, init=False)
    _completed_at: float | None = field(default=None, init=False)
    # When that was, as of time.monotonic().
    _completed_on_clock: float = field(default=math.inf, init=False)
    _status: ShellStatus = field(default=ShellStatus.PENDING, init=False)
    _waiters: list[_Waiter] = field(init=False)
    # Its caller is to see it running, however short it is.
    _is_held: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.stdout = self.output.stdout
        self.stderr = self.output.stderr
        self.leftover = []
        self.survivors = []
        self._waiters = []
        self.begin()

    @property
    def status(self) -> ShellStatus:
        held = self._is_held and self._status not in LIVE
        return ShellStatus.RUNNING if held else self._status

    @status.setter
    def status(self, status: ShellStatus) -> None:
        """Raises ValueError for a step that is not in the table, or if there is a process."""
        if self.killer is not None:
            raise ValueError("what has a process has the state of that")
        if (self._status, status) not in STEPS:
            raise ValueError(f"a {self._status.value} shell cannot become {status.value}")
        self._status = status

    @property
    def is_running(self) -> bool:
        """Whether its bash runs; false before the start, too."""
        return self.status is ShellStatus.RUNNING

    @property
    def has_ended(self) -> bool:
        return self.status not in LIVE

    @property
    def process(self) -> BashProcess | None:
        """Its bash, None if that has not been started."""
        return None if self.pid is None else BashProcess(self.pid, self._returncode)

    @property
    def _returncode(self) -> int | None:
        if not self.has_ended:
            return None
        if self.signal is not None:
            return -_signal_number(self.signal)
        return self.exit_code

    @property
    def elapsed_ms(self) -> int:
        """How long it has run, or had, on a clock that nobody sets."""
        lasted = self._lasted
        return round((time.monotonic() - self._began if math.isnan(lasted) else lasted) * 1000)

    @property
    def duration_ms(self) -> float | None:
        """From `started_at` to `completed_at`, or until now; None before it has started."""
        if self.started_at is None:
            return None
        end = time.time() if self.completed_at is None else self.completed_at
        return (end - self.started_at) * 1000

    @property
    def completed_at(self) -> float | None:
        return self._completed_at

    @completed_at.setter
    def completed_at(self, seconds: float | None) -> None:
        self._completed_at = seconds
        if seconds is None:
            self._completed_on_clock = math.inf
        else:
            self._completed_on_clock = time.monotonic() - (time.time() - seconds)

    def ended_before(self, seconds: float) -> bool:
        """Whether it ended that long ago, and nothing of it is left."""
        return self.is_empty and self._completed_on_clock <= time.monotonic() - seconds

    # -- on any event loop ------------------------------------------------------------------

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until bash has ended; return its exit code, negative for a signal.

        After `timeout` seconds the shell is killed, its status is TIMEOUT, and TimeoutError is
        raised.
        """
        return await self._at_home(self._wait, timeout)

    async def _wait(self, timeout: float | None) -> int:
        if self._status in LIVE and self.killer is None:
            raise RuntimeError("there is no process to wait for")
        with anyio.move_on_after(timeout):
            await self.wait_until(lambda: self.has_ended)
        if not self.has_ended:
            await self.end_tree(signal.SIGTERM, self.grace_ms, ShellEvent.TIMED_OUT)
            if self._status is ShellStatus.TIMEOUT:
                raise TimeoutError(f"the command timed out after {timeout} s")
        returncode = self._returncode
        if returncode is None:
            raise RuntimeError("nobody knows how it ended")
        return returncode

    async def kill(self) -> None:
        """SIGKILL the whole tree, and return once it is dead; nothing if there is no process."""
        await self._at_home(self.end_tree, signal.SIGKILL, 0)

    async def terminate(self) -> None:
        """SIGTERM the whole tree, SIGKILL what does not heed it; return once it is dead."""
        await self._at_home(self.end_tree, signal.SIGTERM, self.grace_ms)

    async def read_output(self) -> bool:
        """Let arrive what has been written by now; return whether there is anything unread."""
        return await self._at_home(self._read_output)

    async def _read_output(self) -> bool:
        for _ in range(_TURNS_TO_READ):
            await checkpoint()
        return self.stdout.unread_bytes + self.stderr.unread_bytes > 0

    def get_new_output(self, include_stderr: bool = True) -> str:
        """Return what was written since the last call, and was not read in any other way.

        What stderr has follows a line ``[stderr]``. An unfinished character or escape sequence of a
        running shell is left for later, as `bash_output` does.
        """
        return self._here(self._new_output, include_stderr)

    def _new_output(self, include_stderr: bool) -> str:
        texts: list[str] = []
        for stream in (self.stdout, self.stderr)[: 1 + include_stderr]:
            text, end = self._text(stream, stream.read_position)
            stream.read_position = end
            texts.append(text)
        return join_streams(*texts)

    def get_all_output(self, include_stderr: bool = True) -> str:
        """Return all that is kept of what was written; changes nothing for others."""
        return self._here(self._all_output, include_stderr)

    def _all_output(self, include_stderr: bool) -> str:
        streams = (self.stdout, self.stderr)[: 1 + include_stderr]
        return join_streams(*[self._text(stream, 0)[0] for stream in streams])

    def _text(self, stream: OutputStream, start: int, *, strip: bool = True) -> tuple[str, int]:
        return read_all(stream.store, start, strip=strip, final=self.has_ended)

    @property
    def stdout_buffer(self) -> str:
        """All that is kept of what was written, as it was written."""
        return self._here(lambda: self._text(self.stdout, 0, strip=False)[0])

    @stdout_buffer.setter
    def stdout_buffer(self, text: str) -> None:
        self._here(self.output.replace, self.stdout, text.encode())

    @property
    def stderr_buffer(self) -> str:
        return self._here(lambda: self._text(self.stderr, 0, strip=False)[0])

    @stderr_buffer.setter
    def stderr_buffer(self, text: str) -> None:
        self._here(self.output.replace, self.stderr, text.encode())

    @property
    def last_read_stdout(self) -> int:
        """Up to where it has been read, in bytes."""
        return self.stdout.read_position

    @last_read_stdout.setter
    def last_read_stdout(self, offset: int) -> None:
        self.stdout.read_position = offset

    @property
    def last_read_stderr(self) -> int:
        return self.stderr.read_position

    @last_read_stderr.setter
    def last_read_stderr(self, offset: int) -> None:
        self.stderr.read_position = offset

    def hold(self) -> None:
        """Show it as running until `let_go`."""
        self._is_held = True

    def let_go(self) -> None:
        """Show it as it is, after `hold`."""
        if self.home is None:
            self._let_go()
        else:
            self.home.call_soon(self._let_go)

    def _let_go(self) -> None:
        self._is_held = False
        self.notify()

    async def _at_home(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        return await (function(*args) if self.home is None else self.home.call(function, *args))

    def _here(self, function: Callable[..., T], *args: object) -> T:
        home = self.home
        return function(*args) if home is None else home.call_sync(function, *args)

    # -- on the event loop of the scope -----------------------------------------------------

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at whenever something happened here."""
        while not condition():
            waiter = _Waiter(condition, new_wakeup())
            self._waiters.append(waiter)
            try:
                await waiter.met.wait()
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def notify(self) -> None:
        """Something happened: wake those for whom it makes a difference."""
        for waiter in [waiter for waiter in self._waiters if _is_met(waiter)]:
            waiter.met.set()
            self._waiters.remove(waiter)

    def discard(self) -> None:
        """Have the whole tree killed, without waiting for that."""
        self._is_held = False
        if self.killer is not None:
            self.killer.discard()

    async def end_tree(
        self, number: int, grace_ms: int, event: ShellEvent = ShellEvent.KILLED
    ) -> list[int]:
        """Signal the whole tree, SIGKILL it after the grace; return once it is dead.

        Returns the pids that are still alive a second after the grace, else []. `event` says
        what the shell ends with if this is what ends it.
        """
        self._is_held = False
        if self.killer is not None and not self.is_empty:
            self.survivors = []
            self.killer.begin_kill(number, grace_ms, event)
            await self.wait_until(lambda: self.is_empty or bool(self.survivors))
        return self.survivors

    def begin(self) -> None:
        """It is as old as this moment."""
        self.created_at = time.time()
        self._began = time.monotonic()

    def assign(self, shell_id: str, request: StartRequest, working_dir: str) -> None:
        """This is the shell of that request."""
        self.id = shell_id
        self.command = request.command
        self.working_dir = working_dir
        self.description = request.description
        self.session = request.session
        self.verdict = request.verdict
        self.warning = request.warning
        self.timeout_ms = None if request.timeout is None else request.timeout.timeout_ms
        self.in_foreground = request.in_foreground

    def shorten(self) -> None:
        """Keep no more of a long command, or description, than is listed."""
        self.command = beginning(self.command)
        if self.description is not None:
            self.description = beginning(self.description)

    # -- for supervision --------------------------------------------------------------------

    def started(self) -> None:
        """The command runs, or has run; `pid` is None if it was gone before it could be known."""
        self.started_at = time.time()
        self._status = next_status(self._status, ShellEvent.STARTED)

    def become_empty(self) -> None:
        """Nothing is left of it."""
        self.is_empty = True
        self.killer = None
        self.notify()

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
        self._status = next_status(self._status, kill_event or own)
        self.completed_at = time.time()
        if math.isnan(self._lasted):
            self.stop_clock()


def _is_met(waiter: _Waiter) -> bool:
    try:
        return waiter.condition()
    except Exception:
        # It asks again itself, and it is the one that fails then.
        return True


def join_streams(stdout: str, stderr: str = "") -> str:
    """Return both streams as one text, what came on stderr after a line that says so."""
    if not stderr:
        return stdout
    line_end = "" if not stdout or stdout.endswith("\n") else "\n"
    return f"{stdout}{line_end}[stderr]\n{stderr}"


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
