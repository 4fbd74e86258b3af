"""Yields the results of many commands, in the order of the commands. Does not use Ray.

Owns the tasks that run commands, each until its result is taken or the iteration ends. Invariant:
the number of running commands and of results that were not taken yet is bounded.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sized,
)
from contextlib import aclosing
from importlib import import_module
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from shelld_client.errors import ShellError
from shelld_protocol.shell_methods import BashResult

R = TypeVar("R")

Run: TypeAlias = Callable[[str], Coroutine[Any, Any, BashResult]]

# `_Window` holds the commands that have begun and whose results the caller has not taken. Its
# maximum size is this number, multiplied by the number of commands that may run at once. So while
# the oldest command is slow, other commands can begin and end.
_AHEAD: Final = 4


class Results(Generic[R]):
    """Iterate over the object with ``async for``, or ``await`` it for a list.

    Results come in the order of the commands. Each result comes as soon as all results before it
    have come. If the caller leaves the iteration, the running commands are cancelled, and no more
    commands begin.
    """

    def __init__(
        self,
        run: Run,
        commands: Iterable[str],
        *,
        at_once: Callable[[], int],
        returns_errors: bool,
        progress: bool,
    ) -> None:
        self._run = run
        self._commands = commands
        self._at_once = at_once
        self._returns_errors = returns_errors
        self._bar_of = _progress_bars() if progress else None

    def __aiter__(self) -> AsyncGenerator[R]:
        return self._iterate()

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._collect().__await__()

    async def _collect(self) -> list[R]:
        async with aclosing(self._iterate()) as results:
            return [each async for each in results]

    async def _iterate(self) -> AsyncGenerator[R]:
        commands = self._commands
        total = len(commands) if isinstance(commands, Sized) else None
        bar = None if self._bar_of is None else self._bar_of(total=total, unit="command")
        window = _Window(self._run, iter(commands), self._at_once, bar)
        try:
            while task := await window.next():
                try:
                    result: BashResult | ShellError = task.result()
                except ShellError as error:
                    if not self._returns_errors:
                        raise
                    result = error
                yield cast("R", result)
        finally:
            await window.close()


class _Window:
    """Holds the commands that have begun and whose results were not taken yet."""

    def __init__(
        self, run: Run, commands: Iterator[str], at_once: Callable[[], int], bar: Any
    ) -> None:
        self._run = run
        self._commands = commands
        self._at_once = at_once
        self._bar = bar
        self._tasks = collections.deque[asyncio.Task[BashResult]]()
        self._running = 0
        self._is_exhausted = False
        # The exception that the caller's iterable has raised. The caller gets it after the results
        # of the earlier commands.
        self._error: Exception | None = None

    async def next(self) -> asyncio.Task[BashResult] | None:
        """Wait for the next command in order, and return its task.

        Return None after the last command.
        """
        self._fill()
        if not self._tasks:
            if self._error is not None:
                raise self._error
            return None
        await asyncio.wait([self._tasks[0]])
        return self._tasks.popleft()

    def _fill(self) -> None:
        at_once = self._at_once()
        while (
            not self._is_exhausted
            and self._running < at_once
            and len(self._tasks) < _AHEAD * at_once
        ):
            try:
                command = next(self._commands)
            except StopIteration:
                self._is_exhausted = True
            except Exception as error:
                self._is_exhausted, self._error = True, error
            else:
                task = asyncio.create_task(self._run(command))
                task.add_done_callback(self._ended)
                self._tasks.append(task)
                self._running += 1

    def _ended(self, task: asyncio.Task[BashResult]) -> None:
        self._running -= 1
        if self._bar is not None:
            self._bar.update()
        if not task.cancelled():
            # Do not wait for the caller to take a result: that would leave daemons idle.
            self._fill()

    async def close(self) -> None:
        """Cancel the commands that have begun, and begin no more commands."""
        self._is_exhausted = True
        for task in self._tasks:
            task.cancel()
        if self._bar is not None:
            self._bar.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _progress_bars() -> Callable[..., Any]:
    try:
        bars: Callable[..., Any] = import_module("tqdm").tqdm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a progress bar needs tqdm, which the extra 'ray' has: pip install 'shelld[ray]'",
            name=error.name,
        ) from error
    return bars
