"""The guard's verdict on lines that are typed into a shell."""

from __future__ import annotations

from typing import Final

from shelld.methods.context import RequestContext
from shelld.methods.guard import MAX_PARSING_S, admit
from shelld.shells.shell import Shell
from shelld.terminals.foreground import directory_of_reader
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.pty import foreground_group
from shelld.terminals.typed import Typed, readings
from shelld_protocol.errors import RpcError
from shelld_protocol.session_methods import ExplainCommandParams

# How much of an incomplete command is judged together with its next line.
_MAX_SCRIPT: Final = 64 * 1024


async def admit_typed(
    context: RequestContext,
    shell: Shell,
    target: PipeInput | TerminalInput,
    after: Typed,
    *,
    secret: bool,
) -> None:
    """Judge what is typed, if a shell reads it. Raises `RpcError` (blocked).

    A line is judged by itself, because the lines before it may be over in a way that cannot be seen
    from here, and together with those that it may continue. The error does not quote a secret.
    """
    try:
        await _judge(context, shell, target, after)
    except RpcError as error:
        if secret:
            error.data["segment"] = ""
        raise


async def _judge(
    context: RequestContext, shell: Shell, target: PipeInput | TerminalInput, after: Typed
) -> None:
    directory = _directory_of_reader(shell, target)
    script = "" if directory is None else target.script
    for line in after.readable if directory is not None else ():
        if line is None:
            script = ""
            continue
        before = dict.fromkeys(("", _continued(script), script))
        texts = list(readings(line))
        for text in dict.fromkeys(start + text for text in texts for start in before):
            if text.strip():
                await admit(context, ExplainCommandParams(text, shell.session, cwd=directory))
        script += texts[0]
        script = f"{script}\n" if _is_incomplete(script) else ""
    target.script = script


def _directory_of_reader(shell: Shell, target: PipeInput | TerminalInput) -> str | None:
    if shell.pid is None:
        return None
    group: int | None = shell.pid
    if isinstance(target, TerminalInput):
        group = foreground_group(target.descriptor)
    return None if group is None else directory_of_reader(shell.pid, group)


def _continued(script: str) -> str:
    """Return the lines at the end that a backslash joins to the next line."""
    lines = script.splitlines(keepends=True)
    kept = len(lines)
    while kept and _ends_in_backslash(lines[kept - 1].rstrip("\n")):
        kept -= 1
    return "".join(lines[kept:])


def _is_incomplete(script: str) -> bool:
    """Whether the next line belongs to the same command."""
    if not script.strip() or len(script) > _MAX_SCRIPT:
        return False
    if _ends_in_backslash(script):
        return True
    # Most requests never get here, and the first must not wait for the import.
    from shelld.guard.parse import TooSlow, parse  # noqa: PLC0415

    try:
        return bool(parse(script, MAX_PARSING_S).has_error)
    except TooSlow:
        return False


def _ends_in_backslash(text: str) -> bool:
    return bool((len(text) - len(text.rstrip("\\"))) % 2)
