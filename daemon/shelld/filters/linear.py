"""Lines that a pattern matches, by RE2, whose time is linear in the text.

Pure, and imported by the filter process as well, so it imports nothing of ours. See
https://github.com/google/re2/wiki/Syntax.

In Python, a call of RE2 costs more than the bytes it looks at. So one call searches many lines for
the next match. No match can contain a line end, so the result is that of one call for each line.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Final, cast

# Of one compiled pattern: RE2's own default. Said here because it is a promise.
MAX_PATTERN_MEMORY_BYTES: Final = 8 * 1024 * 1024

# What tells one line from a text of many: the text's own beginning and end, flags switched off,
# bytes, and quoting that could hide any of those.
_TELLS_TEXT_FROM_LINE: Final = re.compile(r"\\[AzQC]|\(\?[A-Za-z]*-")


class LinearPattern:
    """A pattern that RE2 has compiled: as it is, and for many lines at once if it can be.

    `instructions` is the size of its program. To search a text takes, at worst, a few nanoseconds
    for each of its bytes and each instruction.
    """

    def __init__(self, for_line: Any, for_lines: Any | None) -> None:
        self.instructions: int = for_line.programsize
        self._for_line = for_line
        self._for_lines = for_lines

    def matching_lines(self, text: str) -> str:
        # RE2 lets other threads run while it searches bytes, but converts text before that.
        data = text.encode()
        if self._for_lines is None or b"\r" in data:
            search = self._for_line.search
            lines = split_lines(text)
            return "".join([line for line in lines if search(_content(line).encode())])
        found: list[bytes] = []
        position = 0
        while position < len(data):
            match = self._for_lines.search(data, position)
            if match is None:
                break
            begin = data.rfind(b"\n", position, match.start()) + 1 or position
            end = data.find(b"\n", match.end()) + 1 or len(data)
            found.append(data[begin:end])
            position = end
        return b"".join(found).decode()


def compile_linear(
    pattern: str, program_bytes: int = MAX_PATTERN_MEMORY_BYTES
) -> LinearPattern | None:
    """Return what RE2 makes of a pattern, None if it refuses it.

    It also does so if the program would take more than about two thirds of `program_bytes`, and it
    needs the longer to find out the more that is.
    """
    # Here and not above: most clients never filter, and none should wait for this import. The
    # module has no types.
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.log_errors = False
    try:
        if program_bytes < MAX_PATTERN_MEMORY_BYTES:
            options.max_mem = program_bytes
            re2.compile(pattern, options=options)
        options.max_mem = MAX_PATTERN_MEMORY_BYTES
        for_line = re2.compile(pattern, options=options)
        for_lines = None
        if not _TELLS_TEXT_FROM_LINE.search(pattern):
            options.never_nl = True
            for_lines = re2.compile(f"(?m:{pattern})", options=options)
    except cast("type[Exception]", re2.error):
        return None
    finally:
        # Its own cache would hold a hundred patterns, of the said size each.
        re2.purge()
    return LinearPattern(for_line, for_lines)


def split_lines(text: str) -> list[str]:
    """Split behind each "\n"; splitlines() would also split at U+2028 and others."""
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


def _content(line: str) -> str:
    return line.removesuffix("\n").strip("\r")
