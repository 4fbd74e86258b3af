"""Defines all errors in one table: code, stable kind, and message.

No other module contains a code or a kind as a literal. Messages are for people, kinds for programs.
No message and no data member ever carries an exception's text, a traceback, or a path that the peer
did not send itself.

Codes below -32000 belong to JSON-RPC, LSP and MCP. Codes of shelld are positive: JSON-RPC reserves
-32768..-32000, and MCP uses most of the codes in this range that JSON-RPC leaves to servers.
"""

from __future__ import annotations

import enum
import errno as errno_module
from collections.abc import Mapping, Sequence
from typing import Any, Final


class ErrorKind(enum.Enum):
    """The kinds of errors.

    `value` is the stable name on the wire (``error.data.kind``); `code` is the error code.
    """

    code: int

    PARSE_ERROR = ("parse_error", -32700)
    INVALID_REQUEST = ("invalid_request", -32600)
    METHOD_NOT_FOUND = ("method_not_found", -32601)
    INVALID_PARAMS = ("invalid_params", -32602)
    INTERNAL_ERROR = ("internal_error", -32603)
    CANCELLED = ("cancelled", -32800)
    TIMEOUT = ("timeout", 1001)
    BLOCKED = ("blocked", 1002)
    SHELL_NOT_FOUND = ("shell_not_found", 1003)
    SPAWN_FAILED = ("spawn_failed", 1004)
    RESOURCE_EXHAUSTED = ("resource_exhausted", 1005)
    SHUTTING_DOWN = ("shutting_down", 1006)
    SESSION_NOT_FOUND = ("session_not_found", 1007)
    STDIN_CLOSED = ("stdin_closed", 1008)
    NOT_POSSIBLE = ("not_possible", 1009)
    UNAVAILABLE = ("unavailable", 1010)
    TARGET_LOST = ("target_lost", 1011)
    MISSING_CAPABILITY = ("missing_capability", -32021)
    UNSUPPORTED_VERSION = ("unsupported_version", -32022)

    def __new__(cls, kind: str, code: int) -> ErrorKind:
        member = object.__new__(cls)
        member._value_ = kind
        member.code = code
        return member


class RpcError(Exception):
    """An error that is sent to the peer.

    Pass `data` without ``kind``, because the constructor adds it.
    """

    def __init__(
        self, kind: ErrorKind, message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = kind.code
        self.message = message
        self.data: dict[str, Any] = {"kind": kind.value, **(data or {})}

    def __reduce__(self) -> tuple[Any, ...]:
        # Return all arguments, because pickle would by default pass only the message.
        return type(self), (self.kind, self.message, self.data)


class PassedOnError(RpcError):
    """An error that another daemon has sent.

    That daemon may be newer, so the code may be unknown here.

    `data` is complete, and may hold undecoded JSON.
    """

    def __init__(self, code: int, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(_KINDS.get(code, ErrorKind.INTERNAL_ERROR), message)
        self.code = code
        self.data = dict(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message, self.data)


_KINDS: Final = {kind.code: kind for kind in ErrorKind}


def parse_error() -> RpcError:
    return RpcError(ErrorKind.PARSE_ERROR, "Parse error: not a JSON text in UTF-8")


def invalid_request(reason: str) -> RpcError:
    return RpcError(ErrorKind.INVALID_REQUEST, f"Invalid request: {reason}")


def message_too_large(limit_bytes: int) -> RpcError:
    """Return the error of a request that is too large.

    The error has no id. From `limit_bytes`, the client can tell which of its requests were too
    large.
    """
    message = "Invalid request: Message exceeds the size limit"
    return RpcError(ErrorKind.INVALID_REQUEST, message, {"max_message_bytes": limit_bytes})


def method_not_found(method: str) -> RpcError:
    # Shorten the name, because the peer may send a method name of several megabytes.
    shown = method if len(method) <= 100 else method[:100] + "..."
    return RpcError(ErrorKind.METHOD_NOT_FOUND, f"Method not found: {shown}")


def invalid_params(message: str, parameter: str | None = None) -> RpcError:
    return RpcError(ErrorKind.INVALID_PARAMS, message, {"parameter": parameter})


def missing_capability(required: Mapping[str, Any]) -> RpcError:
    """Return the error of a request if the client has not declared the necessary capabilities.

    `required` are the missing capabilities, in MCP's form. MCP defines the code and `data`.
    """
    data = {"requiredCapabilities": dict(required)}
    return RpcError(ErrorKind.MISSING_CAPABILITY, "Missing required client capability", data)


def unsupported_version(requested: str, supported: Sequence[str]) -> RpcError:
    """Return the error of an unknown revision of MCP. MCP defines the code and `data`."""
    shown = requested if len(requested) <= 100 else requested[:100] + "..."
    data = {"supported": list(supported), "requested": shown}
    return RpcError(ErrorKind.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def missing_parameter(name: str) -> RpcError:
    return invalid_params(f"Missing required parameter: {name}", name)


def internal_error() -> RpcError:
    return RpcError(ErrorKind.INTERNAL_ERROR, "Internal error")


def cancelled(data: Mapping[str, Any] | None = None) -> RpcError:
    return RpcError(ErrorKind.CANCELLED, "Request cancelled", data)


def timed_out(timeout_ms: int, data: Mapping[str, Any]) -> RpcError:
    """Return a timeout error. `data` is the result of the command."""
    message = f"Command timed out after {timeout_ms}ms"
    if data.get("reason") == "idle":
        message += " without output"
    return RpcError(ErrorKind.TIMEOUT, message, {**data, "timeout_ms": timeout_ms})


def blocked(rule: str, segment: str, reason: str) -> RpcError:
    """Return the error of a command that the guard refuses.

    `segment` is the part of the command that matches `rule`.
    """
    message = f"Command blocked: dangerous ({rule}): {reason}"
    return RpcError(ErrorKind.BLOCKED, message, {"rule": rule, "segment": segment})


def shell_not_found(bash_id: str, *, expired: bool) -> RpcError:
    shown = bash_id if len(bash_id) <= 100 else bash_id[:100] + "..."
    data = {"bash_id": shown, "expired": expired}
    return RpcError(ErrorKind.SHELL_NOT_FOUND, f"Shell not found: {shown}", data)


def key_not_found() -> RpcError:
    data = {"bash_id": "", "expired": False}
    message = "Shell not found: no command has this idempotency_key"
    return RpcError(ErrorKind.SHELL_NOT_FOUND, message, data)


def session_not_found(session: str) -> RpcError:
    shown = session if len(session) <= 100 else session[:100] + "..."
    return RpcError(ErrorKind.SESSION_NOT_FOUND, f"Session not found: {shown}", {"session": shown})


# Maps each errno that means a shortage in the system to the name of the resource.
_EXHAUSTED: Final = {
    "EAGAIN": "processes",
    "ENOMEM": "memory",
    "EMFILE": "files",
    "ENFILE": "files",
    # The user has sent too many descriptors over unix sockets, and nobody has received them yet.
    "ETOOMANYREFS": "files",
    "ENOSPC": "disk",
    "EDQUOT": "disk",
    # The file has reached RLIMIT_FSIZE.
    "EFBIG": "disk",
}


def exhausted_limit(error_number: int) -> str | None:
    """If this errno means that a resource is short, return the resource, otherwise None."""
    return _EXHAUSTED.get(errno_module.errorcode.get(error_number, ""))


def spawn_failed(error_number: int, what: str) -> RpcError:
    """Return the error of a failed start.

    `what` says what has failed: ``cwd``, ``bash``, ``target`` (the program that connects to it) or
    ``exec``. A shortage (EAGAIN, ENOMEM, EMFILE, ...) becomes `RESOURCE_EXHAUSTED`, because a retry
    may succeed.
    """
    name = errno_module.errorcode.get(error_number, "EIO")
    if limit := exhausted_limit(error_number):
        return resource_exhausted(limit, f"Cannot start the command: {name}")
    sentences = {
        "cwd": f"Cannot use the working directory: {name}",
        "bash": f"Cannot run bash: {name}",
        "target": f"Cannot start the program that connects to the target: {name}",
    }
    message = sentences.get(what, f"Cannot start the command: {name}")
    return RpcError(ErrorKind.SPAWN_FAILED, message, {"errno": name})


def resource_exhausted(limit: str, message: str) -> RpcError:
    return RpcError(ErrorKind.RESOURCE_EXHAUSTED, message, {"limit": limit})


def session_closed() -> RpcError:
    """Return the error of a command whose session was closed before the command started."""
    message = "The session was closed before the command started"
    return RpcError(ErrorKind.SPAWN_FAILED, message, {"errno": "ECANCELED"})


def stdin_closed(bash_id: str, reason: str) -> RpcError:
    """Return the error if nobody can read input. `reason` is "ended", "not_open" or "closed"."""
    sentences = {
        "ended": "it has ended",
        "not_open": "it was started without tty or open_stdin",
        "closed": "its input is closed",
    }
    message = f"Shell {bash_id} takes no input: {sentences[reason]}"
    return RpcError(ErrorKind.STDIN_CLOSED, message, {"reason": reason})


def not_possible(what: str, message: str) -> RpcError:
    return RpcError(ErrorKind.NOT_POSSIBLE, message, {"what": what})


def unavailable(what: str, missing: str, hint: str) -> RpcError:
    """Return the error of a mechanism that this system does not have. Nothing was done."""
    message = f"{what} is not available here: {missing} is missing"
    data = {"what": what, "missing": missing, "hint": hint}
    return RpcError(ErrorKind.UNAVAILABLE, message, data)


def target_lost(target: str, message: str, *, maybe_started: bool, text: str = "") -> RpcError:
    """Return the error of a request if its target cannot be reached or is gone.

    If `maybe_started`, the target may have received the request. `text` is the output of the
    program that connects to the target, without the protocol's messages.
    """
    data = {"target": target, "maybeStarted": maybe_started, "text": text}
    return RpcError(ErrorKind.TARGET_LOST, message, data)


def no_such_call() -> RpcError:
    return invalid_params("Invalid value for request_id: no such call runs a command", "request_id")


def unknown_target(name: str) -> RpcError:
    shown = name if len(name) <= 100 else name[:100] + "..."
    return invalid_params(f"Invalid value for target: there is no target {shown}", "target")


def inexpressible(what: str, hint: str) -> RpcError:
    """Return the error for a sandbox that no engine on this machine can enforce. Nothing was done.

    `what` is a member of the policy, with its value.
    """
    message = f"The engine of the sandbox cannot express {what}"
    data = {"what": "sandbox", "missing": what, "hint": hint}
    return RpcError(ErrorKind.UNAVAILABLE, message, data)


def shutting_down(bash_id: str | None = None, subscription: str | None = None) -> RpcError:
    """Return the error of a request that the daemon refuses or ends while the daemon shuts down.

    `bash_id` is the shell that the request has started, if any. `subscription` is the subscription
    that the request has begun, if any.
    """
    named = {"bash_id": bash_id, "subscription": subscription}
    data = {name: value for name, value in named.items() if value is not None}
    return RpcError(ErrorKind.SHUTTING_DOWN, "The daemon is shutting down", data)
