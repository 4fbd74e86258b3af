"""``bash_output``: what a shell wrote since the last read, or from a given offset.

A plain read takes from the position that all plain readers of a shell share. Looking moves
nothing and may be interrupted; taking is one step without an await, and only what was looked at
from where the position still is. So two readers never get the same bytes, and never miss any
between them.
"""

from __future__ import annotations

import anyio
import anyio.lowlevel
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
        # How much had been written when it was last looked at.
        self._seen = self._position

    @property
    def has_news(self) -> bool:
        """Whether there is anything that no look has seen."""
        return self._stream.store.written > self._seen

    @property
    def was_overtaken(self) -> bool:
        """Whether another reader has meanwhile taken some of what this one looks at."""
        return self._offset is None and self._stream.read_position > self._start

    async def look(self) -> _Read:
        """Read on from where the last look found nothing; moves no shared position.

        Without a filter nothing is awaited.
        """
        if self.was_overtaken:
            self._start = self._position = self._stream.read_position
            self._dropped = 0
        store = self._stream.store
        self._seen = stop = store.written
        final = self._shell.is_empty or (not self._shell.is_running and not self._shell.leftover)
        piece = self._read(stop, self._params.max_bytes, final=final)
        text = piece.text
        if self._filter is not None:
            # Nothing follows what ends with the command, or at the gap.
            if not (final and piece.end >= stop) and not store.read(piece.end, 1).dropped:
                piece = self._whole_lines(piece)
            text = await _filtered(self._filter, piece.text)
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


async def _filtered(line_filter: LineFilter, text: str) -> str:
    """Return the matching lines, letting other requests go first every few milliseconds."""
    found: list[str] = []
    for lines in line_filter.slices(text):
        found.append(lines)
        await anyio.lowlevel.checkpoint()
    return "".join(found)


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
    until_exit = params.until == "exit"
    give_up_at = anyio.current_time() + params.wait / 1000

    def is_due() -> bool:
        news = not until_exit and any(reader.has_news for reader in readers.values())
        return news or not shell.is_running

    while True:
        with anyio.CancelScope(deadline=give_up_at):
            await shell.wait_until(is_due)
        is_last = not shell.is_running or anyio.current_time() >= give_up_at
        reads = {name: await reader.look() for name, reader in readers.items()}
        if any(reader.was_overtaken for reader in readers.values()):
            continue
        if is_last or any(read.text for read in reads.values()):
            break
        for name, read in reads.items():
            readers[name].skip(read)
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
        reason=shell.reason,
    )


def _nothing(stream: OutputStream) -> _Read:
    """Of a stream that was not asked for."""
    return _Read("", stream.read_position, stream.read_position, 0, more=False)
