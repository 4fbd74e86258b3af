"""The tools of a daemon, its own and those of plug-ins, behind ``list_tools`` and ``call_tool``.

They are loaded in a thread, soon after the start or when they are first asked for, so that no
command waits for their imports. If that fails, the requests that wait for them get the error, and
the next one tries again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from anyio import get_cancelled_exc_class
from anyio.lowlevel import current_token

from shelld import faults
from shelld.methods.context import Context, Daemon, RequestContext
from shelld.shells.home import do_soon
from shelld.workers import is_cancelled
from shelld_protocol.errors import RpcError
from shelld_protocol.tool_methods import (
    CallContext,
    CallToolParams,
    ListToolsParams,
    ListToolsResult,
)
from shelld_protocol.tools import ToolResult

if TYPE_CHECKING:
    from shelld.tools import ToolExecutor

# After the start, when the first commands have had their turn.
LOAD_DELAY_S: Final = 0.3


class _Loading:
    """One attempt to load the tools. `outcome` is set before `is_over`."""

    def __init__(self) -> None:
        self.outcome: Future[ToolExecutor] = Future()
        self.is_over = anyio.Event()


class Toolbox:
    """Every method waits until the tools are loaded."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._executor: ToolExecutor | None = None
        self._loading: _Loading | None = None

    async def preload(self) -> None:
        """Load the tools once the first commands have had their turn."""
        await anyio.sleep(LOAD_DELAY_S)
        with suppress(RpcError):
            await self.ready()

    async def ready(self) -> ToolExecutor:
        """Return what executes the tools, once they are loaded.

        Raises `RpcError` (resource_exhausted, internal_error) if they cannot be loaded now.
        """
        if self._executor is None:
            loading = self._loading or self._start_loading()
            await loading.is_over.wait()
            if self._loading is loading:
                self._loading = None
            self._executor = loading.outcome.result()
        return self._executor

    def _start_loading(self) -> _Loading:
        loading, loop = _Loading(), current_token()

        def load() -> None:
            try:
                loading.outcome.set_result(self._load())
            except BaseException as error:
                answer = faults.answer_for(error, "the loading of the tools")
                loading.outcome.set_exception(answer)
            # Nobody waits any more if the daemon has ended.
            with suppress(RuntimeError):
                do_soon(loop, loading.is_over.set)

        # Not a thread that the daemon's end would wait for: a plug-in may do anything.
        threading.Thread(target=load, name="shelld-tools", daemon=True).start()
        self._loading = loading
        return loading

    def _load(self) -> ToolExecutor:
        from shelld.tools import ToolExecutor, ToolRegistry, register_execution_tools  # noqa: PLC0415
        from shelld.tools.plugins import load_plugins  # noqa: PLC0415

        logger = logging.getLogger("shelld.tools")
        if not logger.isEnabledFor(logging.INFO):
            # That a command fails is for the model to know, and nothing to warn of here.
            logger.setLevel(logging.ERROR)
        # An attempt that failed may have left some.
        ToolRegistry.reset()
        registry = ToolRegistry()
        register_execution_tools(registry, self._daemon)
        load_plugins(registry)
        # Nobody can ask a daemon for what it has executed.
        return ToolExecutor(registry, max_executions=0)

    async def list_tools(self, _context: Context, params: ListToolsParams) -> ListToolsResult:
        executor = await self.ready()
        return ListToolsResult(executor.get_all_schemas(params.format))

    async def call_tool(self, context: Context, params: CallToolParams) -> msgspec.Raw:
        """Return a `ToolResult`, encoded."""
        call_context = _call_context(context, params.context or CallContext())
        _, encoded = await self.execute(params.name, params.arguments, call_context)
        return encoded

    async def execute(
        self, name: str, arguments: Mapping[str, Any] | None, context: RequestContext
    ) -> tuple[ToolResult, msgspec.Raw]:
        """Execute a tool; return its result, plain and as JSON.

        A result that JSON cannot express is replaced by a failure.
        """
        executor = await self.ready()
        try:
            result = await executor.execute(name, context, **(arguments or {}))
        except Exception:
            raise
        except BaseException as error:
            if isinstance(error, get_cancelled_exc_class()) and is_cancelled():
                raise
            # `BaseTool` leaves these to the program, and they would end the daemon.
            faults.report("a tool")
            result = ToolResult.fail("Internal error", kind="internal_error")
        try:
            return result, msgspec.Raw(msgspec.json.encode(result))
        except (TypeError, ValueError, RecursionError):
            failure = ToolResult.fail(f"The result of {name} has no JSON")
            return failure, msgspec.Raw(msgspec.json.encode(failure))


def _call_context(request: Context, given: CallContext) -> RequestContext:
    context = RequestContext(
        given.working_dir or "",
        given.session_id,
        given.agent_id,
        given.dry_run,
        math.inf if given.timeout is None else given.timeout,
        request=request,
    )
    if given.max_output_size is not None:
        context.max_output_size = given.max_output_size
    if given.metadata is not None:
        context.metadata = given.metadata
    return context
