"""Executes tools by name and keeps a history of the results. The executor is thread-safe.

The history has a maximum number of entries and a maximum size.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from shelld.tools.base import BaseTool, checked
from shelld.tools.log import log_call, log_result, logger
from shelld.tools.registry import ToolRegistry
from shelld_protocol.tool_methods import ToolFormat
from shelld_protocol.tools import ExecutionContext, ToolCategory, ToolResult

MAX_EXECUTIONS: Final = 10_000
# The maximum number of characters that the history keeps, in results and parameters together.
MAX_HISTORY_CHARACTERS: Final = 32 * 1024 * 1024


class ToolExecution(Struct, frozen=True):
    """`started_at` and `completed_at` are in UTC."""

    tool_name: str
    parameters: dict[str, Any]
    result: ToolResult
    started_at: datetime
    completed_at: datetime
    duration_ms: float


class ToolExecutor:
    """Without `registry`, the executor uses the registry of the process. With 0 for
    `max_executions`, it keeps no history.
    """

    def __init__(
        self, registry: ToolRegistry | None = None, *, max_executions: int = MAX_EXECUTIONS
    ) -> None:
        self.registry = ToolRegistry() if registry is None else registry
        self._max_executions = max_executions
        self._lock = threading.Lock()
        self._executions: deque[ToolExecution] = deque()
        self._characters = 0

    async def execute(
        self, tool_name: str, context: ExecutionContext, /, **params: Any
    ) -> ToolResult:
        """Execute a tool and return its result. For an unknown tool, the result is a failure."""
        tool = self.registry.get(tool_name)
        if tool is None:
            logger.warning("Unknown tool: %.100s", tool_name)
            return self.registry.unknown(tool_name)
        log_call(tool.name, params)
        started_at, began = datetime.now(UTC), time.perf_counter()
        # Check the result again, because a tool may override `execute`.
        result = checked(tool.name, await tool.execute(context, **params))
        duration_ms = (time.perf_counter() - began) * 1000
        log_result(tool.name, result)
        self._remember(
            ToolExecution(tool.name, params, result, started_at, datetime.now(UTC), duration_ms)
        )
        return result

    def _remember(self, execution: ToolExecution) -> None:
        if not self._max_executions:
            return
        with self._lock:
            self._executions.append(execution)
            self._characters += _characters_of(execution)
            while self._executions and (
                len(self._executions) > self._max_executions
                or self._characters > MAX_HISTORY_CHARACTERS
            ):
                self._characters -= _characters_of(self._executions.popleft())

    def get_executions(self) -> list[ToolExecution]:
        """Return the history, with the oldest execution first."""
        with self._lock:
            return list(self._executions)

    def clear_executions(self) -> None:
        with self._lock:
            self._executions.clear()
            self._characters = 0

    def get_all_schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:  # noqa: A002
        """Return the schemas of all tools for the API `format`."""
        return _schemas(self.registry.list_all(), format)

    def get_schemas_by_category(
        self,
        category: ToolCategory,
        format: ToolFormat = "openai",  # noqa: A002
    ) -> list[dict[str, Any]]:
        return _schemas(self.registry.list_by_category(category), format)


def _schemas(tools: list[BaseTool], format: ToolFormat) -> list[dict[str, Any]]:  # noqa: A002
    return [tool.to_schema(format) for tool in tools]


def _characters_of(execution: ToolExecution) -> int:
    values = (*execution.parameters.values(), execution.result.output, execution.result.error)
    return sum(len(value) for value in values if isinstance(value, str))
