"""The results of `Bash` for a model that waits for its command."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from shelld.tools import BashTool, ExecutionContext, ToolResult
from support import Gate, Mark, is_alive
from tool_results import ended, failed, ok
from tool_samples import Tools


async def test_command_returns_its_output(call: Tools) -> None:
    result = await call("Bash", command="echo hello")
    assert ok(result) == "hello\n"
    assert (
        result.metadata.items()
        >= {
            "exit_code": 0,
            "signal": None,
            "status": "completed",
            "is_running": False,
            "truncated": False,
            "command": "echo hello",
            "leftover": [],
        }.items()
    )
    assert re.fullmatch(r"shell_\w+", result.metadata["bash_id"])
    assert "description" not in result.metadata


async def test_command_runs_in_context_directory(call: Tools, tmp_path: Path) -> None:
    (tmp_path / "some_file").touch()
    (tmp_path / "below").mkdir()
    context = {"working_dir": str(tmp_path)}
    assert "some_file" in ok(await call("Bash", context=context, command="ls -la"))
    assert ok(await call("Bash", context=context, command="pwd", cwd="below")) == (
        f"{tmp_path}/below\n"
    )
    assert ok(await call("Bash", context=context, command="pwd", cwd="/usr")) == "/usr\n"


async def test_failed_command_is_failed_result_with_output(call: Tools) -> None:
    result = await call("Bash", command="echo out; echo err >&2; exit 3")
    assert failed(result) == "Command failed with exit code 3\nout\n[stderr]\nerr\n"
    assert result.metadata.items() >= {"exit_code": 3, "status": "failed"}.items()
    assert failed(await call("Bash", command="exit 1")) == "Command failed with exit code 1"


async def test_result_names_the_ending_signal(call: Tools) -> None:
    result = await call("Bash", command="kill -9 $$")
    assert failed(result) == "Command was ended by SIGKILL"
    assert result.metadata.items() >= {"exit_code": None, "signal": "SIGKILL"}.items()


async def test_stderr_follows_a_marker_line(call: Tools) -> None:
    assert ok(await call("Bash", command="echo error >&2")) == "[stderr]\nerror\n"
    assert ok(await call("Bash", command="printf out; echo error >&2")) == "out\n[stderr]\nerror\n"


async def test_command_without_output_is_reported(call: Tools) -> None:
    assert ok(await call("Bash", command="true")) == "(no output)"


async def test_chained_commands_end_with_the_first_that_fails(call: Tools) -> None:
    assert ok(await call("Bash", command="echo first && echo second")) == "first\nsecond\n"
    assert "second" not in failed(await call("Bash", command="false && echo second"))


async def test_a_command_within_its_timeout_ends_by_itself(call: Tools) -> None:
    result = await call("Bash", command="sleep 0.2 && echo done", timeout=60_000)
    assert ok(result) == "done\n"


async def test_timed_out_command_shows_its_output(call: Tools, tmp_path: Path) -> None:
    mark, results = Mark(tmp_path), list[ToolResult]()
    for _ in mark.attempts():
        command = f"echo $$; {mark.touch}; sleep 300"
        results.append(await call("Bash", command=command, timeout=1_000))
    result = results[-1]
    first, pid, last = failed(result).splitlines()
    assert first == "Command timed out after 1000ms"
    assert last.startswith("[For more time: a longer timeout, run_in_background=true")
    assert not is_alive(int(pid))
    assert result.metadata["status"] == "timeout"


async def test_context_timeout_is_the_default_timeout(call: Tools) -> None:
    context = {"timeout": 0.25}
    result = await call("Bash", context=context, command="sleep 300")
    assert failed(result).splitlines()[0] == "Command timed out after 250ms"
    assert ok(await call("Bash", context=context, command="sleep 0.4", timeout=20_000))


class _QuickTool(BashTool):
    DEFAULT_TIMEOUT_MS = 250
    MAX_TIMEOUT_MS = 5_000


class _PatientTool(BashTool):
    DEFAULT_TIMEOUT_MS = 300_000
    MAX_TIMEOUT_MS = 3_600_000


async def test_a_subclass_has_timeouts_of_its_own() -> None:
    quick, patient = _QuickTool(), _PatientTool()
    assert [tool.to_anthropic_schema()["input_schema"]["properties"]["timeout"]["maximum"]
        for tool in (quick, patient, BashTool())] == [5_000, 3_600_000, 600_000]  # fmt: skip
    assert "(default 250)" in quick.description
    context = ExecutionContext("/")
    result = await quick.execute(context, command="sleep 300")
    assert str(result.error).startswith("Command timed out after 250ms")
    result = await quick.execute(ExecutionContext("/", timeout=0.5), command="sleep 300")
    assert str(result.error).startswith("Command timed out after 500ms")
    result = await quick.execute(context, command="true", timeout=6_000)
    assert result.error == ("Value for timeout exceeds maximum: 5000 (milliseconds, 1000 to 5000)")
    assert ok(await quick.execute(context, command="true", timeout=5_000))
    assert ok(await patient.execute(context, command="true", timeout=3_600_000))


async def test_command_may_continue_after_timeout(call: Tools, tmp_path: Path) -> None:
    mark, gate, results = Mark(tmp_path), Gate(tmp_path / "gate"), list[ToolResult]()
    command = f"echo one; {mark.touch}; {gate.wait}; echo two"
    for _ in mark.attempts():
        for late in results:
            ok(await call("KillShell", shell_id=late.metadata["bash_id"]))
        results.append(await call("Bash", command=command, timeout=1_000, on_timeout="background"))
    result = results[-1]
    bash_id = result.metadata["bash_id"]
    assert ok(result) == (
        f"Still running after 1000ms, now in the background: {bash_id}\none\n"
        "[BashOutput reads what it writes, KillShell ends it]"
    )
    assert result.metadata.items() >= {"status": "running", "is_running": True}.items()
    gate.open()
    assert ok(await ended(call, bash_id)).startswith("two\n[Status: completed, exit code 0.")


async def test_description_is_returned_in_metadata(call: Tools) -> None:
    result = await call("Bash", command="true", description="Install dependencies")
    assert result.metadata["description"] == "Install dependencies"


async def test_long_output_shows_head_tail_and_next_offset(
    call: Tools,
) -> None:
    command = "for i in $(seq 10000); do printf '%04d\\n' $((i - 1)); done"
    result = await call("Bash", command=command)
    text = ok(result)
    assert result.metadata["truncated"] is True
    match = re.search(
        r"\[Output truncated: (\d+) bytes are left out here\. "
        r"To read them: BashOutput, bash_id=(\w+), stdout_offset=(\d+)\]\n",
        text,
    )
    assert match is not None
    head, tail = text[: match.start()], text[match.end() :]
    assert 29_980 <= len(head) + len(tail) <= 30_000
    assert (head[:5], tail[-5:]) == ("0000\n", "9999\n")
    size, bash_id, offset = int(match[1]), match[2], int(match[3])
    assert len(head) + size + len(tail) == 50_000
    # The omitted text can be read page by page.
    middle = ""
    while len(middle) < size:
        page = await call("BashOutput", bash_id=bash_id, stdout_offset=offset + len(middle))
        lines = ok(page).splitlines(keepends=True)
        middle += "".join(line for line in lines if not line.startswith("["))
    whole = "".join(f"{number:04}\n" for number in range(10_000))
    assert head + middle[:size] + tail == whole
    # A later read does not repeat the text.
    assert ok(await call("BashOutput", bash_id=bash_id)).startswith("(no new output)")


async def test_both_streams_share_the_output_limit(call: Tools) -> None:
    write = "for i in $(seq 20000); do echo 1; done"
    text = ok(await call("Bash", command=f"({write}) ; ({write}) >&2"))
    out, err = text.split("[stderr]\n")
    for stream, part in (("stdout", out), ("stderr", err)):
        assert f"{stream}_offset=" in part
        assert 14_900 <= len(re.sub(r"\[Output .*\n", "", part)) <= 15_000
    text = ok(await call("Bash", command=f"echo short; ({write}) >&2"))
    out, err = text.split("[stderr]\n")
    assert out == "short\n"
    assert 29_900 <= len(re.sub(r"\[Output .*\n", "", err)) <= 29_994


@pytest.mark.parametrize("timeout", [1e308, 1e15, math.inf, 10**6])
async def test_context_timeout_has_no_upper_limit(call: Tools, timeout: float) -> None:
    context = {"timeout": timeout}
    assert ok(await call("Bash", context=context, command="echo hi")) == "hi\n"


async def test_zero_context_timeout_ends_command_at_once(call: Tools) -> None:
    result = await call("Bash", context={"timeout": 0}, command="sleep 300")
    assert failed(result).startswith("Command timed out after 1ms")


async def test_the_context_can_allow_less_output(call: Tools) -> None:
    result = await call("Bash", context={"max_output_size": 10}, command="printf %050d 0")
    assert ok(result).startswith("00000\n[Output truncated: 40 bytes")
    assert ok(result).endswith("]\n00000")


async def test_escape_sequences_are_stripped(call: Tools) -> None:
    assert ok(await call("Bash", command=r"printf '\e[31mred\e[0m\n'")) == "red\n"


async def test_result_names_leftovers(call: Tools) -> None:
    result = await call("Bash", command="sleep 300 & echo up")
    bash_id = result.metadata["bash_id"]
    assert ok(result) == (f"up\n[Left running: 1 of its processes; KillShell {bash_id} ends them]")
    (pid,) = result.metadata["leftover"]
    ok(await call("KillShell", shell_id=bash_id))
    assert not is_alive(pid)


async def test_a_dry_run_runs_nothing(call: Tools, tmp_path: Path) -> None:
    file = tmp_path / "file"
    result = await call("Bash", context={"dry_run": True}, command=f"touch {file}")
    assert ok(result) == f"[Dry Run] Would execute: touch {file}"
    assert result.metadata["verdict"] == "allow"
    assert not file.exists()


async def test_a_dry_run_validates_first(call: Tools) -> None:
    context = {"dry_run": True}
    assert failed(await call("Bash", context=context)) == "Missing required parameter: command"
    sentence = failed(await call("Bash", context=context, command="a\0b"))
    assert sentence == "Invalid value for command: must not contain NUL"


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({}, "Missing required parameter: command"),
        ({"command": ""}, "Value for command is shorter than minimum length: 1"),
        ({"command": 1}, "Invalid type for command: expected string"),
        (
            {"command": "true", "timeout": 999},
            "Value for timeout is below minimum: 1000 (milliseconds, 1000 to 600000)",
        ),
        (
            {"command": "true", "timeout": 600_001},
            "Value for timeout exceeds maximum: 600000 (milliseconds, 1000 to 600000)",
        ),
        ({"command": "true", "timeout": True}, "Invalid type for timeout: expected integer"),
        (
            {"command": "true", "foo": 1},
            "Unknown parameter: foo. Known: command, description, timeout, run_in_background, "
            "on_timeout, cwd, stdin, session, until, wait, pattern, quiet_ms, port",
        ),
        (
            {"command": "true", "on_timeout": "x"},
            "Invalid value for on_timeout: must be one of ['kill', 'background']",
        ),
        (
            {"command": "true", "cwd": "~/work"},
            "Cannot use the working directory: ENOENT\n"
            "[~/work: no such directory. ~ and $HOME are not expanded in cwd]",
        ),
        (
            {"command": "true", "cwd": "/dev/null"},
            "Cannot use the working directory: ENOTDIR\n"
            "[/dev/null: not a directory. ~ and $HOME are not expanded in cwd]",
        ),
    ],
)
async def test_unstartable_command_is_failed_result(
    call: Tools, params: dict[str, Any], sentence: str
) -> None:
    assert failed(await call("Bash", **params)) == sentence


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("rm -rf /", "rm-root"),
        ("rm -rf /*", "rm-root"),
        (":(){ :|:& };:", "fork-bomb"),
        ("mkfs.ext4 /dev/sda1", "mkfs"),
    ],
)
async def test_a_dangerous_command_is_blocked(call: Tools, command: str, rule: str) -> None:
    # Use a dry run, so that nothing would happen even if the guard did not block the command.
    result = await call("Bash", context={"dry_run": True}, command=command)
    assert failed(result).startswith("Command blocked: dangerous ")
    assert (result.metadata["kind"], result.metadata["rule"]) == ("blocked", rule)
    assert command.startswith(result.metadata["segment"])


async def test_commands_of_a_session_share_its_state(call: Tools) -> None:
    ok(await call("Bash", command="cd /usr; export A=b; f() { echo $A; }"))
    assert ok(await call("Bash", command="pwd; f")) == "/usr\nb\n"
    assert ok(await call("Bash", command="echo ${A-unset}", session="other")) == "unset\n"
    context = {"session_id": "other"}
    ok(await call("Bash", context=context, command="A=mine"))
    assert ok(await call("Bash", command="echo $A", session="other")) == "mine\n"
    assert ok(await call("Bash", context=context, command="echo $A", session="main")) == "b\n"


async def test_command_reads_its_stdin(call: Tools) -> None:
    assert ok(await call("Bash", command="tr a-z A-Z", stdin="hello")) == "HELLO"


async def test_removing_a_file_is_not_blocked(call: Tools, tmp_path: Path) -> None:
    file = tmp_path / "test_file.txt"
    file.touch()
    ok(await call("Bash", command=f"rm {file}"))
    assert not file.exists()


@pytest.mark.parametrize(
    ("command", "output"),
    [("git init -q . && git status", r"On branch \w+"), ("npm --version", r"\d+\.\d+")],
)
async def test_everyday_commands_are_not_blocked(
    call: Tools, tmp_path: Path, command: str, output: str
) -> None:
    program = command.split(maxsplit=1)[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    assert re.match(output, ok(await call("Bash", command=command, cwd=str(tmp_path))))


async def test_method_names_are_tool_aliases(call: Tools) -> None:
    assert ok(await call("bash", command="echo x")) == "x\n"
    assert "not found" in failed(await call("bash_output", bash_id="shell_x"))


@pytest.mark.parametrize(
    ("command", "reason", "text"),
    [
        ("exec true", "missing", "bash could not report it, as after exec, set -r or set -n"),
        ("f() { local -; exit; }; f", "local_options", "a function with local - has called exit"),
    ],
)
async def test_result_reports_state_not_kept(
    call: Tools, tmp_path: Path, command: str, reason: str, text: str
) -> None:
    await call("Bash", command=f"cd {tmp_path}")
    result = await call("Bash", command=f"cd /etc; {command}")
    assert ok(result) == f"[The session did not keep what this command set: {text}]"
    assert result.metadata.items() >= {"state_kept": False, "state_reason": reason}.items()
    assert result.metadata["session_cwd"] == str(tmp_path)


async def test_result_names_next_directory(call: Tools, tmp_path: Path) -> None:
    result = await call("Bash", command=f"cd {tmp_path}")
    assert result.metadata["session_cwd"] == str(tmp_path)
    assert "state_kept" not in result.metadata


@pytest.mark.parametrize("background", [False, True])
async def test_result_reports_deleted_directory(
    call: Tools, tmp_path: Path, background: bool
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    await call("Bash", command=f"cd {gone}")
    gone.rmdir()
    result = await call("Bash", command="true", run_in_background=background)
    line = f"[The session's directory {gone} cannot be entered; this ran in {tmp_path}]"
    assert line in ok(result).splitlines()
    assert "longer exists" not in ok(await call("Bash", command="pwd", cwd=str(tmp_path)))
