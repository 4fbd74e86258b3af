"""The tools of a daemon, its own and those of plug-ins, behind ``list_tools`` and ``call_tool``.

They are loaded in a thread, soon after the start or when they are first asked for, so that no
command waits for their imports.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import msgspec

from shelld.methods.context import Context, Daemon
from shelld_protocol.tool_methods import (
    CallContext,
    CallToolParams,
    ListToolsParams,
    ListToolsResult,
)
from shelld_protocol.tools import ExecutionContext, ToolResult

if TYPE_CHECKING:
    from shelld.tools import ToolExecutor

# After the start, when the first commands have had their turn.
LOAD_DELAY_S: Final = 0.3


class Toolbox:
    """`load` fills it; until then, who asks waits for that."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._executor: ToolExecutor | None = None
        self._loading = anyio.Lock()

    async def load_soon(self) -> None:
        await anyio.sleep(LOAD_DELAY_S)
        await self.load()

    async def load(self) -> ToolExecutor:
        """Return the executor, once all tools are registered."""
        async with self._loading:
            if self._executor is None:
                self._executor = await anyio.to_thread.run_sync(self._load, abandon_on_cancel=True)
        return self._executor

    def _load(self) -> ToolExecutor:
        from shelld.tools import ToolExecutor, ToolRegistry, register_execution_tools  # noqa: PLC0415
        from shelld.tools.plugins import load_plugins  # noqa: PLC0415

        logger = logging.getLogger("shelld.tools")
        if not logger.isEnabledFor(logging.INFO):
            # That a command fails is for the model to know, and nothing to warn of here.
            logger.setLevel(logging.ERROR)
        registry = ToolRegistry()
        register_execution_tools(registry, self._daemon)
        load_plugins(registry)
        # Nobody can ask a daemon for what it has executed.
        return ToolExecutor(registry, max_executions=0)

    async def list_tools(self, _context: Context, params: ListToolsParams) -> ListToolsResult:
        executor = await self.load()
        return ListToolsResult(executor.get_all_schemas(params.format))

    async def call_tool(self, _context: Context, params: CallToolParams) -> msgspec.Raw:
        """Return a `ToolResult`, encoded."""
        executor = self._executor or await self.load()
        context = _execution_context(params.context or CallContext())
        result = await executor.execute(params.name, context, **(params.arguments or {}))
        try:
            return msgspec.Raw(msgspec.json.encode(result))
        except (TypeError, ValueError):
            failure = ToolResult.fail(f"The result of {params.name} has no JSON")
            return msgspec.Raw(msgspec.json.encode(failure))


def _execution_context(given: CallContext) -> ExecutionContext:
    context = ExecutionContext(
        given.working_dir or "",
        given.session_id,
        given.agent_id,
        given.dry_run,
        math.inf if given.timeout is None else given.timeout,
    )
    if given.max_output_size is not None:
        context.max_output_size = given.max_output_size
    if given.metadata is not None:
        context.metadata = given.metadata
    return context
