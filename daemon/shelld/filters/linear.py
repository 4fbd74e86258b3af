"""Selects the lines that a pattern matches.

Uses RE2, which takes time that is linear in the length of the text.

Pure. The helper process also imports this module. So this module imports no other module of shelld.
See https://github.com/google/re2/wiki/Syntax.

In Python, a call of RE2 costs more than the search itself. So one call searches many lines for the
next match. No match can contain a line end, so the result is the same as with one call for each
line.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Final, cast

# The maximum memory of each compiled pattern. This is RE2's own default. It is set here because
# shelld documents it.
MAX_PATTERN_MEMORY_BYTES: Final = 8 * 1024 * 1024

# This syntax may match a line differently if the line is a part of a longer text: \A and \z (the
# ends of the text), \C (a byte), and flags that are switched off. \Q is included, because quoted
# text could hide such syntax.
_TELLS_TEXT_FROM_LINE: Final = re.compile(r"\\[AzQC]|\(\?[A-Za-z]*-")


class LinearPattern:
    """A pattern that RE2 has compiled to search one line and, if possible, many lines at once.

    `instructions` is the size of the compiled program. At worst, a search takes a few nanoseconds
    for each byte of the text and each instruction.
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
    """Compile a pattern with RE2. Return None if RE2 refuses the pattern.

    RE2 also refuses a program that would take more than about two thirds of `program_bytes`. With a
    larger `program_bytes`, RE2 needs more time to find out whether it refuses a pattern.
    """
    # Import this here, because most clients never filter, and no client should wait for this
    # import. The module `re2` has no types.
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
        # Empty RE2's own cache, which would hold a hundred patterns of up to the maximum size.
        re2.purge()
    return LinearPattern(for_line, for_lines)


def split_lines(text: str) -> list[str]:
    """Split a text after each "\\n". splitlines() would also split at U+2028."""
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


def _content(line: str) -> str:
    return line.removesuffix("\n").strip("\r")
