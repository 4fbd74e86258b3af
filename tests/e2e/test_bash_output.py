"""``bash_output`` and ``list_shells``, with the real daemon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import Gate, Json, RawDaemon, raw_daemon, wait_for


def read(daemon: RawDaemon, bash_id: str, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = daemon.call("bash_output", {"bash_id": bash_id, **params})
    return result


def finished(daemon: RawDaemon, command: str) -> str:
    """Run a command in the background, and wait until it ends. Do not read its output. Return its
    id.
    """
    bash_id = daemon.background(command)

    def ended() -> bool:
        (shell,) = [s for s in daemon.call("list_shells")["shells"] if s["bash_id"] == bash_id]
        return not shell["isRunning"]

    wait_for(ended, "the end of the command")
    return bash_id


def test_background_start_answers_at_once(daemon: RawDaemon) -> None:
    result = daemon.bash("sleep 300", run_in_background=True, description="nap")
    bash_id = result["bash_id"]
    assert re.fullmatch("shell_[a-z0-9]+", bash_id)
    assert result == {
        "bash_id": bash_id,
        "command": "sleep 300",
        "status": "running",
        "pid": result["pid"],
        "message": f"Started background shell {bash_id}",
        "prompt": None,
        "description": "nap",
    }


def test_result_has_every_member(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "printf out; printf error >&2; exit 4")
    result = read(daemon, bash_id)
    assert result.pop("durationMs") >= 0
    assert result == {
        "bash_id": bash_id,
        "command": "printf out; printf error >&2; exit 4",
        "stdout": "out",
        "stderr": "error",
        "status": "failed",
        "isRunning": False,
        "exitCode": 4,
        "signal": None,
        "stdoutRange": {"start": 0, "end": 3, "dropped": 0},
        "stderrRange": {"start": 0, "end": 5, "dropped": 0},
        "droppedBytes": 0,
        "more": False,
        "prompt": None,
        "reached": "output",
    }


def test_read_returns_only_new_output(daemon: RawDaemon, tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    command = f"echo one; {first.wait}; echo two; {second.wait}; echo three"
    bash_id = daemon.background(command)
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "one\n"
    again = read(daemon, bash_id)
    assert (again["stdout"], again["isRunning"], again["status"]) == ("", True, "running")
    assert again["stdoutRange"] == {"start": 4, "end": 4, "dropped": 0}
    first.open()
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "two\n"
    second.open()
    last = read(daemon, bash_id, wait=60_000, until="exit")
    assert (last["stdout"], last["isRunning"]) == ("three\n", False)


def test_wait_without_output_ends_by_itself(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    assert read(daemon, bash_id, wait=300)["isRunning"] is True


def test_wait_ends_when_silent_shell_ends(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 0.3")
    assert read(daemon, bash_id, wait=600_000)["status"] == "completed"


def test_wait_does_not_wait_for_a_leftover(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.bash(f"({gate.wait}; echo late) &")["bash_id"]
    early = read(daemon, bash_id, wait=600_000)
    assert (early["stdout"], early["isRunning"]) == ("", False)
    gate.open()
    wait_for(lambda: read(daemon, bash_id, wait=600_000)["stdout"] == "late\n", "its output")


def test_wait_until_exit_collects_all_output(daemon: RawDaemon) -> None:
    bash_id = daemon.background("for i in 1 2 3; do echo $i; sleep 0.05; done")
    result = read(daemon, bash_id, wait=60_000, until="exit")
    assert (result["stdout"], result["exitCode"]) == ("1\n2\n3\n", 0)


def test_a_waiting_read_delays_nobody(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    waiting = daemon.request("bash_output", {"bash_id": bash_id, "wait": 600_000})
    assert daemon.bash("echo quick")["stdout"] == "quick\n"
    daemon.call("kill_shell", {"shell_id": bash_id})
    assert daemon.answer(waiting)["result"]["status"] == "killed"


def test_cancelling_a_wait_leaves_the_shell_alone(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    waiting = daemon.request("bash_output", {"bash_id": bash_id, "wait": 600_000})
    daemon.notify("$/cancelRequest", {"id": waiting})
    assert daemon.answer(waiting)["error"]["code"] == -32800
    assert read(daemon, bash_id)["isRunning"] is True


def test_explicit_offsets_move_no_shared_position(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "printf 0123456789; printf abcdef >&2")
    part = read(daemon, bash_id, stdout_offset=3, max_bytes=4)
    assert (part["stdout"], part["stderr"], part["more"]) == ("3456", "", True)
    assert part["stdoutRange"] == {"start": 3, "end": 7, "dropped": 0}
    other = read(daemon, bash_id, stderr_offset=4)
    assert (other["stdout"], other["stderr"]) == ("", "ef")
    beyond = read(daemon, bash_id, stdout_offset=100)
    assert (beyond["stdout"], beyond["more"]) == ("", False)
    both = read(daemon, bash_id)
    assert (both["stdout"], both["stderr"]) == ("0123456789", "abcdef")


def test_max_bytes_leaves_rest_for_next_read(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "printf 0123456789")
    pieces = [read(daemon, bash_id, max_bytes=4) for _ in range(3)]
    assert [piece["stdout"] for piece in pieces] == ["0123", "4567", "89"]
    assert [piece["more"] for piece in pieces] == [True, True, False]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_characters_and_escapes_are_never_cut_in_two(daemon: RawDaemon, size: int) -> None:
    bash_id = finished(daemon, r"printf 'ä€😀\e[1;31mx\e[0m€'")
    text = ""
    while True:
        piece = read(daemon, bash_id, max_bytes=size, strip_ansi=False)
        assert "\ufffd" not in piece["stdout"]
        assert piece["stdout"].count("\x1b") == piece["stdout"].count("m")
        text += piece["stdout"]
        if not piece["more"]:
            break
    assert text == "ä€😀\x1b[1;31mx\x1b[0m€"


def test_unfinished_character_is_left_for_next_read(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.background(rf"printf 'a\xe2\x82'; {gate.wait}; printf '\xac'")
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "a"
    gate.open()
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "€"


def test_prompt_without_a_line_end_is_returned(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.background(f"printf 'Continue? '; {gate.wait}")
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "Continue? "
    gate.open()


def test_filter_returns_matching_lines_and_consumes_the_others(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "for i in 1 2 3 12; do echo line $i; done")
    result = read(daemon, bash_id, filter=r"\b1\d?$")
    assert result["stdout"] == "line 1\nline 12\n"
    assert result["stdoutRange"] == {"start": 0, "end": 29, "dropped": 0}
    assert read(daemon, bash_id)["stdout"] == ""


def test_filter_sees_whole_lines_in_small_reads(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "for i in $(seq 200); do echo line number $i; done; printf 'line 7'")
    text = ""
    position = 0
    while True:
        piece = read(daemon, bash_id, filter="7$", max_bytes=40)
        assert piece["stdoutRange"]["start"] == position
        position = piece["stdoutRange"]["end"]
        text += piece["stdout"]
        if not piece["more"]:
            break
    expected = [f"line number {number}" for number in range(1, 201) if number % 10 == 7]
    assert text.splitlines() == [*expected, "line 7"]


def test_line_longer_than_read_is_cut_at_its_end(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "printf 'x%.0s' {1..100}; echo; echo y")
    pieces = [read(daemon, bash_id, filter=".", max_bytes=60) for _ in range(2)]
    assert [piece["stdout"] for piece in pieces] == ["x" * 60, "x" * 40 + "\ny\n"]


def test_filter_judges_pieces_of_overlong_line(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "printf 'begin%095d\\n' 0")
    line = "begin" + "0" * 95 + "\n"

    def pieces(pattern: str, size: int) -> list[str]:
        given = {"filter": pattern, "max_bytes": size}
        return [
            read(daemon, bash_id, stdout_offset=offset, **given)["stdout"] for offset in (0, 60)
        ]

    assert pieces("^begin", 60) == [line[:60], ""]
    assert pieces("^0", 60) == ["", line[60:]]
    # If the whole line fits into `max_bytes`, the filter checks the line as a whole.
    assert read(daemon, bash_id, filter="^begin0+$", max_bytes=101)["stdout"] == line


@pytest.mark.parametrize("ended", [True, False])
def test_filter_continues_after_a_gap(ended: bool, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with raw_daemon("--retain-bytes", "4096") as daemon:
        bash_id = daemon.background(f"seq -w 10000; {'true' if ended else f'{gate.wait}'}")
        wait_for(
            lambda: daemon.call("list_shells")["shells"][0]["unreadBytes"] == 60_000, "the output"
        )
        found: list[str] = []
        dropped = 0
        while True:
            piece = read(daemon, bash_id, filter="^[01]...[02468]$")
            found += piece["stdout"].split()
            dropped += piece["droppedBytes"]
            if not piece["more"]:
                break
        assert piece["stdoutRange"]["end"] == 60_000
        assert dropped == 60_000 - 4096
        assert (found[0], found[-1]) == ("00002", "10000")
        if not ended:
            gate.open()


def test_filter_holds_an_unfinished_line_back(new_daemon: RawDaemon, tmp_path: Path) -> None:
    middle, end = Gate(tmp_path / "middle"), Gate(tmp_path / "end")
    bash_id = new_daemon.background(f"printf 'a\\nerr'; {middle.wait}; printf 'or\\n'; {end.wait}")
    wait_for(lambda: new_daemon.call("list_shells")["shells"][0]["unreadBytes"] == 5, "the output")
    first = read(new_daemon, bash_id, filter="err")
    assert (first["stdout"], first["stdoutRange"]["end"], first["more"]) == ("", 2, False)
    middle.open()
    second = read(new_daemon, bash_id, filter="err", wait=60_000)
    assert second["stdout"] == "error\n"
    end.open()


def test_filtered_wait_ends_at_matching_line(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.background(f"seq 100; {gate.wait}; echo ready; sleep 300")
    waiting = daemon.request(
        "bash_output", {"bash_id": bash_id, "wait": 60_000, "filter": "^ready"}
    )
    daemon.call("ping")
    gate.open()
    result = daemon.answer(waiting)["result"]
    assert result["stdout"] == "ready\n"
    assert result["stdoutRange"]["start"] == 0


def test_filtered_wait_without_match_ends_with_shell(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 0.3; echo other")
    result = read(daemon, bash_id, wait=600_000, filter="^ready")
    assert (result["stdout"], result["isRunning"], result["exitCode"]) == ("", False, 0)


@pytest.mark.parametrize("pattern", ["(", "[invalid(regex", "(?<=a*)b", "a{2,1}"])
def test_invalid_filter_is_refused_with_own_message(daemon: RawDaemon, pattern: str) -> None:
    bash_id = daemon.background("sleep 300")
    error = daemon.fail("bash_output", {"bash_id": bash_id, "filter": pattern})
    assert error["code"] == -32602
    assert error["message"].startswith("Invalid filter regex: ")
    assert error["data"]["parameter"] == "filter"


def test_pattern_exponential_in_other_engines_stalls_nobody(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "printf 'a%.0s' {1..60}; echo '!'")
    assert read(daemon, bash_id, filter="(a+)+$")["stdout"] == ""


def test_a_large_filtered_read_delays_nobody(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "yes | head -c 1000000")
    params = {"bash_id": bash_id, "filter": "y"}
    slow, *pings = daemon.request_together(("bash_output", params), *[("ping", Json())] * 20)
    answered = [daemon.receive()["id"] for _ in range(21)]
    assert answered == [*pings, slow]


def test_cancelled_filtered_read_consumes_no_output(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "yes | head -c 1000000")
    request_id = daemon.request("bash_output", {"bash_id": bash_id, "filter": "y"})
    daemon.notify("$/cancelRequest", {"id": request_id})
    assert daemon.answer(request_id)["error"]["code"] == -32800
    assert read(daemon, bash_id)["stdoutRange"] == {"start": 0, "end": 1_000_000, "dropped": 0}


@pytest.mark.slow
def test_filtered_read_restarts_when_another_read_overtakes_it(daemon: RawDaemon) -> None:
    bash_id = finished(daemon, "yes | head -c 300000; echo last")
    slow = daemon.request("bash_output", {"bash_id": bash_id, "filter": "y|last"})
    plain = read(daemon, bash_id, max_bytes=300_000)
    assert plain["stdoutRange"] == {"start": 0, "end": 300_000, "dropped": 0}
    rest = daemon.answer(slow)["result"]
    assert (rest["stdout"], rest["stdoutRange"]["start"]) == ("last\n", 300_000)


def test_two_readers_share_the_output_between_them(daemon: RawDaemon) -> None:
    bash_id = daemon.background("for i in $(seq 2000); do echo $i; done")
    numbers: list[int] = []
    running = True
    while running:
        ids = [daemon.request("bash_output", {"bash_id": bash_id}) for _ in range(2)]
        for request_id in ids:
            result = daemon.answer(request_id)["result"]
            numbers += [int(line) for line in result["stdout"].split()]
            running = result["isRunning"]
    rest = read(daemon, bash_id)["stdout"]
    numbers += [int(line) for line in rest.split()]
    assert numbers == sorted(numbers)
    assert "".join(map(str, numbers)) == "".join(map(str, range(1, 2001)))


def test_filtered_wait_leaves_other_readers_position(new_daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = new_daemon.background(f"printf 'unfinished'; {gate.wait}; echo; sleep 300")
    wait_for(lambda: new_daemon.call("list_shells")["shells"][0]["unreadBytes"] == 10, "the output")
    # The second read arrives while the first one still waits.
    waiting, reading = new_daemon.request_together(
        ("bash_output", {"bash_id": bash_id, "wait": 300, "filter": "x"}),
        ("bash_output", {"bash_id": bash_id}),
    )
    assert new_daemon.answer(reading)["result"]["stdout"] == "unfinished"
    filtered = new_daemon.answer(waiting)["result"]
    assert (filtered["stdout"], filtered["stdoutRange"]["start"]) == ("", 10)
    assert read(new_daemon, bash_id)["stdout"] == ""
    gate.open()


def test_discarded_output_is_counted_exactly() -> None:
    with raw_daemon("--retain-bytes", "8192") as daemon:
        bash_id = finished(daemon, "for i in $(seq -w 10000); do echo $i; done")
        total = 60_000
        kept = ""
        dropped = 0
        position = 0
        while True:
            piece = read(daemon, bash_id)
            span = piece["stdoutRange"]
            assert span["start"] == position
            assert span["end"] - span["start"] == span["dropped"] + len(piece["stdout"])
            assert piece["droppedBytes"] == span["dropped"]
            kept += piece["stdout"]
            dropped += span["dropped"]
            position = span["end"]
            if not piece["more"]:
                break
        assert position == total
        assert len(kept) == 8192
        assert dropped == total - 8192
        whole = "".join(f"{number:05}\n" for number in range(1, 10_001))
        # The head gets a quarter of the limit.
        assert kept == whole[:2048] + whole[-6144:]


def test_list_shells_is_in_start_order_by_session(new_daemon: RawDaemon) -> None:
    new_daemon.bash("echo unread; exit 2", session="a", description="first")
    new_daemon.background("sleep 300", session="b")
    new_daemon.bash("true", session=None)
    shells = new_daemon.call("list_shells")["shells"]
    assert [shell["session"] for shell in shells] == ["a", "b", None]
    assert [shell["isRunning"] for shell in shells] == [False, True, False]
    first = shells[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["startedAt"])
    assert set(first) == {
        *("bash_id", "command", "description", "session", "status", "isRunning", "exitCode"),
        *("signal", "pid", "cwd", "startedAt", "durationMs", "unreadBytes", "leftover", "prompt"),
    }
    assert (first["description"], first["exitCode"], first["unreadBytes"]) == ("first", 2, 0)
    only_b = new_daemon.call("list_shells", {"session": "b"})["shells"]
    assert [shell["session"] for shell in only_b] == ["b"]


def test_long_commands_are_listed_by_their_beginning(new_daemon: RawDaemon) -> None:
    padding = "x" * 100_000
    ended, running = f"true {padding}", f"sleep 300; : {padding}"
    assert new_daemon.bash(ended, description=padding)["command"] == ended
    bash_id = new_daemon.background(running, description=padding)
    shells = new_daemon.call("list_shells")["shells"]
    for shell, command in zip(shells, (ended, running), strict=True):
        assert shell["command"] == command[:4096] + "... (truncated)"
        assert shell["description"] == padding[:4096] + "... (truncated)"
    # While the shell runs, `bash_output` returns the full command.
    assert new_daemon.call("bash_output", {"bash_id": bash_id})["command"] == running
    new_daemon.call("kill_shell", {"shell_id": bash_id})
    wait_for(
        lambda: (
            new_daemon.call("bash_output", {"bash_id": bash_id})["command"]
            == running[:4096] + "... (truncated)"
        )
    )


def test_reading_an_unknown_shell_is_an_error(daemon: RawDaemon) -> None:
    error = daemon.fail("bash_output", {"bash_id": "shell_nonexistent"})
    assert (error["code"], error["message"]) == (1003, "Shell not found: shell_nonexistent")
    assert error["data"] == {
        "kind": "shell_not_found",
        "bash_id": "shell_nonexistent",
        "expired": False,
    }


@pytest.mark.long
def test_many_large_reads_take_no_more_memory_than_few() -> None:
    size, reads = 4 * 1024 * 1024, 20
    with raw_daemon() as daemon:
        # Each of these bytes takes six bytes in JSON.
        bash_id = daemon.bash(f"head -c {size} /dev/zero")["bash_id"]
        params = {"bash_id": bash_id, "stdout_offset": 0, "max_bytes": size}
        before = peak_memory(daemon.pid)
        asked = [daemon.request("bash_output", params) for _ in range(reads)]
        for request_id in asked:
            assert len(daemon.answer(request_id)["result"]["stdout"]) == size
        assert peak_memory(daemon.pid) - before < 5 * 6 * size


def peak_memory(pid: int) -> int:
    """Return the peak memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
