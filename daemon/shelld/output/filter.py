"""Only the lines that a pattern matches, by an engine that cannot stall the daemon.

RE2 comes first, as its time is linear in the text: https://github.com/google/re2/wiki/Syntax. What
it refuses (lookaround, backreferences and whatever else needs backtracking) goes to Python's `re`,
in a process of its own that is killed when its time is up.

RE2's cost in Python is by the call and not by the byte. So it is not asked about each line but for
the next match in many of them, with line ends made unmatchable, which comes to the same.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from functools import lru_cache
from typing import Any, Final, Protocol, cast

import anyio
import anyio.to_thread

from shelld.keeper.pool import RunnerPool
from shelld.output.backtracking import BacktrackingFilter
from shelld_protocol.errors import invalid_params, resource_exhausted
from shelld_protocol.structs import FilterEngine

MAX_PATTERN_CHARACTERS: Final = 10_000

# Of one compiled pattern, and how many are kept. The former is RE2's own default; said here because
# it is a promise.
MAX_PATTERN_MEMORY_BYTES: Final = 8 * 1024 * 1024
_CACHED_PATTERNS: Final = 8

# Searches by RE2 that go on at once, as each takes a core; others wait. A text smaller than this is
# searched on the spot, as the way to a thread and back takes longer.
_THREADS: Final = 2
_INLINE_CHARACTERS: Final = 4 * 1024

# Processes that backtrack, or wait for more to do so.
MAX_BACKTRACKING: Final = 16

# What means something to RE2. A pattern without any of it is looked for as it stands.
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}\r\n")

# Where a word is found more often than this, to look at each line is faster than to look for the
# next one.
_SPARSE_CHARACTERS: Final = 400

# What tells one line from a text of many: the text's own beginning and end, flags switched off,
# bytes, and quoting that could hide any of those.
_TELLS_TEXT_FROM_LINE: Final = re.compile(r"\\[AzQC]|\(\?[A-Za-z]*-")


class LineFilter(Protocol):
    """`engine` is the one that decides what matches."""

    engine: FilterEngine

    async def lines(self, text: str) -> str:
        """Return the lines of `text` that match, each with the line end it had.

        A line ends at "\\n" alone. A "\\r" before that, or at the beginning, is no part of what is
        matched. Raises `RpcError` (invalid_params) if the pattern needs more than it may have.
        """
        ...


class Filters:
    """Makes filters, and bounds what they may take together. `pool` runs those that backtrack."""

    def __init__(self, pool: RunnerPool) -> None:
        self._pool = pool
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._backtracking = 0

    @asynccontextmanager
    async def open(self, pattern: str | None) -> AsyncGenerator[LineFilter | None]:
        """Provide the filter for a pattern, None for None.

        Raises `RpcError`: invalid_params for a pattern that no engine takes, resource_exhausted.
        """
        if pattern is None:
            yield None
            return
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            reason = f"longer than {MAX_PATTERN_CHARACTERS} characters"
            raise invalid_params(f"Invalid filter regex: {reason}", "filter")
        if _SPECIAL.isdisjoint(pattern):
            yield _LiteralFilter(pattern)
            return
        linear = _compile(pattern)
        if linear is not None:
            yield _LinearFilter(linear, self._threads)
            return
        if self._backtracking >= MAX_BACKTRACKING:
            sentence = f"Too many reads have a filter that backtracks: {MAX_BACKTRACKING}"
            raise resource_exhausted("filters", sentence)
        self._backtracking += 1
        try:
            with closing(BacktrackingFilter(self._pool)) as line_filter:
                await line_filter.compile(pattern)
                yield line_filter
        finally:
            self._backtracking -= 1


def split_lines(text: str) -> list[str]:
    """Split behind each "\\n"; splitlines() would also split at U+2028 and others."""
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


def _content(line: str) -> str:
    return line.removesuffix("\n").strip("\r")


class _LiteralFilter:
    """A word: faster to look for than any engine could be asked."""

    engine: FilterEngine = "re2"

    def __init__(self, word: str) -> None:
        self._word = word

    async def lines(self, text: str) -> str:
        word = self._word
        found: list[str] = []
        end = 0
        for _ in range(len(text) // _SPARSE_CHARACTERS + 1):
            position = text.find(word, end)
            if position < 0:
                return "".join(found)
            begin = text.rfind("\n", end, position) + 1 or end
            end = text.find("\n", position) + 1 or len(text)
            found.append(text[begin:end])
        found += [line for line in split_lines(text[end:]) if word in line]
        return "".join(found)


class _Linear:
    """A pattern that RE2 has compiled: as it is, and for many lines at once if it can be."""

    def __init__(self, for_line: Any, for_lines: Any | None) -> None:
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


class _LinearFilter:
    engine: FilterEngine = "re2"

    def __init__(self, pattern: _Linear, threads: anyio.CapacityLimiter) -> None:
        self._pattern = pattern
        self._threads = threads

    async def lines(self, text: str) -> str:
        search = self._pattern.matching_lines
        if len(text) <= _INLINE_CHARACTERS:
            return search(text)
        return await anyio.to_thread.run_sync(
            search, text, abandon_on_cancel=True, limiter=self._threads
        )


@lru_cache(maxsize=_CACHED_PATTERNS)
def _compile(pattern: str) -> _Linear | None:
    """Return what RE2 makes of a pattern, None if it refuses it."""
    # Here and not above: most clients never filter, and none should wait for this import. The
    # module has no types.
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    try:
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
    return _Linear(for_line, for_lines)
