"""``bash_output``: what a shell wrote since the last read, or from a given offset.

A plain read takes from the position that all plain readers of a shell share. Taking is one step
without an await, so two readers never get the same bytes and never miss any between them.
"""

from __future__ import annotations

import anyio
from msgspec import Struct

from shelld.methods.context import Context
from shelld.output.filter import LineFilter
from shelld.output.text import Piece, read_text
from shelld.shells.process import OutputStream, ShellProcess
from shelld_protocol.methods import BashOutputParams, BashOutputResult, OutputRange


class _Read(Struct):
    """What one call takes from one stream: from `start` up to `end`, in `text`."""

    text: str
    start: int
    end: int
    dropped: int
    more: bool


class _Reader:
    """One call's view of one stream. `offset` None: the shared position, which it moves."""

    def __init__(
        self,
        shell: ShellProcess,
        stream: OutputStream,
        params: BashOutputParams,
        offset: int | None,
    ) -> None:
        self._shell = shell
        self._stream = stream
        self._params = params
        self._offset = offset
        self._filter = None if params.filter is None else LineFilter(params.filter)
        # Where this call's read begins, and up to where it has seen nothing to return.
        self._start = self._position = stream.read_position if offset is None else offset
        self._dropped = 0

    def look(self) -> _Read:
        """Read on from where the last look found nothing; moves no shared position."""
        if self._offset is None and self._stream.read_position > self._start:
            # Another reader was faster.
            self._start = self._position = self._stream.read_position
            self._dropped = 0
        store = self._stream.store
        stop = store.written
        final = self._shell.is_empty or (not self._shell.is_running and not self._shell.leftover)
        piece = self._read(stop, self._params.max_bytes, final=final)
        text = piece.text
        if self._filter is not None:
            # Nothing follows what ends with the command, or at the gap.
            if not (final and piece.end >= stop) and not store.read(piece.end, 1).dropped:
                piece = self._whole_lines(piece)
            text = self._filter.lines(piece.text)
        dropped = self._dropped + piece.dropped
        more = self._has_more(piece.end, stop, final)
        return _Read(text, self._start, piece.end, dropped, more)

    def _read(self, stop: int, max_bytes: int, *, final: bool) -> Piece:
        strip = self._params.strip_ansi
        store = self._stream.store
        return read_text(store, self._position, stop, max_bytes, strip=strip, final=final)

    def _whole_lines(self, piece: Piece) -> Piece:
        """Leave an unfinished last line for later, unless it fills the whole read."""
        begin = self._position
        kept = self._stream.store.read(begin, self._params.max_bytes)
        data = kept.data[: max(0, piece.end - kept.start)]
        last_end = data.rfind(b"\n")
        if last_end < 0:
            return piece if len(data) >= self._params.max_bytes else Piece("", begin, 0)
        return self._read(kept.start + last_end + 1, self._params.max_bytes, final=False)

    def _has_more(self, end: int, stop: int, final: bool) -> bool:
        if end >= stop:
            return False
        if final:
            return True
        rest = read_text(
            self._stream.store, end, stop, self._params.max_bytes, strip=False, final=False
        )
        if self._filter is not None:
            return "\n" in rest.text or rest.end - end >= self._params.max_bytes
        return rest.end > end

    def skip(self, read: _Read) -> None:
        """Remember that `read` holds nothing to return, while the call goes on waiting."""
        self._position, self._dropped = read.end, read.dropped

    def take(self, read: _Read) -> None:
        """Make `read` the one that is returned."""
        if self._offset is None:
            self._stream.read_position = read.end


async def bash_output(context: Context, params: BashOutputParams) -> BashOutputResult:
    shell = context.daemon.manager.get(params.bash_id)
    explicit = params.stdout_offset is not None or params.stderr_offset is not None
    readers = {
        name: _Reader(shell, stream, params, offset)
        for name, stream, offset in (
            ("stdout", shell.stdout, params.stdout_offset),
            ("stderr", shell.stderr, params.stderr_offset),
        )
        if offset is not None or not explicit
    }
    reads: dict[str, _Read] = {}

    def look() -> None:
        nonlocal reads
        reads = {name: reader.look() for name, reader in readers.items()}

    def satisfied() -> bool:
        if params.until == "exit":
            return not shell.is_running
        look()
        if any(read.text for read in reads.values()) or not shell.is_running:
            return True
        for name, read in reads.items():
            readers[name].skip(read)
        return False

    with anyio.move_on_after(params.wait / 1000) as scope:
        await shell.wait_until(satisfied)
    if scope.cancelled_caught or params.until == "exit":
        # Another reader may have taken some of it since the last look.
        look()
    for name, read in reads.items():
        readers[name].take(read)
    return _result(shell, reads)


def _result(shell: ShellProcess, reads: dict[str, _Read]) -> BashOutputResult:
    stdout = reads.get("stdout") or _nothing(shell.stdout)
    stderr = reads.get("stderr") or _nothing(shell.stderr)
    return BashOutputResult(
        bash_id=shell.id,
        command=shell.command,
        stdout=stdout.text,
        stderr=stderr.text,
        status=shell.status.value,
        is_running=shell.is_running,
        exit_code=shell.exit_code,
        signal=shell.signal,
        duration_ms=shell.duration_ms,
        stdout_range=OutputRange(stdout.start, stdout.end, stdout.dropped),
        stderr_range=OutputRange(stderr.start, stderr.end, stderr.dropped),
        dropped_bytes=stdout.dropped + stderr.dropped,
        more=stdout.more or stderr.more,
    )


def _nothing(stream: OutputStream) -> _Read:
    """Of a stream that was not asked for."""
    return _Read("", stream.read_position, stream.read_position, 0, more=False)
