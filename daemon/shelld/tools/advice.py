"""Advice for models: a line about what to do next, below the sentence of an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from shelld.methods.context import RequestContext
from shelld_protocol.errors import ErrorKind, RpcError

# The maximum number of existing names in one line.
MAX_NAMES: Final = 10

_PROBLEMS_WITH_CWD: Final = {
    "ENOENT": "no such directory",
    "ENOTDIR": "not a directory",
    "EACCES": "permission denied",
}

_WITHOUT_TERMINAL: Final = "It was started without a terminal: start it again with tty=true"


def with_advice(error: RpcError, request: RequestContext, params: dict[str, Any]) -> str:
    """Return the sentence of an error, followed by a line of advice if there is one."""
    advice = _advice(error, request, params)
    return error.message if advice is None else f"{error.message}\n[{advice}]"


def _advice(error: RpcError, request: RequestContext, params: dict[str, Any]) -> str | None:
    if error.kind is ErrorKind.SHELL_NOT_FOUND:
        if error.data["expired"]:
            return "It ended long ago, and its output is no longer kept"
        ids = [shell.id for shell in request.daemon.manager.list_shells()]
        # Newest first: a model usually means one of the newest shells.
        return f"Shells: {listed(reversed(ids))}" if ids else "There are no shells"
    if error.kind is ErrorKind.STDIN_CLOSED and error.data.get("reason") == "not_open":
        return _WITHOUT_TERMINAL
    if error.kind is ErrorKind.NOT_POSSIBLE and error.data.get("what") == "tty":
        return _WITHOUT_TERMINAL
    cwd = params.get("cwd")
    if error.kind is ErrorKind.SPAWN_FAILED and "working directory" in error.message and cwd:
        problem = _PROBLEMS_WITH_CWD.get(error.data["errno"], "it cannot be used")
        return f"{cwd[:200]}: {problem}. ~ and $HOME are not expanded in cwd"
    return None


def listed(names: Iterable[str]) -> str:
    """Return names as a short list."""
    names = list(names)
    more = f", and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
