"""Finds the queries that programs send to their terminal in their output, and returns the answers.

The answers have fixed forms. Some terminals also report their title or a setting. On such a
terminal, a file that a command prints could set the title and then ask for the title. So the file
could decide what the program reads as input. shelld's terminals never send such reports.
"""

from __future__ import annotations

import re
from typing import Final

# The answers about device attributes describe a VT100 that has the advanced video option. They give
# no version. If the value is None, the answer is a report of the cursor's position.
_ANSWERS: Final = {
    b"[c": b"\x1b[?1;2c",
    b"[>c": b"\x1b[>0;0;0c",
    b"[5n": b"\x1b[0n",
    b"[6n": None,
}

_APPLICATION_CURSOR: Final = b"1"
_BRACKETED_PASTE: Final = b"2004"

# Matches queries, changes of private modes, and resets of the whole terminal.
_OF_INTEREST: Final = re.compile(
    rb"\x1b(?:(?P<query>\[(?:>?0?c|[56]n))|\[\?(?P<modes>[\d;]{1,64})(?P<action>[hl])|\[!p|c)"
)
# Matches an incomplete sequence of this kind at the end of the output that has arrived so far.
_UNFINISHED: Final = re.compile(rb"\x1b(?:\[(?:>?0?|[56]|\?[\d;]{0,64}|!)?)?\Z")

PASTE_START: Final = b"\x1b[200~"
PASTE_END: Final = b"\x1b[201~"

# One part of the output gets at most this many answers, and at most this many answers may wait to
# be written. Without this limit, a file full of queries could fill the queue of the input.
MAX_ANSWERS: Final = 400


class Dialogue:
    """Follows the output of one terminal.

    `application_cursor`: the program wants cursor keys in their application form.
    `bracketed_paste`: the program wants brackets around pasted text.
    """

    def __init__(self) -> None:
        self.application_cursor = False
        self.bracketed_paste = False
        self._unfinished = b""

    def feed(self, output: memoryview) -> list[tuple[bytes | None, int]]:
        """Process the next part of the output. Return the answers to the queries in this part.

        Each answer is paired with the offset in `output` at which its query ends. If the answer is
        None, the caller must send the `position_report` of the cursor at that offset.
        """
        answers: list[tuple[bytes | None, int]] = []
        if not self._unfinished and b"\x1b" not in bytes(output):
            return answers
        data = self._unfinished + output
        for match in _OF_INTEREST.finditer(data):
            if match["query"] is not None:
                if len(answers) < MAX_ANSWERS:
                    answer = _ANSWERS[match["query"].replace(b"0", b"")]
                    answers.append((answer, match.end() - len(self._unfinished)))
            elif match["modes"] is not None:
                self._set(match["modes"].split(b";"), is_on=match["action"] == b"h")
            else:
                self.application_cursor = self.bracketed_paste = False
        unfinished = _UNFINISHED.search(data, max(0, len(data) - 80))
        self._unfinished = unfinished[0] if unfinished else b""
        return answers

    def _set(self, numbers: list[bytes], *, is_on: bool) -> None:
        if _APPLICATION_CURSOR in numbers:
            self.application_cursor = is_on
        if _BRACKETED_PASTE in numbers:
            self.bracketed_paste = is_on


def position_report(row: int, col: int) -> bytes:
    """Return the answer for a cursor in this row and column, counted from 0."""
    return b"\x1b[%d;%dR" % (row + 1, col + 1)


def pasted(data: bytes) -> bytes:
    """Put `data` between the brackets of a paste. Remove sequences that would end the paste."""
    kept = bytearray()
    for part in data.split(b"~"):
        # The bytes around a removed bracket may form a new bracket, so check the end after each
        # part.
        kept += part + b"~"
        if kept.endswith(PASTE_END):
            del kept[-len(PASTE_END) :]
    return b"%s%s%s" % (PASTE_START, kept[:-1], PASTE_END)
