"""`BaseTool`: validation, schemas, and an execution that always returns a result."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import anyio
import pytest

from shelld.tools import BaseTool, ExecutionContext, ToolCategory, ToolParameter, ToolResult
from tool_samples import CONTEXT, Sample, everything, read_tool, write_tool


def test_tool_has_the_attributes_of_its_class() -> None:
    tool = Sample(
        "test_tool",
        ToolParameter(name="message", type="string", required=True, description="Message to echo"),
        description="A test tool for verification",
    )
    assert (tool.name, tool.description) == ("test_tool", "A test tool for verification")
    assert tool.category is ToolCategory.OTHER
    assert [parameter.name for parameter in tool.parameters] == ["message"]


def test_incomplete_tool_class_cannot_be_made() -> None:
    class Half(BaseTool):
        name = "half"  # pyright: ignore

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract] # pyright: ignore


def test_class_attributes_may_replace_properties() -> None:
    class Plain(BaseTool):
        name = "plain"  # pyright: ignore
        description = "Plain"  # pyright: ignore
        category = ToolCategory.WEB  # pyright: ignore
        parameters = ()  # pyright: ignore

        async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
            return ToolResult.ok("done")

    assert Plain().to_openai_schema()["function"]["name"] == "plain"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"file_path": "/some/path"}, (True, None)),
        ({"file_path": "/some/path", "limit": 3}, (True, None)),
        ({"file_path": "/some/path", "limit": None}, (True, None)),
        ({}, (False, "Missing required parameter: file_path")),
        ({"file_path": None}, (False, "Missing required parameter: file_path")),
        ({"file_path": 123}, (False, "Invalid type for file_path: expected string")),
        ({"file_path": "/", "limit": "3"}, (False, "Invalid type for limit: expected integer")),
        ({"file_path": "/", "limit": True}, (False, "Invalid type for limit: expected integer")),
        (
            {"file_path": "/", "foo": 1},
            (False, "Unknown parameter: foo. Known: file_path, offset, limit"),
        ),
        (
            {"file_path": "/", "self": 1},
            (False, "Unknown parameter: self. Known: file_path, offset, limit"),
        ),
    ],
)
def test_parameters_are_validated(given: dict[str, Any], outcome: tuple[bool, str | None]) -> None:
    assert read_tool().validate_params(**given) == outcome


async def test_defaults_are_filled_in() -> None:
    tool = Sample(
        "Wait",
        ToolParameter("timeout", "integer", required=False, default=120),
        ToolParameter("why", "string", required=False),
        work=everything,
    )
    assert (await tool.execute(CONTEXT)).output == {"timeout": 120}
    assert (await tool.execute(CONTEXT, timeout=None)).output == {"timeout": 120}
    result = await tool.execute(CONTEXT, timeout=5.0, why="x")
    assert result.output == {"timeout": 5, "why": "x"}
    assert isinstance(tool.calls[-1]["timeout"], int)


async def test_number_keeps_its_type() -> None:
    tool = Sample("Scale", ToolParameter("factor", "number"), work=everything)
    assert (await tool.execute(CONTEXT, factor=2.5)).output == {"factor": 2.5}


async def test_execution_returns_the_tool_result() -> None:
    result = await Sample().execute(ExecutionContext("/home/user"), message="Hello")
    assert result == ToolResult.ok("Hello")


async def test_invalid_arguments_are_not_executed() -> None:
    tool = read_tool()
    result = await tool.execute(CONTEXT)
    assert result == ToolResult.fail("Missing required parameter: file_path")
    result = await tool.execute(CONTEXT, file_path="/", context="x")
    assert result == ToolResult.fail("Unknown parameter: context. Known: file_path, offset, limit")
    assert tool.calls == []


async def test_execution_ends_at_context_timeout() -> None:
    ended: list[str] = []

    async def slow(_context: ExecutionContext, message: str) -> ToolResult:
        try:
            await anyio.sleep(300)
        finally:
            ended.append(message)
        return ToolResult.ok("never")

    result = await Sample(work=slow).execute(ExecutionContext("/", timeout=0.01), message="x")
    assert not result.success
    assert result.error == "Tool execution timed out after 0.01s"
    assert ended == ["x"]


async def test_execution_without_timeout_is_unlimited() -> None:
    assert (await Sample().execute(ExecutionContext("/", timeout=math.inf), message="x")).success


async def test_cancelled_execution_raises_the_cancellation() -> None:
    async def slow(_context: ExecutionContext, message: str) -> ToolResult:
        await anyio.sleep(300)
        return ToolResult.ok(message)

    with anyio.move_on_after(0.01) as scope:
        await Sample(work=slow).execute(CONTEXT, message="x")
    assert scope.cancelled_caught


async def test_a_dry_run_does_nothing() -> None:
    tool = write_tool()
    result = await tool.execute(
        ExecutionContext("/", dry_run=True), file_path="/foo", content="bar"
    )
    assert result.success
    assert result.output == ('[Dry Run] Would execute Write: {"file_path":"/foo","content":"bar"}')
    assert tool.calls == []


async def test_a_dry_run_validates() -> None:
    result = await write_tool().execute(ExecutionContext("/", dry_run=True), file_path="/foo")
    assert result.error == "Missing required parameter: content"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("Unexpected error"), "Unexpected error"),
        (KeyError("name"), "'name'"),
        (ValueError(), "ValueError"),
        (Unspeakable(), "Unspeakable"),
    ],
)
async def test_an_exception_is_a_failed_result(error: Exception, sentence: str) -> None:
    async def broken(_context: ExecutionContext, message: str) -> ToolResult:
        raise error

    result = await Sample(work=broken).execute(CONTEXT, message="x")
    assert (result.success, result.error) == (False, sentence)


WRONG_RESULTS: list[tuple[Any, str]] = [
    ("x", "no ToolResult"),
    (None, "no ToolResult"),
    (ToolResult(1), "a ToolResult whose success is not a bool"),  # type: ignore[arg-type] # pyright: ignore
    (ToolResult.fail(5), "a ToolResult whose error is not a str"),  # type: ignore[arg-type] # pyright: ignore
    (ToolResult.fail(["x"]), "a ToolResult whose error is not a str"),  # type: ignore[arg-type] # pyright: ignore
    (ToolResult(True, metadata=None), "a ToolResult whose metadata is not a dict"),  # type: ignore[arg-type] # pyright: ignore
]


@pytest.mark.parametrize(("returned", "problem"), WRONG_RESULTS)
async def test_malformed_result_is_failed_result(returned: Any, problem: str) -> None:
    async def wrong(_context: ExecutionContext, message: str) -> Any:
        return returned

    result = await Sample(work=wrong).execute(CONTEXT, message="x")
    assert (result.success, result.error) == (False, f"Tool 'Echo' returned {problem}")


async def test_long_output_is_cut_at_context_limit() -> None:
    context = ExecutionContext("/", max_output_size=10)
    result = await Sample().execute(context, message="0123456789ABC")
    assert result.output == "0123456789\n[Output truncated: 10 of 13 characters]"
    assert result.metadata == {"truncated": True}
    assert (await Sample().execute(context, message="0123456789")).output == "0123456789"


def test_openai_schema_describes_tool_and_parameters() -> None:
    assert read_tool().to_openai_schema() == {
        "type": "function",
        "function": {
            "name": "Read",
            "description": "Read contents of a file",
            "parameters": {
                "type": "object",
                "properties": {
                    "file_path": {"type": "string", "description": "Absolute path to the file"},
                    "offset": {"type": "integer", "description": "Line number to start from"},
                    "limit": {"type": "integer", "description": "Maximum lines to read"},
                },
                "required": ["file_path"],
            },
        },
    }


def test_the_openai_schema_has_choices_and_limits() -> None:
    tool = Sample(
        "Convert",
        ToolParameter("format", "string", "", enum=["json", "yaml"]),
        ToolParameter("timeout", "integer", "", minimum=1, maximum=600),
    )
    properties = tool.to_openai_schema()["function"]["parameters"]["properties"]
    assert properties["format"].items() >= {"type": "string", "enum": ["json", "yaml"]}.items()
    assert (
        properties["timeout"].items() >= {"type": "integer", "minimum": 1, "maximum": 600}.items()
    )


def test_anthropic_schema_describes_tool_and_parameters() -> None:
    tool = Sample(
        "Read",
        ToolParameter("file_path", "string", "Absolute path to the file"),
        description="Read contents of a file",
    )
    assert tool.to_anthropic_schema() == {
        "name": "Read",
        "description": "Read contents of a file",
        "input_schema": {
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "Absolute path to the file"}
            },
            "required": ["file_path"],
        },
    }


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="cobol"):
        Sample().to_schema("cobol")  # type: ignore[arg-type] # pyright: ignore


@pytest.mark.parametrize("size", [None, 7.5, "x", -1, True])
async def test_context_with_invalid_size_fails(size: Any) -> None:
    tool = Sample()
    result = await tool.execute(ExecutionContext("/", max_output_size=size), message="hi")
    assert result.error == (
        "Invalid value for max_output_size: must be a whole number of characters"
    )
    assert tool.calls == []


@pytest.mark.parametrize("directory", [None, 7, b"/"])
async def test_context_with_invalid_directory_fails(directory: Any) -> None:
    tool = Sample()
    result = await tool.execute(ExecutionContext(directory), message="hi")
    assert result.error == "Invalid value for working_dir: must be text or a path"
    assert tool.calls == []


@pytest.mark.parametrize("timeout", [math.nan, -1, -0.001, -math.inf])
async def test_invalid_timeout_fails(timeout: float) -> None:
    tool = Sample()
    result = await tool.execute(ExecutionContext("/", timeout=timeout), message="hi")
    assert result.error == "Invalid value for timeout: must be 0 or more seconds"
    assert tool.calls == []


@pytest.mark.parametrize("timeout", [1e308, math.inf])
async def test_timeout_may_be_of_any_length(timeout: float) -> None:
    result = await Sample().execute(ExecutionContext("/", timeout=timeout), message="hi")
    assert result.output == "hi"


async def test_tool_that_changes_a_default_affects_only_its_call() -> None:
    async def change(_context: ExecutionContext, names: list[Any], table: dict[str, Any]) -> Any:
        seen = (len(names), len(table["inner"]))
        names.append("changed")
        table["inner"].append("changed")
        return ToolResult.ok(seen)

    tool = Sample(
        "Change",
        ToolParameter("names", "array", required=False, default=[]),
        ToolParameter("table", "object", required=False, default={"inner": []}),
        work=change,
    )
    for _ in range(2):
        assert (await tool.execute(CONTEXT)).output == (0, 0)
    assert tool.parameters[0].default == []


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError])
def test_a_tool_that_would_end_its_caller_fails(error: type[BaseException]) -> None:
    async def end(_context: ExecutionContext, message: str) -> Any:
        # A tool that awaits a cancelled task of its own raises CancelledError.
        raise error

    result = asyncio.run(Sample(work=end).execute(CONTEXT, message="hi"))
    assert (result.success, result.error) == (False, error.__name__)


def test_cancelling_the_caller_cancels_its_tool() -> None:
    async def cancel() -> None:
        started = asyncio.Event()

        async def wait(_context: ExecutionContext, message: str) -> Any:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(Sample(work=wait).execute(CONTEXT, message="hi"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
