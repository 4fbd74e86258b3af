"""``write_stdin`` and ``resize_shell``: input for a running command, and its first input."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import msgspec
from anyio.lowlevel import checkpoint

from shelld.audit import InputRecord
from shelld.methods.bash_output import preparing_read, result_of
from shelld.methods.context import RequestContext
from shelld.methods.guard import admit, may_run_stdin
from shelld.methods.shells import shell_named_by
from shelld.methods.typed_lines import (
    FirstReaders,
    Readers,
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
    check_length,
    edit,
    received,
)
from shelld.terminals.pty import NEW_MODES, Modes, Size
from shelld.terminals.typed import NOTHING_TYPED, Typed, TypedLine, typed
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

_PIECE_BYTES: Final = 16 * 1024
# If the program may have left more bytes than this in the terminal, ask the kernel for their
# number. A terminal has room for twice as many.
_UNTAKEN_BYTES: Final = 2_048
# A write is judged again if the terminal or its line has changed during the judgement, but at most
# this many times in all. The last verdict counts even if something has changed again.
_MAX_JUDGEMENTS: Final = 3
# The kernel turns an interrupt key into a signal within the first of these times. Within the second
# time, a shell has handled the signal, even if its process cannot be looked at.
_INTERRUPT_S: Final = 0.2
_INTERRUPT_IS_OVER_S: Final = 5.0
# After how many keys other requests get a turn.
_TURN_KEYS: Final = 10_000


async def write_stdin(context: RequestContext, params: WriteStdinParams) -> WriteStdinResult:
    manager = context.daemon.manager
    shell = context.looks_at(await shell_named_by(context, params))
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
            result = result_of(shell, {}) if read is None else await read()
    pending = 0 if shell.input is None else shell.input.pending_bytes
    members = {name: getattr(result, name) for name in result.__struct_fields__}
    return WriteStdinResult(**members, written=written, pending_bytes=pending)


async def write(
    context: RequestContext,
    shell: Shell,
    params: WriteStdinParams,
    is_wanted: Callable[[], bool] | None = None,
) -> int:
    """Write all that a request asks for, or nothing. Return the number of bytes.

    `is_wanted` is called after the guard has judged. If it returns False, nothing is written. No
    other task runs between this call and the write.
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
    target = _open_input(shell)
    _check_room(target, len(typing.data))
    if isinstance(target, TerminalInput):
        # No other task runs between this check and the write.
        _check_modes(shell, target, target.modes(), params, len(typing.data))
    target.typed = typing.line._replace(has_secret=is_secret and typing.line.is_begun)
    target.write(typing.data)
    # Wake the tasks that follow this shell's prompts.
    shell.notify()
    if target.closed is not None:
        # Nobody can read this input, or the rest of it.
        raise stdin_closed(shell.id, target.closed)
    log = context.daemon.audit
    if log is not None:
        log.write(InputRecord.of(shell, len(typing.data), secret=params.secret))
    if params.eof and isinstance(target, PipeInput):
        target.end()
    return len(typing.data)


class _Typing(NamedTuple):
    """The bytes to write, and the state of the typed line once they are written."""

    data: bytes
    line: TypedLine


async def _judged(context: RequestContext, shell: Shell, params: WriteStdinParams) -> _Typing:
    """Return the bytes to write, once the guard has allowed them. Raises `RpcError`.

    Judges again if one of these has changed during the judgement: the terminal's modes, the form in
    which the program wants keys and pastes, or the typed line. The terminal's answers to the
    program are a part of the line.
    """
    judgements_left = _MAX_JUDGEMENTS
    while True:
        forms = _forms(_open_input(shell))
        data = await _data(_open_input(shell), params)
        if not data and not params.eof:
            raise invalid_params("Nothing to write: give text, keys, base64 or eof", "text")
        # Other requests may have run, and the command may have ended.
        target = _open_input(shell)
        lines = TypedLines(context, RunningReaders(shell, target), target.typed)
        if isinstance(target, PipeInput):
            return await _send(target.typed, data, lines, eof=params.eof)
        modes, before = target.modes(), target.typed
        _check_modes(shell, target, modes, params, len(data))
        # Ask now how many bytes the program has not taken, so that the number is known when a
        # secret comes.
        target.untaken_bytes(modes, enough=_UNTAKEN_BYTES)
        typing = await _type(before, modes, data, lines, "text", eof=params.eof)
        judgements_left -= 1
        _open_input(shell)
        is_same = (target.typed, target.modes(), _forms(target)) == (before, modes, forms)
        if not judgements_left or is_same:
            return typing


def _forms(target: PipeInput | TerminalInput) -> tuple[bool, bool]:
    """Return the forms in which the program wants pasted text and cursor keys."""
    if isinstance(target, PipeInput):
        return False, False
    return target.dialogue.bracketed_paste, target.dialogue.application_cursor


async def _send(before: TypedLine, data: bytes, lines: TypedLines, *, eof: bool) -> _Typing:
    rest, starts = before.keys, _starts(before, data)
    for piece in _pieces(data):
        found = typed(rest, piece)
        await lines.judge(found.lines, found.lines)
        await lines.judge_parts(found.parts)
        await lines.judge_suffixes(found.first, starts)
        starts = _later(starts, found, len(rest) + len(piece))
        rest = found.rest
        await checkpoint()
    if eof and rest:
        await lines.judge([rest], [rest])
        await lines.judge_suffixes(rest, starts)
    is_collected = not rest or lines.readers.read_now()
    return _Typing(data, await lines.finish(TypedLine(rest, starts, is_collected)))


async def _type(
    before: TypedLine, modes: Modes, data: bytes, lines: TypedLines, parameter: str, *, eof: bool
) -> _Typing:
    """`parameter`: the one that has the data. Raises `RpcError`."""
    before = _without_dropped(before, lines.readers)
    is_ignored = modes.intr in data and lines.readers.ignore_interrupts()
    keeps_line = is_ignored or (modes.line_mode and not modes.flushes)
    interrupt = b"" if keeps_line else modes.intr
    rest, line = before.keys, before.kernel_line_under(modes)
    starts, dropped = _starts(before, data), before.dropped
    for piece in _pieces(data):
        content = received(piece, modes, is_quoting=line.is_quoting)
        edited = edit(line, content, modes, ignores_interrupt=is_ignored)
        if modes.line_mode:
            check_length(edited, parameter, before.kernel_line.text)
        found = typed(
            rest,
            content,
            interrupt=interrupt,
            lnext=modes.lnext,
            swallowed=modes.start + modes.stop,
            dropped=dropped,
        )
        await lines.judge(found.readable, edited.texts, found.kept)
        await lines.judge_parts(found.parts)
        await lines.judge_suffixes(found.first, starts)
        starts = _later(starts, found, len(rest) + len(content))
        rest, line, dropped = found.rest, edited.line, found.dropped
        await checkpoint()
    if eof:
        # A quoted end-of-input key is text. After a part of a line, the first key only passes that
        # part on. A second key ends the input.
        keys = modes.eof * (1 + line.is_quoting + bool(line.text or line.is_quoting))
        edited = edit(line, keys, modes)
        await lines.judge([rest] if rest else [], edited.texts)
        await lines.judge_suffixes(rest, starts)
        data, line = data + keys, edited.line
    # A shell that edits its lines also shows them, so it turns the terminal's echo off.
    is_edited = modes.line_mode or not modes.echo
    is_collected = not rest or (is_edited and lines.readers.read_now())
    now = await lines.finish(TypedLine(rest, starts, is_collected))
    if dropped is not None and not dropped.at:
        dropped = dropped._replace(at=time.monotonic())
    return _Typing(
        data,
        now._replace(kernel_line=line, was_in_line_mode=modes.line_mode, dropped=dropped),
    )


def _without_dropped(line: TypedLine, readers: Readers) -> TypedLine:
    """Return the line. Clear `dropped` once no shell can still hold that text.

    A shell holds it only if more text comes before it has handled the interrupt. Then the text is a
    part of the line until the line ends.
    """
    if line.dropped is None or line.keys:
        return line
    age_s = time.monotonic() - line.dropped.at
    is_handled = age_s > _INTERRUPT_S and not readers.handle_interrupt()
    if is_handled or age_s > _INTERRUPT_IS_OVER_S:
        return line._replace(dropped=None)
    return line


def _check_modes(
    shell: Shell, target: TerminalInput, modes: Modes, params: WriteStdinParams, size: int
) -> None:
    """Refuse a write that the terminal's modes do not allow. Raises `RpcError` (not_possible)."""
    if params.secret:
        _check_secret(shell, target, modes, size)
    if params.eof and not (modes.line_mode and modes.eof):
        raise not_possible("eof", f"The program in shell {shell.id} reads keys, not lines")


def _check_secret(shell: Shell, target: TerminalInput, modes: Modes, size: int) -> None:
    """Refuse a secret that a terminal could show. Raises `RpcError` (not_possible).

    A terminal decides whether to show a byte when it takes that byte. If it has no room for a byte,
    it takes that byte after the program has read. By then, the program may have changed the modes.
    """
    if modes.echo:
        raise not_possible("secret", f"The terminal of shell {shell.id} shows what is typed")
    if size > MAX_LINE_BYTES:
        raise not_possible("secret", f"A terminal takes {MAX_LINE_BYTES} bytes of a secret at once")
    if target.pending_bytes or target.untaken_bytes(modes) + size > MAX_LINE_BYTES:
        sentence = f"The program in shell {shell.id} has not read what was typed before"
        raise not_possible("secret", sentence)


def _starts(line: TypedLine, data: bytes) -> tuple[int, ...]:
    """Return where a shell may begin to read.

    The values are offsets in the text of `line` followed by `data`, except 0.
    """
    here = len(line.keys)
    if not line.is_collected:
        return (here,)
    # A shell may have read the first key alone, with `read -n1`. But if the next write is a single
    # key too, a person is typing a line.
    is_one_key = len(line.keys.decode("utf-8", "replace")) == 1
    return (here,) if is_one_key and len(data) > 1 else line.starts


def _later(starts: tuple[int, ...], found: Typed, length: int) -> tuple[int, ...]:
    """Return the places in the new rest at which a line may begin.

    `length`: the total size, in bytes, of the old rest and the new piece. A rest that is too long
    is cut at its beginning.
    """
    dropped = length - len(found.rest)
    return () if found.lines else tuple(each - dropped for each in starts if each >= dropped)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield parts of data, each small enough to hold up no other request."""
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]


def _open_input(shell: Shell) -> PipeInput | TerminalInput:
    """Return the command's input, if it is open. Raises `RpcError` (stdin_closed)."""
    if (target := shell.open_input) is not None:
        return target
    if shell.input is None:
        raise stdin_closed(shell.id, "not_open")
    has_ended = shell.has_ended or shell.input.closed == "ended"
    raise stdin_closed(shell.id, "ended" if has_ended else "closed")


def _check_room(target: PipeInput | TerminalInput, size: int) -> None:
    if size > target.room:
        raise resource_exhausted("stdin", "The program does not read its input")


async def _data(target: PipeInput | TerminalInput, params: WriteStdinParams) -> bytes:
    """Return the bytes of text, keys and base64, in this order.

    Raises `RpcError` if the queue has no room for them. Before it makes the bytes, it checks a
    lower bound of their number.
    """
    text, encoded, keys = params.text or "", params.base64 or "", params.keys or ()
    _check_room(target, len(text) + len(keys) + len(encoded) * 3 // 4 - 2)
    check_input(text)
    brackets = isinstance(target, TerminalInput) and target.dialogue.bracketed_paste
    is_pasted = params.paste and brackets

    def content(data: bytes) -> bytes:
        return pasted(data) if is_pasted and data else data

    data = bytearray(content(to_bytes(text)))
    application = isinstance(target, TerminalInput) and target.dialogue.application_cursor
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
    _check_room(target, len(data))
    return bytes(data)


async def typed_first(context: RequestContext, params: BashParams) -> TypedLine:
    """Return the state of the line that a command's `stdin` leaves unfinished.

    On a terminal, the guard judges the lines of `stdin` as those of a write. Raises `RpcError`
    (blocked; or invalid_params if a terminal would cut a line).
    """
    data = to_bytes(params.stdin or "")
    if not (params.tty and data):
        # A later write may continue the last command in `data`.
        return TypedLine(data[-MAX_KEPT:])
    readers = FirstReaders(params, may_run_stdin=await may_run_stdin(context, params))
    lines = TypedLines(context, readers, NOTHING_TYPED)
    typing = await _type(NOTHING_TYPED, NEW_MODES, data, lines, "stdin", eof=False)
    for script in dict.fromkeys(filter(None, lines.scripts())):
        # The command may set the variables and the directory of the shell.
        await admit(context, msgspec.structs.replace(params, stdin=script))
    return typing.line


async def resize_shell(context: RequestContext, params: ResizeShellParams) -> ResizeShellResult:
    rows, cols = params.rows, params.cols
    if rows is None or cols is None:
        raise invalid_params("rows and cols are both needed", "rows" if rows is None else "cols")
    shell = await shell_named_by(context, params)
    if not shell.has_terminal:
        raise not_possible("tty", f"Shell {shell.id} has no terminal")
    if isinstance(target := shell.open_input, TerminalInput):
        target.resize(Size(rows, cols), shell.stdout.store.written)
        shell.notify()
    return ResizeShellResult(shell.id, rows, cols, not shell.has_ended)
