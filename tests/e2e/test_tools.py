"""``list_tools`` and ``call_tool`` on the wire, with the tools of a plug-in."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shelld_protocol.schemas import tool_result_schema
from support import (
    DEADLINE_S,
    RawDaemon,
    altered_daemon,
    is_alive,
    raw_daemon,
    running_below,
    wait_for,
)

PLUGIN = Path(__file__).parents[1] / "plugin"


@pytest.fixture
def plugged() -> Iterator[RawDaemon]:
    """A daemon with a plug-in that has some broken entry points."""
    path = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    # The grace period is short, because the daemon waits this long before it answers for a tool
    # that ignores its cancellation.
    daemon = RawDaemon("--grace", "100", env={**os.environ, "PYTHONPATH": path})
    yield daemon
    daemon.close()


def call(daemon: RawDaemon, name: str, arguments: Any = None, **context: Any) -> Any:
    params = {"name": name, "arguments": arguments, "context": context or None}
    return daemon.call("call_tool", params)


@pytest.mark.slow
def test_failed_command_is_result_not_error(daemon: RawDaemon) -> None:
    result = call(daemon, "Bash", {"command": "echo hi; exit 2"})
    assert result["success"] is False
    assert result["output"] is None
    assert result["error"] == "Command failed with exit code 2\nhi\n"
    assert result["metadata"]["exit_code"] == 2
    jsonschema.validate(result, tool_result_schema(["string"]))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["kill_shell", "close_session"])
def test_killed_status_ignores_exit_code(new_daemon: RawDaemon, tmp_path: Path, way: str) -> None:
    ready = tmp_path / "ready"
    command = f"trap 'exit 0' TERM; touch {ready}; sleep 300 & wait"
    params = {"name": "Bash", "arguments": {"command": command, "session": "main"}}
    request = new_daemon.request("call_tool", params)
    wait_for(ready.exists, "the trap")
    if way == "kill_shell":
        (shell,) = new_daemon.call("list_shells")["shells"]
        new_daemon.call("kill_shell", {"shell_id": shell["bash_id"]})
    else:
        new_daemon.call("close_session", {"session": "main"})
    result = new_daemon.answer(request)["result"]
    assert result["error"].splitlines()[0] == "Command was killed, and exited with code 0"
    assert (result["metadata"]["status"], result["metadata"]["exit_code"]) == ("killed", 0)


def test_an_unknown_tool_is_a_failed_result(daemon: RawDaemon) -> None:
    assert call(daemon, "Nope", {"a": 1}) == {
        "success": False,
        "output": None,
        "error": "Unknown tool: Nope. Known: Bash, BashOutput, KillShell",
        "metadata": {},
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (None, "Missing required parameter: name"),
        ({"name": 1}, "Invalid type for name: expected string"),
        ({"name": "Bash", "arguments": []}, "Invalid type for arguments: expected object"),
        ({"name": "Bash", "arguments": "ls"}, "Invalid type for arguments: expected object"),
        ({"name": "Bash", "context": "x"}, "Invalid type for context: expected object"),
        (
            {"name": "Bash", "context": {"timeout": "1"}},
            "Invalid type for context.timeout: expected number",
        ),
        (
            {"name": "Bash", "context": {"timeout": -1}},
            "Value for context.timeout is below minimum: 0",
        ),
        ({"name": "Bash", "context": {"foo": 1}}, "Unknown parameter: context.foo"),
        ({"name": "Bash", "foo": 1}, "Unknown parameter: foo"),
    ],
)
def test_malformed_tool_call_is_invalid_params(
    daemon: RawDaemon, params: Any, message: str
) -> None:
    error = daemon.fail("call_tool", params)
    assert (error["code"], error["message"]) == (-32602, message)


def test_arguments_and_context_may_be_null_and_positional(daemon: RawDaemon) -> None:
    sentence = "Missing required parameter: command"
    for params in (
        ["Bash"],
        ["Bash", None],
        {"name": "Bash", "arguments": None, "context": None},
        {"name": "Bash", "arguments": {"command": None}, "context": {"working_dir": None}},
    ):
        assert daemon.call("call_tool", params)["error"] == sentence


def test_context_members_apply_to_the_call(daemon: RawDaemon, tmp_path: Path) -> None:
    assert call(daemon, "Bash", {"command": "pwd"}, working_dir=str(tmp_path))["output"] == (
        f"{tmp_path}\n"
    )
    call(daemon, "Bash", {"command": "A=1"}, session_id="mine", agent_id="a", metadata={"b": 1})
    assert daemon.bash("echo $A", session="mine")["stdout"] == "1\n"
    assert call(daemon, "Bash", {"command": "sleep 9"}, timeout=0.2)["error"].startswith(
        "Command timed out after 200ms\n[For more time: "
    )
    assert call(daemon, "Bash", {"command": "ls"}, dry_run=True)["output"] == (
        "[Dry Run] Would execute: ls"
    )
    assert "truncated" in call(daemon, "Bash", {"command": "seq 99"}, max_output_size=9)["output"]


@pytest.mark.slow
def test_tool_call_has_default_timeout() -> None:
    with raw_daemon("--default-timeout", "1000") as daemon:
        result = call(daemon, "Bash", {"command": "sleep 300"})
        assert result["error"].startswith("Command timed out after 1000ms\n[For more time: ")
        (bash, *_) = daemon.call("list_tools")["tools"]
        assert "(default 1000)" in bash["function"]["description"]


def test_a_cancelled_call_kills_its_command(daemon: RawDaemon) -> None:
    arguments = {"command": "exec -a cancel-me sleep 300"}
    request = daemon.request("call_tool", {"name": "Bash", "arguments": arguments})
    (pid,) = wait_for(lambda: running_below(daemon.pid, "cancel-me"))
    daemon.notify("$/cancelRequest", {"id": request})
    assert daemon.answer(request)["error"]["code"] == -32800
    assert not is_alive(pid)


def test_tools_and_methods_have_the_same_shells(new_daemon: RawDaemon) -> None:
    result = call(new_daemon, "Bash", {"command": "sleep 300", "run_in_background": True})
    bash_id = result["metadata"]["bash_id"]
    assert new_daemon.call("list_shells")["shells"][-1]["bash_id"] == bash_id
    mine = new_daemon.background("sleep 300")
    assert call(new_daemon, "KillShell", {"shell_id": mine})["output"] == f"Shell {mine} terminated"
    assert new_daemon.call("kill_shell", {"shell_id": bash_id})["status"] == "killed"


def test_audit_log_has_tool_commands_and_dry_runs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with raw_daemon("--audit-log", str(log)) as daemon:
        call(daemon, "Bash", {"command": "echo logged", "description": "why"})
        call(daemon, "Bash", {"command": "echo dry"}, dry_run=True)
    first, second = log.read_text().splitlines()
    assert '"command":"echo logged","description":"why","status":"completed"' in first
    assert '"command":"echo dry"' in second
    assert '"status":"dry_run"' in second


@pytest.mark.parametrize("format_name", ["openai", "anthropic", "mcp"])
def test_tools_are_described_in_each_format(daemon: RawDaemon, format_name: str) -> None:
    tools = daemon.call("list_tools", {"format": format_name})["tools"]
    if format_name == "openai":
        assert tools == daemon.call("list_tools")["tools"]
        assert {tool["type"] for tool in tools} == {"function"}
        tools = [tool["function"] for tool in tools]
    key = {"openai": "parameters", "anthropic": "input_schema", "mcp": "inputSchema"}[format_name]
    assert [tool["name"] for tool in tools] == ["Bash", "BashOutput", "KillShell"]
    assert [tool[key]["required"] for tool in tools] == [["command"], ["bash_id"], ["shell_id"]]
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool[key])
        assert len(tool["description"]) < 1_000
        if format_name == "mcp":
            jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
            assert tool["annotations"]["readOnlyHint"] is (tool["name"] == "BashOutput")


def test_an_unknown_format_is_invalid_params(daemon: RawDaemon) -> None:
    error = daemon.fail("list_tools", {"format": "cobol"})
    assert error["message"] == (
        "Invalid value for format: must be one of ['openai', 'anthropic', 'mcp']"
    )


def test_tools_have_the_specified_parameters(daemon: RawDaemon) -> None:
    tools = {tool["name"]: tool for tool in daemon.call("list_tools", ["anthropic"])["tools"]}
    bash = tools["Bash"]["input_schema"]["properties"]
    assert (
        bash.items()
        >= {
            "command": {
                "type": "string",
                "description": "The command to execute",
                "minLength": 1,
            },
            "description": {
                "type": "string",
                "description": "Clear, concise description (5-10 words)",
            },
            "timeout": {
                "type": "integer",
                "description": "Timeout in milliseconds",
                "minimum": 1000,
                "maximum": 600000,
            },
            "run_in_background": {
                "type": "boolean",
                "description": "Run in background",
                "default": False,
            },
        }.items()
    )
    output = tools["BashOutput"]["input_schema"]["properties"]
    assert (
        output.items()
        >= {
            "bash_id": {"type": "string", "description": "ID of the background shell"},
            "filter": {"type": "string", "description": "Regex to filter output lines"},
        }.items()
    )
    kill = tools["KillShell"]["input_schema"]["properties"]
    assert kill["shell_id"] == {"type": "string", "description": "ID of the shell to kill"}


@pytest.mark.parametrize(
    ("tool", "method"),
    [("Bash", "bash"), ("BashOutput", "bash_output"), ("KillShell", "kill_shell")],
)
def test_tool_parameters_match_method_params(daemon: RawDaemon, tool: str, method: str) -> None:
    tools = {tool["name"]: tool for tool in daemon.call("list_tools", ["anthropic"])["tools"]}
    document = daemon.call("rpc.discover")
    # The tool Bash takes `wait`, as `bash_output` does.
    methods = (method, "bash_output")
    params = {
        param["name"]: param["schema"]
        for each in document["methods"]
        if each["name"] in methods
        for param in each["params"]
    }
    for name, schema in tools[tool]["input_schema"]["properties"].items():
        # The method's schema has the same rules as the tool's schema. But the values of an enum may
        # come in another order, and the method may also allow null.
        alternatives = params[name].get("anyOf", [params[name]])
        (other,) = [each for each in alternatives if each.get("type") != "null"]
        for key in ("minLength", "minimum", "maximum"):
            assert schema.get(key) == other.get(key), name
        assert sorted(schema.get("enum", [])) == sorted(other.get("enum", [])), name
        assert schema["type"] == other.get("type", "string"), name


@pytest.mark.slow
def test_failed_tool_is_logged_only_on_request(tmp_path: Path) -> None:
    with raw_daemon() as daemon:
        call(daemon, "Bash", {"command": "exit 1"})
    log = tmp_path / "log"
    with raw_daemon("--log-level", "info", "--log-file", str(log)) as daemon:
        call(daemon, "Bash", {"command": "echo secret output; exit 1"})
    text = log.read_text()
    assert "INFO shelld.tools: Executing tool: Bash" in text
    assert "WARNING shelld.tools: Tool Bash failed: Command failed with exit code 1" in text
    assert "secret" not in text


def test_plugin_tools_load_and_broken_ones_are_reported(plugged: RawDaemon) -> None:
    names = [tool["function"]["name"] for tool in plugged.call("list_tools")["tools"]]
    assert names[:4] == ["Bash", "BashOutput", "KillShell", "Reverse"]
    assert names[4:] == ["Unshowable", "Unhashable", "Nested", "Ending", "Staying"]
    assert call(plugged, "Reverse", {"text": "abc"}) == {
        "success": True,
        "output": "cba",
        "error": None,
        "metadata": {"length": 3},
    }
    assert call(plugged, "Reverse", {"text": ""})["error"] == (
        "Value for text is shorter than minimum length: 1"
    )
    assert call(plugged, "Unshowable", {"text": "x"})["error"] == (
        "The result of Unshowable has no JSON"
    )
    assert call(plugged, "Unhashable", {"text": "x"})["output"] == ["x", 0.5, 15]
    assert call(plugged, "Nested", {"text": "x"})["error"] == "The result of Nested has no JSON"
    stderr = plugged.read_stderr().decode()
    for name, reason in (
        ("a_broken", "RuntimeError: broken on purpose"),
        ("b_leaving", "SystemExit: 3"),
        ("c_missing", "AttributeError"),
        ("d_taken", "ToolError: Tool 'Bash' error: already registered"),
        ("e_no_tool", "TypeError"),
    ):
        assert f"the tools of plug-in {name} are skipped: {reason}" in stderr
    assert "this must not end up among the answers" in stderr
    assert stderr.count("are skipped") == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "metadata"),
    [
        ("exit", {"exception": "SystemExit"}),
        ("cancelled", {"exception": "CancelledError"}),
        # In a program that embeds the tools without a daemon, these exceptions would reach that
        # program.
        ("interrupt", {"kind": "internal_error"}),
        ("group", {"kind": "internal_error"}),
        ("own task", {"kind": "internal_error"}),
    ],
)
def test_tool_that_ends_programs_only_fails(
    plugged: RawDaemon, way: str, metadata: dict[str, str]
) -> None:
    job = plugged.call("bash", {"command": "sleep 60", "run_in_background": True})
    result = call(plugged, "Ending", {"text": way})
    assert (result["success"], result["metadata"]) == (False, metadata)
    assert plugged.call("list_shells")["shells"][0]["bash_id"] == job["bash_id"]
    assert is_alive(job["pid"])


@pytest.mark.parametrize("way", ["own task at its end", "own task, and go on"])
def test_self_cancelling_tool_harms_no_later_call(plugged: RawDaemon, way: str) -> None:
    job = plugged.call("bash", {"command": "sleep 60", "run_in_background": True})
    for _ in range(3):
        assert call(plugged, "Ending", {"text": way})["output"] == "done"
        # A worker that stayed cancelled while idle would also cancel its next call.
        later = call(plugged, "Ending", {"text": "cancelled"})
        assert later["metadata"] == {"exception": "CancelledError"}
    assert is_alive(job["pid"])
    assert plugged.call("server_info")["counters"]["internalErrors"] == 0


def start_staying(daemon: RawDaemon, what: str) -> Any:
    """Call a tool that ignores the cancellation of its call; return the id of the request."""
    request = daemon.request("call_tool", {"name": "Staying", "arguments": {"text": what}})
    word = b"a thread sleeps" if what == "thread" else b"cancellation is ignored"
    wait_for(lambda: word in daemon.read_stderr())
    return request


@pytest.mark.slow
def test_stubborn_cancelled_tool_is_answered(plugged: RawDaemon) -> None:
    request = start_staying(plugged, "itself")
    plugged.notify("$/cancelRequest", {"id": request})
    assert plugged.answer(request)["error"]["code"] == -32800
    assert call(plugged, "Reverse", {"text": "abc"})["output"] == "cba"
    assert b"a request goes on although it is cancelled: 'call_tool'" in plugged.read_stderr()


@pytest.mark.slow
def test_stubborn_tool_cancelled_over_mcp_stays_unanswered(plugged: RawDaemon) -> None:
    request = start_staying(plugged, "itself")
    plugged.notify("notifications/cancelled", {"requestId": request})
    wait_for(lambda: b"a request goes on although" in plugged.read_stderr())
    later = plugged.request("ping")
    assert plugged.receive()["id"] == later


@pytest.mark.slow
@pytest.mark.parametrize("what", ["itself", "task", "thread"])
def test_daemon_ends_beside_stubborn_tool(plugged: RawDaemon, what: str) -> None:
    job = plugged.call("bash", {"command": "sleep 60", "run_in_background": True})
    request = start_staying(plugged, what)
    plugged.end_input()
    assert plugged.answer(request)["error"]["data"]["kind"] == "shutting_down"
    assert plugged.process.wait(DEADLINE_S) == 0
    wait_for(lambda: not is_alive(job["pid"]))


def test_a_tool_that_returns_no_valid_result_fails(plugged: RawDaemon) -> None:
    result = call(plugged, "Ending", {"text": "wrong"})
    sentence = "Tool 'Ending' returned a ToolResult whose error is not a str"
    assert (result["success"], result["error"]) == (False, sentence)
    assert plugged.call("server_info")["counters"]["internalErrors"] == 0


@pytest.mark.slow
def test_plugins_are_loaded_without_being_asked_for(plugged: RawDaemon) -> None:
    plugged.call("ping")
    wait_for(lambda: b"g_several" in plugged.read_stderr() or b"e_no_tool" in plugged.stderr)


PLUGIN_HEADER = """
import threading
from shelld.tools import BaseTool, ToolCategory, ToolParameter, ToolResult

class Good(BaseTool):
    name = "Good"
    description = "Does nothing."
    category = ToolCategory.OTHER
    parameters = []

    async def _execute(self, context, /, **params):
        return ToolResult.ok("good")

"""

OWN_TOOLS = ["Bash", "BashOutput", "KillShell"]


@contextlib.contextmanager
def daemon_with(directory: Path, plugin: str, **constants: float) -> Generator[RawDaemon]:
    """Run a daemon with a plug-in. `plugin` is the source of the plug-in, with the entry point
    `make`.
    """
    (directory / "odd_plugin.py").write_text(PLUGIN_HEADER + textwrap.dedent(plugin))
    info = directory / "odd_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shelld.tools]\nodd = odd_plugin:make\n")
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    altered = {f"shelld.tools.plugins.{name}": value for name, value in constants.items()}
    daemon = RawDaemon(command=altered_daemon(altered), env={**os.environ, "PYTHONPATH": path})
    try:
        yield daemon
    finally:
        daemon.close()


HANGING = """
def make():
    threading.Event().wait()
"""


def test_own_tools_do_not_wait_for_plugins(tmp_path: Path) -> None:
    with daemon_with(tmp_path, HANGING, LOAD_TIMEOUT_S=3_600) as daemon:
        waiting = daemon.request("list_tools")
        assert call(daemon, "Bash", {"command": "echo here"})["output"] == "here\n"
        daemon.notify("$/cancelRequest", {"id": waiting})
        assert daemon.answer(waiting)["error"]["code"] == -32800
        daemon.end_input()
        assert daemon.wait() == 0


def test_plugin_that_never_returns_is_skipped(tmp_path: Path) -> None:
    with daemon_with(tmp_path, HANGING, LOAD_TIMEOUT_S=0.1) as daemon:
        names = [tool["function"]["name"] for tool in daemon.call("list_tools")["tools"]]
        assert names == OWN_TOOLS
        assert call(daemon, "Good", {})["error"].startswith("Unknown tool: Good")
        assert b"it takes more than 0.1 s" in daemon.read_stderr()


BAD_TOOL = """
class Bad(Good):
    name = "Bad"
    {}

def make():
    return [Good(), Bad()]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "names"),
    [
        (BAD_TOOL.format('description = "But this is fine."'), ["Good", "Bad"]),
        (
            BAD_TOOL.format(
                'parameters = [ToolParameter("a", "array", required=False, default=[object()])]'
            ),
            ["Good"],
        ),
        (BAD_TOOL.format('annotations = {"title": object()}'), ["Good"]),
        (BAD_TOOL.format("output_types = None"), ["Good"]),
        (BAD_TOOL.format("description = None"), ["Good"]),
        ("class Odd(BaseException): pass\ndef make():\n    raise Odd", []),
        ("def make():\n    raise KeyboardInterrupt", []),
        ("def make():\n    while True:\n        yield Good()", []),
    ],
)
def test_broken_plugin_leaves_other_tools(tmp_path: Path, plugin: str, names: list[str]) -> None:
    with daemon_with(tmp_path, plugin) as daemon:
        for api in ("openai", "anthropic", "mcp"):
            tools = daemon.call("list_tools", {"format": api})["tools"]
            assert [tool.get("function", tool)["name"] for tool in tools] == OWN_TOOLS + names
        assert (b"skipped" in daemon.read_stderr()) == ("Bad" not in names)


def test_tool_name_failing_later_leaves_list_unchanged(tmp_path: Path) -> None:
    plugin = """
    may_fail = False

    class Late(Good):
        @property
        def name(self):
            if may_fail:
                raise RuntimeError
            return "Late"

        async def _execute(self, context, /, **params):
            global may_fail
            may_fail = True
            return ToolResult.ok("from now on")

    def make():
        return Late()
    """
    with daemon_with(tmp_path, plugin) as daemon:
        before = daemon.call("list_tools")
        for _ in range(2):
            assert isinstance(call(daemon, "Late", {})["success"], bool)
        assert daemon.call("list_tools") == before


def test_tool_resetting_the_manager_stops_nothing(tmp_path: Path) -> None:
    plugin = """
    from shelld.embed import ShellManager

    class Reset(Good):
        name = "Reset"

        async def _execute(self, context, /, **params):
            before = ShellManager()
            await ShellManager.reset()
            return ToolResult.ok(str(ShellManager() is before))

    def make():
        return Reset()
    """
    with daemon_with(tmp_path, plugin) as daemon:
        bash_id = daemon.background("sleep 300")
        assert call(daemon, "Reset", {})["output"] == "True"
        assert daemon.call("bash_output", {"bash_id": bash_id})["status"] == "killed"
        assert daemon.bash("echo on")["stdout"] == "on\n"


def test_huge_context_timeout_is_accepted(daemon: RawDaemon) -> None:
    bash_id = daemon.background("true")
    daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    result = call(daemon, "BashOutput", {"bash_id": bash_id, "wait": 1}, timeout=1e306)
    assert result["success"]


def test_the_debug_log_has_no_values_of_parameters(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with raw_daemon("--log-level", "debug", "--log-file", str(log)) as daemon:
        call(daemon, "Bash", {"command": "cat", "stdin": "hunter2"})
    text = log.read_text()
    assert "'command': 3 characters, 'stdin': 7 characters" in text
    assert "hunter2" not in text
