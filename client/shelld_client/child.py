"""The code that both clients share: start the daemon, report why it ended, limit every wait."""

from __future__ import annotations

import copy
import enum
import errno
import math
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from typing import IO, Final, NoReturn, Self

from shelld_client.errors import (
    DaemonExited,
    NoAnswer,
    ProtocolError,
    ShellError,
    SpawnFailed,
)
from shelld_client.reconnects import Reconnect
from shelld_protocol.framing import DEFAULT_MAX_MESSAGE_BYTES

# Until the first answer. A daemon starts in 0.2 s; a busy machine or an ssh connection takes
# seconds.
START_TIMEOUT_S: Final = 10.0

# How long to wait for the daemon's end: after closing stdin (the daemon promises to end within 2 s,
# or 5 s with a thousand shells); then after SIGTERM; then after SIGKILL, which only the kernel can
# delay.
CLOSE_TIMEOUT_S: Final = 6.0
TERMINATE_TIMEOUT_S: Final = 3.0
KILL_TIMEOUT_S: Final = 3.0

# How long to wait for the end of a killed process, where the wait blocks everything else.
BLOCKED_S: Final = 1.0

# How long the end of a job's block waits for the end of its command, without being cancelled.
FINISH_TIMEOUT_S: Final = 10.0

# How often to check whether the process has ended, if there is no event to wait for.
EXIT_POLL_S: Final = 0.02

# How long to wait for the end of stdout after the daemon has closed its input, and for the exit
# code after the end of stdout.
POST_MORTEM_S: Final = 1.0
# How long to wait for the end of stderr after that.
LAST_WORDS_S: Final = 0.2

# The capacity of a pipe. A larger buffer would need a large allocation for each answer.
READ_BYTES: Final = 64 * 1024
STDERR_TAIL_BYTES: Final = 8192

# Suffixes of a size on the daemon's command line.
_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}


_children: Final[weakref.WeakSet[Child]] = weakref.WeakSet()


def _close_inherited() -> None:
    """Close a forked child's copies of the pipes.

    While they are open, the daemon does not notice that the parent has closed its own.
    """
    for child in list(_children):
        child.close_streams()


os.register_at_fork(after_in_child=_close_inherited)


class Haste(enum.IntEnum):
    """How to end the daemon: in all three steps, without the first step, or by SIGKILL at once."""

    PATIENTLY = enum.auto()
    AT_ONCE = enum.auto()
    BY_FORCE = enum.auto()


class Child:
    """The daemon's process and our non-blocking ends of its pipes."""

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
                # A Ctrl-C at the terminal is for the harness to handle, not the daemon.
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
        for stream in (self.stdin, self.stdout, self.stderr):
            # This affects only our end: each end of a pipe has its own flags.
            os.set_blocking(stream.fileno(), False)

    def has_ended(self) -> bool:
        """Return whether the process has ended, and reap it if so."""
        if self.process.returncode is None:
            try:
                pid, status = os.waitpid(self.process.pid, os.WNOHANG)
            except ChildProcessError:
                # The program that uses us ignores SIGCHLD, or has reaped the process, so the exit
                # code is lost. `Popen.poll` would report 0.
                self._is_status_lost = True
                self.process.returncode = 0
            else:
                if pid:
                    self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode is not None

    def end(self) -> Iterator[tuple[Haste, float]]:
        """End the process: end of file, then SIGTERM, then SIGKILL.

        Yields, after each step, its haste and the seconds to wait for the end of the process. Stop
        iterating when it has ended. A process that has changed its user gets no signals and may
        outlive the last step.
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
        """Close our ends of the pipes."""
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def keep_stderr(self, data: bytes) -> None:
        self._stderr_tail += data
        del self._stderr_tail[:-STDERR_TAIL_BYTES]

    @property
    def last_words(self) -> str:
        """The end of the text that was read from stderr."""
        return self._stderr_tail.decode("utf-8", "replace").strip()

    def post_mortem(self, said: str) -> DaemonExited:
        """Return the error for all calls once no answer can come. `said`: see `Connection.said`."""
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
    """Let a write to a pipe without a reader raise, instead of killing the program by SIGPIPE.

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
        # Consume our SIGPIPE: it would be delivered as soon as it is unblocked.
        if not was_pending and signal.SIGPIPE in signal.sigpending():
            signal.sigwait({signal.SIGPIPE})
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def errno_of(error: OSError) -> dict[str, str]:
    """Return the `data` of a `SpawnFailed` caused by `error`."""
    name = errno.errorcode.get(error.errno or 0)
    return {} if name is None else {"errno": name}


def exit_handle(pid: int) -> int | None:
    """Return a pidfd, which is readable once the process has ended; None if none can be opened."""
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


def _words(name: str, words: Sequence[str | PathLike[str]]) -> list[str]:
    """Return the words of a command line as text. Raises TypeError for any other type."""
    if isinstance(words, (str, bytes)):
        raise TypeError(f"{name} must be a list of words, not one text")
    texts = [os.fspath(word) for word in words]
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the words of {name} must be text or paths, not {type(text).__name__}")
    return texts


def daemon_command(
    command: Sequence[str | PathLike[str]] | None, args: Sequence[str | PathLike[str]]
) -> list[str]:
    """Return the command line of a daemon. Raises TypeError."""
    if command is None:
        # -P: the working directory is a user's project; do not import modules from there.
        command = (sys.executable, "-P", "-m", "shelld")
    # Leave an empty command empty, so that the client refuses it.
    argv = _words("command", command)
    return argv + _words("args", args) if argv else argv


def attach_command(
    name: str, *, linger: int | None, steal: bool, args: Sequence[str | PathLike[str]]
) -> list[str]:
    """Return the command line that joins or starts a lasting daemon. Raises TypeError."""
    command = [sys.executable, "-P", "-m", "shelld", "attach", f"--name={name}"]
    if linger is not None:
        command.append(f"--linger={linger}")
    if steal:
        command.append("--steal")
    return [*command, "--", *_words("args", args)] if args else command


def message_limit(command: Sequence[str]) -> int:
    """Return the daemon's limit of bytes per message, as far as its command line tells."""
    limit = DEFAULT_MAX_MESSAGE_BYTES
    for word, following in zip(command, [*command[1:], ""], strict=True):
        option, _, value = word.partition("=")
        if option == "--max-message-bytes":
            limit = _bytes(value or following) or limit
    return limit


def _bytes(size: str) -> int | None:
    """Parse a size such as ``64M`` as the daemon does; return bytes, or None if it is invalid."""
    factor = _UNITS.get(size[-1:].upper())
    digits = size if factor is None else size[:-1]
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) * (factor or 1)


class SpawnedClient:
    """The base of both clients: starts the daemon, but never waits for it."""

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        reconnect: Reconnect | None = None,
    ) -> None:
        if start_timeout is not None:
            if isinstance(start_timeout, bool):
                raise TypeError("start_timeout must be a number of seconds, or None")
            if not start_timeout > 0:
                raise ValueError("start_timeout must be more than 0 seconds, or None")
        self._command = _words("command", command)
        if not self._command:
            raise ValueError("command must have at least one word")
        self._message_limit = message_limit(self._command)
        self._env = env
        self._cwd = cwd
        self._reconnect = reconnect
        self._start_timeout = None if start_timeout == math.inf else start_timeout
        self._child: Child | None = None
        self._entered_in: int | None = None
        # Why calls fail; None while calls are possible.
        self._failure: ShellError | None = DaemonExited("the client was not entered")

    @classmethod
    def spawn(
        cls,
        command: Sequence[str | PathLike[str]] | None = None,
        *,
        args: Sequence[str | PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
    ) -> Self:
        """Return a client that starts its daemon when entered.

        `command` is any argv that ends in a shelld (``["ssh", "host", "shelld"]``); the default is
        the daemon installed beside this client. `args` are options of the daemon, appended to
        `command`. `env` and `cwd` are those of the daemon, and its commands start with them.

        A client can be entered once. Entering waits `start_timeout` seconds (None: without limit)
        for the daemon's first answer, and skips up to 64 KiB of other text before it. Entering
        raises `SpawnFailed` or `DaemonExited`, and `ProtocolError` if the program is not a shelld.
        """
        argv = daemon_command(command, args)
        return cls(argv, env=env, cwd=cwd, start_timeout=start_timeout)

    @classmethod
    def attach(
        cls,
        name: str = "main",
        *,
        linger: int | None = None,
        steal: bool = False,
        args: Sequence[str | PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        reconnect: bool = False,
    ) -> Self:
        """Return a client that joins the lasting daemon `name` when entered, or starts it.

        Leaving the client leaves the daemon and its shells. The daemon ends after `linger` seconds
        without a client; None stands for 3,600 seconds, or for what a daemon that runs has already.
        `steal` takes the daemon from another client. `args` (options of the daemon), `env` and
        `cwd` have an effect only if the daemon is started.

        Entering raises what `spawn` describes. If another client is attached, that is
        `DaemonExited` with `exit_code` 4.

        With `reconnect`, the client attaches again if its connection is lost, for up to 30 seconds.
        Calls under way that have an `idempotency_key` are repeated, and so are calls that change
        nothing: `kill_shell`, `bash_output` with both offsets, and others that only read. All other
        calls under way raise `TargetLost`. Iterations over events and jobs go on where they were. A
        daemon that has died, or that another client has taken, is left alone: calls raise
        `DaemonExited`.
        """
        command = attach_command(name, linger=linger, steal=steal, args=args)
        again = attach_command(name, linger=None, steal=False, args=())
        return cls(
            command,
            env=env,
            cwd=cwd,
            start_timeout=start_timeout,
            reconnect=Reconnect(name, [*again, "--no-start"]) if reconnect else None,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client cannot be pickled, because its daemon belongs to the process that entered "
            "it: create one where it is needed"
        )

    @property
    def pid(self) -> int:
        """The pid of the started process."""
        if self._child is None:
            raise DaemonExited("the client was not entered")
        return self._child.process.pid

    def _enter_once(self) -> None:
        if self._entered_in is not None:
            raise RuntimeError("a client can be entered only once")
        self._entered_in = os.getpid()

    def _start_child(self) -> Child:
        self._child = Child(self._command, env=self._env, cwd=self._cwd)
        return self._child

    @property
    def _is_forked(self) -> bool:
        """Whether this copy is in a fork of the process that started the daemon."""
        return self._entered_in is not None and self._entered_in != os.getpid()

    def _raise_if_forked(self) -> None:
        if self._is_forked:
            raise DaemonExited("the client was entered in another process")

    def _raise_if_unusable(self) -> None:
        """Raise an error if calls are not possible."""
        self._raise_if_forked()
        if self._failure is not None:
            # A copy, because raising an exception writes a traceback into it.
            raise copy.copy(self._failure)

    def _no_answer(self, said: str) -> NoAnswer:
        """Return the exception that entering raises after `start_timeout`."""
        assert self._child is not None
        sentence = f"the peer did not answer within {self._start_timeout:g} s (start_timeout){said}"
        last_words = self._child.last_words
        return NoAnswer(f"{sentence}\n{last_words}" if last_words else sentence)


def no_shelld(error: ShellError) -> ShellError:
    """Return the exception that entering raises if its first call failed with `error`."""
    if isinstance(error, (DaemonExited, ProtocolError, SpawnFailed)):
        return error
    return ProtocolError(f"the peer refuses a ping, so it is no shelld: {error}")
