"""What a call can raise, and how an error on the wire becomes one of these.

`ShellError` is the base of all. `kind` is the stable name of the wire's error ("timeout",
"shell_not_found", ...), or None for what never was on the wire.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, cast

from shelld_client.results import from_members
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.shell_methods import BashResult, Usage


class ShellError(Exception):
    """`code` and `data` are those of the wire's error."""

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
    """The command was killed at its timeout; `stdout` and `stderr` hold what it had written."""

    @property
    def stdout(self) -> str:
        return self.result.stdout

    @property
    def stderr(self) -> str:
        return self.result.stderr

    @cached_property
    def result(self) -> BashResult:
        """All that is known of the command. What the daemon did not say is empty, 0 or None."""
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


class CommandBlocked(ShellError):
    """The guard refused the command; nothing ran."""


class ShellNotFound(ShellError):
    """No such shell; `expired` tells whether there once was."""

    @property
    def expired(self) -> bool:
        return bool(self.data.get("expired", False))


class SessionNotFound(ShellError):
    """No such session, or it has not run a command yet."""


class RequestCancelled(ShellError):
    """Somebody cancelled the request; a command that ran for it was killed."""


class ShuttingDown(ShellError):
    """The daemon is about to end and takes no requests any more."""


class InvalidParams(ShellError, ValueError):
    """`parameter` names what is wrong. The daemon says so, or the client where JSON cannot ask."""

    @property
    def parameter(self) -> str | None:
        parameter = self.data.get("parameter")
        return parameter if isinstance(parameter, str) else None


class MessageTooLarge(ShellError):
    """A call needs a message of `size` bytes, and the daemon takes `limit`; nothing was done."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the message has {size} bytes, and the daemon takes {limit} (--max-message-bytes)"
        )
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is pickled with its text as its only argument, which is not what this takes.
        return type(self), (self.size, self.limit), vars(self)


class AnswerTooLarge(ShellError):
    """The daemon did what it was asked, but the client does not take so large an answer."""


class SpawnFailed(ShellError):
    """The command, or the daemon itself, could not be started; `errno` is the errno's name."""

    @property
    def errno(self) -> str | None:
        errno = self.data.get("errno")
        return errno if isinstance(errno, str) else None


class ResourceExhausted(ShellError):
    """A limit was reached; `limit` names it."""

    @property
    def limit(self) -> str | None:
        limit = self.data.get("limit")
        return limit if isinstance(limit, str) else None


class DaemonExited(ShellError):
    """The daemon is gone, or the client is closed.

    `exit_code` or `signal` (a name such as "SIGKILL") is set if the daemon is known to have ended;
    `stderr` is the end of what it wrote there.
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
    """The peer said something that is not this protocol, or nothing at all."""


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
}


def error_from_wire(code: int, message: str, data: Any) -> ShellError:
    members = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return _BY_CODE.get(code, ShellError)(message, code=code, data=members)


def refused_here(error: RpcError) -> InvalidParams:
    """Return what the daemon's answer would become, for a call that is not made."""
    return InvalidParams(error.message, code=error.kind.code, data=error.data)
