"""An example of a third-party package with tools."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from anyio import to_thread

from shelld.tools import BaseTool, ExecutionContext, ToolCategory, ToolParameter, ToolResult


class Reverse(BaseTool):
    @property
    def name(self) -> str:
        return "Reverse"

    @property
    def description(self) -> str:
        return "Returns a text backwards."

    @property
    def category(self) -> ToolCategory:
        return ToolCategory.OTHER

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        return [ToolParameter("text", "string", "The text", min_length=1)]

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        print("this must not end up among the answers")  # noqa: T201
        return ToolResult.ok(params["text"][::-1], length=len(params["text"]))


class Unshowable(Reverse):
    """A tool whose result has no JSON form."""

    @property
    def name(self) -> str:
        return "Unshowable"

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        return ToolResult.ok(object())


@dataclasses.dataclass
class Unhashable(Reverse):
    """A tool whose result contains values such as NumPy's: their types are subclasses of built-in
    types.
    """

    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    @property
    def name(self) -> str:
        return "Unhashable"

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        values = [self.Text(params["text"]), type("Number", (float,), {})(0.5), signal.SIGTERM]
        return ToolResult.ok(values)


class Nested(Unshowable):
    """A tool whose result contains itself."""

    @property
    def name(self) -> str:
        return "Nested"

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        output: list[Any] = []
        output.append(output)
        return ToolResult.ok(output)


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


class Ending(Reverse):
    """A tool that cancels its own task, returns an invalid result, or raises an exception that
    ends programs.
    """

    @property
    def name(self) -> str:
        return "Ending"

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        if params["text"] == "cancelled":
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task
        if params["text"] == "own task":
            cancel_own_task()
            await asyncio.sleep(60)
        if params["text"] == "own task at its end":
            cancel_own_task()
            return ToolResult.ok("done")
        if params["text"] == "own task, and go on":
            cancel_own_task()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return ToolResult.ok("done")
        if params["text"] == "wrong":
            return ToolResult.fail(5)  # type: ignore[arg-type] # pyright: ignore
        if params["text"] == "exit":
            sys.exit(3)
        if params["text"] == "interrupt":
            raise KeyboardInterrupt
        raise BaseExceptionGroup("several", [SystemExit(3)])


async def ignore_cancellation() -> NoReturn:
    print("cancellation is ignored")  # noqa: T201
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


def sleep_in_thread() -> None:
    print("a thread sleeps")  # noqa: T201
    time.sleep(100)


# The event loop keeps no reference to its tasks, so this list keeps them alive.
tasks: list[asyncio.Task[Any]] = []


class Staying(Reverse):
    """A tool that ignores cancellation, or leaves behind a task or thread that keeps running."""

    @property
    def name(self) -> str:
        return "Staying"

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        if params["text"] == "itself":
            await ignore_cancellation()
        elif params["text"] == "task":
            tasks.append(asyncio.create_task(ignore_cancellation()))
            await asyncio.sleep(60)
        else:
            await to_thread.run_sync(sleep_in_thread, abandon_on_cancel=True)
        return ToolResult.ok("done")


def several() -> list[BaseTool]:
    return [Unshowable(), Unhashable(), Nested(), Ending(), Staying()]


def broken() -> NoReturn:
    raise RuntimeError("broken on purpose")


def leaving() -> NoReturn:
    raise SystemExit(3)


class Bash(Reverse):
    """A tool that has the name of another tool."""

    @property
    def name(self) -> str:
        return "Bash"


def nothing_of_use() -> object:
    return object()
