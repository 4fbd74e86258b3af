"""Reads the head of a stream: the beginning of its output, up to a given size.

The read has steps, and other requests run between the steps.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from shelld.output.reader import do_step
from shelld.output.store import StreamStore
from shelld.output.text import STEP_BYTES, Piece, last_states, read_text

TRUNCATED_SUFFIX: Final = "... (truncated)"


class Head(NamedTuple):
    """The head of a stream. `text` covers the bytes up to `end`. `invalid` is the number of these
    bytes that are not UTF-8. If `is_cut` is true, the text ends with `TRUNCATED_SUFFIX`.
    """

    text: str
    end: int
    is_cut: bool
    invalid: int = 0


async def read_head(store: StreamStore, max_text_bytes: int, *, strip: bool, final: bool) -> Head:
    """Return the beginning of a stream in at most `max_text_bytes` of UTF-8, including the suffix.

    The text is cut only if the stream does not fit, or if the bytes that follow the text were
    dropped.
    """
    stop = store.written
    room = max_text_bytes - len(TRUNCATED_SUFFIX)
    gathered = _Gathered(0, strip=strip)
    # The longest head that fits together with the suffix. If the text must be cut, this is the
    # result.
    cut: Head | None = None
    while True:
        step, is_first = min(STEP_BYTES, stop - gathered.end), not gathered.end
        grow = partial(_grown, store, gathered, stop, strip=strip, final=final)
        piece, grown = await do_step(grow, step, is_first=is_first)
        if piece.dropped:
            return cut or gathered.head(is_cut=True)
        if piece.end == gathered.end:
            return gathered.head(is_cut=False)
        if grown.size <= room:
            cut = None
        elif cut is None:
            fit = partial(_fitting, store, gathered, stop, room, strip=strip)
            cut = (await do_step(fit, step, is_first=is_first)).head(is_cut=True)
        if grown.size > max_text_bytes:
            assert cut is not None
            return cut
        gathered = grown
        if gathered.end == stop:
            return gathered.head(is_cut=False)


class _Gathered:
    """The text so far. The last line is separate, because later output may overwrite it."""

    def __init__(
        self,
        end: int,
        lines: tuple[str, ...] = (),
        line: str = "",
        size: int = 0,
        invalid: int = 0,
        *,
        strip: bool,
    ) -> None:
        self.end = end
        self._invalid = invalid
        self._strip = strip
        self.size = size
        self._lines = lines
        self._line = line

    def plus(self, piece: Piece) -> _Gathered:
        text = self._line + piece.text
        if self._strip:
            text = last_states(text)
        cut = text.rfind("\n") + 1
        size = self.size - _utf8_size(self._line) + _utf8_size(text)
        lines = (*self._lines, text[:cut]) if cut else self._lines
        invalid = self._invalid + piece.invalid
        return _Gathered(piece.end, lines, text[cut:], size, invalid, strip=self._strip)

    def head(self, *, is_cut: bool) -> Head:
        line = self._line
        if is_cut:
            line += TRUNCATED_SUFFIX
        elif self._strip:
            line = line.rstrip("\r")
        return Head("".join((*self._lines, line)), self.end, is_cut, self._invalid)


def _grown(
    store: StreamStore, gathered: _Gathered, stop: int, *, strip: bool, final: bool
) -> tuple[Piece, _Gathered]:
    """Read the next step. Return the new piece, and a copy of `gathered` with this piece added."""
    piece = read_text(store, gathered.end, stop, STEP_BYTES, strip=strip, final=final)
    return piece, gathered.plus(piece)


def _fitting(
    store: StreamStore, gathered: _Gathered, stop: int, room: int, *, strip: bool
) -> _Gathered:
    """Add to `gathered`, in ever smaller steps, until no further unit fits."""
    size = STEP_BYTES // 2
    while size:
        piece = read_text(store, gathered.end, stop, size, strip=strip, final=False)
        grown = gathered.plus(piece)
        if piece.dropped or piece.end == gathered.end or grown.size > room:
            size //= 2
        else:
            gathered = grown
    return gathered


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
