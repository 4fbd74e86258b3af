"""Selects the lines that a pattern matches. Uses RE2, whose time is linear in the text.

Pure. The helper process imports this module, too. So this module imports nothing else of shelld.
See https://github.com/google/re2/wiki/Syntax.

In Python, calling RE2 costs more than examining the bytes. So one call searches many lines for the
next match. No match can contain a line end, so the result is the same as with one call for each
line.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Final, cast

# For each compiled pattern. This is RE2's own default, set here because shelld promises it.
MAX_PATTERN_MEMORY_BYTES: Final = 8 * 1024 * 1024

# Syntax that may match differently in one line and in a text of many lines: \A and \z (the ends of
# the text), flags switched off, and \C (a byte). Also \Q: quoted text could hide such syntax.
_TELLS_TEXT_FROM_LINE: Final = re.compile(r"\\[AzQC]|\(\?[A-Za-z]*-")


class LinearPattern:
    """A pattern compiled by RE2: for one line and, if possible, for many lines at once.

    `instructions` is the size of its program. At worst, a search takes a few nanoseconds for each
    byte of the text and each instruction.
    """

    def __init__(self, for_line: Any, for_lines: Any | None) -> None:
        self.instructions: int = for_line.programsize
        self._for_line = for_line
        self._for_lines = for_lines

    def matching_lines(self, text: str) -> str:
        # RE2 lets other threads run while it searches bytes, but not while it converts text.
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
    """Compile a pattern with RE2; return None if RE2 refuses it.

    RE2 also refuses a program that would take more than about two thirds of `program_bytes`. RE2
    needs more time to find that out if `program_bytes` is larger.
    """
    # Import here: most clients never filter, and none should wait for this import. The module `re2`
    # has no types.
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
        # RE2's own cache would hold a hundred patterns of up to the maximum size.
        re2.purge()
    return LinearPattern(for_line, for_lines)


def split_lines(text: str) -> list[str]:
    """Split after each "\\n"; splitlines() would also split at U+2028 and other characters."""
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


def _content(line: str) -> str:
    return line.removesuffix("\n").strip("\r")
