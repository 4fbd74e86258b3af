"""Large, endless or broken output, with the real daemon."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from records import check_all, expected, read, records, wait_for_end
from support import Gate, RawDaemon, is_alive, raw_daemon, running_below, wait_for


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [1_000_000, 16_777_216])
def test_kept_bytes_equal_written_bytes(max_bytes: int) -> None:
    total = 40_000_000
    with raw_daemon("--retain-bytes", "10000000") as daemon:
        bash_id = daemon.background(records(total))
        wait_for_end(daemon, bash_id)
        kept, dropped = check_all(daemon, bash_id, total, max_bytes=max_bytes)
        assert (kept, dropped) == (10_000_000, 30_000_000)


@pytest.mark.slow
def test_bytes_read_while_writing_are_right(daemon: RawDaemon) -> None:
    total = 20_000_000
    bash_id = daemon.background(records(total))
    position = 0
    while position < total:
        result = read(daemon, bash_id, wait=60_000, max_bytes=300_000)
        span = result["stdoutRange"]
        assert (span["start"], span["dropped"]) == (position, 0)
        position = span["end"]
        assert result["stdout"] == expected(span["start"], position)


@pytest.mark.slow
def test_many_readers_at_once_get_every_byte_once(daemon: RawDaemon) -> None:
    total = 20_000_000
    bash_id = daemon.background(records(total))
    spans: list[tuple[int, int]] = []
    filters: list[dict[str, Any]] = [{}, {}, {"filter": "0"}, {"filter": r"\d0$"}, {"wait": 50}]
    while sum(end - start for start, end in spans) < total:
        params = [{"bash_id": bash_id, "max_bytes": 700_000, **extra} for extra in filters * 2]
        asked = [daemon.request("bash_output", one) for one in params]
        for request_id in asked:
            result = daemon.answer(request_id)["result"]
            span = result["stdoutRange"]
            assert span["dropped"] == 0
            if "filterEngine" not in result:
                assert result["stdout"] == expected(span["start"], span["end"])
            spans.append((span["start"], span["end"]))
    spans.sort()
    position = 0
    for start, end in spans:
        assert start in {position, end}
        position = max(position, end)
    assert position == total


def test_rest_of_long_foreground_answer_can_be_read(daemon: RawDaemon) -> None:
    total = 3_000_000
    result = daemon.bash(records(total))
    assert (result["truncated"], result["stdoutBytes"]) == (True, total)
    head = result["stdout"].removesuffix("... (truncated)")
    assert len(result["stdout"]) == 1_048_576
    assert head == expected(0, len(head))
    rest = read(daemon, result["bash_id"], max_bytes=16_777_216)
    assert rest["stdoutRange"] == {"start": len(head), "end": total, "dropped": 0}
    assert rest["stdout"] == expected(len(head), total)


@pytest.mark.slow
def test_large_output_stays_off_the_heap() -> None:
    with raw_daemon("--retain-bytes", "100000000") as daemon:
        daemon.bash("head -c 2000000 /dev/zero")
        before = resident_bytes(daemon.pid)
        result = daemon.bash("head -c 80000000 /dev/zero; head -c 20000000 /dev/zero >&2")
        assert (result["stdoutBytes"], result["stderrBytes"]) == (80_000_000, 20_000_000)
        assert resident_bytes(daemon.pid) - before < 32 << 20
        kept = read(daemon, result["bash_id"], stdout_offset=79_999_990, stderr_offset=0)
        assert (kept["stdout"], kept["droppedBytes"]) == ("\0" * 10, 0)


def test_both_streams_share_the_retention_limit() -> None:
    with raw_daemon("--retain-bytes", "1000000") as daemon:
        bash_id = daemon.background(f"{records(3_000_000)}; echo important >&2")
        wait_for_end(daemon, bash_id)
        first = read(daemon, bash_id)
        assert first["stderr"] == "important\n"
        rest = read(daemon, bash_id)
        assert rest["droppedBytes"] == 3_000_000 - (1_000_000 - len("important\n"))


def test_endless_output_is_counted_and_delays_nobody() -> None:
    with raw_daemon("--retain-bytes", "1000000") as daemon:
        bash_id = daemon.background("yes")

        def much_is_written() -> bool:
            # A ping that had to wait for the end of the output would never return.
            assert daemon.call("ping") == {}
            return int(daemon.call("list_shells")["shells"][0]["unreadBytes"]) > 50_000_000

        wait_for(much_is_written, "many megabytes of output")
        daemon.call("kill_shell", {"shell_id": bash_id, "signal": "KILL"})
        kept = dropped = position = 0
        while True:
            result = read(daemon, bash_id, max_bytes=16_777_216)
            span = result["stdoutRange"]
            assert span["start"] == position
            position = span["end"]
            begin = (position - len(result["stdout"])) % 2
            assert result["stdout"] == ("y\n" * 1_000_000)[begin:][: len(result["stdout"])]
            kept += len(result["stdout"])
            dropped += span["dropped"]
            if not result["more"]:
                break
        assert kept + dropped == position
        assert kept == 1_000_000
        assert position > 50_000_000


# -- text -------------------------------------------------------------------------------------


def test_control_bytes_and_broken_text_arrive_as_text(daemon: RawDaemon) -> None:
    result = daemon.bash(r"printf '\0\1\x08\x7f\xff\xed\xa0\x80\xf0\x9f\x98'")
    assert result["stdout"] == "\0\x01\x08\x7f" + "\ufffd" * 5
    assert result["stdoutBytes"] == 11


def test_a_progress_bar_leaves_its_last_state(daemon: RawDaemon) -> None:
    command = r"for i in 1 2 3; do printf '\r%s0%%\e[K' $i; done; echo; printf 'a\r\nb\r'"
    assert daemon.bash(command)["stdout"] == "30%\na\r\nb"
    raw = daemon.bash(command, strip_ansi=False)["stdout"]
    assert raw == "\r10%\x1b[K\r20%\x1b[K\r30%\x1b[K\na\r\nb\r"


def test_million_progress_bar_states_are_one_line(daemon: RawDaemon) -> None:
    result = daemon.bash(r"seq -s $'\r' 1000000; echo done >&2", timeout=60_000)
    assert (result["stdout"], result["truncated"]) == ("1000000\n", False)
    assert result["stdoutBytes"] > 6_000_000


def test_a_progress_bar_can_be_followed(daemon: RawDaemon, tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    bash_id = daemon.background(
        rf"printf '10%%\r20%%\r'; {first.wait}; printf '30%%\r40%%\r'; {second.wait}; echo"
    )
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "20%"
    first.open()
    # The text begins with a carriage return, because it overwrites the text of the previous read.
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "\r40%"
    second.open()
    last = read(daemon, bash_id, wait=60_000, until="exit")
    assert last["stdout"] == "\r\n"


def test_a_control_string_that_never_ends_hides_nothing(daemon: RawDaemon) -> None:
    bash_id = daemon.background(
        r"printf '\e]0;'; head -c 20000000 /dev/zero | tr '\0' x; printf '\e[1mafter'"
    )
    wait_for_end(daemon, bash_id)
    tail = read(daemon, bash_id, stdout_offset=20_000_000)
    assert tail["stdout"] == "xxxxafter"
    head = read(daemon, bash_id, max_bytes=10)
    assert head["stdout"] == "]0;xxxxxx"


def test_escape_sequence_in_two_writes_is_removed(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.background(rf"printf 'a\e]8;;http://'; {gate.wait}; printf 'x\e\\b\e[0m'")
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "a"
    gate.open()
    assert read(daemon, bash_id, wait=60_000)["stdout"] == "b"


# -- filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "engine", "text"),
    [
        ("two", "re2", "two 2\n"),
        (r"^\w+ [13]$", "re2", "one 1\nthree 3\n"),
        (r"^(?!two)", "re", "one 1\nthree 3\n"),
        (r"(.)\1", "re", "three 3\n"),
    ],
)
def test_the_answer_names_the_engine_that_filtered(
    daemon: RawDaemon, pattern: str, engine: str, text: str
) -> None:
    bash_id = daemon.bash("printf 'one 1\\ntwo 2\\nthree 3\\n'")["bash_id"]
    result = read(daemon, bash_id, filter=pattern, stdout_offset=0)
    assert (result["stdout"], result["filterEngine"]) == (text, engine)
    assert "filterEngine" not in read(daemon, bash_id)


@pytest.mark.slow
def test_exploding_pattern_consumes_and_delays_nothing(new_daemon: RawDaemon) -> None:
    bash_id = new_daemon.background("printf 'a%.0s' {1..60}; echo '!'; sleep 300")
    wait_for(lambda: new_daemon.call("list_shells")["shells"][0]["unreadBytes"] == 62, "the output")
    slow = new_daemon.request("bash_output", {"bash_id": bash_id, "filter": "(a+)+(?!a)$"})
    for _ in range(20):
        new_daemon.call("ping")
    error = new_daemon.answer(slow)["error"]
    assert error["message"] == "Invalid filter regex: takes more than 2 s to match"
    assert read(new_daemon, bash_id)["stdout"] == "a" * 60 + "!\n"


def test_a_filter_that_backtracks_follows_a_running_shell(
    new_daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = new_daemon.background(f"seq 1000; {gate.wait}; echo ready now; sleep 300")
    waiting = new_daemon.request(
        "bash_output", {"bash_id": bash_id, "wait": 60_000, "filter": "ready(?= now)"}
    )
    wait_for(
        lambda: new_daemon.call("list_shells")["shells"][0]["unreadBytes"] > 3000, "the output"
    )
    gate.open()
    result = new_daemon.answer(waiting)["result"]
    assert (result["stdout"], result["stdoutRange"]["start"]) == ("ready now\n", 0)


@pytest.mark.slow
def test_killed_daemon_ends_its_filter_process(new_daemon: RawDaemon) -> None:
    bash_id = new_daemon.bash("printf 'a%.0s' {1..60}; echo '!'")["bash_id"]
    new_daemon.request(
        "bash_output", {"bash_id": bash_id, "stdout_offset": 0, "filter": "(a+)+(?!a)$"}
    )
    (pid,) = wait_for(lambda: running_below(new_daemon.pid, "filters/main.py"), "the process")
    new_daemon.process.send_signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "its end")
