"""What the three tools have in common: the methods of the wire, and the manager, behind them.

A tool is a method's body with text around it; there is no second way to run a command. Its
parameters are fields of the method's params Struct. In the daemon it is made for that; in any other
program it uses ``ShellManager()``, which runs where it is needed.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from msgspec.structs import replace

from shelld.faults import answer_for
from shelld.methods.context import Context, Daemon, RequestContext
from shelld.options import Options
from shelld.shells.manager import ShellManager
from shelld.tools.base import BaseTool
from shelld_protocol.parameters import parameters_of
from shelld_protocol.structs import Params
from shelld_protocol.tools import ExecutionContext, ToolCategory, ToolParameter, ToolResult

DEFAULT_SESSION = "main"

Body = Callable[[Context, ExecutionContext, dict[str, Any]], Awaitable[ToolResult]]


class ExecutionTool(BaseTool):
    """`taken` are the fields of `params_type` that a model may set, with what it is told of them.

    `daemon` None: commands run in this program.
    """

    output_types = ("string",)
    params_type: ClassVar[type[Params]]
    taken: ClassVar[Mapping[str, str]]
    # Of the fields that have a default which depends on the context.
    without_default: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, daemon: Daemon | None = None) -> None:
        self._daemon = daemon

    @property
    def category(self) -> ToolCategory:
        return ToolCategory.EXECUTION

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        return self._parameters

    @cached_property
    def _parameters(self) -> Sequence[ToolParameter]:
        models = {name: each.model for name, each in parameters_of(self.params_type).items()}
        return [
            replace(
                models[name],
                description=description,
                default=None if name in self.without_default else models[name].default,
            )
            for name, description in self.taken.items()
        ]

    def validate_params(self, /, **params: Any) -> tuple[bool, str | None]:
        for alias, name in self.params_type.aliases.items():
            if alias in params and name in params and params[alias] != params[name]:
                return False, f"Invalid value for {alias}: must equal {name}"
        return super().validate_params(**self._renamed(params))

    def _filled(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return super()._filled(self._renamed(params))

    def _renamed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        aliases = self.params_type.aliases
        return {aliases.get(name, name): value for name, value in params.items()}

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        return await self._with_daemon(self._run, context, params)

    @abc.abstractmethod
    async def _run(
        self, daemon: Context, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        """Do the work, on the event loop of the shells. May raise `RpcError`."""

    async def _with_daemon(self, body: Body, context: ExecutionContext, params: Any) -> ToolResult:
        try:
            if self._daemon is not None:
                request = context.request if isinstance(context, RequestContext) else None
                return await body(request or Context(self._daemon), context, params)
            manager = ShellManager()
            daemon = Daemon(Options(), manager)
            return await manager.run(body, Context(daemon), context, params)
        except Exception as error:
            # Not what an unexpected one says: that can be anything.
            answer = answer_for(error, f"the tool {self.name}")
            return ToolResult.fail(answer.message, **answer.data)
