"""The results of calls that wait: calls of `BashOutput`, and calls of `Bash` that start a shell."""

from __future__ import annotations

from typing import Any

import pytest

from shelld.tools.bash_output import MAX_MATCHED_CHARACTERS
from tool_results import background, failed, ok
from tool_samples import Tools

READY = "echo starting; sleep 0.1; echo 'ready on 80'; sleep 300"


@pytest.fixture(scope="module")
def interactive() -> bool:
    return True


async def test_start_can_wait_for_a_line(call: Tools) -> None:
    wait = {"until": "match", "pattern": r"ready on \d+"}
    result = await call("Bash", command=READY, run_in_background=True, **wait)
    lines = ok(result).splitlines()
    assert lines[0] == f"Started background shell {result.metadata['bash_id']}"
    assert lines[2:-1] == ["starting", "ready on 80", '[Matched: "ready on 80"]']
    assert result.metadata["is_running"]


async def test_start_without_a_wait_returns_at_once(call: Tools) -> None:
    text = ok(await call("Bash", command="echo out; sleep 300", run_in_background=True))
    assert "[Status" not in text


async def test_output_of_exactly_the_allowed_size_keeps_the_status(call: Tools) -> None:
    command = {"command": "printf %050d 0; exit 3", "run_in_background": True, "until": "exit"}
    result = await call("Bash", context={"max_output_size": 50}, **command)
    lines = ok(result).splitlines()
    assert lines[2] == "0" * 50
    assert lines[3].startswith("[Status: failed, exit code 3. ")
    read = await call(
        "BashOutput",
        context={"max_output_size": 50},
        bash_id=result.metadata["bash_id"],
        stdout_offset=0,
    )
    assert ok(read).splitlines()[1].startswith("[Status: failed, exit code 3. ")


async def test_output_of_exactly_the_allowed_size_keeps_the_notices(call: Tools) -> None:
    command = "printf %050d 0; sleep 300 >/dev/null 2>&1 &"
    result = await call("Bash", context={"max_output_size": 50}, command=command)
    assert ok(result).splitlines()[-1].startswith("[Left running: 1 of its processes; ")


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"until": "exit"}, "Invalid value for until: needs run_in_background=true"),
        ({"wait": 5}, "Invalid value for wait: needs run_in_background=true"),
        (
            {"until": "match", "run_in_background": True},
            "Missing required parameter: pattern",
        ),
        (
            {"port": 80, "run_in_background": True},
            'Invalid value for port: until is not "listening"',
        ),
    ],
)
async def test_impossible_wait_starts_no_command(
    call: Tools, params: dict[str, Any], sentence: str
) -> None:
    before = failed(await call("BashOutput", bash_id="shell_1"))
    assert failed(await call("Bash", command="sleep 300", **params)) == sentence
    # The call has added no shell, so this error lists the same shells as before.
    assert failed(await call("BashOutput", bash_id="shell_1")) == before


@pytest.mark.slow
async def test_failed_wait_does_not_lose_the_shell(call: Tools) -> None:
    # A search for this pattern takes far longer than its limit.
    wait = {"until": "match", "pattern": r"^(a+)+\1c$"}
    command = f"echo {'a' * 60}; sleep 300"
    result = await call("Bash", command=command, run_in_background=True, **wait)
    text = ok(result)
    assert text.startswith(f"Started background shell {result.metadata['bash_id']}\n")
    assert text.endswith("[Invalid pattern regex: takes more than 2 s to match]")


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"until": "match", "pattern": "x"}, "[No line matched the pattern within 50ms]"),
        ({"until": "listening"}, "[Nothing listened within 50ms]"),
        ({"until": "quiet", "quiet_ms": 60_000}, "[The command went on writing for 50ms]"),
        ({"until": "prompt"}, "[The command takes no input, so it will never wait for input]"),
    ],
)
async def test_result_reports_a_wait_that_was_not_met(
    call: Tools, params: dict[str, Any], line: str
) -> None:
    bash_id = await background(call, "sleep 300")
    assert line in ok(await call("BashOutput", bash_id=bash_id, wait=50, **params))


@pytest.mark.parametrize("until", ["output", "exit"])
async def test_until_alone_is_enough_to_wait(call: Tools, until: str) -> None:
    bash_id = await background(call, "sleep 0.3; echo out")
    assert ok(await call("BashOutput", bash_id=bash_id, until=until)).startswith("out\n")


async def test_until_alone_with_a_filter_waits(call: Tools) -> None:
    bash_id = await background(call, "sleep 0.3; echo out")
    text = ok(await call("BashOutput", bash_id=bash_id, until="exit", filter="o"))
    assert text.startswith("out\n[Status: completed")


async def test_result_reports_that_no_prompt_came(call: Tools) -> None:
    bash_id = await background(call, "sleep 300", tty=True)
    text = ok(await call("BashOutput", bash_id=bash_id, wait=50, until="prompt"))
    assert "[The command did not wait for input within 50ms]" in text


async def test_long_matched_line_is_cut(call: Tools) -> None:
    bash_id = await background(call, f"echo {'x' * 3_000}; sleep 300")
    wait = {"until": "match", "pattern": "x", "wait": 60_000}
    text = ok(await call("BashOutput", bash_id=bash_id, **wait))
    assert f'[Matched: "{"x" * MAX_MATCHED_CHARACTERS}"]' in text


async def test_foreground_command_that_asks_returns(call: Tools) -> None:
    command = "read -rp 'Overwrite? [y/N] ' answer; echo $answer"
    result = await call("Bash", command=command, tty=True)
    lines = ok(result).splitlines()
    assert lines[0].startswith("Still running after ")
    assert lines[0].endswith(f"now in the background: {result.metadata['bash_id']}")
    assert lines[-1] == '[bash waits for input: "Overwrite? [y/N]"]'
    assert result.metadata["prompt"]["certainty"] == "proved"


async def test_foreground_command_that_asks_for_a_secret_says_so(call: Tools) -> None:
    text = ok(await call("Bash", command="read -rsp 'Password: ' word", tty=True))
    assert text.endswith("[bash waits for a secret: ask the user]")
