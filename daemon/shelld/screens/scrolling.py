"""Finds output that scrolls off a screen before a person can see it. Pure.

An emulator is slower than a program that prints. To save time, the emulator skips plain lines if
more plain lines follow and fill the screen.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# Output that is shorter than this is shown whole.
_WORTH_BYTES: Final = 8_192
# Plain bytes only write characters and move the cursor. They change no mode of a terminal. A byte
# from 0x80 on is a part of a character in UTF-8.
_PLAIN: Final = bytes([*range(0x07, 0x0E), *range(0x20, 0x100)])
# The first byte, in UTF-8, of the control characters from U+0080 on.
_LATIN: Final = b"\xc2"


class Unseen(NamedTuple):
    """A range of output that need not be shown. It ends where the lines that stay visible begin.

    `start` is just after a line end, and `end` is just before a line end.
    """

    start: int
    end: int


def unseen(data: bytes, rows: int, scrollback: int) -> Unseen | None:
    """Return the range of the output that nobody can see. This output first scrolls off the screen,
    and later out of the scrollback of `scrollback` lines. Return None if there is no such output,
    or if searching for such output would save no time.

    The result is right only if all lines of the screen scroll, and if the output before `data` does
    not end within an escape sequence.
    """
    if len(data) < _WORTH_BYTES:
        return None
    start = data.find(b"\r\n") + 2
    end = len(data)
    # At first, line ends may only move the cursor down, over older lines, until it reaches the last
    # row. This takes at most `rows` line ends. All further line ends scroll the older lines off the
    # screen, and then off the scrollback.
    for _ in range(2 * rows + scrollback):
        end = data.rfind(b"\n", start, end)
        if end < 0:
            return None
    end = data.rfind(b"\r\n", start, end)
    middle = data[start:end]
    if start < 2 or end < 0 or _LATIN in middle or middle.translate(None, _PLAIN):
        return None
    return Unseen(start, end)
