"""Starts the daemon as a child process, stops it step by step, and finds out why it has ended.

Owns the process and the client's ends of its pipes. Never waits. Each caller waits in its own way,
but no longer than the limits in this module.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import signal
import subprocess
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from typing import IO, Final

from shelld_client.errors import DaemonExited, SpawnFailed

# How long to wait for the daemon to end after each step. The first step closes stdin; the daemon
# promises to end within 2 s, or 5 s with a thousand shells. The next steps are SIGTERM, and
# SIGKILL, which only the kernel can delay.
CLOSE_TIMEOUT_S: Final = 6.0
TERMINATE_TIMEOUT_S: Final = 3.0
KILL_TIMEOUT_S: Final = 3.0

# How long to wait for a killed process to end if the wait blocks all other work.
BLOCKED_S: Final = 1.0

# How often to check whether the process has ended, if there is no event to wait for.
EXIT_POLL_S: Final = 0.02

# If the daemon has closed its input, how long to wait for the end of stdout. After the end of
# stdout, how long to wait for the exit code.
POST_MORTEM_S: Final = 1.0
# After the end of stdout, how long to wait for the end of stderr.
LAST_WORDS_S: Final = 0.2
# How long a closing client waits until the daemon has taken all messages that were sent before.
LAST_WRITES_S: Final = 1.0

# The size of a read, unless much data arrives. It is the usual capacity of a pipe. A larger buffer
# would need a large allocation for each answer.
READ_BYTES: Final = 64 * 1024
# The capacity of the pipe for answers and events, and the size of a read while much data arrives.
# For a large output, fewer switches between the processes save a sixth of the time.
PIPE_BYTES: Final = 256 * 1024
STDERR_TAIL_BYTES: Final = 8192

_children: Final[weakref.WeakSet[Child]] = weakref.WeakSet()


def _close_inherited() -> None:
    """Close the copies of the pipes in a forked child.

    While these copies are open, the daemon does not notice that the parent has closed its ends.
    """
    for child in list(_children):
        child.close_streams()


os.register_at_fork(after_in_child=_close_inherited)


class Haste(enum.IntEnum):
    """The ways to end the daemon.

    `PATIENTLY` means all three steps of `Child.end`, `AT_ONCE` skips the first step, and `BY_FORCE`
    means only SIGKILL.
    """

    PATIENTLY = enum.auto()
    AT_ONCE = enum.auto()
    BY_FORCE = enum.auto()


class Child:
    """Holds the daemon's process and the client's non-blocking ends of its pipes."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | PathLike[str] | None,
    ) -> None:
        """Start the program. Raises `SpawnFailed` if it cannot be started."""
        cwd = None if cwd is None else os.fspath(cwd)
        try:
            process = subprocess.Popen(
                list(command),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                # The harness handles Ctrl-C at the terminal, so the daemon must not get the SIGINT.
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or type(error).__name__
            what = f"start {command[0]}"
            if cwd is not None and error.filename == cwd:
                what = f"use the working directory {cwd}"
            raise SpawnFailed(f"cannot {what}: {reason}", data=errno_of(error)) from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr
        _children.add(self)
        # Whether the daemon has closed its input.
        self.is_deaf = False
        self._is_status_lost = False
        self._stderr_tail = bytearray()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # If a user has too many large pipes, Linux refuses another one (pipe(7)). In that case,
            # keep the default size, which works as well.
            with suppress(OSError):
                fcntl.fcntl(self.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        for stream in (self.stdin, self.stdout, self.stderr):
            # This affects only the client's end, because each end of a pipe has its own flags.
            os.set_blocking(stream.fileno(), False)

    def has_ended(self) -> bool:
        """Return whether the process has ended. If it has ended, reap it."""
        if self.process.returncode is None:
            try:
                pid, status = os.waitpid(self.process.pid, os.WNOHANG)
            except ChildProcessError:
                # The application ignores SIGCHLD, or has reaped the process itself. So the exit
                # code is lost. `Popen.poll` would report 0.
                self._is_status_lost = True
                self.process.returncode = 0
            else:
                if pid:
                    self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode is not None

    def end(self) -> Iterator[tuple[Haste, float]]:
        """End the process with end of file, then SIGTERM, then SIGKILL.

        After each step, yields the step's `Haste` and how many seconds to wait for the process to
        end. The caller stops the iteration when the process has ended. If a process has changed its
        user, signals cannot reach it, and it may outlive the last step.
        """
        self.stdin.close()
        yield Haste.PATIENTLY, CLOSE_TIMEOUT_S
        with suppress(PermissionError):
            self.process.terminate()
        yield Haste.AT_ONCE, TERMINATE_TIMEOUT_S
        with suppress(PermissionError):
            self.process.kill()
        yield Haste.BY_FORCE, KILL_TIMEOUT_S

    def kill(self) -> None:
        """Kill the process, and reap it if it ends within `BLOCKED_S` seconds."""
        # A process that has changed its user cannot be killed.
        with suppress(PermissionError):
            self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(BLOCKED_S)

    def close_streams(self) -> None:
        """Close the client's ends of the pipes."""
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def keep_stderr(self, data: bytes) -> None:
        self._stderr_tail += data
        del self._stderr_tail[:-STDERR_TAIL_BYTES]

    @property
    def last_words(self) -> str:
        """Return the last part of the text that was read from stderr."""
        return self._stderr_tail.decode("utf-8", "replace").strip()

    def post_mortem(self, said: str) -> DaemonExited:
        """Return the error that all calls raise once no more answers can come.

        `said` is the text that `Connection.said` returns.
        """
        code = name = None
        if self.has_ended() and not self._is_status_lost:
            code = self.process.returncode
        if self._is_status_lost:
            ended = "the daemon has ended"
        elif code is None:
            ended = f"the daemon closed its {'input' if self.is_deaf else 'output'}"
        elif code >= 0:
            ended = f"the daemon exited with code {code}"
        else:
            name = _signal_name(-code)
            code, ended = None, f"the daemon was killed by {name}"
        return DaemonExited(ended + said, stderr=self.last_words, exit_code=code, signal=name)


@contextmanager
def without_sigpipe() -> Generator[None]:
    """Let a write to a pipe without a reader raise an error, instead of ending the program by
    SIGPIPE.

    Python ignores SIGPIPE, but command-line programs often restore its default action.
    """
    if signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL:
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    was_pending = signal.SIGPIPE in signal.sigpending()
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        yield
    finally:
        # Consume the SIGPIPE of our write. Otherwise, the signal would be delivered once it is
        # unblocked.
        if not was_pending and signal.SIGPIPE in signal.sigpending():
            signal.sigwait({signal.SIGPIPE})
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def errno_of(error: OSError) -> dict[str, str]:
    """Return the `data` of a `SpawnFailed` caused by `error`."""
    name = errno.errorcode.get(error.errno or 0)
    return {} if name is None else {"errno": name}


def size_of_next_read(data: bytes) -> int:
    """Return the size of the next read, after a read that has returned `data`."""
    return PIPE_BYTES if len(data) >= READ_BYTES else READ_BYTES


def exit_handle(pid: int) -> int | None:
    """Return a pidfd, which becomes readable when the process ends.

    Return None if the system does not support pidfds.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # Most real-time signals have no name in `signal.Signals`.
        return f"SIG{number}"
