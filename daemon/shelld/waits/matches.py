"""Searches new output for the first line that a pattern matches.

The search includes a line that has not ended, because a prompt has no line end. Output arrives in
pieces, so the search first waits a moment for the rest of that line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from shelld.filters.filter import LineFilter
from shelld.output.escapes import MAX_SEQUENCE_BYTES, open_string
from shelld.output.reader import Read, StreamReader, read_in_steps
from shelld.output.retention import OutputStream, StreamName
from shelld.output.store import StreamStore
from shelld.sessions.text import beginning
from shelld.shells.shell import Shell
from shelld_protocol.structs import MAX_READ_BYTES, Matched

# How long the search waits for the rest of a line.
_REST_OF_LINE_S: Final = 0.05
# The minimum time for a search, even if the wait is shorter.
_LEAST_S: Final = 2.0
# A search for the start of a line skips control strings that contain newlines, but at most this
# many in each direction. Only hostile output has more such strings. A search through all of them
# would hold up other requests.
_STRINGS: Final = 100
# The beginning of an OSC string. ESC ends every control string, but BEL ends only an OSC string.
_OSC: Final = b"\x1b]"


class _StreamSearch:
    """Searches one stream from an offset on. Searches each line once."""

    def __init__(
        self,
        name: StreamName,
        stream: OutputStream,
        start: int,
        line_filter: LineFilter,
        *,
        strip: bool,
    ) -> None:
        self._name: StreamName = name
        self._store = stream.store
        self._filter = line_filter
        self._strip = strip
        self._position = start
        self._reader = StreamReader(
            stream,
            offset=start,
            max_bytes=MAX_READ_BYTES,
            strip=strip,
            line_filter=line_filter,
            stops_at_match=True,
        )

    async def search(self, until: float, *, with_rest: bool) -> Matched | None:
        """Search the whole lines that have arrived and, with `with_rest`, the unfinished line.

        Stops when anyio.current_time() reaches `until`. A later search then continues with the
        remaining output.
        """
        written = self._store.written
        while self._position < written:
            read = await self._reader.peek(final=False)
            if read.text and (matched := await self._matched(read)) is not None:
                return matched
            goes_on = self._reader.goes_on_after(read)
            self._reader.skip(read)
            self._position = read.end
            if not goes_on:
                break
            await checkpoint()
            if anyio.current_time() >= until:
                return None
        if not with_rest:
            return None
        read = await self._reader.peek(final=True)
        return await self._matched(read) if read.text else None

    async def _matched(self, read: Read) -> Matched | None:
        """Return the first line of `read` that matches; None if the store has dropped the line."""
        kept = self._store.read(self._position, read.end - self._position)
        # Search a copy, because more output may be dropped during the search.
        data = kept.data[: max(0, read.end - kept.start)]
        start, text = kept.start, await self._lines(data)
        if not text:
            return None
        while (middle := _line_start_near_middle(data, strip=self._strip)) is not None:
            await checkpoint()
            if found := await self._lines(data[:middle]):
                data, text = data[:middle], found
            elif found := await self._lines(data[middle:]):
                start, data, text = start + middle, data[middle:], found
            else:
                break
        size = len(data.removesuffix(b"\n").removesuffix(b"\r"))
        line = text.partition("\n")[0].strip("\r")
        return Matched(beginning(line), self._name, start, start + size)

    async def _lines(self, data: bytes) -> str:
        """Return the matching lines of `data`, which holds whole lines."""
        store, size = StreamStore(len(data)), len(data)
        store.append(data)
        piece = await read_in_steps(store, 0, size, size, strip=self._strip, final=True)
        return await self._filter.lines(piece.text)


def _line_start_near_middle(data: bytes, *, strip: bool) -> int | None:
    """Return the offset at which a line near the middle begins. Return None if no line is found
    except the first one.

    With `strip`, a newline inside a control string does not end a line.
    """
    middle = len(data) // 2
    found = _line_start_before(data, middle, strip=strip) or _line_start_after(
        data, middle, strip=strip
    )
    return found if 0 < found < len(data) else None


def _line_start_before(data: bytes, middle: int, *, strip: bool) -> int:
    """Return the last offset up to `middle` at which a line begins; 0 if none is found."""
    found = data.rfind(b"\n", 0, middle) + 1
    for _ in range(_STRINGS):
        begin = open_string(data, found) if strip else None
        if begin is None:
            return found
        found = data.rfind(b"\n", 0, begin) + 1
    return 0


def _line_start_after(data: bytes, middle: int, *, strip: bool) -> int:
    """Return the first offset after `middle` at which a line begins; 0 if none is found."""
    found = data.find(b"\n", middle) + 1
    for _ in range(_STRINGS):
        begin = open_string(data, found) if strip else None
        if begin is None:
            return found
        # Continue at the end of the control string. A string of 64 KiB may have 65,536 newlines.
        limit = begin + MAX_SEQUENCE_BYTES
        marks = (b"\x07", b"\x1b") if data.startswith(_OSC, begin) else (b"\x1b",)
        ends = [data.find(mark, found, limit) for mark in marks]
        found = data.find(b"\n", min([end for end in ends if end >= 0], default=limit)) + 1
    return 0


class Search:
    """Searches streams of a shell. `starts`: the offset from which to search each stream."""

    def __init__(
        self,
        shell: Shell,
        line_filter: LineFilter,
        starts: Mapping[StreamName, int],
        *,
        strip: bool,
    ) -> None:
        self._shell = shell
        streams: dict[StreamName, OutputStream] = {"stdout": shell.stdout, "stderr": shell.stderr}
        self._searches = [
            _StreamSearch(name, streams[name], start, line_filter, strip=strip)
            for name, start in starts.items()
        ]

    async def wait(self, give_up_at: float) -> Matched | None:
        """Return the first match. Return None if there is no match before `give_up_at`, or before
        the shell ends.

        Raises `RpcError` (invalid_params) if the pattern takes too long.
        """
        shell = self._shell
        # Allow some time for a search of the output so far, even if the wait is shorter.
        stop_at = max(give_up_at, anyio.current_time() + _LEAST_S)
        # The time at which to search the unfinished lines. After this search, it is infinite until
        # more output comes.
        written_at = max(shell.stdout.written_at, shell.stderr.written_at)
        rest_due = anyio.current_time() + _REST_OF_LINE_S - (time.monotonic() - written_at)
        while True:
            now = anyio.current_time()
            is_last = now >= give_up_at
            if is_last:
                # If the daemon was busy or suspended, a match may have come in time, but not been
                # read.
                shell.catch_up()
            had_ended, before = shell.has_ended, shell.output.written
            with_rest = is_last or had_ended or now >= rest_due
            for search in self._searches:
                found = await search.search(stop_at, with_rest=with_rest)
                if found is not None:
                    return found
            if had_ended or is_last or anyio.current_time() >= stop_at:
                return None
            if with_rest:
                rest_due = math.inf
            if await shell.wait_for_news(min(rest_due, give_up_at), before):
                rest_due = min(rest_due, anyio.current_time() + _REST_OF_LINE_S)
