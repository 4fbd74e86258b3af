"""The results of `BashOutput` and `KillShell` for a model that left a command running."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shelld.tools import BashOutputTool, ExecutionContext
from support import Gate, is_alive
from tool_results import background, ended, failed, ok
from tool_samples import Tools


async def test_background_start_returns_an_id(call: Tools) -> None:
    result = await call("Bash", command="sleep 300", run_in_background=True)
    bash_id = result.metadata["bash_id"]
    assert re.fullmatch(r"shell_\w+", bash_id)
    assert ok(result).startswith(f"Started background shell {bash_id}\n")
    assert result.metadata.items() >= {"status": "running", "is_running": True}.items()
    assert is_alive(result.metadata["pid"])


async def test_output_of_running_shell_is_returned(call: Tools) -> None:
    bash_id = await background(call, "while true; do echo tick; sleep 0.05; done")
    result = await call("BashOutput", bash_id=bash_id, wait=60_000)
    assert ok(result).startswith("tick\n")
    assert (
        result.metadata.items()
        >= {
            "bash_id": bash_id,
            "status": "running",
            "is_running": True,
            "exit_code": None,
        }.items()
    )


async def test_output_of_ended_shell_is_returned(call: Tools) -> None:
    bash_id = await background(call, "echo hello; exit 2")
    result = await ended(call, bash_id)
    assert re.fullmatch(r"hello\n\[Status: failed, exit code 2\. Duration: \d+ms\]", ok(result))
    assert (
        result.metadata.items()
        >= {
            "status": "failed",
            "is_running": False,
            "exit_code": 2,
            "command": "echo hello; exit 2",
            "truncated": False,
            "dropped_bytes": 0,
            "stdout_range": {"start": 0, "end": 6, "dropped": 0},
        }.items()
    )
    assert isinstance(result.metadata["duration_ms"], int)


async def test_second_read_returns_only_new_output(call: Tools) -> None:
    bash_id = await background(call, "for i in $(seq 1000000); do echo $i; sleep 0.001; done")
    seen: list[int] = []
    for _ in range(5):
        text = ok(await call("BashOutput", bash_id=bash_id, wait=60_000))
        seen += [int(line) for line in text.splitlines()[:-1]]
    assert seen == list(range(1, len(seen) + 1))


async def test_lines_are_filtered(call: Tools) -> None:
    bash_id = await background(call, "echo error: a; echo info: b; echo error: c")
    await anyio.lowlevel.checkpoint()
    result = await call("BashOutput", bash_id=bash_id, filter="error", wait=60_000, until="exit")
    assert ok(result).splitlines()[:-1] == ["error: a", "error: c"]
    assert ok(await call("BashOutput", bash_id=bash_id)).startswith("(no new output)")


async def test_lines_that_do_not_match_are_counted(call: Tools) -> None:
    bash_id = await background(call, "echo one; echo two; echo three >&2; sleep 300")
    skipped = ""
    with anyio.fail_after(60):
        while "3 lines" not in skipped:
            again = {"stdout_offset": 0, "stderr_offset": 0}
            skipped = ok(await call("BashOutput", bash_id=bash_id, filter="Listening", **again))
            await anyio.sleep(0.01)
    first, status = skipped.splitlines()
    assert first == (
        "(no line matched the filter; 3 lines were skipped; "
        "without it, stdout_offset=0 stderr_offset=0 reads them)"
    )
    assert status.startswith("[Status: running.")
    # This read moves the shared position past the lines, so the next read finds nothing new.
    await call("BashOutput", bash_id=bash_id)
    result = await call("BashOutput", bash_id=bash_id, filter="Listening")
    assert ok(result).startswith("(no new output)")


async def test_read_without_match_shows_last_lines(call: Tools) -> None:
    command = "seq 10000; echo 'Error: port in use' >&2; exit 1"
    bash_id = await background(call, command)
    result = await call(
        "BashOutput", bash_id=bash_id, filter="Listening", wait=60_000, until="exit"
    )
    first, title, *last, name, error, status = ok(result).splitlines()
    assert first == (
        "(no line matched the filter; 10001 lines were skipped; "
        "without it, stdout_offset=0 stderr_offset=0 reads them)"
    )
    assert title == "[The last lines]"
    assert (name, error) == ("[stderr]", "Error: port in use")
    assert last == [str(number) for number in range(10_001 - len(last), 10_001)]
    assert 100 < len(last) <= 250
    assert status.startswith("[Status: failed, exit code 1.")


async def test_many_matching_lines_show_head_and_tail(call: Tools) -> None:
    bash_id = await background(call, "for i in $(seq 10000); do printf 'x%04d\\n' $((i - 1)); done")
    await ended(call, bash_id)
    result = await call("BashOutput", bash_id=bash_id, filter="x", stdout_offset=0)
    assert len(re.findall(r"(?m)^x", ok(result))) == 5_000
    assert "[More: stdout_offset=30000]" in ok(result)
    bash_id = await background(call, "for i in $(seq 10000); do printf 'x%04d\\n' $((i - 1)); done")
    result = await call("BashOutput", bash_id=bash_id, filter="x", wait=60_000, until="exit")
    text = ok(result)
    assert text.startswith("x0000\n")
    assert "x9999\n" in text
    assert "[Output truncated: narrow the filter, or read from stdout_offset=0]" in text
    assert result.metadata["truncated"] is True
    assert len(text) < 30_300


@pytest.mark.parametrize(
    ("tool", "params", "sentence"),
    [
        (
            "BashOutput",
            {"bash_id": "shell_nonexistent"},
            "Shell not found: shell_nonexistent",
        ),
        (
            "KillShell",
            {"shell_id": "shell_nonexistent"},
            "Shell not found: shell_nonexistent",
        ),
        ("BashOutput", {}, "Missing required parameter: bash_id"),
        ("KillShell", {}, "Missing required parameter: shell_id"),
        (
            "KillShell",
            {"shell_id": "a", "bash_id": "b"},
            "Invalid value for bash_id: must equal shell_id",
        ),
        (
            "BashOutput",
            {"shell_id": "a", "bash_id": "b"},
            "Invalid value for shell_id: must equal bash_id",
        ),
        (
            "KillShell",
            {"bash_id": "shell_b"},
            "Shell not found: shell_b",
        ),
        (
            "BashOutput",
            {"shell_id": "shell_b"},
            "Shell not found: shell_b",
        ),
        # A name with the value None counts as absent. This holds for both names, in either order.
        *(
            (tool, params, "Shell not found: shell_b")
            for tool in ("BashOutput", "KillShell")
            for params in (
                {"shell_id": "shell_b", "bash_id": None},
                {"shell_id": None, "bash_id": "shell_b"},
                {"bash_id": "shell_b", "shell_id": None},
                {"bash_id": None, "shell_id": "shell_b"},
            )
        ),
        (
            "BashOutput",
            {"bash_id": None, "shell_id": None},
            "Missing required parameter: bash_id",
        ),
        ("KillShell", {"bash_id": None}, "Missing required parameter: shell_id"),
    ],
)
async def test_unknown_shell_is_failed_result(
    call: Tools, tool: str, params: dict[str, Any], sentence: str
) -> None:
    first, *advice = failed(await call(tool, **params)).splitlines()
    assert first == sentence
    assert len(advice) == (not sentence.startswith("Invalid value"))


async def test_unknown_shell_error_says_no_shells_exist() -> None:
    result = await BashOutputTool().execute(ExecutionContext(""), bash_id="shell_b")
    assert failed(result) == "Shell not found: shell_b\n[There are no shells]"


async def test_expired_shell_differs_from_unknown_shell(call: Tools) -> None:
    result = await call("BashOutput", bash_id="shell_nonexistent")
    assert result.metadata == {
        "kind": "shell_not_found",
        "bash_id": "shell_nonexistent",
        "expired": False,
    }


async def test_an_invalid_filter_is_a_failed_result(call: Tools) -> None:
    bash_id = await background(call, "echo x")
    result = await call("BashOutput", bash_id=bash_id, filter="[invalid(regex")
    assert failed(result).startswith("Invalid filter regex: ")
    # The failed read consumed no output.
    assert ok(await ended(call, bash_id)).startswith("x\n")


async def test_waiting_takes_no_longer_than_the_context_allows(call: Tools) -> None:
    bash_id = await background(call, "sleep 300")
    # If the tool waited as long as requested, the test would not end in time.
    result = await call("BashOutput", context={"timeout": 0.1}, bash_id=bash_id, wait=600_000)
    assert ok(result).startswith("(no new output)\n[Status: running.")


async def test_result_gives_the_reason_of_the_end(call: Tools, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    # Let the command kill its runner only after `Bash` has returned.
    bash_id = await background(call, f"{gate.wait}; kill -9 $PPID; sleep 300")
    gate.open()
    result = await ended(call, bash_id)
    assert result.metadata["reason"] == "lost"
    assert "[Status: killed by SIGKILL. Its helper process was killed, and" in ok(result)


async def test_killing_ends_a_shell(call: Tools) -> None:
    bash_id = await background(call, "echo last words; setsid sleep 300 & sleep 300")
    await call("BashOutput", bash_id=bash_id, wait=60_000)
    result = await call("KillShell", shell_id=bash_id)
    assert ok(result) == f"Shell {bash_id} terminated"
    assert (
        result.metadata.items()
        >= {
            "shell_id": bash_id,
            "command": "echo last words; setsid sleep 300 & sleep 300",
            "status": "killed",
            "already_stopped": False,
        }.items()
    )
    assert isinstance(result.metadata["duration_ms"], int)
    after = await call("BashOutput", bash_id=bash_id)
    assert after.metadata.items() >= {"status": "killed", "is_running": False}.items()
    assert "[Status: killed by SIGTERM." in ok(after)


@pytest.mark.parametrize("name", ["KillShell", "KillBash", "kill_shell"])
async def test_killing_ended_shell_is_reported(call: Tools, name: str) -> None:
    bash_id = await background(call, "true")
    await ended(call, bash_id)
    result = await call(name, shell_id=bash_id)
    assert ok(result) == f"Shell {bash_id} already stopped"
    assert result.metadata.items() >= {"already_stopped": True, "status": "completed"}.items()


async def test_a_job_is_followed_to_its_end(call: Tools) -> None:
    bash_id = await background(call, "for i in 1 2 3; do echo step $i; sleep 0.1; done")
    text, is_running = "", True
    with anyio.fail_after(60):
        while is_running:
            result = await call("BashOutput", bash_id=bash_id, wait=60_000)
            text += "".join(line + "\n" for line in ok(result).splitlines() if "step" in line)
            is_running = result.metadata["is_running"]
    assert text == "step 1\nstep 2\nstep 3\n"


async def test_shells_keep_their_own_output(call: Tools) -> None:
    ids = [await background(call, f"echo {number}; sleep 300") for number in range(5)]
    assert len(set(ids)) == 5
    for number, bash_id in enumerate(ids):
        text = ok(await call("BashOutput", bash_id=bash_id, wait=60_000))
        assert text.splitlines()[0] == str(number)


async def test_timeouts_of_shells_are_independent(call: Tools) -> None:
    other = await background(call, "while true; do echo tick; sleep 0.05; done")
    failed(await call("Bash", command="sleep 300", timeout=1_000))
    result = await call("BashOutput", bash_id=other, wait=60_000)
    assert ok(result).startswith("tick\n")
    assert result.metadata["is_running"] is True


async def test_unknown_shell_error_lists_newest_shells(call: Tools) -> None:
    ids = [(await call("Bash", command="true")).metadata["bash_id"] for _ in range(12)]
    sentence, advice = failed(await call("BashOutput", bash_id="shell_999")).splitlines()
    assert sentence == "Shell not found: shell_999"
    assert re.fullmatch(rf"\[Ended: {', '.join(ids[:1:-1])}, and \d+ more]", advice)
