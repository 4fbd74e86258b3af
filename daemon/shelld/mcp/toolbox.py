"""Loads the daemon's own tools and those of plug-ins for ``list_tools`` and ``call_tool``.

A thread loads the tools soon after the start, or when a request first needs them, so that no
command waits for their imports. The thread loads the daemon's own tools first, and calls of these
tools do not wait for plug-ins. If loading fails, the waiting requests get the error, and the next
request tries again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
import msgspec
from anyio import get_cancelled_exc_class
from anyio.lowlevel import EventLoopToken, current_token

from shelld.eventloop.threads import Thread
from shelld.eventloop.threadsafe import call_threadsafe
from shelld.eventloop.workers import scope_is_cancelled
from shelld.methods.context import Daemon, RequestContext, ToolContext
from shelld.process import faults
from shelld_protocol.encoding import encode
from shelld_protocol.errors import RpcError
from shelld_protocol.tool_methods import (
    CallContext,
    CallToolParams,
    ListToolsParams,
    ListToolsResult,
    ToolFormat,
)
from shelld_protocol.tools import ToolResult

if TYPE_CHECKING:
    from shelld.tools import BaseTool, ToolRegistry
    from shelld.tools.plugins import Schemas

T = TypeVar("T")

# How long after its start the daemon loads the tools. Because of the delay, loading the tools does
# not slow down the first commands, and a daemon that ends soon never loads the tools. If a host
# lists the tools earlier, the daemon loads them at once for this request.
LOAD_DELAY_S: Final = 1.0


class _Stage(Generic[T]):
    """One stage of loading the tools. `outcome` is set before `over`."""

    def __init__(self) -> None:
        self.outcome: Future[T] = Future()
        self.over = anyio.Event()

    def end(self, loop: EventLoopToken, load: Callable[[], T]) -> None:
        """Store the result of `load`, or the error for the waiting requests, and wake these
        requests.
        """
        try:
            self.outcome.set_result(load())
        except BaseException as error:
            self.outcome.set_exception(faults.answer_for(error, "the loading of the tools"))
        # If the event loop has ended, no request waits any more.
        with suppress(RuntimeError):
            call_threadsafe(loop, self.over.set)


class _Loading:
    """One attempt to load the tools. It loads the daemon's own tools before those of plug-ins."""

    thread: Thread[None]

    def __init__(self) -> None:
        self.own: _Stage[ToolRegistry] = _Stage()
        self.all: _Stage[list[Schemas]] = _Stage()


class Toolbox:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._loading: _Loading | None = None

    async def preload(self) -> None:
        """Load the tools after a delay, in which the first commands may run."""
        await anyio.sleep(LOAD_DELAY_S)
        with suppress(RpcError):
            await self.schemas("mcp")

    async def ready(self) -> ToolRegistry:
        """Return the registry of tools, once the daemon's own tools are loaded.

        Raises `RpcError` (resource_exhausted, internal_error) if they cannot be loaded now, and
        RuntimeError or MemoryError if loading needs a thread and none can start.
        """
        loading = self._loading or self._start_loading()
        return await self._outcome_of(loading, loading.own)

    async def schemas(self, format: ToolFormat) -> list[dict[str, Any]]:  # noqa: A002
        """Return the schemas of all tools, including those of plug-ins. Raises `RpcError`.

        `format`: the API that the schemas are for.
        """
        loading = self._loading or self._start_loading()
        return [each[format] for each in await self._outcome_of(loading, loading.all)]

    async def find(self, name: str) -> BaseTool | None:
        """Return a tool of the daemon or of a plug-in. Raises `RpcError`."""
        registry = await self.ready()
        if not registry.exists(name):
            await self.schemas("mcp")
        return registry.get(name)

    async def _outcome_of(self, loading: _Loading, stage: _Stage[T]) -> T:
        try:
            while not stage.outcome.done():
                if loading.thread.has_ended:
                    # The thread had too little memory to store even the outcome.
                    raise MemoryError
                await loading.thread.wait(stage.over)
            return stage.outcome.result()
        except Exception:
            if self._loading is loading:
                self._loading = None
            raise

    def _start_loading(self) -> _Loading:
        from shelld.embed import ShellManager  # noqa: PLC0415

        # A tool of a plug-in may use the manager of this process.
        ShellManager.adopt(self._daemon.manager)
        loading, loop = _Loading(), current_token()

        def load() -> None:
            loading.own.end(loop, self._load)
            loading.all.end(loop, lambda: self._load_plugins(loading.own.outcome.result()))

        loading.thread = Thread(load)
        loading.thread.start()
        self._loading = loading
        return loading

    def _load(self) -> ToolRegistry:
        from shelld.tools import ToolRegistry, register_execution_tools  # noqa: PLC0415

        logger = logging.getLogger("shelld.tools")
        if not logger.isEnabledFor(logging.INFO):
            # A failed command concerns only the model, so this log has no warning about it.
            logger.setLevel(logging.ERROR)
        # A failed attempt may have registered some tools.
        ToolRegistry.reset()
        registry = ToolRegistry()
        interactive = self._daemon.options.interactive_tools
        register_execution_tools(registry, self._daemon, interactive=interactive)
        return registry

    def _load_plugins(self, registry: ToolRegistry) -> list[Schemas]:
        from shelld.tools.plugins import load_plugins, schemas_of  # noqa: PLC0415

        own = [schemas_of(tool) for tool in registry.list_all()]
        return [each for each in own if each is not None] + load_plugins(registry)

    async def list_tools(
        self, _context: RequestContext, params: ListToolsParams
    ) -> ListToolsResult:
        return ListToolsResult(await self.schemas(params.format))

    async def call_tool(self, context: RequestContext, params: CallToolParams) -> msgspec.Raw:
        """Execute a tool; return its `ToolResult` as JSON."""
        tool = await self.find(params.name)
        if tool is None:
            registry = await self.ready()
            return msgspec.Raw(encode(registry.unknown(params.name)))
        call_context = _call_context(context, params.context or CallContext())
        _, encoded = await execute(tool, params.arguments, call_context)
        return encoded


async def execute(
    tool: BaseTool, arguments: Mapping[str, Any] | None, context: ToolContext
) -> tuple[ToolResult, msgspec.Raw]:
    """Execute a tool; return its result, as an object and as JSON.

    A result that JSON cannot express is replaced by a failure.
    """
    from shelld.tools.base import checked  # noqa: PLC0415
    from shelld.tools.log import log_call, log_result  # noqa: PLC0415

    try:
        log_call(tool.name, arguments or {})
        # A tool of a plug-in may override `execute`, so check its result.
        result = checked(tool.name, await tool.execute(context, **(arguments or {})))
        log_result(tool.name, result)
    except BaseException as error:
        if isinstance(error, get_cancelled_exc_class()) and scope_is_cancelled():
            raise
        if faults.shortage(error) is not None:
            raise
        # `BaseTool` does not catch every exception. An exception that nobody catches would end the
        # daemon.
        faults.report("a tool")
        result = ToolResult.fail("Internal error", kind="internal_error")
    try:
        return result, msgspec.Raw(encode(result))
    except (TypeError, ValueError, RecursionError):
        failure = ToolResult.fail(f"The result of {tool.name} has no JSON")
        return failure, msgspec.Raw(encode(failure))


def is_bash(tool: BaseTool) -> bool:
    """Return whether a tool is the daemon's own `Bash`. Requires that the tools are loaded."""
    from shelld.tools import BashTool, InteractiveBashTool  # noqa: PLC0415

    # A subclass does not count, because it may return another result.
    return type(tool) in {BashTool, InteractiveBashTool}


def _call_context(request: RequestContext, given: CallContext) -> ToolContext:
    context = ToolContext(
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
