"""Adapters of tools: LangChain, and the types of the OpenAI and Anthropic SDKs."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import jsonschema
import pydantic
import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool as LangChainTool

from shelld.embed import ShellManager
from shelld.tools import (
    BashTool,
    ExecutionContext,
    ToolExecutor,
    ToolRegistry,
    ToolResult,
    register_execution_tools,
)
from shelld_client import AsyncClient, Client, InvalidParams
from tool_samples import Sample, read_tool


@pytest.fixture
async def manager() -> AsyncIterator[None]:
    yield
    await ShellManager.reset()


def schemas(format_name: Any) -> list[dict[str, Any]]:
    register_execution_tools(ToolRegistry())
    ToolRegistry().register(read_tool())
    return ToolExecutor().get_all_schemas(format_name)


@pytest.mark.slow
def test_the_openai_sdk_takes_the_schemas() -> None:
    # Import the SDKs here. If this import were at the top of the file, every worker of pytest would
    # spend a second on the SDKs.
    import openai.types.chat  # noqa: PLC0415

    adapter = pydantic.TypeAdapter(list[openai.types.chat.ChatCompletionFunctionToolParam])
    assert len(list(adapter.validate_python(schemas("openai")))) == 4


@pytest.mark.slow
def test_the_anthropic_sdk_takes_the_schemas() -> None:
    import anthropic.types  # noqa: PLC0415

    adapter = pydantic.TypeAdapter(list[anthropic.types.ToolParam])
    assert len(list(adapter.validate_python(schemas("anthropic")))) == 4


def test_the_schemas_are_json_schema() -> None:
    for tool in schemas("anthropic"):
        jsonschema.Draft202012Validator.check_schema(tool["input_schema"])
        for parameter in tool["input_schema"]["properties"].values():
            # Some hosts do not support lists of types.
            assert isinstance(parameter["type"], str)


async def test_tool_becomes_a_langchain_tool() -> None:
    tool = read_tool().to_langchain_tool()
    assert isinstance(tool, LangChainTool)
    assert (tool.name, tool.description) == ("Read", "Read contents of a file")
    assert tool.args == read_tool().to_anthropic_schema()["input_schema"]["properties"]
    assert tool.args_schema == read_tool().to_anthropic_schema()["input_schema"]


async def test_langchain_executes_a_tool_in_its_context() -> None:
    async def where(context: ExecutionContext, message: str) -> ToolResult:
        return ToolResult.ok(f"{message} in {context.working_dir}", a=1)

    tool = Sample(work=where).to_langchain_tool(ExecutionContext("/usr"))
    assert await tool.ainvoke({"message": "here"}) == "here in /usr"
    assert tool.invoke({"message": "here"}) == "here in /usr"


async def test_langchain_gets_the_result_beside_the_message() -> None:
    tool = Sample().to_langchain_tool()
    call = {"name": "Echo", "args": {"message": "hi"}, "id": "1", "type": "tool_call"}
    message = await tool.ainvoke(call)
    assert isinstance(message, ToolMessage)
    assert (message.content, message.status) == ("hi", "success")
    assert message.artifact == ToolResult.ok("hi")
    message = await tool.ainvoke({**call, "args": {"text": 1}})
    assert (message.content, message.status) == (
        "Missing required parameter: message",
        "error",
    )


async def test_langchain_gets_a_failed_result_beside_the_message() -> None:
    async def fail(_context: ExecutionContext, message: str) -> ToolResult:
        return ToolResult.fail(message, exit_code=3)

    tool = Sample(work=fail).to_langchain_tool()
    call = {"name": "Echo", "args": {"message": "no"}, "id": "call_1", "type": "tool_call"}
    for message in (await tool.ainvoke(call), tool.invoke(call)):
        assert isinstance(message, ToolMessage)
        assert (message.content, message.status, message.name) == ("no", "error", "Echo")
        assert message.tool_call_id == "call_1"
        assert message.artifact == ToolResult.fail("no", exit_code=3)
    # Without a tool call, LangChain returns no message, only the text.
    assert await tool.ainvoke({"message": "no"}) == "no"
    assert tool.invoke({"message": "no"}) == "no"


async def test_langchain_keeps_concurrent_calls_apart() -> None:
    async def fail(_context: ExecutionContext, message: str) -> ToolResult:
        await anyio.lowlevel.checkpoint()
        return ToolResult.fail(message)

    tool = Sample(work=fail).to_langchain_tool()
    ids: dict[str, str] = {}

    async def one(number: int) -> None:
        args = {"message": f"no {number}"}
        call = {"name": "Echo", "args": args, "id": f"call_{number}", "type": "tool_call"}
        message = await tool.ainvoke(call)
        ids[message.content] = message.tool_call_id

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(one, number)
    assert ids == {f"no {number}": f"call_{number}" for number in range(5)}


async def test_langchain_shares_the_shells_of_the_program(manager: None) -> None:
    tool = BashTool().to_langchain_tool()
    assert await tool.ainvoke({"command": "cd /usr; A=1"}) == "(no output)"
    # Call the tool outside and inside of an event loop.
    assert tool.invoke({"command": "echo $A"}) == "1\n"
    assert await tool.ainvoke({"command": "echo $A", "timeout": None}) == "1\n"


def test_background_shell_outlives_sync_call() -> None:
    tool = BashTool().to_langchain_tool()
    text = tool.invoke({"command": "sleep 300", "run_in_background": True})
    assert text.startswith("Started background shell")
    (shell,) = ShellManager().list_running()
    assert shell.id in text


async def test_langchain_gets_the_tools_of_a_daemon() -> None:
    async with AsyncClient.spawn() as client:
        tools = {tool.name: tool for tool in await client.langchain_tools()}
        assert list(tools) == ["Bash", "BashOutput", "KillShell"]
        assert await tools["Bash"].ainvoke({"command": "echo hi"}) == "hi\n"
        call: dict[str, Any] = {"name": "Bash", "id": "1", "type": "tool_call"}
        call["args"] = {"command": "exit 3"}
        message = await tools["Bash"].ainvoke(call)
        assert (message.status, message.content) == ("error", "Command failed with exit code 3")
        assert message.artifact.metadata["exit_code"] == 3
        call["args"] = {"command": "echo hi", "timeout": math.nan}
        message = await tools["Bash"].ainvoke(call)
        assert message.status == "error"
        assert message.content.endswith("timeout: nan is not a number in JSON")
        for name in ("self", "config", "run_manager"):
            call["args"] = {"command": "echo hi", name: 1}
            message = await tools["Bash"].ainvoke(call)
            assert message.status == "error"
            assert message.content.startswith(f"Unknown parameter: {name}. ")
        dry = await client.langchain_tools(context=ExecutionContext("/", dry_run=True))
        assert (await dry[0].ainvoke({"command": "ls"})).startswith("[Dry Run]")


async def test_langchain_types_and_looks_at_a_screen() -> None:
    async with AsyncClient.spawn(args=["--interactive-tools"]) as client:
        tools = {tool.name: tool for tool in await client.langchain_tools()}
        assert list(tools)[3:] == ["BashInput", "BashScreen"]
        args: dict[str, Any] = {
            "command": "read -p 'Name? ' name; clear; echo Hello $name; cat",
            "tty": True,
            "run_in_background": True,
        }
        call = {"name": "Bash", "args": args, "id": "1", "type": "tool_call"}
        shell = {"bash_id": (await tools["Bash"].ainvoke(call)).artifact.metadata["bash_id"]}

        async def until_shown(text: str) -> str:
            while text not in (shown := str(await tools["BashScreen"].ainvoke(shell))):
                assert "[Status: completed" not in shown
            return shown

        with anyio.fail_after(60):
            await until_shown("Name?")
            args = {**shell, "text": "World", "keys": ["Enter"]}
            call = {"name": "BashInput", "args": args, "id": "2", "type": "tool_call"}
            message = await tools["BashInput"].ainvoke(call)
            assert (message.status, message.artifact.metadata["written"]) == ("success", 6)
            assert (await until_shown("Hello World")).startswith("Hello World\n[Screen: ")
            await tools["BashInput"].ainvoke({**shell, "keys": ["C-d"]})
            await until_shown("[Status: completed, exit code 0.")


def test_langchain_uses_daemon_tools_without_event_loop() -> None:
    with Client.spawn() as client:
        bash, *_ = client.langchain_tools(context={"working_dir": "/usr"})
        assert bash.invoke({"command": "pwd"}) == "/usr\n"


@pytest.mark.parametrize(
    "call",
    [
        "from shelld_client import Client\nwith Client.spawn() as shell: shell.langchain_tools()",
        "from shelld.tools import BashTool\nBashTool().to_langchain_tool()",
    ],
)
def test_error_names_the_extra_without_langchain(call: str) -> None:
    # The value `None` in `sys.modules` marks a module that cannot be imported.
    script = f"import sys\nsys.modules['langchain_core'] = None\n{call}"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: LangChain tools need the extra 'langchain': "
        "pip install 'shelld[langchain]'"
    )


def test_infinite_context_timeout_leaves_the_default() -> None:
    with Client.spawn(args=["--default-timeout", "1000"]) as client:
        context = ExecutionContext("/", timeout=float("inf"))
        result = client.call_tool("Bash", {"command": "sleep 300"}, context=context)
        assert str(result.error).startswith("Command timed out after 1000ms\n[For more time: ")
        assert client.call_tool("Bash").error == "Missing required parameter: command"
        assert client.tool_schemas("mcp")[0]["name"] == "Bash"


@pytest.mark.parametrize("timeout", [float("nan"), -float("inf"), -1])
def test_a_context_with_a_wrong_timeout_is_refused(timeout: float) -> None:
    with Client.spawn() as client:
        with pytest.raises(InvalidParams) as error:
            client.call_tool("Bash", {"command": "true"}, context={"timeout": timeout})
        assert (error.value.parameter, error.value.code) == ("context.timeout", -32602)
