"""The methods ``write_stdin`` and ``resize_shell``. Also judges the `stdin` of a new command."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import msgspec
from anyio.lowlevel import checkpoint

from shelld.audit import InputRecord
from shelld.methods.bash_output import preparing_read, result_of
from shelld.methods.context import RequestContext
from shelld.methods.guard import admit, may_run_stdin
from shelld.methods.judged_typing import Typing, judge_piped, judge_typed
from shelld.methods.shells import shell_named_by
from shelld.methods.typed_lines import (
    FirstReaders,
    RunningReaders,
    TypedLines,
    without_secret,
)
from shelld.sessions.text import check_input, to_bytes
from shelld.shells.shell import Shell
from shelld.terminals.dialogue import pasted
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.keys import UnknownKey, key_bytes
from shelld.terminals.line_editor import (
    MAX_KEPT,
    MAX_LINE_BYTES,
)
from shelld.terminals.pty import NEW_MODES, Modes, Size
from shelld.terminals.typed import NOTHING_TYPED, TypedLine
from shelld_protocol.errors import (
    RpcError,
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
from shelld_protocol.shell_methods import BashOutputParams, BashParams

# If the terminal may hold more unread bytes than this, ask the kernel how many it holds. A
# terminal's input queue has room for twice as many bytes.
_UNTAKEN_BYTES: Final = 2_048
# A write is judged at most this number of times. It is judged again if the terminal or its line has
# changed during the judgement. The last verdict counts even if the terminal or its line has changed
# again.
_MAX_JUDGEMENTS: Final = 3
# The number of keys that are converted before other requests can run.
_TURN_KEYS: Final = 10_000


async def write_stdin(context: RequestContext, params: WriteStdinParams) -> WriteStdinResult:
    manager = context.daemon.manager
    shell = context.concerns(await shell_named_by(context, params))
    reading = BashOutputParams(
        shell.id,
        wait=params.wait,
        until=params.until,
        pattern=params.pattern,
        quiet_ms=params.quiet_ms,
        port=params.port,
        strip_ansi=params.strip_ansi,
        stdout_offset=params.stdout_offset,
        stderr_offset=params.stderr_offset,
        max_bytes=params.max_bytes,
    )
    with manager.reading(shell):
        async with AsyncExitStack() as prepared:
            async with _open_input(shell).lock:
                read = None
                if not context.is_notification:
                    preparing = preparing_read(context, shell, reading)
                    read = await prepared.enter_async_context(preparing)
                written = await _write(context, shell, params)
            # If the request is cancelled from here on, its error contains this number, too.
            context.error_data["written"] = written
            try:
                result = result_of(shell, {}) if read is None else await read()
            except RpcError as error:
                # The bytes were written, and only the wait or the read has failed. So the client
                # must not write these bytes again.
                error.data["written"] = written
                raise
    pending = 0 if shell.input is None else shell.input.pending_bytes
    members = msgspec.structs.asdict(result)
    return WriteStdinResult(**members, written=written, pending_bytes=pending)


async def write(
    context: RequestContext,
    shell: Shell,
    params: WriteStdinParams,
    is_wanted: Callable[[], bool] | None = None,
) -> int:
    """Write all bytes that a request asks for, or none. Return their number.

    After the verdict of the guard, this function calls `is_wanted`. If `is_wanted` returns False,
    no bytes are written. No other task runs between the call of `is_wanted` and the write.
    """
    async with _open_input(shell).lock:
        return await _write(context, shell, params, is_wanted)


async def _write(
    context: RequestContext,
    shell: Shell,
    params: WriteStdinParams,
    is_wanted: Callable[[], bool] | None = None,
) -> int:
    is_secret = params.secret or _open_input(shell).typed.has_secret
    try:
        typing = await _judged(context, shell, params)
    except RpcError as error:
        raise without_secret(error) if is_secret else error from None
    if is_wanted is not None and not is_wanted():
        return 0
    # The command may have ended while the guard judged the lines.
    stdin = _open_input(shell)
    _check_room(stdin, len(typing.data))
    if isinstance(stdin, TerminalInput):
        # No other task runs between this check and the write.
        _check_modes(shell, stdin, stdin.modes(), params, len(typing.data))
    stdin.typed = typing.line._replace(has_secret=is_secret and typing.line.is_begun)
    stdin.write(typing.data)
    # Wake the tasks that watch the prompts of this shell.
    shell.notify()
    if stdin.closed is not None:
        # No process can read this input, or no process can read all of it.
        raise stdin_closed(shell.id, stdin.closed)
    log = context.daemon.audit
    if log is not None:
        log.write(InputRecord.of(shell, len(typing.data), secret=params.secret))
    if params.eof and isinstance(stdin, PipeInput):
        stdin.end()
    return len(typing.data)


async def _judged(context: RequestContext, shell: Shell, params: WriteStdinParams) -> Typing:
    """Return the bytes to write, after the guard has allowed them. Raises `RpcError`.

    Judges again if one of three facts has changed during the judgement: the terminal's modes, the
    form in which the program wants keys and pastes, or the typed line. The typed line includes the
    terminal's answers to the program.
    """
    judgements_left = _MAX_JUDGEMENTS
    while True:
        forms = _forms(_open_input(shell))
        data = await _data(_open_input(shell), params)
        if not data and not params.eof:
            raise invalid_params("Nothing to write: give text, keys, base64 or eof", "text")
        # Other requests may have run, and the command may have ended.
        stdin = _open_input(shell)
        lines = TypedLines(context, RunningReaders(shell, stdin), stdin.typed)
        if isinstance(stdin, PipeInput):
            return await judge_piped(stdin.typed, data, lines, eof=params.eof)
        modes, before = stdin.modes(), stdin.typed
        _check_modes(shell, stdin, modes, params, len(data))
        # Ask now how many bytes the program has not read, so that the number is known when a secret
        # comes.
        stdin.untaken_bytes(modes, enough=_UNTAKEN_BYTES)
        typing = await judge_typed(before, modes, data, lines, "text", eof=params.eof)
        judgements_left -= 1
        _open_input(shell)
        is_same = (stdin.typed, stdin.modes(), _forms(stdin)) == (before, modes, forms)
        if not judgements_left or is_same:
            return typing


def _forms(stdin: PipeInput | TerminalInput) -> tuple[bool, bool]:
    """Return whether the program wants brackets around pasted text, and whether it has switched the
    cursor keys to application mode.
    """
    if isinstance(stdin, PipeInput):
        return False, False
    return stdin.dialogue.bracketed_paste, stdin.dialogue.application_cursor


def _check_modes(
    shell: Shell, stdin: TerminalInput, modes: Modes, params: WriteStdinParams, size: int
) -> None:
    """Refuse a write that the terminal's modes do not allow. Raises `RpcError` (not_possible)."""
    if params.secret:
        _check_secret(shell, stdin, modes, size)
    if params.eof and not (modes.line_mode and modes.eof):
        raise not_possible("eof", f"The program in shell {shell.id} reads keys, not lines")


def _check_secret(shell: Shell, stdin: TerminalInput, modes: Modes, size: int) -> None:
    """Refuse a secret that a terminal could show. Raises `RpcError` (not_possible).

    When a terminal takes a byte, it decides whether to show the byte. If the terminal's input queue
    is full, the terminal takes the byte only after the program has read earlier input. By then, the
    program may have changed the modes.
    """
    if modes.echo:
        raise not_possible("secret", f"The terminal of shell {shell.id} shows what is typed")
    if size > MAX_LINE_BYTES:
        raise not_possible("secret", f"A terminal takes {MAX_LINE_BYTES} bytes of a secret at once")
    if stdin.pending_bytes or stdin.untaken_bytes(modes) + size > MAX_LINE_BYTES:
        sentence = f"The program in shell {shell.id} has not read what was typed before"
        raise not_possible("secret", sentence)


def _open_input(shell: Shell) -> PipeInput | TerminalInput:
    """Return the command's input, if it is open. Raises `RpcError` (stdin_closed)."""
    if (stdin := shell.open_input) is not None:
        return stdin
    if shell.input is None:
        raise stdin_closed(shell.id, "not_open")
    has_ended = shell.has_ended or shell.input.closed == "ended"
    raise stdin_closed(shell.id, "ended" if has_ended else "closed")


def _check_room(stdin: PipeInput | TerminalInput, size: int) -> None:
    if size > stdin.room:
        raise resource_exhausted("stdin", "The program does not read its input")


async def _data(stdin: PipeInput | TerminalInput, params: WriteStdinParams) -> bytes:
    """Return the bytes of the params `text`, `keys` and `base64`, in this order.

    Raises `RpcError` if the queue has no room for these bytes. Before this function makes the
    bytes, it computes from `params` the minimum number of bytes, and checks that the queue has room
    for this number.
    """
    text, encoded, keys = params.text or "", params.base64 or "", params.keys or ()
    _check_room(stdin, len(text) + len(keys) + len(encoded) * 3 // 4 - 2)
    check_input(text)
    brackets = isinstance(stdin, TerminalInput) and stdin.dialogue.bracketed_paste
    is_pasted = params.paste and brackets

    def content(data: bytes) -> bytes:
        return pasted(data) if is_pasted and data else data

    data = bytearray(content(to_bytes(text)))
    application = isinstance(stdin, TerminalInput) and stdin.dialogue.application_cursor
    for number, name in enumerate(keys):
        if not number % _TURN_KEYS:
            await checkpoint()
        try:
            data += key_bytes(name, application_cursor=application)
        except UnknownKey:
            shown = name if len(name) <= 100 else name[:100] + "..."
            quoted = "" if params.secret else f" {shown!r}"
            raise invalid_params(f"Invalid value for keys: unknown key{quoted}", "keys") from None
    try:
        data += content(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise invalid_params("Invalid value for base64: not in base64", "base64") from None
    _check_room(stdin, len(data))
    return bytes(data)


async def typed_first(context: RequestContext, params: BashParams) -> TypedLine:
    """Return the state of the line that a command's `stdin` leaves unfinished.

    On a terminal, the guard judges the lines of `stdin` like the lines of a write. Raises
    `RpcError` (blocked; or invalid_params if a terminal would cut a line).
    """
    data = to_bytes(params.stdin or "")
    if not (params.tty and data):
        # A later write may continue the last command in `data`.
        return TypedLine(data[-MAX_KEPT:])
    readers = FirstReaders(params, may_run_stdin=await may_run_stdin(context, params))
    lines = TypedLines(context, readers, NOTHING_TYPED)
    typing = await judge_typed(NOTHING_TYPED, NEW_MODES, data, lines, "stdin", eof=False)
    for script in dict.fromkeys(filter(None, lines.scripts())):
        # Judge the input together with the whole command. The reason is that a shell may read the
        # input, and the command may set this shell's variables and directory.
        await admit(context, msgspec.structs.replace(params, stdin=script))
    return typing.line


async def resize_shell(context: RequestContext, params: ResizeShellParams) -> ResizeShellResult:
    rows, cols = params.rows, params.cols
    if rows is None or cols is None:
        raise invalid_params("rows and cols are both needed", "rows" if rows is None else "cols")
    shell = await shell_named_by(context, params)
    if not shell.has_terminal:
        raise not_possible("tty", f"Shell {shell.id} has no terminal")
    if isinstance(terminal := shell.open_input, TerminalInput):
        terminal.resize(Size(rows, cols), shell.stdout.store.written)
        shell.notify()
    return ResizeShellResult(shell.id, rows, cols, not shell.has_ended)
