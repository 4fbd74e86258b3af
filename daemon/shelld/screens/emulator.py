"""Computes the screen of a terminal from the output of its program. Only this file uses pyavt.

Runs in the helper process. Lines are numbered from the top of the screen, and columns from the
left. The first number is 0. Each capture that finds a change increases the version by one. Each row
has the version in which the row last changed.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from avt._avt import Vt

from shelld.screens.marks import Marks
from shelld.screens.scrolling import unseen

# Matches titles, switches of the alternate screen, and resets of the whole terminal. The pattern
# ends a title where another sequence may begin, so the search takes linear time. The pattern begins
# with a single character class, which `re` finds quickly.
_OF_INTEREST: Final = re.compile(
    r"[\x1b\x9b\x9d](?:"
    r"(?:(?<=\x1b)\]|(?<=\x9d))"
    r"(?P<kind>[02]);(?P<title>[^\x07\x1b\x9c\x9d]*+)(?:\x07|\x1b\\|\x9c)"
    r"|(?:(?<=\x1b)\[|(?<=\x9b))\?(?P<modes>[\d;]{1,64})(?P<action>[hl])"
    r"|(?<=\x1b)c)"
)
# A text without any of these strings contains no such sequence. The operator `in` finds them faster
# than `re`.
_BEGINNINGS: Final = ("\x1b]", "\x1b[?", "\x1bc", "\x9b", "\x9d")
# Matches an incomplete sequence of this kind at the end of the output so far.
_UNFINISHED: Final = re.compile(
    r"(?:\x1b|(?:\x1b\]|\x9d)[02]?(?:;[^\x07\x1b\x9c\x9d]{0,4096}+\x1b?)?"
    r"|(?:\x1b\[|\x9b)\??[\d;]{0,64})\Z"
)
_MAX_UNFINISHED: Final = 4_200
# Matches a sequence that sets which lines scroll. After a sequence without numbers, or a reset, all
# lines scroll.
_MARGINS: Final = re.compile(r"(?:\x1b\[|\x9b)([\d;]*)r|\x1bc")
_PRINTABLE: Final = re.compile(rb"[ -~]*")
# With a single column, a wide character may make the emulator end the process.
_MIN_COLS: Final = 2
_ALTERNATE: Final = frozenset({"47", "1047", "1049"})
MAX_TITLE: Final = 1_000


class Cursor(NamedTuple):
    row: int
    col: int
    visible: bool


class Emulator:
    def __init__(self, rows: int, cols: int, scrollback: int, version: int = 0) -> None:
        """Begin with an empty screen.

        `scrollback`: the number of lines to keep above the screen. `version`: the first version.
        """
        self._vt = Vt(max(cols, _MIN_COLS), rows, scrollback)
        # The true width. A terminal of one column is shown as if it had two columns.
        self._cols = cols
        self._scrollback = scrollback
        self._marks = Marks(_width)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        self.title = ""
        self.alternate: bool = False
        # True if only some lines scroll.
        self._has_margins = False
        self._version = version
        self._rows: list[str] = [""] * rows
        self._versions = [version] * rows
        self._rest: tuple[object, ...] = (self.cursor, "", False, cols)

    def feed(self, data: bytes, stops: Iterable[int] = ()) -> list[tuple[int, int]]:
        """Show the next part of the output.

        Return the row and column of the cursor at each of `stops`: offsets in `data`, in order.
        """
        positions: list[tuple[int, int]] = []
        start = 0
        for stop in stops:
            self._show(data[start:stop])
            positions.append(self.cursor[:2])
            start = stop
        self._show(data[start:])
        return positions

    def _show(self, data: bytes) -> None:
        """Show output.

        Later lines in `data` may push earlier lines off the screen and its scrollback. To save
        time, leave out these earlier lines.
        """
        _, rows = self._vt.size
        gap = unseen(data, rows, self._scrollback)
        if gap is None:
            self._feed(data)
            return
        start = 0
        for end in (gap.start, gap.start + self._probe_length(data, gap.start)):
            self._feed(data[start:end])
            start = end
        is_probed = start > gap.start and not self._has_margins
        # The probe is some printable text at the beginning of the gap. If the text does not move
        # the cursor, it may be a part of a title, for example. In that case, leave nothing out.
        if is_probed and self.cursor.col == start - gap.start:
            self._unfinished = ""
            start = max(start, gap.end)
        self._feed(data[start:])

    def _probe_length(self, data: bytes, start: int) -> int:
        """Return the number of printable characters at `start`.

        The result is less than the number of columns. So each of these characters would move the
        cursor by one column.
        """
        found = _PRINTABLE.match(data, start, start + self._cols - 1)
        return 0 if found is None else len(found[0])

    def _feed(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        self._vt.feed_str(self._marks.join(text))
        self._follow(self._unfinished + text)

    @property
    def _now(self) -> Vt:
        """Give the emulator the text that `Marks` has held back. Return the emulator."""
        self._vt.feed_str(self._marks.release())
        return self._vt

    def resize(self, rows: int, cols: int) -> None:
        self._now.resize(max(cols, _MIN_COLS), rows)
        self._cols = cols

    @property
    def version(self) -> int:
        self._look()
        return self._version

    @property
    def cursor(self) -> Cursor:
        _, rows = self._now.size
        cursor = self._vt.cursor
        # After a character in the last column, the emulator puts the cursor past that column.
        col = min(cursor.col, self._cols - 1)
        return Cursor(min(cursor.row, rows - 1), col, bool(cursor.visible))

    def view(self, since: int | None, scrollback: int) -> tuple[object, ...]:
        """Return the screen and, above it, at most `scrollback` lines that have scrolled off.

        The result is: rows, columns, lines, cursor, whether it is the alternate screen, title,
        version, and the numbers of the rows in `lines`. With `since`, `lines` has only the rows
        that have changed after the version `since`.
        """
        self._look()
        _, rows = self._vt.size
        changed = [
            row for row, version in enumerate(self._versions) if since is None or version > since
        ]
        above = []
        if scrollback:
            above = [
                self._shown(line.text) for line in self._vt.lines()[-rows - scrollback : -rows]
            ]
        lines = [*above, *(self._rows[row] for row in changed)]
        about = (self.cursor, self.alternate, self.title, self._version, changed)
        return (rows, self._cols, lines, *about)

    def _look(self) -> None:
        """Find the changes since the last capture. On a large screen, this takes a while."""
        now: list[str] = [self._shown(line.text) for line in self._now.view()]
        before = self._rows + [""] * (len(now) - len(self._rows))
        rest = (self.cursor, self.title, self.alternate, self._cols)
        if now == self._rows and rest == self._rest:
            return
        self._version += 1
        known = self._versions + [self._version] * (len(now) - len(self._versions))
        self._versions = [
            version if line == old else self._version
            for line, old, version in zip(now, before, known, strict=False)
        ]
        self._rows, self._rest = now, rest

    def _follow(self, text: str) -> None:
        """Follow the title and the alternate screen, which the emulator does not report."""
        is_of_interest = any(beginning in text for beginning in _BEGINNINGS)
        for match in _OF_INTEREST.finditer(text) if is_of_interest else ():
            if match["kind"] is not None:
                self.title = "".join(filter(str.isprintable, match["title"]))[:MAX_TITLE]
            elif match["modes"] is None:
                self.title, self.alternate = "", False
            elif not _ALTERNATE.isdisjoint(match["modes"].split(";")):
                self.alternate = match["action"] == "h"
        for match in _MARGINS.finditer(text) if "\x1b" in text or "\x9b" in text else ():
            self._has_margins = bool(match[1])
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _MAX_UNFINISHED))
        self._unfinished = unfinished[0] if unfinished else ""

    def _shown(self, line: str) -> str:
        return self._marks.shown(line).rstrip()


def _width(character: str) -> int:
    probe = Vt(4, 1, 0)
    probe.feed_str(character)
    return int(probe.cursor.col)
