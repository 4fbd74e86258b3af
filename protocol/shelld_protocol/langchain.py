"""Wraps tools for LangChain.

Other modules import this module only when they need it, because it needs the extra ``langchain``.

The message to the model has the text of the `ToolResult` as its content and the `ToolResult` as its
artifact. A failed result becomes a message with the status "error".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from shelld_protocol.tools import ToolResult, without_nulls

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import StructuredTool, ToolException
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "LangChain tools need the extra 'langchain': pip install 'shelld[langchain]'",
        name=error.name,
    ) from error

# The id of the tool call that is answered, or None if a program calls the tool directly.
_call_id: Final[ContextVar[str | None]] = ContextVar("_call_id", default=None)


class _Tool(StructuredTool):
    """Passes the tool call's id to the function, and all arguments as one dictionary.

    LangChain itself passes the id only if the schema asks for it. It passes arguments as keywords.
    So if the model gave an argument `config`, LangChain would replace this argument. If the model
    gave an argument `self`, LangChain would raise TypeError.
    """

    def _to_args_and_kwargs(self, *args: Any, **kwargs: Any) -> tuple[tuple[()], dict[str, Any]]:
        _, arguments = super()._to_args_and_kwargs(*args, **kwargs)
        return (), {"arguments": arguments}

    def run(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        token = _call_id.set(tool_call_id)
        try:
            return super().run(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _call_id.reset(token)

    async def arun(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        token = _call_id.set(tool_call_id)
        try:
            return await super().arun(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _call_id.reset(token)


def structured_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    *,
    call: Callable[[dict[str, Any]], ToolResult] | None = None,
    call_async: Callable[[dict[str, Any]], Awaitable[ToolResult]] | None = None,
) -> StructuredTool:
    """Return a LangChain tool.

    Give `call`, `call_async` or both. `schema` describes the arguments.
    """

    def invoke(arguments: dict[str, Any]) -> tuple[str | ToolMessage, ToolResult]:
        assert call is not None
        return _answer(name, call(without_nulls(arguments)))

    async def ainvoke(arguments: dict[str, Any]) -> tuple[str | ToolMessage, ToolResult]:
        assert call_async is not None
        return _answer(name, await call_async(without_nulls(arguments)))

    return _Tool(
        name=name,
        description=description,
        args_schema=schema,
        func=None if call is None else invoke,
        coroutine=None if call_async is None else ainvoke,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def _answer(name: str, result: ToolResult) -> tuple[str | ToolMessage, ToolResult]:
    if result.success:
        return result.to_display(), result
    error, call_id = result.error or "", _call_id.get()
    if call_id is None:
        # If a program calls the tool directly, LangChain makes no message, and returns the text of
        # the exception.
        raise ToolException(error)
    # Do not raise the error: LangChain would turn the exception into a message without an artifact.
    message = ToolMessage(error, artifact=result, tool_call_id=call_id, name=name, status="error")
    return message, result
