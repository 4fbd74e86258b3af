"""Sample tools for tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from shelld.tools import BaseTool, ExecutionContext, ToolCategory, ToolParameter, ToolResult


class Tools(Protocol):
    """Call a tool by name. `context` holds the values that differ from the default."""

    async def __call__(self, name: str, /, *, context: Any = None, **params: Any) -> ToolResult: ...


CONTEXT = ExecutionContext("/")

Work = Callable[..., Awaitable[ToolResult]]


async def echo(_context: ExecutionContext, message: str = "") -> ToolResult:
    return ToolResult.ok(message)


async def everything(_context: ExecutionContext, **params: Any) -> ToolResult:
    """Return a result whose output is the parameters."""
    return ToolResult.ok(params)


class Sample(BaseTool):
    """A configurable tool. `calls` holds the parameters of each call."""

    def __init__(
        self,
        name: str = "Echo",
        *parameters: ToolParameter,
        work: Work = echo,
        description: str = "Says what it is told.",
        category: ToolCategory = ToolCategory.OTHER,
        aliases: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._parameters = parameters or (ToolParameter("message", "string", "Message to echo"),)
        self._work = work
        self._description = description
        self._category = category
        self.aliases = aliases  # type: ignore[misc]
        self.calls: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def category(self) -> ToolCategory:
        return self._category

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        return self._parameters

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        self.calls.append(params)
        return await self._work(context, **params)


def read_tool() -> Sample:
    return Sample(
        "Read",
        ToolParameter("file_path", "string", "Absolute path to the file"),
        ToolParameter("offset", "integer", "Line number to start from", required=False),
        ToolParameter("limit", "integer", "Maximum lines to read", required=False),
        description="Read contents of a file",
        category=ToolCategory.FILE,
    )


def write_tool() -> Sample:
    return Sample(
        "Write",
        ToolParameter("file_path", "string", "Absolute path to the file"),
        ToolParameter("content", "string", "What to write"),
        category=ToolCategory.FILE,
    )


def bash_tool() -> Sample:
    return Sample(
        "Bash",
        ToolParameter("command", "string", "The command"),
        category=ToolCategory.EXECUTION,
    )
