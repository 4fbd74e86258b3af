"""Selects the lines that a pattern matches, with engines that cannot block the daemon.

Each pattern goes to RE2 first, because RE2 takes time that is linear in the length of the text. RE2
refuses lookaround, backreferences and other syntax that needs backtracking. Such patterns go to
Python's `re`, in a helper process that is killed when its time is up. RE2 also runs in the helper
process if matching could take long: with a large pattern, or with a long line and a medium-sized
pattern.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import lru_cache, partial
from typing import Final, Protocol

import anyio

from shelld.eventloop.threads import run_in_thread
from shelld.filters.linear import LinearPattern, compile_linear, split_lines
from shelld.filters.process import FilterProcess, refused_pattern
from shelld.keeper.pool import RunnerPool
from shelld_protocol.errors import resource_exhausted
from shelld_protocol.structs import FilterEngine

MAX_PATTERN_CHARACTERS: Final = 10_000

# The limits for the text of a pattern, and for the program that RE2 compiles from the pattern. The
# helper process compiles patterns beyond these limits, because compiling them can take a tenth of a
# second. If the daemon compiled them, none of its other threads could run during this time.
_INLINE_PATTERN_CHARACTERS: Final = 1_000
_INLINE_PROGRAM_BYTES: Final = 512 * 1024
_CACHED_PATTERNS: Final = 8

# The maximum number of RE2 searches in threads at the same time. Each search keeps a core busy, so
# further searches wait. A text of at most `_INLINE_CHARACTERS` is searched on the event loop,
# because a search in a thread takes longer.
_THREADS: Final = 2
_INLINE_CHARACTERS: Final = 4 * 1024

# The work of a search is the number of characters times the number of instructions of the pattern.
# `_INLINE_WORK` limits a search on the event loop, and `_THREAD_WORK` limits one call in a thread.
# At worst, RE2 does a few hundred million units of work a second.
_INLINE_WORK: Final = 400_000
_THREAD_WORK: Final = 100_000_000

# The maximum number of helper processes, including idle processes.
MAX_PROCESSES: Final = 16

# A pattern without any of these characters is a literal.
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}\r\n")

# A distance between two occurrences of a word, in characters. If the average distance in a text is
# shorter than this, it is faster to check each line than to search for the next occurrence.
_SPARSE_CHARACTERS: Final = 400


class LineFilter(Protocol):
    """Selects matching lines. `engine`: the engine that decides which lines match."""

    engine: FilterEngine

    def renew(self) -> None:
        """Restart the time budget."""

    async def lines(self, text: str) -> str:
        """Return the lines of `text` that match, each with its line end.

        A line ends only at "\\n". The pattern does not see this "\\n", or any "\\r" at the start
        or the end of the line. Raises `RpcError` (invalid_params) if the pattern needs more time or
        memory than allowed.
        """
        ...


class Filters:
    """Creates filters, and limits their total resources. `pool` starts helper processes."""

    def __init__(self, pool: RunnerPool) -> None:
        self._pool = pool
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._processes = 0

    @asynccontextmanager
    async def open(
        self, pattern: str | None, parameter: str = "filter"
    ) -> AsyncGenerator[LineFilter | None]:
        """Provide the filter for a pattern; None if `pattern` is None.

        `parameter` names the pattern in errors.

        Raises `RpcError`: invalid_params for a pattern that no engine accepts, resource_exhausted
        if no helper process is available.
        """
        if pattern is None:
            yield None
            return
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise refused_pattern(f"longer than {MAX_PATTERN_CHARACTERS} characters", parameter)
        if not _is_unicode(pattern):
            raise refused_pattern("it has lone surrogates", parameter)
        if _SPECIAL.isdisjoint(pattern):
            yield _LiteralFilter(pattern)
            return
        with ExitStack() as resources:
            start_process = partial(self._start_process, pattern, parameter, resources)
            linear = _compile(pattern)
            if linear is None:
                yield await start_process()
            else:
                yield _LinearFilter(linear, self._threads, start_process)

    async def _start_process(
        self, pattern: str, parameter: str, resources: ExitStack
    ) -> LineFilter:
        """Start a helper process. `resources` ends the process. Raises `RpcError`."""
        if self._processes >= MAX_PROCESSES:
            sentence = f"Too many filters need a helper process: the limit is {MAX_PROCESSES}"
            raise resource_exhausted("filters", sentence)
        self._processes += 1
        resources.callback(self._process_ended)
        process = resources.enter_context(closing(FilterProcess(self._pool, parameter)))
        await process.compile(pattern)
        return process

    def _process_ended(self) -> None:
        self._processes -= 1


def portions(text: str, size: int) -> Iterator[str]:
    """Split a text after line ends. If possible, each part has at most `size` characters."""
    begin = 0
    while begin < len(text):
        end = len(text)
        if end - begin > size:
            end = text.rfind("\n", begin, begin + size) + 1
            end = end or text.find("\n", begin + size) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates.

    Text that came in a message never contains lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _LiteralFilter:
    """Selects the lines that contain a literal word.

    Searching for the word directly is faster than calling an engine.
    """

    engine: FilterEngine = "re2"

    def __init__(self, word: str) -> None:
        self._word = word

    def renew(self) -> None:
        """Do nothing, because a literal search has no time limit."""

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
    """Runs RE2 on the event loop, in a thread, or in the helper process, depending on the work.

    A thread cannot be stopped, so a thread never gets work that could take long. A cancelled
    request waits for its thread, so the number of running threads stays within the limit.
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
            # Only a single line can exceed this limit, because `portions` splits longer texts.
            if self._process is None:
                self._process = await self._start_process()
            return await self._process.lines(text)
        if len(text) <= _INLINE_CHARACTERS and work <= _INLINE_WORK:
            return search(text)
        return await run_in_thread(search, text, limiter=self._threads)


@lru_cache(maxsize=_CACHED_PATTERNS)
def _compile(pattern: str) -> LinearPattern | None:
    """Compile a pattern with RE2.

    Return None if RE2 refuses the pattern, or if compiling could take long.
    """
    if len(pattern) > _INLINE_PATTERN_CHARACTERS:
        return None
    return compile_linear(pattern, _INLINE_PROGRAM_BYTES)
