"""Provides the base class of tools: validation, schemas, and an `execute` that always returns a
result.

A tool describes itself (`name`, `description`, `category`, `parameters`) and does its work in
`_execute`, which gets valid parameters with defaults filled in. Whatever happens in `_execute` (an
exception, a timeout, an invalid result), the caller gets a `ToolResult`.
"""

from __future__ import annotations

import abc
import asyncio
import copy
import math
import os
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import anyio
import msgspec

from shelld.process.logs import Log
from shelld_protocol.schemas import anthropic_tool, mcp_tool, openai_tool
from shelld_protocol.tool_methods import ToolFormat
from shelld_protocol.tools import (
    ExecutionContext,
    JsonType,
    ToolCategory,
    ToolParameter,
    ToolResult,
)

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

logger = Log("shelld.tools")


class BaseTool(abc.ABC):
    """`aliases` are other names in a registry; `annotations` are MCP's hints.

    `output_types` are the JSON types that the output of a successful call may have, besides null.
    """

    aliases: ClassVar[Sequence[str]] = ()
    output_types: ClassVar[Sequence[JsonType]] = get_args(JsonType)
    annotations: ClassVar[Mapping[str, Any]] = {}

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @property
    @abc.abstractmethod
    def description(self) -> str:
        """The description that models read."""

    @property
    @abc.abstractmethod
    def category(self) -> ToolCategory: ...

    @property
    @abc.abstractmethod
    def parameters(self) -> Sequence[ToolParameter]: ...

    @abc.abstractmethod
    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        """Do the work of the tool."""

    def validate_params(self, /, **params: Any) -> tuple[bool, str | None]:
        """Return (True, None), or (False, a sentence that says what is wrong).

        An optional parameter with the value None counts as left out.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, parameter in known.items():
            value = params.get(name)
            if value is None:
                if parameter.required:
                    return False, f"Missing required parameter: {name}"
            elif (problem := parameter.problem_with(value)) is not None:
                return False, problem
        for name in params:
            if name not in known:
                return False, f"Unknown parameter: {name[:100]}. Known: {', '.join(known)}"
        return True, None

    async def execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        """Validate the parameters. Then execute the tool, or do a dry run, within
        `context.timeout`.

        Text output is cut at `context.max_output_size` characters, unless the metadata has the
        member `truncated`: then the tool has limited its output itself. This method never raises.
        """
        try:
            is_valid, problem = self.validate_params(**params)
            if not is_valid:
                return await self._refused(problem or "Invalid parameters", context, params)
            if (problem := _problem_with(context)) is not None:
                return ToolResult.fail(problem)
            params = self._filled(params)
            result: object = None
            limit = self.time_limit(context, params)
            with anyio.move_on_after(None if math.isinf(limit) else limit) as scope:
                if context.dry_run:
                    result = await self._dry_run(context, **params)
                else:
                    result = await self._execute(context, **params)
            if scope.cancelled_caught:
                return ToolResult.fail(f"Tool execution timed out after {limit:g}s")
            return _within(context.max_output_size, checked(self.name, result))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            logger.debug("tool %s raised", self.name, exc_info=True)
            return ToolResult.fail(_message_of(error), exception=type(error).__name__)

    async def _refused(
        self, problem: str, context: ExecutionContext, params: Mapping[str, Any]
    ) -> ToolResult:
        """Return the result for invalid parameters. A subclass can add helpful text."""
        return ToolResult.fail(problem)

    def _filled(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arguments, and the defaults of the missing arguments."""
        filled: dict[str, Any] = {}
        for parameter in self.parameters:
            value = params.get(parameter.name)
            if value is None:
                # Copy the default, because the tool may change its arguments.
                value = copy.deepcopy(parameter.default)
            elif parameter.type == "integer" and isinstance(value, float):
                value = int(value)
            if value is not None:
                filled[parameter.name] = value
        return filled

    def time_limit(self, context: ExecutionContext, params: Mapping[str, Any]) -> float:
        """Return the time limit in seconds; infinite if the tool has a timeout of its own."""
        return context.timeout

    async def _dry_run(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        """Describe the effect of the call, and do nothing."""
        shown = ToolResult.ok(params).to_display()
        return ToolResult.ok(f"[Dry Run] Would execute {self.name}: {shown}", dry_run=True)

    # -- descriptions for models ------------------------------------------------------------

    def to_schema(self, format: ToolFormat) -> dict[str, Any]:  # noqa: A002
        """Return the schema of the tool for the API `format`."""
        if format == "openai":
            return openai_tool(self.name, self.description, self.parameters)
        if format == "anthropic":
            return anthropic_tool(self.name, self.description, self.parameters)
        if format == "mcp":
            return mcp_tool(
                self.name,
                self.description,
                self.parameters,
                self.output_types,
                dict(self.annotations),
            )
        raise ValueError(f"unknown format: {format!r}")

    def to_openai_schema(self) -> dict[str, Any]:
        return self.to_schema("openai")

    def to_anthropic_schema(self) -> dict[str, Any]:
        return self.to_schema("anthropic")

    def to_langchain_tool(self, context: ExecutionContext | None = None) -> StructuredTool:
        """Return a LangChain tool that executes this tool in `context`. See
        `shelld.tools.langchain`.

        Raises ImportError without the extra ``langchain``.
        """
        from shelld.tools.langchain import to_langchain_tool  # noqa: PLC0415

        return to_langchain_tool(self, context)


def _problem_with(context: ExecutionContext) -> str | None:
    """Return what is wrong with a context, or None. A program that embeds the tools may have put
    any values into the context.
    """
    # This comparison also refuses NaN, for which every comparison is false.
    if not context.timeout >= 0:
        return "Invalid value for timeout: must be 0 or more seconds"
    size = cast("object", context.max_output_size)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return "Invalid value for max_output_size: must be a whole number of characters"
    directory = cast("object", context.working_dir)
    if isinstance(directory, os.PathLike):
        directory = cast("object", os.fspath(cast("os.PathLike[str]", directory)))
    if not isinstance(directory, str):
        return "Invalid value for working_dir: must be text or a path"
    return None


def checked(tool_name: str, result: object) -> ToolResult:
    """Return the result of a tool. If it is invalid, return a failure that says why."""
    problem = None
    if not isinstance(result, ToolResult):
        problem = "no ToolResult"
    elif not isinstance(cast("object", result.success), bool):
        problem = "a ToolResult whose success is not a bool"
    elif not isinstance(cast("object", result.error), (str, NoneType)):
        problem = "a ToolResult whose error is not a str"
    elif not isinstance(cast("object", result.metadata), dict):
        problem = "a ToolResult whose metadata is not a dict"
    else:
        return result
    return ToolResult.fail(f"Tool '{tool_name}' returned {problem}")


def _within(limit: int, result: ToolResult) -> ToolResult:
    """Cut output that is too long, unless the tool has limited it."""
    text = result.output
    if not isinstance(text, str) or len(text) <= limit or "truncated" in result.metadata:
        return result
    notice = f"\n[Output truncated: {limit} of {len(text)} characters]"
    metadata = {**result.metadata, "truncated": True}
    return msgspec.structs.replace(result, output=text[:limit] + notice, metadata=metadata)


def _is_cancelled() -> bool:
    """Return whether this task itself was cancelled, and not just a task that it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _message_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    return text or type(error).__name__
