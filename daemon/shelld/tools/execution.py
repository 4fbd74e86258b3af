"""Holds the common part of the execution tools, which call the methods of the protocol.

A tool calls the body of a method and adds text around the result. Its parameters are fields of the
method's params Struct. A tool has no other way to run a command. In a daemon, a tool uses the
daemon's manager. In any other program, it uses ``ShellManager()``.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from shelld.embed import ShellManager
from shelld.methods.context import Daemon, RequestContext, ToolContext
from shelld.process.faults import answer_for
from shelld.process.options import Options
from shelld.tools.advice import shells_line, with_advice
from shelld.tools.base import BaseTool
from shelld.tools.names import listed
from shelld_protocol.errors import RpcError
from shelld_protocol.parameters import parameters_of
from shelld_protocol.structs import Params
from shelld_protocol.tools import ExecutionContext, ToolCategory, ToolParameter, ToolResult

_SHELL_IDS: Final = frozenset({"bash_id", "shell_id"})

Body = Callable[[RequestContext, ExecutionContext, dict[str, Any]], Awaitable[ToolResult]]


class ExecutionTool(BaseTool):
    """`exposed` are the fields of `params_type` that a model may set, with their descriptions.

    If `daemon` is None, this program runs the commands itself.
    """

    output_types = ("string",)
    params_type: ClassVar[type[Params]]
    exposed: ClassVar[Mapping[str, str]]
    # The default of these fields depends on the context.
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
            for name, description in self.exposed.items()
        ]

    def validate_params(self, /, **params: Any) -> tuple[bool, str | None]:
        for alias, name in self.param_aliases.items():
            values = params.get(alias), params.get(name)
            if None not in values and values[0] != values[1]:
                return False, f"Invalid value for {alias}: must equal {name}"
        renamed = self._renamed(params)
        is_valid, problem = super().validate_params(**renamed)
        return is_valid, None if problem is None else self._with_range(problem, renamed)

    @property
    def param_aliases(self) -> Mapping[str, str]:
        """Maps each alias of a parameter to the name of the parameter."""
        return self.params_type.aliases

    def _with_range(self, problem: str, params: Mapping[str, Any]) -> str:
        """Add the range and the unit if the sentence is about a number that is out of range."""
        for each in self.parameters:
            sentence = f"Value for {each.name} "
            if problem.startswith(sentence) and "illiseconds" in each.description:
                low, high = each.minimum or 0, each.maximum or math.inf
                value = params[each.name]
                # If the number is too small, the model has probably meant seconds.
                is_seconds = value < low <= value * 1000 <= high
                meant = f"; {value:g} s are {value * 1000:g}" if is_seconds else ""
                return f"{problem} (milliseconds, {low:.0f} to {high:.0f}{meant})"
        return problem

    async def _refused(
        self, problem: str, context: ExecutionContext, params: Mapping[str, Any]
    ) -> ToolResult:
        sentence, _, missing = problem.partition(": ")
        if sentence != "Missing required parameter":
            return ToolResult.fail(problem)
        # If a model leaves out a parameter, it has often given the parameter another name.
        known = {*self.exposed, *self.param_aliases}
        unknown = [repr(name[:100]) for name in params if name not in known]
        if unknown:
            names = f"Unknown: {listed(unknown)}. Known: {', '.join(self.exposed)}"
            problem = f"{problem}\n[{names}]"
        if missing not in _SHELL_IDS:
            return ToolResult.fail(problem)

        async def with_shells(
            request: RequestContext, _context: ExecutionContext, _params: dict[str, Any]
        ) -> ToolResult:
            return ToolResult.fail(f"{problem}\n[{shells_line(request)}]")

        return await self._with_daemon(with_shells, context, {})

    def _filled(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return super()._filled(self._renamed(params))

    def _renamed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        aliases = self.param_aliases
        renamed = {name: value for name, value in params.items() if name not in aliases}
        for alias, name in aliases.items():
            # A name with the value None counts as absent.
            if alias in params and renamed.get(name) is None:
                renamed[name] = params[alias]
        return renamed

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        return await self._with_daemon(self._run, context, params)

    @abc.abstractmethod
    async def _run(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        """Do the work of the tool on the event loop of the shells. May raise `RpcError`."""

    def _discard(self, request: RequestContext) -> None:
        """Undo the execution, because its caller was cancelled before the result arrived."""

    async def _with_daemon(self, body: Body, context: ExecutionContext, params: Any) -> ToolResult:
        try:
            if self._daemon is not None:
                given = context.request if isinstance(context, ToolContext) else None
                request = given or RequestContext(self._daemon)
                return await self._advised(request, body, context, params)
            manager = ShellManager()
            request = RequestContext(Daemon(Options(), await manager.manager()))
            return await manager.run(
                self._advised,
                request,
                body,
                context,
                params,
                discard=lambda _result: self._discard(request),
            )
        except Exception as error:
            # The text of an unexpected exception can be anything, so the result does not have this
            # text.
            answer = answer_for(error, f"the tool {self.name}")
            return ToolResult.fail(answer.message, **answer.data)

    async def _advised(
        self, request: RequestContext, body: Body, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        given = dict(params)
        try:
            return await body(request, context, params)
        except RpcError as error:
            return ToolResult.fail(with_advice(error, request, given), **error.data)


class ShellTool(ExecutionTool):
    """A tool for an existing shell.

    It waits no longer than its parameter `wait`, and no longer than the timeout of the context.
    """

    @property
    def param_aliases(self) -> Mapping[str, str]:
        # `KillShell` uses the name `shell_id`.
        return {"shell_id": "bash_id"}

    def time_limit(self, context: ExecutionContext, params: Mapping[str, Any]) -> float:
        # The tool itself waits no longer than the timeout of the context. Everything else that the
        # tool does takes hardly any time.
        return math.inf
