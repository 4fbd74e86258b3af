"""What programs ask of a terminal in their output, and how it answers.

Answers have fixed forms. A report of a title or of a setting would let the bytes of a file, printed
by a command, type text of their choice; a terminal of ours never sends one.
"""

from __future__ import annotations

import re
from typing import Final

# Primary and secondary device attributes: a VT100 with extended characters, without a version.
_ANSWERS: Final = {b"[c": b"\x1b[?1;2c", b"[>c": b"\x1b[>0;0;0c", b"[5n": b"\x1b[0n"}

_APPLICATION_CURSOR: Final = b"1"
_BRACKETED_PASTE: Final = b"2004"

# Queries, changes of private modes, and resets of the whole terminal.
_OF_INTEREST: Final = re.compile(
    rb"\x1b(?:(?P<query>\[(?:>?0?c|5n))|\[\?(?P<modes>[\d;]{1,64})(?P<action>[hl])|\[!p|c)"
)
# The beginning of one, at the end of the output so far.
_UNFINISHED: Final = re.compile(rb"\x1b(?:\[(?:>?0?|5|\?[\d;]{0,64}|!)?)?\Z")

_PASTE_START: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"

# A file full of queries must not fill the queue.
MAX_ANSWER_BYTES: Final = 4_096


class Dialogue:
    """Follows the output of one terminal.

    `application_cursor`: cursor keys are to be sent in their application form. `bracketed_paste`:
    the program wants to know what was pasted.
    """

    def __init__(self) -> None:
        self.application_cursor = False
        self.bracketed_paste = False
        self._unfinished = b""

    def feed(self, output: memoryview) -> bytes:
        """Take note of the next part of the output. Return what to answer."""
        if not self._unfinished and b"\x1b" not in bytes(output):
            return b""
        data = self._unfinished + output
        answers = bytearray()
        for match in _OF_INTEREST.finditer(data):
            if match["query"] is not None:
                if len(answers) < MAX_ANSWER_BYTES:
                    answers += _ANSWERS[match["query"].replace(b"0", b"")]
            elif match["modes"] is not None:
                self._set(match["modes"].split(b";"), is_on=match["action"] == b"h")
            else:
                self.application_cursor = self.bracketed_paste = False
        unfinished = _UNFINISHED.search(data, max(0, len(data) - 80))
        self._unfinished = unfinished[0] if unfinished else b""
        return bytes(answers)

    def _set(self, numbers: list[bytes], *, is_on: bool) -> None:
        if _APPLICATION_CURSOR in numbers:
            self.application_cursor = is_on
        if _BRACKETED_PASTE in numbers:
            self.bracketed_paste = is_on


def pasted(data: bytes) -> bytes:
    """Return data in the brackets of a paste. It cannot close them."""
    kept = bytearray()
    for part in data.split(b"~"):
        # What a removal leaves may close them in turn, so look at the end each time.
        kept += part + b"~"
        if kept.endswith(_PASTE_END):
            del kept[-len(_PASTE_END) :]
    return b"%s%s%s" % (_PASTE_START, kept[:-1], _PASTE_END)
