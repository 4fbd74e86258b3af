"""What a call can raise, and how an error on the wire becomes one of these.

`ShellError` is the base of all. `kind` is the stable name of the wire's error ("timeout",
"shell_not_found", ...), or None for what never was on the wire.
"""

from __future__ import annotations

from typing import Any, Final, cast

from shelld_protocol.errors import ErrorKind


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
        return str(self.data.get("stdout", ""))

    @property
    def stderr(self) -> str:
        return str(self.data.get("stderr", ""))


class CommandBlocked(ShellError):
    """The guard refused the command; nothing ran."""


class ShellNotFound(ShellError):
    """No such shell; `expired` tells whether there once was."""

    @property
    def expired(self) -> bool:
        return bool(self.data.get("expired", False))


class InvalidParams(ShellError):
    """`parameter` names what is wrong."""

    @property
    def parameter(self) -> str | None:
        parameter = self.data.get("parameter")
        return parameter if isinstance(parameter, str) else None


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
    """The daemon is gone, or the client is closed; `stderr` is the end of what it wrote there."""

    def __init__(self, message: str, *, stderr: str = "", exit_code: int | None = None) -> None:
        super().__init__(message if not stderr else f"{message}\n{stderr}")
        self.stderr = stderr
        self.exit_code = exit_code


class ProtocolError(ShellError):
    """The peer said something that is not this protocol."""


_BY_CODE: Final[dict[int, type[ShellError]]] = {
    ErrorKind.TIMEOUT.code: CommandTimedOut,
    ErrorKind.BLOCKED.code: CommandBlocked,
    ErrorKind.SHELL_NOT_FOUND.code: ShellNotFound,
    ErrorKind.INVALID_PARAMS.code: InvalidParams,
    ErrorKind.SPAWN_FAILED.code: SpawnFailed,
    ErrorKind.RESOURCE_EXHAUSTED.code: ResourceExhausted,
}


def error_from_wire(code: int, message: str, data: Any) -> ShellError:
    members = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return _BY_CODE.get(code, ShellError)(message, code=code, data=members)
