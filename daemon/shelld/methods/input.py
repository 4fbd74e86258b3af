"""``write_stdin`` and ``resize_shell``: input for a running command."""

from __future__ import annotations

import base64
import binascii

from shelld.audit import InputRecord
from shelld.methods.bash_output import read_as_asked, result_of
from shelld.methods.context import RequestContext
from shelld.methods.typed_lines import admit_typed
from shelld.sessions.text import check_input, to_bytes
from shelld.shells.shell import Shell
from shelld.terminals.dialogue import pasted
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.keys import UnknownKey, key_bytes
from shelld.terminals.pty import Modes, Size
from shelld.terminals.typed import MAX_REST_BYTES, Typed, check_length, typed
from shelld_protocol.errors import (
    invalid_params,
    not_possible,
    resource_exhausted,
    stdin_closed,
)
from shelld_protocol.input_methods import (
    ResizeShellParams,
    ResizeShellResult,
    WriteStdinParams,
    WriteStdinResult,
)
from shelld_protocol.shell_methods import BashOutputParams


async def write_stdin(context: RequestContext, params: WriteStdinParams) -> WriteStdinResult:
    manager = context.daemon.manager
    shell = context.shell = manager.get(params.bash_id)
    with manager.reading(shell):
        target = _open_input(shell)
        async with target.lock:
            written = await _write(context, shell, params)
        if context.is_notification:
            result = result_of(shell, {})
        else:
            reading = BashOutputParams(
                params.bash_id, wait=params.wait, until=params.until, strip_ansi=params.strip_ansi
            )
            result = await read_as_asked(context, shell, reading)
    pending = 0 if shell.input is None else shell.input.pending_bytes
    members = {name: getattr(result, name) for name in result.__struct_fields__}
    return WriteStdinResult(**members, written=written, pending_bytes=pending)


async def _write(context: RequestContext, shell: Shell, params: WriteStdinParams) -> int:
    """Write all that a request asks for, or nothing. Return the number of bytes."""
    target = _open_input(shell)
    data = _data(target, params)
    if not data and not params.eof:
        raise invalid_params("Nothing to write: give text, keys, base64 or eof", "text")
    if isinstance(target, TerminalInput):
        modes = target.modes()
        after = typed(target.line, data, kill=modes.kill, interrupts=modes.interrupts)
        data += _check_terminal(shell, modes, after, params)
    else:
        after = typed(target.line, data)
    if params.eof:
        after = after._replace(is_passed_on=True)
    _check_room(target, data)
    if after.readable:
        await admit_typed(context, shell, target, after, secret=params.secret)
        # The guard may have let other requests run.
        target = _open_input(shell)
        _check_room(target, data)
    target.line = after.rest[-MAX_REST_BYTES:]
    target.write(data)
    log = context.daemon.audit
    if log is not None:
        log.write(InputRecord.of(shell, len(data), secret=params.secret))
    if params.eof and isinstance(target, PipeInput):
        target.end()
    return len(data)


def _open_input(shell: Shell) -> PipeInput | TerminalInput:
    """Return what can be written to. Raises `RpcError` (stdin_closed)."""
    target = shell.input
    if target is None:
        raise stdin_closed(shell.id, "not_open")
    if shell.has_ended or target.closed == "ended":
        raise stdin_closed(shell.id, "ended")
    if target.closed is not None or (isinstance(target, PipeInput) and target.is_ending):
        raise stdin_closed(shell.id, "closed")
    return target


def _check_room(target: PipeInput | TerminalInput, data: bytes) -> None:
    if len(data) > target.room:
        raise resource_exhausted("stdin", "The program does not read its input")


def _data(target: PipeInput | TerminalInput, params: WriteStdinParams) -> bytes:
    """Return the bytes of text, keys and base64, in this order."""
    check_input(params.text)
    brackets = isinstance(target, TerminalInput) and target.dialogue.bracketed_paste
    is_pasted = params.paste and brackets

    def content(data: bytes) -> bytes:
        return pasted(data) if is_pasted and data else data

    data = content(to_bytes(params.text or ""))
    application = isinstance(target, TerminalInput) and target.dialogue.application_cursor
    for name in params.keys or ():
        try:
            data += key_bytes(name, application_cursor=application)
        except UnknownKey:
            shown = name if len(name) <= 100 else name[:100] + "..."
            raise invalid_params(f"Invalid value for keys: unknown key {shown!r}", "keys") from None
    if params.base64 is not None:
        try:
            data += content(base64.b64decode(params.base64, validate=True))
        except (binascii.Error, ValueError):
            raise invalid_params("Invalid value for base64: not in base64", "base64") from None
    return data


def _check_terminal(shell: Shell, modes: Modes, after: Typed, params: WriteStdinParams) -> bytes:
    """Check what a terminal can take. Return what is to be written for `eof`."""
    if params.secret and modes.echo:
        raise not_possible("secret", f"The terminal of shell {shell.id} shows what is typed")
    if modes.line_mode:
        check_length(after, "text")
    if not params.eof:
        return b""
    if not modes.line_mode or not modes.end_of_file:
        raise not_possible("eof", f"The program in shell {shell.id} reads keys, not lines")
    # After a part of a line, the first one only passes on that part.
    return modes.end_of_file * (2 if after.rest else 1)


async def resize_shell(context: RequestContext, params: ResizeShellParams) -> ResizeShellResult:
    shell = context.daemon.manager.get(params.bash_id)
    target = shell.input
    if not shell.has_terminal:
        raise not_possible("tty", f"Shell {shell.id} has no terminal")
    if isinstance(target, TerminalInput) and target.closed is None and not shell.has_ended:
        target.resize(Size(params.rows, params.cols), shell.stdout.store.written)
        shell.notify()
    return ResizeShellResult(shell.id, params.rows, params.cols, not shell.has_ended)
