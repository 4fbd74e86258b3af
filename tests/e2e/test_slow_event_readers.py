"""A client that reads its events slowly misses some output, but no event that reports an end."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from event_reader import (
    assert_continuous,
    events_to,
    events_to_answer,
    next_event,
    subscribe,
    text_of,
)
from support import Gate, Json, RawDaemon, altered_daemon, raw_daemon, wait_for


@pytest.mark.slow
def test_slow_client_loses_output_but_no_end(tmp_path: Path) -> None:
    with raw_daemon(command=altered_daemon({"shelld.events.subscription.PATIENCE_S": 0})) as events:
        lose_output(events, tmp_path)


def lose_output(events: RawDaemon, tmp_path: Path) -> None:
    subscribe(events, "output", "exit")
    done = tmp_path / "done"
    lines = "head -c 30000000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo last"
    # The command does not wait for the client, which reads nothing until the command has ended.
    request = events.request("bash", {"command": f"{lines}; touch {done}"})
    wait_for(done.exists)
    found: list[Json] = []
    is_answered = False
    # The answer has about 1 MB. It may come before or after the `exited` event.
    while not is_answered or found[-1]["method"] != "exited":
        message = events.receive()
        if message.get("id") == request:
            is_answered = True
        else:
            found.append({"method": message["method"].removeprefix("shell/"), **message["params"]})
    end = found[-1]
    assert_continuous(found)
    sent = sum(each["end"] - each["start"] for each in found if each["method"] == "output")
    assert sent + end["skipped"] == end["stdoutBytes"]
    assert end["skipped"] > 0
    assert [each["seq"] for each in found] == list(range(1, len(found) + 1))
    # `bash_output` can still read the skipped output.
    outputs = [each for each in found if each["method"] == "output"]
    start = next((each["start"] for each in outputs if each["skipped"]), end["stdoutBytes"])
    skipped = {"bash_id": end["bash_id"], "stdout_offset": start - 200, "max_bytes": 100}
    assert "x" * 40 in events.call("bash_output", skipped)["stdout"]


@pytest.fixture
def impatient() -> Generator[RawDaemon]:
    """A daemon that skips output as soon as the client is slow."""
    with raw_daemon(command=altered_daemon({"shelld.events.subscription.PATIENCE_S": 0})) as daemon:
        yield daemon


@pytest.mark.slow
def test_output_events_go_on_after_skipped_output(impatient: RawDaemon, tmp_path: Path) -> None:
    subscribe(impatient, "output", "exit", interval_ms=0)
    done, gate, stop = tmp_path / "done", Gate(tmp_path / "gate"), tmp_path / "stop"
    # Every line has 11 bytes. The events may lag behind the output, so the first lines
    # after the gate may be skipped, too.
    lines = "yes 0123456789 | head -n 727272"
    later = f"until [ -e {stop} ]; do echo '       one'; sleep 0.01; done; echo '       two'"
    bash_id = impatient.background(f"{lines}; touch {done}; {gate.wait}; {later}")
    wait_for(done.exists)
    # Now the client reads.
    all_of_it = {"bash_id": bash_id, "stdout_offset": 7_999_990, "wait": 60_000}
    found = events_to_answer(impatient, impatient.request("bash_output", all_of_it))
    found += events_to_answer(impatient, impatient.request("ping"))
    gate.open()
    found.append(next_event(impatient))
    while not found[-1]["text"].endswith("one\n"):
        found.append(next_event(impatient))
    stop.touch()
    found += events_to(impatient, "exited")
    assert_continuous(found)
    assert text_of(found).endswith("one\n       two\n")
    skips = [each["skipped"] for each in found if each["method"] == "output"]
    assert sum(skips) == found[-1]["skipped"] > 0
    assert skips[-1] == 0
    # After skipped output, the events go on at the beginning of a line.
    assert all(
        each["start"] % 11 == 0 for each in found if each["method"] == "output" and each["skipped"]
    )
    assert found[-1]["bash_id"] == bash_id


@pytest.mark.slow
@pytest.mark.parametrize("last", ["last", "last\\n"])
def test_client_that_has_read_learns_of_all_output(
    impatient: RawDaemon, tmp_path: Path, last: str
) -> None:
    subscribe(impatient, "output", "exit", interval_ms=0)
    lines = "yes 0123456789 | head -n 727272"
    size = 727_272 * 11 + len(last.replace("\\n", "\n"))
    # If an event comes late, the client may read it before the daemon skips the last output. Try
    # again until the daemon has skipped the last output.
    for number in range(20):
        done = tmp_path / f"done{number}"
        # After the text `last`, the command runs on, but writes nothing more.
        bash_id = impatient.background(f"{lines}; printf '{last}'; touch {done}; sleep 300")
        wait_for(done.exists)
        found = [next_event(impatient)]
        while found[-1]["end"] < size:
            found.append(next_event(impatient))
        is_last_skipped = found[-1]["skipped"] > 0
        impatient.call("kill_shell", {"shell_id": bash_id, "grace": 0})
        found += events_to(impatient, "exited")
        assert_continuous(found)
        skips = [each["skipped"] for each in found if each["method"] == "output"]
        assert sum(skips) == found[-1]["skipped"]
        if is_last_skipped:
            return
    raise AssertionError("the daemon never skipped the last output")


def test_journal_for_a_slow_client_skips_text_but_no_event(
    impatient: RawDaemon, tmp_path: Path
) -> None:
    name = subscribe(impatient, "output", "exit", interval_ms=0)
    for _ in range(20):
        impatient.background("head -c 400000 /dev/zero | tr '\\0' x")
    found: list[Json] = []
    while sum(each["method"] == "exited" for each in found) < 20:
        found.append(next_event(impatient))
    count = found[-1]["seq"]
    impatient.request("subscribe", {"subscription": name, "from_seq": 0})
    done = tmp_path / "done"
    # The client reads nothing until another command has ended.
    impatient.request("bash", {"command": f"touch {done}"})
    wait_for(done.exists)
    again = [next_event(impatient) for _ in range(count)]
    assert [each["seq"] for each in again] == list(range(1, count + 1))
    assert_continuous(again)
    assert any(each["method"] == "output" and each["skipped"] for each in again)


@pytest.mark.slow
def test_slow_client_gets_no_more_screens(impatient: RawDaemon, tmp_path: Path) -> None:
    pytest.importorskip("avt")
    subscribe(impatient, "screen", "exit", interval_ms=0)
    done = tmp_path / "done"
    draw = "for n in $(seq 50); do printf '%0190d\\n' $RANDOM; done"
    often = f"for m in $(seq 400); do {draw}; done"
    bash_id = impatient.background(f"{often}; touch {done}; sleep 300", tty=True, rows=50, cols=200)
    # The client reads nothing while the command draws.
    wait_for(done.exists)
    impatient.request("kill_shell", {"shell_id": bash_id, "grace": 0})
    found = events_to(impatient, "exited")
    size = sum(len(line) for each in found for line in each.get("lines", ()))
    assert size < 3_000_000
    assert [each["seq"] for each in found] == list(range(1, len(found) + 1))


def test_screens_sent_again_are_whole_at_the_end(events: RawDaemon) -> None:
    pytest.importorskip("avt")
    name = subscribe(events, "screen", "exit", interval_ms=0)
    bash_id = events.background("printf one; read x; printf two; read x", tty=True, rows=4, cols=20)
    for text, row in (("one", 0), ("two", 1)):
        while text not in (seen := next_event(events, "screen"))["lines"]:
            pass
        assert seen["lines"][seen["changed"].index(row)] == text
        events.request("write_stdin", {"bash_id": bash_id, "text": "\n"})
    events_to(events, "exited")
    events.request("subscribe", {"subscription": name, "from_seq": 0})
    *screens, _ = events_to(events, "exited")
    assert screens[-1]["changed"] == [0, 1, 2, 3]
    assert screens[-1]["lines"][:2] == ["one", "two"]
    assert all(each["lines"] == [] for each in screens[:-1])


def test_slow_client_gets_the_whole_screen_again(impatient: RawDaemon, tmp_path: Path) -> None:
    pytest.importorskip("avt")
    name = subscribe(impatient, "output", "screen", interval_ms=0)
    for _ in range(5):
        impatient.background("head -c 400000 /dev/zero | tr '\\0' x")
    bash_id = impatient.background("printf one; read x; printf two; read x", tty=True)
    while "one" not in next_event(impatient, "screen")["lines"]:
        pass
    done = tmp_path / "done"
    impatient.request("subscribe", {"subscription": name, "from_seq": 0})
    # The client reads nothing until another command has ended.
    impatient.request("bash", {"command": f"touch {done}"})
    wait_for(done.exists)
    while "one" not in (seen := next_event(impatient, "screen"))["lines"]:
        pass
    assert seen["changed"] == list(range(30))
    impatient.call("kill_shell", {"shell_id": bash_id})


def test_journal_reports_events_that_it_no_longer_keeps() -> None:
    with raw_daemon("--retain-bytes", "200000", "--retain-total-bytes", "10M") as daemon:
        name = subscribe(daemon, "output", "exit", max_bytes=8192)
        result = daemon.bash("seq 300000 | tr '\\n' ' '")
        count = events_to(daemon, "exited")[-1]["seq"]
        daemon.forget_answers()
        daemon.request("subscribe", {"subscription": name, "from_seq": 0})
        again = [next_event(daemon) for _ in range(count)]
        assert_continuous(again)
        for each in again[:-1]:
            assert len(each["text"]) == each["end"] - each["start"] - each["dropped"]
        dropped = sum(each.get("dropped", 0) for each in again)
        assert 0 < dropped < result["stdoutBytes"]


@pytest.mark.slow
def test_slow_client_delays_no_other_command(events: RawDaemon, tmp_path: Path) -> None:
    subscribe(events, "output", "exit")
    flood = events.background("yes")
    files = [tmp_path / str(number) for number in range(20)]
    for file in files:
        events.request("bash", {"command": f"echo out; touch {file}"})
    # The commands end although nobody reads the events, or the answers.
    wait_for(lambda: all(file.exists() for file in files))
    events.request("kill_shell", {"shell_id": flood, "grace": 0})
    ends: set[str] = set()
    while len(ends) < 21:
        message = events.receive()
        if message.get("method") == "shell/exited":
            assert message["params"]["bash_id"] not in ends
            ends.add(message["params"]["bash_id"])
