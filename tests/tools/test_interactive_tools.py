"""``Bash`` with a terminal, ``BashInput`` and ``BashScreen``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shelld_client import Client
from shelld_protocol import ToolResult
from tool_results import background, ended, failed, ok
from tool_samples import Tools


@pytest.fixture(scope="module")
def interactive() -> bool:
    return True


async def start(call: Tools, command: str) -> str:
    """Start a command with a terminal. Return its id once it has written "ready"."""
    bash_id = await background(call, command, tty=True)
    ok(await call("BashOutput", bash_id=bash_id, filter="ready", wait=60_000))
    return bash_id


async def read_until(call: Tools, bash_id: str, output: str, text: str) -> str:
    """Read more output until it contains a text. Return `output` with the new output after it."""
    while text not in output:
        result = await call("BashOutput", bash_id=bash_id, wait=60_000)
        output += ok(result)
        assert text in output or result.metadata["is_running"], output
    return output


async def screen_with(call: Tools, bash_id: str, line: str) -> ToolResult:
    """Return the first screen that shows a line."""
    while True:
        result = await call("BashScreen", bash_id=bash_id)
        if line in ok(result).splitlines():
            return result


async def test_model_answers_a_program_that_asks(call: Tools) -> None:
    bash_id = await start(call, 'echo ready; read -p "Name? " name; echo "Hello $name"; cat')
    result = await call("BashInput", bash_id=bash_id, text="World\n", wait=60_000)
    assert (result.metadata["written"], result.metadata["pending_bytes"]) == (6, 0)
    answer = await read_until(call, bash_id, ok(result), "Hello World\n")
    assert "[Status: running. " in answer
    assert "\r" not in answer
    result = await call("BashInput", bash_id=bash_id, keys=["C-d"], wait=60_000)
    assert "[Status: completed, exit code 0." in await read_until(
        call, bash_id, ok(result), "[Status: completed"
    )


async def waiting_line(call: Tools, bash_id: str) -> str:
    """Return the last line of the first result that has a prompt."""
    while True:
        result = await call("BashOutput", bash_id=bash_id, wait=100)
        if "prompt" in result.metadata:
            return ok(result).splitlines()[-1]
        assert result.metadata["is_running"]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("read -p 'Name? ' name", '[bash waits for input: "Name?"]'),
        ("exec cat", "[cat waits for input]"),
        ("read -rsp 'Password: ' word", "[bash waits for a secret: ask the user]"),
    ],
)
async def test_result_ends_with_what_a_program_waits_for(
    call: Tools, command: str, line: str
) -> None:
    bash_id = await background(call, command, tty=True)
    assert await waiting_line(call, bash_id) == line
    result = await call("BashScreen", bash_id=bash_id)
    assert ok(result).splitlines()[-1] == line


async def test_result_says_that_a_command_is_stopped(call: Tools) -> None:
    bash_id = await background(call, "kill -STOP $$", tty=True)
    while "stopped" not in (text := ok(await call("BashOutput", bash_id=bash_id, wait=100))):
        pass
    assert "[Status: running, stopped by a signal." in text
    ok(await call("KillShell", shell_id=bash_id))


async def test_model_sees_what_a_program_draws(call: Tools) -> None:
    draw = r"printf 'ready\n\033[2J\033[3;5Hmenu'; stty -echo; read; echo; echo gone"
    bash_id = await start(call, draw)
    shown = await screen_with(call, bash_id, "    menu")
    assert ok(shown).startswith("\n\n    menu\n[Screen: 30 rows, 120 columns. Cursor: row 2, ")
    assert shown.metadata["cursor"] == {"row": 2, "col": 8, "visible": True}
    assert shown.metadata["is_running"] is True
    ok(await call("BashInput", bash_id=bash_id, keys=["Enter"]))
    ok(await ended(call, bash_id))
    shown = await screen_with(call, bash_id, "gone")
    assert "[Status: completed, exit code 0." in ok(shown)


async def test_screen_without_text_is_reported_as_empty(call: Tools) -> None:
    bash_id = await start(call, r"printf 'ready\n\033[2J\033[H'; stty -echo; read")
    shown = await screen_with(call, bash_id, "(blank screen)")
    assert shown.metadata["rows"] == 30


async def test_large_screen_is_cut_with_a_notice(call: Tools) -> None:
    bash_id = await start(call, "seq 1 2000; echo ready; cat")
    context = {"max_output_size": 500}
    shown = await call("BashScreen", bash_id=bash_id, scrollback=2_000, context=context)
    assert "[Screen truncated: it does not fit]" in ok(shown)
    assert shown.metadata["truncated"] is True


async def test_foreground_command_can_have_a_terminal(call: Tools) -> None:
    assert ok(await call("Bash", command="test -t 1; echo $?", tty=True)) == "0\n"


async def test_dangerous_line_is_refused(call: Tools) -> None:
    bash_id = await start(call, "echo ready; exec bash --norc -i")
    refused = await call("BashInput", bash_id=bash_id, text="rm --help -rf /\n")
    assert "rm" in failed(refused)
    assert refused.metadata["kind"] == "blocked"


@pytest.mark.parametrize("tool", ["BashInput", "BashScreen"])
async def test_shell_without_terminal_is_explained(call: Tools, tool: str) -> None:
    bash_id = await background(call, "sleep 300")
    text = {"text": "x"} if tool == "BashInput" else {}
    refused = failed(await call(tool, bash_id=bash_id, **text))
    assert refused.endswith("[It was started without a terminal: start it again with tty=true]")


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({}, "Nothing to type: give text or keys"),
        ({"keys": [1]}, "Invalid type for keys: expected array of strings"),
        ({"keys": "Enter"}, "Invalid type for keys: expected array"),
        ({"keys": ["Foo"]}, "Invalid value for keys: unknown key 'Foo'"),
        ({"secret": True}, "Unknown parameter: secret. Known: bash_id, text, keys, wait"),
    ],
)
async def test_bad_input_is_refused(call: Tools, params: Any, error: str) -> None:
    bash_id = await start(call, "echo ready; cat")
    assert failed(await call("BashInput", bash_id=bash_id, **params)) == error


async def test_unread_input_is_reported(call: Tools) -> None:
    bash_id = await start(call, "stty raw -echo; echo ready; sleep 300")
    full = await call("BashInput", bash_id=bash_id, text="x" * 100_000, wait=0)
    pending = full.metadata["pending_bytes"]
    assert pending > 0
    assert f"[{pending} bytes of input wait: the program does not read]" in ok(full)


def test_refused_key_is_not_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ["--interactive-tools", "--log-level", "debug", "--log-file", str(log)]
    with Client.spawn(args=options) as client:
        start = {"command": "cat", "tty": True, "run_in_background": True}
        bash_id = client.call_tool("Bash", start).metadata["bash_id"]
        arguments = {"bash_id": bash_id, "keys": ["swordfish", "Enter"]}
        assert "swordfish" in failed(client.call_tool("BashInput", arguments))
    assert "Tool BashInput failed: invalid_params" in log.read_text()
    assert "swordfish" not in log.read_text()


def test_tools_are_offered_only_on_request() -> None:
    with Client.spawn() as client:
        tools = {each["name"]: each for each in client.tool_schemas("anthropic")}
    assert list(tools) == ["Bash", "BashOutput", "KillShell"]
    assert "tty" not in tools["Bash"]["input_schema"]["properties"]
    assert "Nobody can answer a prompt" in tools["Bash"]["description"]


def test_interactive_tools_are_described(client: Client) -> None:
    tools = {each["name"]: each for each in client.tool_schemas("mcp")}
    assert list(tools) == ["Bash", "BashOutput", "KillShell", "BashInput", "BashScreen"]
    assert "tty=true" in tools["Bash"]["description"]
    keys = tools["BashInput"]["inputSchema"]["properties"]["keys"]
    assert keys["items"] == {"type": "string"}
    assert tools["BashScreen"]["annotations"]["readOnlyHint"] is True
