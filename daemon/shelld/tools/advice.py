"""Gives advice to models: a line below an error message says what to do next."""

from __future__ import annotations

from typing import Any, Final

from shelld.methods.context import RequestContext
from shelld.tools.names import listed
from shelld_protocol.errors import ErrorKind, RpcError

# A model can recognise a command by its beginning. This many characters are enough.
_COMMAND_CHARACTERS: Final = 60

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
        return shells_line(request)
    if error.kind is ErrorKind.STDIN_CLOSED and error.data.get("reason") == "not_open":
        return _WITHOUT_TERMINAL
    if error.kind is ErrorKind.NOT_POSSIBLE and error.data.get("what") == "tty":
        return _WITHOUT_TERMINAL
    cwd = params.get("cwd")
    if error.kind is ErrorKind.SPAWN_FAILED and "working directory" in error.message and cwd:
        problem = _PROBLEMS_WITH_CWD.get(error.data["errno"], "it cannot be used")
        return f"{cwd[:200]}: {problem}. ~ and $HOME are not expanded in cwd"
    return None


def shells_line(request: RequestContext) -> str:
    """Return a line that lists the shells that a model may mean. The line also has the commands of
    the running shells.
    """
    # The newest shells come first, because a model usually means one of them.
    shells = request.daemon.manager.list_shells()[::-1]
    running = [f"{each.id} ({_beginning(each.command)})" for each in shells if not each.has_ended]
    ended = [each.id for each in shells if each.has_ended]
    groups = (("Running", running), ("Ended", ended))
    lists = [f"{title}: {listed(names)}" for title, names in groups if names]
    return ". ".join(lists) or "There are no shells"


def _beginning(command: str) -> str:
    line = " ".join(command[: 2 * _COMMAND_CHARACTERS].split())
    return line if len(line) <= _COMMAND_CHARACTERS else f"{line[:_COMMAND_CHARACTERS]}..."
