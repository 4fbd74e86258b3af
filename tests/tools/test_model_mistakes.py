"""After a typical mistake, a model needs only the text of the result to know how to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from shelld.tools import BashOutputTool, BashTool, KillShellTool
from shelld_protocol.tool_methods import ToolFormat
from tool_results import background, failed, ok
from tool_samples import Tools

# Each mistake has the tool, its arguments, and the words that the text of the result must contain.
# "$id" stands for the id of a running shell.
MISTAKES: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "seconds instead of milliseconds": (
        "Bash",
        {"command": "true", "timeout": 120},
        ("milliseconds, 1000 to 600000", "120 s are 120000"),
    ),
    "a timeout that is too long": (
        "Bash",
        {"command": "true", "timeout": 3_600_000},
        ("exceeds maximum: 600000", "milliseconds"),
    ),
    "a number as text": ("Bash", {"command": "true", "timeout": "5s"}, ("expected integer",)),
    "another name for the command": (
        "Bash",
        {"cmd": "ls"},
        ("Missing required parameter: command", "Unknown: 'cmd'"),
    ),
    "a parameter of another harness": (
        "Bash",
        {"command": "ls", "workdir": "/"},
        ("Unknown parameter: workdir", "cwd"),
    ),
    "an empty command": ("Bash", {"command": ""}, ("command", "minimum length: 1")),
    "a directory that does not exist": (
        "Bash",
        {"command": "ls", "cwd": "~/missing"},
        ("~/missing: no such directory", "not expanded"),
    ),
    "a server in the foreground": (
        "Bash",
        {"command": "echo up; sleep 300", "timeout": 1_000},
        ("timed out after 1000ms", "up", "run_in_background", "on_timeout"),
    ),
    "a wait without a background": (
        "Bash",
        {"command": "true", "until": "listening"},
        ("until", "needs run_in_background=true"),
    ),
    "a word for until that does not exist": (
        "Bash",
        {"command": "true", "run_in_background": True, "until": "ready"},
        ("must be one of", "listening"),
    ),
    "a pattern that is none": (
        "BashOutput",
        {"bash_id": "$id", "filter": "("},
        ("Invalid filter regex",),
    ),
    "a lost id": ("BashOutput", {}, ("Missing required parameter: bash_id", "$id (sleep 300)")),
    "an invented id": (
        "BashOutput",
        {"bash_id": "shell_1"},
        ("Shell not found", "$id (sleep 300)"),
    ),
    "an id of another tool": ("KillShell", {"shell_id": "npm"}, ("Shell not found", "$id")),
    "another name for the id": (
        "BashOutput",
        {"id": "$id"},
        ("Missing required parameter: bash_id", "Unknown: 'id'", "$id"),
    ),
    "a search that finds nothing": (
        "Bash",
        {"command": "cd / && grep -q nothing /dev/null"},
        ("exit code 1: grep found nothing, which is not an error",),
    ),
    "a comparison": (
        "Bash",
        {"command": "diff -q /dev/null /etc/passwd >/dev/null"},
        ("diff found a difference, which is not an error",),
    ),
    "a test that is false": ("Bash", {"command": "[ -e /none ]"}, ("[ is false", "not an error")),
    "a program that is not installed": (
        "Bash",
        {"command": "no-such-program"},
        ("exit code 127", "command not found"),
    ),
    "an unknown tool": ("Shell", {"command": "ls"}, ("Unknown tool: Shell", "Bash, BashOutput")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_result_of_a_mistake_says_how_to_go_on(call: Tools, mistake: str) -> None:
    tool, arguments, expected = MISTAKES[mistake]
    needs_shell = "$id" in json.dumps([arguments, expected])
    bash_id = await background(call, "sleep 300") if needs_shell else ""
    given = {
        name: value.replace("$id", bash_id) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    text = failed(await call(tool, **given))
    for each in expected:
        assert each.replace("$id", bash_id) in text


@pytest.mark.parametrize(
    ("command", "is_no_error"),
    [
        ("grep x /dev/null | grep y", True),
        ("X=1 /usr/bin/pgrep -f no-such-process-$$x", True),
        ("echo 'a | grep b' > /dev/null; exit 1", False),
        ("git grep -q x; exit 1", False),
        ("false", False),
        ("grep '", False),
        ("grep x /dev/null; (exit 1)", False),
        ("# grep\nfalse", False),
        ("false\ngrep x /dev/null", True),
        ("false || grep x /dev/null", True),
        ("[ -e /none ] && grep x /dev/null", False),
        ("(cd / && false) && diff /dev/null /dev/null", False),
        ("! diff /dev/null /dev/null", False),
        ("test $(grep x /dev/null) || false $(grep x /dev/null)", False),
        ("bash -c 'exit 1' <(grep x /dev/null)", False),
        ("while read -r; do false; done < <(echo a; grep x /dev/null)", False),
        ("x=$(grep x /dev/null)", False),
        ("(grep x /dev/null)", False),
        ("grep x $(echo /dev/null)", False),
        ("true $(true); grep x /dev/null", False),
        ("trap 'exit 1' EXIT; test -d /", False),
        ("false `true; grep x /dev/null`", False),
    ],
)
async def test_meaning_of_exit_code_1_is_that_of_the_last_program(
    call: Tools, command: str, is_no_error: bool
) -> None:
    text = failed(await call("Bash", command=command))
    assert ("not an error" in text) is is_no_error


async def test_exit_code_1_with_output_is_a_failure_like_any_other(call: Tools) -> None:
    text = failed(await call("Bash", command="diff <(echo a) <(echo b)"))
    assert text.startswith("Command failed with exit code 1\n")


async def test_model_sees_the_size_of_binary_output(call: Tools) -> None:
    binary = r"printf '\1\2\3\4\5\200\201\202\203\204%.0s' {1..30}"
    assert ok(await call("Bash", command=binary)) == "[binary, 300 bytes]"
    both = ok(await call("Bash", command=f"echo text; {binary} >&2"))
    assert both == "text\n[stderr]\n[binary, 300 bytes]"
    bash_id = await background(call, binary)
    text = ok(await call("BashOutput", bash_id=bash_id, wait=60_000, until="exit"))
    assert text.splitlines()[0] == "[binary, 300 bytes]"


@pytest.mark.parametrize(
    "command",
    [
        r"printf 'name\0%.0s' {1..40}",
        r"printf 'na\357ve text in Latin-1, and more of it\n%.0s' {1..40}",
        r"printf '\1\2\3'",
        r"printf '\e[31mred\e[0m\n%.0s' {1..40}",
    ],
)
async def test_text_with_odd_bytes_stays_text(call: Tools, command: str) -> None:
    assert "[binary" not in ok(await call("Bash", command=command))


@pytest.mark.parametrize("form", [each for each in get_args(ToolFormat) if each != "mcp"])
def test_all_tools_need_less_than_4_kb_of_json(form: ToolFormat) -> None:
    tools = [tool().to_schema(form) for tool in (BashTool, BashOutputTool, KillShellTool)]
    assert len(json.dumps(tools, separators=(",", ":"))) < 4_000


def test_mcp_descriptions_for_a_model_need_less_than_4_kb_of_json() -> None:
    # The output schemas and annotations, which MCP wants, are for the host.
    tools = [tool().to_schema("mcp") for tool in (BashTool, BashOutputTool, KillShellTool)]
    read = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in tools]
    assert len(json.dumps(read, separators=(",", ":"))) < 4_000


def test_descriptions_say_unit_default_and_limits() -> None:
    for tool in (BashTool, BashOutputTool, KillShellTool):
        for each in tool().parameters:
            if each.name in {"timeout", "wait", "quiet_ms", "grace"}:
                assert "illiseconds" in each.description
                assert each.minimum is not None
                assert each.maximum is not None


@pytest.mark.parametrize(
    "command",
    [
        "[ -e /none ] || exit 1; grep -q root /etc/passwd",
        "if [ ! -e /none ]; then exit 1; fi; grep -q root /etc/passwd",
        "set -e; test -e /none; grep -q root /etc/passwd",
        "set -o pipefail\nfalse | grep -v x",
        "false  # the search; grep x",
    ],
)
async def test_exit_code_of_another_program_is_not_explained(call: Tools, command: str) -> None:
    text = failed(await call("Bash", command=command))
    assert text == "Command failed with exit code 1"
