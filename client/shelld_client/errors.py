"""Defines the exceptions of the client, and maps the errors on the wire to exceptions.

`ShellError` is the base of all exceptions. `kind` is the stable name of the wire error ("timeout",
"shell_not_found", ...), or None for an error that the daemon has not sent.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, cast

from shelld_client.results import from_members
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.shell_methods import BashOutputResult, BashResult, OutputRange
from shelld_protocol.structs import CUT_MARK, Usage


class ShellError(Exception):
    """The base of all errors. `code` and `data` come from the error that the daemon has sent."""

    def __init__(
        self, message: str, *, code: int | None = None, data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data: dict[str, Any] = data or {}

    @property
    def kind(self) -> str | None:
        kind = self.data.get("kind")
        return kind if isinstance(kind, str) else None


class CommandTimedOut(ShellError):
    """The command was killed at its timeout. `stdout` and `stderr` hold its output."""

    @property
    def stdout(self) -> str:
        return self.result.stdout

    @property
    def stderr(self) -> str:
        return self.result.stderr

    @cached_property
    def result(self) -> BashResult:
        """The result at the timeout. Members that the daemon did not send are empty, 0 or None."""
        return from_members(self.data, _TIMED_OUT)


_TIMED_OUT: Final = BashResult(
    bash_id="",
    command="",
    stdout="",
    stderr="",
    exit_code=None,
    signal=None,
    status="timeout",
    duration_ms=0,
    truncated=False,
    stdout_bytes=0,
    stderr_bytes=0,
    cwd="",
    leftover=[],
    usage=Usage(user_ms=0, system_ms=0, max_rss_bytes=0),
)


class CommandFailed(ShellError):
    """A command that was run with `check` has failed. `result` is its result."""

    def __init__(self, result: BashResult) -> None:
        how = how_it_ended(result)
        # If the daemon has cut a text, the last line is missing.
        texts = [text for text in (result.stderr, result.stdout) if not _is_cut(result, text)]
        wrote = next((line for line in map(_last_line, texts) if line), "")
        sentence = f"the command failed with {how}"
        super().__init__(f"{sentence}; its last line is: {wrote}" if wrote else sentence)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result,), vars(self)

    @property
    def stdout(self) -> str:
        return self.result.stdout

    @property
    def stderr(self) -> str:
        return self.result.stderr


class _WaitFailed(ShellError):
    def __init__(self, message: str, result: BashOutputResult) -> None:
        streams = ((result.stderr, result.stderr_range), (result.stdout, result.stdout_range))
        # If there is more output of a stream, its last line is missing.
        texts = [text for text, part in streams if not _has_more(result, part)]
        wrote = next((line for line in map(_last_line, texts) if line), "")
        super().__init__(f"{message}; its last line is: {wrote}" if wrote else message)
        # Keep the original message, because pickle passes it to the constructor of the copy.
        self._message = message
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._message, self.result), vars(self)


class WaitTimedOut(_WaitFailed, TimeoutError):
    """A wait for a job has reached its timeout. The job goes on.

    `result` has the state of the command and the output that was searched (up to 64 KiB per
    stream).
    """


class JobEnded(_WaitFailed):
    """The command of a job has ended before the condition of a wait was met.

    `result` has the command's `exit_code` or `signal`, and the output that was searched (up to 64
    KiB per stream).
    """


class CommandBlocked(ShellError):
    """The guard refused the command; nothing ran."""


class ShellNotFound(ShellError):
    """The shell does not exist. `expired` tells whether the shell existed before."""

    @property
    def expired(self) -> bool:
        return bool(self.data.get("expired", False))


class SessionNotFound(ShellError):
    """The session does not exist, or has not run a command yet."""


class RequestCancelled(ShellError):
    """The request was cancelled.

    If the request had started a command, the command was killed.
    """


class ShuttingDown(ShellError):
    """The daemon is shutting down and accepts no more requests."""


class InvalidParams(ShellError, ValueError):
    """`parameter` is invalid.

    The client refuses values that JSON cannot express. The daemon refuses all other invalid values.
    """

    @property
    def parameter(self) -> str | None:
        parameter = self.data.get("parameter")
        return parameter if isinstance(parameter, str) else None


class MessageTooLarge(ShellError):
    """A call needs a message of `size` bytes, but the daemon takes at most `limit`. Nothing ran."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the message has {size} bytes, and the daemon takes {limit} (--max-message-bytes)"
        )
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle would pass the text as the only argument, which `__init__` refuses.
        return type(self), (self.size, self.limit), vars(self)


class AnswerTooLarge(ShellError):
    """The daemon executed the request, but its answer is too large for the client."""


class SpawnFailed(ShellError):
    """The command or the daemon itself could not be started; `errno` is the errno's name."""

    @property
    def errno(self) -> str | None:
        errno = self.data.get("errno")
        return errno if isinstance(errno, str) else None


class ResourceExhausted(ShellError):
    """A limit was reached. `limit` is the name of the limit."""

    @property
    def limit(self) -> str | None:
        limit = self.data.get("limit")
        return limit if isinstance(limit, str) else None


class StdinClosed(ShellError):
    """The shell takes no input; `reason` is "ended", "closed" or "not_open"."""

    @property
    def reason(self) -> str | None:
        reason = self.data.get("reason")
        return reason if isinstance(reason, str) else None


class NotPossible(ShellError):
    """The shell does not support the request, and nothing was done.

    `what` names what is not possible, such as "eof".
    """

    @property
    def what(self) -> str | None:
        what = self.data.get("what")
        return what if isinstance(what, str) else None


class Unavailable(ShellError):
    """The machine of the daemon lacks something that the request needs.

    Nothing ran. `hint` says what helps.
    """

    @property
    def hint(self) -> str | None:
        hint = self.data.get("hint")
        return hint if isinstance(hint, str) else None


class TargetLost(ShellError):
    """`target` cannot be reached, or the connection to it has ended; the next call connects again.

    If `maybe_started`, the call may have had its effect. `text` is the output of the program that
    connects to the target, such as a message of ssh.
    """

    @property
    def target(self) -> str:
        return str(self.data.get("target", ""))

    @property
    def maybe_started(self) -> bool:
        return bool(self.data.get("maybeStarted", True))

    @property
    def text(self) -> str:
        return str(self.data.get("text", ""))


class SessionLost(ShellError):
    """A daemon of a pool is gone, so the whole state of `session` is lost.

    `session` is None for a command without a session. A command that was under way may have had its
    effect. `reason` says why the daemon is gone.
    """

    def __init__(self, session: str | None, reason: str) -> None:
        what = "a command" if session is None else f"the session {session!r}"
        super().__init__(f"{what} is lost with its daemon: {reason}")
        self.session = session
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.session, self.reason), vars(self)


class DaemonExited(ShellError):
    """The daemon is gone, or the client is closed.

    `exit_code` or `signal` (a name such as "SIGKILL") is set if the daemon is known to have ended;
    `stderr` is the end of its standard error.
    """

    def __init__(
        self,
        message: str,
        *,
        stderr: str = "",
        exit_code: int | None = None,
        signal: str | None = None,
    ) -> None:
        super().__init__(message if not stderr else f"{message}\n{stderr}")
        self.stderr = stderr
        self.exit_code = exit_code
        self.signal = signal


class ProtocolError(ShellError):
    """The peer has sent data that does not follow the protocol, or no data at all."""


class NoAnswer(ProtocolError):
    """The peer has sent no answer within `start_timeout`."""


def how_it_ended(result: BashResult | BashOutputResult) -> str:
    """Return the exit code or the signal, and why the daemon has ended the command, if it has."""
    how = result.signal or f"exit code {result.exit_code}"
    return how if result.reason is None else f"{how} ({result.reason})"


def _last_line(text: str) -> str:
    """Return up to 200 characters of the last line that is not blank; "" if all lines are blank."""
    return text.rstrip().rpartition("\n")[2].strip()[:200]


def _is_cut(result: BashResult, text: str) -> bool:
    return result.truncated and text.endswith(CUT_MARK)


def _has_more(result: BashOutputResult, part: OutputRange) -> bool:
    """Return whether the stream of which `part` was read probably has more output.

    `more` concerns both streams. A read ends early only if it has returned 64 KiB of the stream, or
    a few bytes less.
    """
    return result.more and part.end - part.start > _SHORT_READ_BYTES


_SHORT_READ_BYTES: Final = 32 * 1024

_BY_CODE: Final[dict[int, type[ShellError]]] = {
    ErrorKind.TIMEOUT.code: CommandTimedOut,
    ErrorKind.BLOCKED.code: CommandBlocked,
    ErrorKind.SHELL_NOT_FOUND.code: ShellNotFound,
    ErrorKind.SESSION_NOT_FOUND.code: SessionNotFound,
    ErrorKind.CANCELLED.code: RequestCancelled,
    ErrorKind.SHUTTING_DOWN.code: ShuttingDown,
    ErrorKind.INVALID_PARAMS.code: InvalidParams,
    ErrorKind.SPAWN_FAILED.code: SpawnFailed,
    ErrorKind.RESOURCE_EXHAUSTED.code: ResourceExhausted,
    ErrorKind.STDIN_CLOSED.code: StdinClosed,
    ErrorKind.NOT_POSSIBLE.code: NotPossible,
    ErrorKind.UNAVAILABLE.code: Unavailable,
    ErrorKind.TARGET_LOST.code: TargetLost,
}


def error_from_wire(code: int, message: str, data: Any) -> ShellError:
    members = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return _BY_CODE.get(code, ShellError)(message, code=code, data=members)


def refused_here(error: RpcError) -> InvalidParams:
    """Return the exception for a call that the client does not send.

    The daemon would answer the call with `error`, so the client need not send it.
    """
    return InvalidParams(error.message, code=error.kind.code, data=error.data)
