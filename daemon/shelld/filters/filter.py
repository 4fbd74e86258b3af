"""Only the lines that a pattern matches, by an engine that cannot stall the daemon.

RE2 comes first, as its time is linear in the text. What it refuses (lookaround, backreferences and
whatever else needs backtracking) goes to Python's `re`. That is in a process of its own, which is
killed when its time is up. RE2 itself works there if it could take long: with a large pattern, or
with a long line and a pattern that is not small.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import lru_cache, partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from shelld.filters.linear import LinearPattern, compile_linear, split_lines
from shelld.filters.process import FilterProcess
from shelld.keeper.pool import RunnerPool
from shelld_protocol.errors import invalid_params, resource_exhausted
from shelld_protocol.structs import FilterEngine

MAX_PATTERN_CHARACTERS: Final = 10_000

# A pattern that is longer, or compiles to more, is compiled in the other process: it can take a
# tenth of a second, in which no thread of this one could do anything else.
_INLINE_PATTERN_CHARACTERS: Final = 1_000
_INLINE_PROGRAM_BYTES: Final = 512 * 1024
_CACHED_PATTERNS: Final = 8

# Searches by RE2 that go on at once, as each takes a core; others wait. A text smaller than this is
# searched on the spot, as the way to a thread and back takes longer.
_THREADS: Final = 2
_INLINE_CHARACTERS: Final = 4 * 1024

# Characters times instructions of the pattern, of which RE2 does a few hundred million a second at
# worst: what is done on the spot, and in a thread at once.
_INLINE_WORK: Final = 400_000
_THREAD_WORK: Final = 100_000_000

# Processes that search, or wait for more to search.
MAX_PROCESSES: Final = 16

# What means something to RE2. A pattern without any of it is looked for as it stands.
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}\r\n")

# Where a word is found more often than this, to look at each line is faster than to look for the
# next one.
_SPARSE_CHARACTERS: Final = 400


class LineFilter(Protocol):
    """`engine` is the one that decides what matches."""

    engine: FilterEngine

    def renew(self) -> None:
        """Begin to count the time that this may take from zero."""

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
        self._processes = 0

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
        if not _is_unicode(pattern):
            raise invalid_params("Invalid filter regex: it has lone surrogates", "filter")
        if _SPECIAL.isdisjoint(pattern):
            yield _LiteralFilter(pattern)
            return
        with ExitStack() as resources:
            start_process = partial(self._start_process, pattern, resources)
            linear = _compile(pattern)
            if linear is None:
                yield await start_process()
            else:
                yield _LinearFilter(linear, self._threads, start_process)

    async def _start_process(self, pattern: str, resources: ExitStack) -> LineFilter:
        """Start a process that filters, which `resources` end. Raises `RpcError`."""
        if self._processes >= MAX_PROCESSES:
            sentence = f"Too many reads have a filter that needs a process: {MAX_PROCESSES}"
            raise resource_exhausted("filters", sentence)
        self._processes += 1
        resources.callback(self._process_ended)
        process = resources.enter_context(closing(FilterProcess(self._pool)))
        await process.compile(pattern)
        return process

    def _process_ended(self) -> None:
        self._processes -= 1


def portions(text: str, size: int) -> Iterator[str]:
    """Split a text behind line ends, if possible into parts of at most `size` characters."""
    begin = 0
    while begin < len(text):
        end = len(text)
        if end - begin > size:
            end = text.rfind("\n", begin, begin + size) + 1
            end = end or text.find("\n", begin + size) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates. That of a message has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _LiteralFilter:
    """A word: faster to look for than any engine could be asked."""

    engine: FilterEngine = "re2"

    def __init__(self, word: str) -> None:
        self._word = word

    def renew(self) -> None:
        """Its time is not limited."""

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


class _LinearFilter:
    """RE2, in a place that suits the work: on the spot, in a thread, or in another process.

    A thread cannot be stopped, so it never gets what could take long; and whoever gives up waits
    for it, so that there are never more threads at work than there may be.
    """

    engine: FilterEngine = "re2"

    def __init__(
        self,
        pattern: LinearPattern,
        threads: anyio.CapacityLimiter,
        start_process: Callable[[], Awaitable[LineFilter]],
    ) -> None:
        self._pattern = pattern
        self._threads = threads
        self._start_process = start_process
        self._process: LineFilter | None = None

    def renew(self) -> None:
        if self._process is not None:
            self._process.renew()

    async def lines(self, text: str) -> str:
        most = max(1, _THREAD_WORK // self._pattern.instructions)
        return "".join([await self._lines(part) for part in portions(text, most)])

    async def _lines(self, text: str) -> str:
        search = self._pattern.matching_lines
        work = len(text) * self._pattern.instructions
        if work > _THREAD_WORK:
            # A long line.
            if self._process is None:
                self._process = await self._start_process()
            return await self._process.lines(text)
        if len(text) <= _INLINE_CHARACTERS and work <= _INLINE_WORK:
            return search(text)
        return await anyio.to_thread.run_sync(search, text, limiter=self._threads)


@lru_cache(maxsize=_CACHED_PATTERNS)
def _compile(pattern: str) -> LinearPattern | None:
    """Return what RE2 makes of a pattern, None if it refuses it or that takes long to tell."""
    if len(pattern) > _INLINE_PATTERN_CHARACTERS:
        return None
    return compile_linear(pattern, _INLINE_PROGRAM_BYTES)
