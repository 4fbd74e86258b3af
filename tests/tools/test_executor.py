"""`ToolExecutor` runs tools by name, returns their results, and logs each execution."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from shelld.embed import ShellManager
from shelld.tools import (
    ExecutionContext,
    ToolCategory,
    ToolExecutor,
    ToolParameter,
    ToolRegistry,
    ToolResult,
    register_execution_tools,
)
from support import in_threads
from tool_samples import CONTEXT, Sample, bash_tool, everything, read_tool, write_tool

# `reading` takes at least this long.
SLEEP_MS = 20


@pytest.fixture
def executor() -> ToolExecutor:
    ToolRegistry().register_many([read_tool(), write_tool(), bash_tool()])
    return ToolExecutor()


async def reading(_context: ExecutionContext, **params: Any) -> ToolResult:
    await anyio.sleep(SLEEP_MS / 1000)
    return ToolResult.ok(params["file_path"])


async def test_a_tool_is_executed_by_its_name() -> None:
    registry = ToolRegistry()
    registry.register(Sample(aliases=("say",)))
    for name in ("Echo", "say"):
        result = await ToolExecutor(registry).execute(name, CONTEXT, message="Hello")
        assert result == ToolResult.ok("Hello")


async def test_an_unknown_tool_is_a_failed_result(executor: ToolExecutor) -> None:
    assert await executor.execute("Unknown", CONTEXT) == ToolResult.fail(
        "Unknown tool: Unknown. Known: Bash, Read, Write"
    )


@pytest.mark.parametrize("name", [None, 5, ["Read"]])
async def test_a_name_that_is_no_text_is_an_unknown_tool(executor: ToolExecutor, name: Any) -> None:
    result = await executor.execute(name, CONTEXT)
    assert result == ToolResult.fail(f"Unknown tool: {name}. Known: Bash, Read, Write")


async def test_parameters_may_be_called_anything() -> None:
    names = ("self", "tool_name", "context", "name")
    parameters = [ToolParameter(name, "string") for name in names]
    tool = Sample("Odd", *parameters, work=everything)
    ToolRegistry().register(tool)
    given = dict.fromkeys(names, "x")
    assert (await ToolExecutor().execute("Odd", CONTEXT, **given)).output == given


def test_schemas_of_all_tools_are_returned(executor: ToolExecutor) -> None:
    schemas = executor.get_all_schemas("openai")
    assert [schema["type"] for schema in schemas] == ["function"] * 3
    schemas = executor.get_all_schemas("anthropic")
    assert [schema["name"] for schema in schemas] == ["Read", "Write", "Bash"]
    assert all("input_schema" in schema for schema in schemas)


def test_schemas_of_a_category_are_returned(executor: ToolExecutor) -> None:
    schemas = executor.get_schemas_by_category(ToolCategory.FILE, "openai")
    assert [schema["function"]["name"] for schema in schemas] == ["Read", "Write"]


async def test_history_is_in_order() -> None:
    ToolRegistry().register_many([Sample("Read", *read_tool().parameters, work=reading), Sample()])
    executor = ToolExecutor()
    before = datetime.now(UTC)
    await executor.execute("Read", CONTEXT, file_path="/foo")
    await executor.execute("Echo", CONTEXT, text="wrong")
    after = datetime.now(UTC)
    first, second = executor.get_executions()
    assert (first.tool_name, first.parameters) == ("Read", {"file_path": "/foo"})
    assert first.result == ToolResult.ok("/foo")
    assert before <= first.started_at <= first.completed_at <= second.started_at <= after
    elapsed_ms = (first.completed_at - first.started_at) / timedelta(milliseconds=1)
    assert elapsed_ms >= first.duration_ms >= SLEEP_MS
    assert second.tool_name == "Echo"
    assert second.result.error == "Missing required parameter: message"
    executor.clear_executions()
    assert executor.get_executions() == []


async def test_history_is_bounded_in_number_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ToolRegistry().register(Sample())
    executor = ToolExecutor(max_executions=3)
    for number in range(5):
        await executor.execute("Echo", CONTEXT, message=str(number))
    assert [each.result.output for each in executor.get_executions()] == ["2", "3", "4"]
    monkeypatch.setattr("shelld.tools.executor.MAX_HISTORY_CHARACTERS", 10)
    await executor.execute("Echo", CONTEXT, message="abcd")
    assert [each.result.output for each in executor.get_executions()] == ["4", "abcd"]
    forgetful = ToolExecutor(max_executions=0)
    await forgetful.execute("Echo", CONTEXT, message="x")
    assert forgetful.get_executions() == []


async def test_invalid_result_of_overridden_execute_fails() -> None:
    class Own(Sample):
        async def execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
            return ToolResult.fail(5)  # type: ignore[arg-type] # pyright: ignore

    ToolRegistry().register(Own())
    result = await ToolExecutor().execute("Echo", CONTEXT)
    assert result.error == "Tool 'Echo' returned a ToolResult whose error is not a str"


async def test_an_execution_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ToolRegistry().register(Sample("Read", *read_tool().parameters, work=reading))
    with caplog.at_level(logging.DEBUG, "shelld.tools"):
        await ToolExecutor().execute("Read", CONTEXT, file_path="/home/user/test.txt")
    records = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert records == [
        ("INFO", "Executing tool: Read"),
        ("DEBUG", "Tool Read parameters: 'file_path': 19 characters"),
        ("INFO", "Tool Read succeeded"),
    ]


async def test_parameters_are_logged_at_debug_alone(caplog: pytest.LogCaptureFixture) -> None:
    ToolRegistry().register(Sample())
    with caplog.at_level(logging.INFO, "shelld.tools"):
        await ToolExecutor().execute("Echo", CONTEXT, message="secret")
    assert "secret" not in caplog.text
    assert "Executing tool: Echo" in caplog.text


async def test_failure_is_logged_with_first_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(_context: ExecutionContext, message: str) -> ToolResult:
        return ToolResult.fail(f"Something went wrong\n{message}")

    ToolRegistry().register(Sample(work=failing))
    with caplog.at_level(logging.WARNING, "shelld.tools"):
        await ToolExecutor().execute("Echo", CONTEXT, message="output of a command")
        await ToolExecutor().execute("Nope", CONTEXT)
    records = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert records == [
        ("WARNING", "Tool Echo failed: Something went wrong"),
        ("WARNING", "Unknown tool: Nope"),
    ]


def test_ten_threads_execute_without_loss() -> None:
    registry = ToolRegistry()
    registry.register(Sample())
    executor = ToolExecutor(registry)

    def work(number: int) -> None:
        async def run() -> None:
            for index in range(1_000):
                result = await executor.execute("Echo", CONTEXT, message=f"{number}.{index}")
                assert result == ToolResult.ok(f"{number}.{index}")
                if index % 200 == 0:
                    assert all(each.result.success for each in executor.get_executions())

        anyio.run(run)

    in_threads(10, work)
    executions = executor.get_executions()
    assert len(executions) == 10_000
    outputs = {str(each.result.output) for each in executions}
    assert outputs == {f"{number}.{index}" for number in range(10) for index in range(1_000)}
    assert all(each.parameters["message"] == each.result.output for each in executions)
    for number in range(10):
        mine = [str(each.result.output) for each in executions]
        mine = [output for output in mine if output.startswith(f"{number}.")]
        assert mine == [f"{number}.{index}" for index in range(1_000)]


async def test_tool_works_until_it_is_deregistered() -> None:
    registry = ToolRegistry()
    tool = Sample()
    registry.register(tool)
    executor = ToolExecutor(registry)
    assert executor.get_all_schemas("openai") == [tool.to_openai_schema()]
    assert (await executor.execute("Echo", CONTEXT, message="x")).success
    assert not (await executor.execute("Echo", CONTEXT)).success
    assert registry.deregister("Echo")
    assert (
        await executor.execute("Echo", CONTEXT, message="x")
    ).error == "Unknown tool: Echo. Known: none"
    assert executor.get_all_schemas("openai") == []


def test_default_executor_finds_registered_execution_tools() -> None:
    register_execution_tools(ToolRegistry())
    executor = ToolExecutor()
    assert executor.registry is ToolRegistry()
    names = [schema["function"]["name"] for schema in executor.get_all_schemas("openai")]
    assert names == ["Bash", "BashOutput", "KillShell"]


@pytest.mark.parametrize("parameter", ["command", "cwd", "stdin"])
async def test_a_lone_surrogate_is_a_failed_result(parameter: str) -> None:
    register_execution_tools(ToolRegistry())
    params = {"command": "true", parameter: "\ud800"}
    result = await ToolExecutor().execute("Bash", ExecutionContext(""), **params)
    await ShellManager.reset()
    assert result.error == f"Invalid value for {parameter}: must not contain lone surrogates"
    assert result.metadata == {"kind": "invalid_params", "parameter": parameter}


def test_ten_threads_run_commands_at_once() -> None:
    register_execution_tools(ToolRegistry())
    executor = ToolExecutor()

    def work(number: int) -> None:
        async def run() -> None:
            for index in range(5):
                result = await executor.execute(
                    "Bash", ExecutionContext(""), command=f"echo {number}.{index}", session="mine"
                )
                assert result.output == f"{number}.{index}\n"

        anyio.run(run)

    in_threads(10, work)
    assert len(executor.get_executions()) == 50
    assert all(each.result.success for each in executor.get_executions())


async def test_a_command_whose_caller_is_cancelled_is_killed() -> None:
    register_execution_tools(ToolRegistry())
    async with anyio.create_task_group() as tasks:
        execute = partial(ToolExecutor().execute, "Bash", ExecutionContext(""))
        tasks.start_soon(partial(execute, command="sleep 300"))
        with anyio.fail_after(60):
            while not ShellManager().list_shells():
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    (shell,) = ShellManager().list_shells()
    assert (shell.status.value, shell.is_empty) == ("killed", True)
