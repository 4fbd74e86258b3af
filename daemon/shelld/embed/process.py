"""Represents a shell as an object, whose methods a program can call on any event loop."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from shelld.embed.owner_loop import OwnerLoop
from shelld.output.reader import read_all
from shelld.output.retention import OutputStream
from shelld.sessions.text import join_streams
from shelld.shells.lifecycle import LIVE, STEPS, ShellEvent, ShellStatus
from shelld.shells.shell import Shell

T = TypeVar("T")

# After a process has written bytes to a watched pipe, the event loop reads these bytes within this
# many iterations.
_TURNS_TO_READ: Final = 3


class BashProcess(NamedTuple):
    """`returncode` means the same as in `subprocess`: negative for a signal, None while the process
    runs.
    """

    pid: int
    returncode: int | None


class _Member(Generic[T]):
    """An attribute whose value is stored in `record`."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, process: ShellProcess, _owner: Any = None) -> T:
        value: T = getattr(process.record, self._name)
        return value

    def __set__(self, process: ShellProcess, value: T) -> None:
        setattr(process.record, self._name, value)


class ShellProcess:
    """`created_at`, `started_at` and `completed_at` are in seconds, as in time.time().

    A shell that a program constructs itself has no process. It has only the attributes that the
    program sets.
    """

    id = _Member[str]()
    command = _Member[str]()
    working_dir = _Member[str]()
    description = _Member[str | None]()
    session = _Member[str | None]()
    # The time from SIGTERM to SIGKILL.
    grace_ms = _Member[int]()
    pid = _Member[int | None]()
    exit_code = _Member[int | None]()
    signal = _Member[str | None]()
    # The pids of the processes that have outlived bash, according to the newest report.
    leftover = _Member[list[int]]()
    # The pids of the processes that were still alive at the deadline of the last kill.
    survivors = _Member[list[int]]()
    # Whether the command has no process left, or never had one.
    is_empty = _Member[bool]()
    created_at = _Member[float]()
    started_at = _Member[float | None]()
    completed_at = _Member[float | None]()

    def __init__(
        self,
        id: str = "",  # noqa: A002
        command: str = "",
        working_dir: str = "",
        *,
        record: Shell | None = None,
        owner: OwnerLoop | None = None,
    ) -> None:
        """`record` belongs to the event loop of `owner`."""
        self.record = record or Shell(id, command, working_dir)
        self._owner = owner
        self._end_is_hidden = False

    # -- attributes -------------------------------------------------------------------------

    @property
    def status(self) -> ShellStatus:
        status = self.record.status
        return ShellStatus.RUNNING if self._end_is_hidden and status not in LIVE else status

    @status.setter
    def status(self, status: ShellStatus) -> None:
        """Set the status. Raises ValueError for an invalid transition, or if the shell has a
        process.
        """
        shell = self.record
        if shell.owner is not None:
            raise ValueError("a shell that has a process gets its status from that process")
        if (shell.status, status) not in STEPS:
            raise ValueError(f"a {shell.status.value} shell cannot become {status.value}")
        shell.status = status

    @property
    def is_running(self) -> bool:
        """Whether bash runs. The value is False before the start."""
        return self.status is ShellStatus.RUNNING

    @property
    def has_ended(self) -> bool:
        return self.status not in LIVE

    @property
    def process(self) -> BashProcess | None:
        """The process of bash, or None before the start."""
        if self.record.pid is None:
            return None
        return BashProcess(self.record.pid, self.record.returncode if self.has_ended else None)

    @property
    def duration_ms(self) -> float | None:
        """The time from `started_at` to `completed_at`, or until now; None before the start."""
        if self.started_at is None:
            return None
        end = time.time() if self.completed_at is None else self.completed_at
        return (end - self.started_at) * 1000

    def hide_end(self) -> None:
        """Report the shell as running until `show_end` is called."""
        self._end_is_hidden = True

    def show_end(self) -> None:
        """Report the true state of the shell again after `hide_end`."""
        self._end_is_hidden = False
        if self._owner is not None:
            self._owner.call_soon(self.record.notify)

    # -- waiting and killing ----------------------------------------------------------------

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until bash has ended. Return its exit code, which is negative if a signal has ended
        bash.

        After `timeout` seconds, this method kills the shell, sets its status to TIMEOUT, and raises
        TimeoutError.
        """
        if self.has_ended:
            # Do not call the event loop of the shells, because it may have ended.
            await checkpoint()
            return self._known_returncode()
        return await self._run_on_owner(self._wait, timeout)

    async def _wait(self, timeout: float | None) -> int:
        shell = self.record
        if shell.status in LIVE and shell.owner is None:
            raise RuntimeError("there is no process to wait for")
        with anyio.move_on_after(timeout):
            await shell.wait_until(lambda: self.has_ended)
        if not self.has_ended:
            await self._end(signal.SIGTERM, shell.grace_ms, ShellEvent.TIMED_OUT)
            if shell.status is ShellStatus.TIMEOUT:
                raise TimeoutError(f"the command timed out after {timeout} s")
        return self._known_returncode()

    def _known_returncode(self) -> int:
        returncode = self.record.returncode
        if returncode is None:
            raise RuntimeError("it is unknown how the command ended")
        return returncode

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds. The condition is checked after each event of the shell.

        `condition` is called on the event loop of the shells.
        """
        await self._run_on_owner(self.record.wait_until, condition)

    async def kill(self) -> None:
        """Send SIGKILL to the whole process tree, and return when the tree is dead. Does nothing if
        there is no process.
        """
        await self._end_if_needed(signal.SIGKILL, 0)

    async def terminate(self) -> None:
        """Send SIGTERM to the whole process tree, and then SIGKILL to the remaining processes.
        Return when the tree is dead.
        """
        await self._end_if_needed(signal.SIGTERM, self.grace_ms)

    async def _end_if_needed(self, number: int, grace_ms: int) -> None:
        if self.is_empty:
            self.show_end()
        else:
            await self._run_on_owner(self._end, number, grace_ms)

    async def _end(
        self, number: int, grace_ms: int, event: ShellEvent = ShellEvent.KILLED
    ) -> list[int]:
        self._end_is_hidden = False
        return await self.record.end_tree(number, grace_ms, event)

    def discard(self) -> None:
        """Kill the whole process tree without waiting. Call this method on the event loop of the
        shells.
        """
        self._end_is_hidden = False
        self.record.discard()

    # -- output -----------------------------------------------------------------------------

    async def read_output(self) -> bool:
        """Wait a moment, so that output that was already written can arrive. Return whether there
        is unread output.
        """
        return await self._run_on_owner(self._read_output)

    async def _read_output(self) -> bool:
        for _ in range(_TURNS_TO_READ):
            await checkpoint()
        return self.record.stdout.unread_bytes + self.record.stderr.unread_bytes > 0

    def get_new_output(self, include_stderr: bool = True) -> str:
        """Return the output that neither this method nor another call has read yet.

        The text of stderr comes after a line ``[stderr]``. If the output ends with an incomplete
        character or escape sequence, and the command may write more, the next read returns this
        part, as in `bash_output`.
        """
        return self._here(self._new_output, include_stderr)

    def _new_output(self, include_stderr: bool) -> str:
        texts: list[str] = []
        for stream in self._streams[: 1 + include_stderr]:
            text, end = self._text(stream, stream.read_position)
            stream.read_position = end
            texts.append(text)
        return join_streams(*texts)

    def get_all_output(self, include_stderr: bool = True) -> str:
        """Return all retained output. This does not change where the next read begins."""
        return self._here(self._all_output, include_stderr)

    def _all_output(self, include_stderr: bool) -> str:
        streams = self._streams[: 1 + include_stderr]
        return join_streams(*[self._text(stream, 0)[0] for stream in streams])

    @property
    def _streams(self) -> tuple[OutputStream, OutputStream]:
        return self.record.stdout, self.record.stderr

    def _text(self, stream: OutputStream, start: int, *, strip: bool = True) -> tuple[str, int]:
        return read_all(stream.store, start, strip=strip, final=self.record.output_is_complete)

    @property
    def stdout_buffer(self) -> str:
        """The retained output of stdout, with escape sequences."""
        return self._here(lambda: self._text(self.record.stdout, 0, strip=False)[0])

    @stdout_buffer.setter
    def stdout_buffer(self, text: str) -> None:
        self._here(self.record.output.replace, self.record.stdout, text.encode())

    @property
    def stderr_buffer(self) -> str:
        return self._here(lambda: self._text(self.record.stderr, 0, strip=False)[0])

    @stderr_buffer.setter
    def stderr_buffer(self, text: str) -> None:
        self._here(self.record.output.replace, self.record.stderr, text.encode())

    @property
    def last_read_stdout(self) -> int:
        """The offset at which the next read begins, in bytes. Setting a negative offset raises
        ValueError.
        """
        return self.record.stdout.read_position

    @last_read_stdout.setter
    def last_read_stdout(self, offset: int) -> None:
        self.record.stdout.read_position = _checked(offset)

    @property
    def last_read_stderr(self) -> int:
        return self.record.stderr.read_position

    @last_read_stderr.setter
    def last_read_stderr(self, offset: int) -> None:
        self.record.stderr.read_position = _checked(offset)

    # -- calls on the event loop of the shells ------------------------------------------------

    async def _run_on_owner(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        owner = self._owner
        return await (function(*args) if owner is None else owner.call(function, *args))

    def _here(self, function: Callable[..., T], *args: object) -> T:
        owner = self._owner
        return function(*args) if owner is None else owner.call_sync(function, *args)


def _checked(offset: int) -> int:
    if offset < 0:
        raise ValueError("an offset in the output must not be negative")
    return offset
