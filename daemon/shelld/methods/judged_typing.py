"""Judges the typed text of a write, line by line. Finds the line that the write leaves unfinished.

Judges large writes in pieces, so that they delay no other request. Never writes to a command.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint

from shelld.methods.typed_lines import Readers, TypedLines
from shelld.terminals.line_editor import check_length, edit, received
from shelld.terminals.pty import Modes
from shelld.terminals.typed import Typed, TypedLine, last_line, typed

_PIECE_BYTES: Final = 16 * 1024
# After `_INTERRUPT_S`, the kernel has turned an interrupt key into a signal. After
# `_INTERRUPT_IS_OVER_S`, a shell has handled the signal. If the daemon cannot inspect the processes
# of a shell, it relies on `_INTERRUPT_IS_OVER_S`.
_INTERRUPT_S: Final = 0.2
_INTERRUPT_IS_OVER_S: Final = 5.0


class Typing(NamedTuple):
    """The bytes to write, and the state of the typed line after these bytes are written."""

    data: bytes
    line: TypedLine


async def judge_piped(before: TypedLine, data: bytes, lines: TypedLines, *, eof: bool) -> Typing:
    """Judge bytes for a pipe. Raises `RpcError`. `before`: the line typed so far."""
    rest, starts = before.keys, _starts(before, data)
    if (b"\n" in data or b"\r" in data) and not lines.are_read():
        # No shell reads this input. Other programs read data, which may have millions of lines.
        last = last_line(rest, data)
        if last is not None:
            is_collected = not last or lines.readers.read_now()
            return Typing(data, TypedLine(last, (), is_collected))
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
    return Typing(data, await lines.finish(TypedLine(rest, starts, is_collected)))


async def judge_typed(
    before: TypedLine, modes: Modes, data: bytes, lines: TypedLines, parameter: str, *, eof: bool
) -> Typing:
    """Judge bytes for a terminal. Raises `RpcError`.

    `before`: the line typed so far. `parameter`: the parameter that contains the bytes.
    """
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
        readable = found.readable
        may_go_on = len(readable) > len(found.lines)
        await lines.judge(readable, edited.texts, found.kept, may_go_on=may_go_on)
        await lines.judge_parts(found.parts)
        await lines.judge_suffixes(found.first, starts)
        starts = _later(starts, found, len(rest) + len(content))
        rest, line, dropped = found.rest, edited.line, found.dropped
        await checkpoint()
    if eof:
        # A quoted end-of-file key is text. If a part of the line is typed already, the first key
        # only sends this part to the program, and a second key ends the input.
        keys = modes.eof * (1 + line.is_quoting + bool(line.text or line.is_quoting))
        edited = edit(line, keys, modes)
        await lines.judge([rest] if rest else [], edited.texts)
        await lines.judge_suffixes(rest, starts)
        data, line = data + keys, edited.line
    # A shell that edits its input lines also displays them, so it turns off the terminal's echo.
    is_edited = modes.line_mode or not modes.echo
    is_collected = not rest or (is_edited and lines.readers.read_now())
    now = await lines.finish(TypedLine(rest, starts, is_collected))
    if dropped is not None and not dropped.at:
        dropped = dropped._replace(at=time.monotonic())
    return Typing(
        data,
        now._replace(kernel_line=line, was_in_line_mode=modes.line_mode, dropped=dropped),
    )


def _without_dropped(line: TypedLine, readers: Readers) -> TypedLine:
    """Return the line. If no shell can still hold the text in `dropped`, remove `dropped`.

    A shell may keep this text if more text arrives before the shell has handled the interrupt. So
    if more text has been typed, `dropped` stays until the line ends.
    """
    if line.dropped is None or line.keys:
        return line
    age_s = time.monotonic() - line.dropped.at
    is_handled = age_s > _INTERRUPT_S and not readers.handle_interrupt()
    if is_handled or age_s > _INTERRUPT_IS_OVER_S:
        return line._replace(dropped=None)
    return line


def _starts(line: TypedLine, data: bytes) -> tuple[int, ...]:
    """Return the offsets at which a shell may begin to read.

    The text is `line`, followed by `data`. The offsets count from the start of `line`, and 0 is
    left out.
    """
    here = len(line.keys)
    if not line.is_collected:
        return (here,)
    # A shell may have read the first key alone, with `read -n1`. But if the next write is also a
    # single key, a person is typing a line.
    is_one_key = len(line.keys.decode("utf-8", "replace")) == 1
    return (here,) if is_one_key and len(data) > 1 else line.starts


def _later(starts: tuple[int, ...], found: Typed, length: int) -> tuple[int, ...]:
    """Return the offsets in the new rest, `found.rest`, at which a line may begin. A rest is text
    after the last complete line.

    `length`: the total size, in bytes, of the old rest and the new piece. A rest that is too long
    is cut at its beginning.
    """
    dropped = length - len(found.rest)
    return () if found.lines else tuple(each - dropped for each in starts if each >= dropped)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in parts. Each part is so small that it delays no other request."""
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]
