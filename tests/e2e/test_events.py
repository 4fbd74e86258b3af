"""Events of shells: which clients get them, and in which order."""

from __future__ import annotations

import json
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
from support import GENTLE_DAEMON, Gate, Json, RawDaemon, altered_daemon, is_alive, raw_daemon

# This command listens on a free port of this machine.
SERVER = """exec python3 -c '
import socket, time
server = socket.create_server(("127.0.0.1", 0))
time.sleep(300)'"""
ALL = ["exit", "output", "prompt", "listening", "leftover", "screen"]


# -- what is sent -----------------------------------------------------------------------------


@pytest.mark.slow
def test_end_follows_all_output(events: RawDaemon) -> None:
    subscription = subscribe(events, "output", "exit")
    result = events.bash("printf 'one\\n'; printf 'two\\n' >&2; printf 'three\\xc3\\xa9'; exit 3")
    found = events_to(events, "exited")
    assert text_of(found) == result["stdout"] == "one\nthreeé"
    assert text_of(found, "stderr") == "two\n"
    assert_continuous(found)
    assert [each["seq"] for each in found] == list(range(1, len(found) + 1))
    assert {each["subscription"] for each in found} == {subscription}
    assert {each["bash_id"] for each in found} == {result["bash_id"]}
    end = found[-1]
    assert (end["status"], end["exitCode"], end["signal"], end["isRunning"]) == (
        "failed",
        3,
        None,
        False,
    )
    assert (end["stdoutBytes"], end["stderrBytes"], end["skipped"]) == (11, 4, 0)
    assert end["leftover"] == []
    assert end["session"] == "main"
    assert end["usage"]["maxRssBytes"] > 0


@pytest.mark.slow
def test_half_a_character_is_sent_only_if_nothing_can_write_the_rest(events: RawDaemon) -> None:
    subscribe(events, "output", "exit")
    events.bash("printf 'abc\\xc3'")
    found = events_to(events, "exited")
    assert text_of(found) == "abc\ufffd"
    assert found[-2]["end"] == found[-1]["stdoutBytes"] == 4
    result = events.bash("sleep 300 & printf 'abc\\xc3'")
    found = events_to(events, "exited")
    assert text_of(found) == "abc"
    assert found[-2]["end"] == found[-1]["stdoutBytes"] == 3
    events.call("kill_shell", {"shell_id": result["bash_id"], "grace": 0})


@pytest.mark.slow
def test_only_wanted_events_are_sent(events: RawDaemon) -> None:
    subscribe(events, "exit")
    events.bash("echo out")
    assert [each["method"] for each in events_to(events, "exited")] == ["exited"]


@pytest.mark.slow
def test_client_without_a_subscription_gets_no_events(events: RawDaemon) -> None:
    events.bash("echo out")
    ended = {"bash_id": events.background("echo out"), "until": "exit", "wait": 60_000}
    events.call("bash_output", ended)
    assert events_to_answer(events, events.request("ping")) == []


@pytest.mark.slow
def test_subscription_to_a_shell_gets_only_its_events(events: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = events.background(f"echo early; {gate.wait}; echo late")
    subscribe(events, "output", "exit", bash_id=bash_id)
    events.bash("echo other")
    gate.open()
    found = events_to(events, "exited")
    assert {each["bash_id"] for each in found} == {bash_id}
    # The events begin with the output that nobody has read yet.
    assert text_of(found) == "early\nlate\n"


@pytest.mark.slow
def test_output_that_was_read_is_not_sent(events: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = events.background(f"echo early; {gate.wait}; echo late")
    read = events.call("bash_output", {"bash_id": bash_id, "wait": 60_000})
    assert read["stdout"] == "early\n"
    subscribe(events, "output", "exit", bash_id=bash_id)
    gate.open()
    found = events_to(events, "exited")
    assert text_of(found) == "late\n"
    assert found[0]["start"] == len("early\n")


@pytest.mark.slow
def test_events_do_not_take_output_from_readers(events: RawDaemon) -> None:
    subscribe(events, "output", "exit")
    bash_id = events.background("echo out")
    end = events_to(events, "exited")[-1]
    assert end["unreadBytes"] == 4
    assert events.call("bash_output", {"bash_id": bash_id})["stdout"] == "out\n"


def test_subscription_to_an_ended_shell_gets_its_end(events: RawDaemon) -> None:
    bash_id = events.background("echo out; exit 4")
    events.call("bash_output", {"bash_id": bash_id, "until": "exit", "wait": 60_000})
    subscribe(events, "output", "exit", bash_id=bash_id)
    found = events_to(events, "exited")
    assert [each["method"] for each in found] == ["exited"]
    assert found[0]["exitCode"] == 4


def test_subscription_to_a_session_gets_events_of_all_its_shells(
    events: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    running = events.background(f"{gate.wait}; echo running", session="mine")
    subscribe(events, "output", "exit", session="mine")
    events.bash("echo other")
    later = events.bash("echo later", session="mine")["bash_id"]
    gate.open()
    found: list[Json] = []
    while sum(each["method"] == "exited" for each in found) < 2:
        found.append(next_event(events))
    assert {each["bash_id"] for each in found} == {running, later}
    assert {each["session"] for each in found} == {"mine"}


@pytest.fixture
def rare() -> Generator[RawDaemon]:
    """A daemon whose default interval is longer than any test."""
    constants = {"shelld.methods.events.DEFAULT_INTERVAL_MS": 3_600_000}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        yield daemon


@pytest.mark.slow
def test_only_the_end_cuts_the_interval_short(rare: RawDaemon, tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "1"), Gate(tmp_path / "2")
    subscribe(rare, "output", "exit")
    bash_id = rare.background(f"echo one; {first.wait}; echo two; {second.wait}; echo three")
    assert next_event(rare)["text"] == "one\n"
    first.open()
    read = {"bash_id": bash_id, "stdout_offset": 4, "wait": 60_000}
    assert rare.call("bash_output", read)["stdout"] == "two\n"
    second.open()
    # The daemon kept the second line back for the interval, but sent it as soon as the command
    # ended.
    output, end = events_to(rare, "exited")
    assert (output["text"], end["bash_id"]) == ("two\nthree\n", bash_id)


@pytest.mark.slow
def test_full_chunk_does_not_wait_for_the_interval(rare: RawDaemon, tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "1"), Gate(tmp_path / "2")
    subscribe(rare, "output", "exit", max_bytes=1024)
    rare.background(f"echo one; {first.wait}; head -c 4096 /dev/zero | tr '\\0' x; {second.wait}")
    found = [next_event(rare)]
    first.open()
    while len(text_of(found)) < len("one\n") + 4096:
        found.append(next_event(rare))
    assert all(len(each["text"]) <= 1024 for each in found)
    second.open()
    next_event(rare, "exited")


@pytest.mark.parametrize("strip", [True, False])
def test_escape_sequences_are_stripped_on_request(events: RawDaemon, strip: bool) -> None:
    subscribe(events, "output", "exit", strip_ansi=strip)
    events.bash("printf '\\e[31mred\\e[0m\\n'")
    shown = text_of(events_to(events, "exited"))
    assert shown == ("red\n" if strip else "\x1b[31mred\x1b[0m\n")


def test_leftover_processes_are_reported_until_the_last_has_ended(events: RawDaemon) -> None:
    subscribe(events, "exit", "leftover")
    events.bash("setsid sleep 300 > /dev/null 2>&1 & echo $!")
    end = next_event(events, "exited")
    first = next_event(events)
    assert first["method"] == "leftover"
    assert first["leftover"] == end["leftover"] != []
    events.call("kill_shell", {"shell_id": end["bash_id"], "grace": 0})
    assert events_to(events, "leftover")[-1]["leftover"] == []
    assert not any(map(is_alive, first["leftover"]))


@pytest.mark.slow
def test_prompt_follows_its_text_and_ends_with_the_answer(events: RawDaemon) -> None:
    subscribe(events, "output", "prompt", "exit", interval_ms=5_000)
    bash_id = events.background("echo; read -p 'Name? ' x; read -p 'Age? ' y", tty=True)
    found = events_to(events, "prompt")
    assert text_of(found).endswith("Name? ")
    assert found[-1]["prompt"]["certainty"] == "proved"
    assert found[-1]["prompt"]["text"] == "Name?"
    events.request("write_stdin", {"bash_id": bash_id, "text": "me\n"})
    asked: list[Json] = []
    while not asked or asked[-1]["prompt"] is None:
        asked.append(next_event(events, "prompt"))
    assert asked[-1]["prompt"]["text"] == "Age?"
    events.request("write_stdin", {"bash_id": bash_id, "text": "7\n"})
    assert next_event(events, "exited")["exitCode"] == 0


@pytest.mark.slow
def test_prompt_of_an_open_input_ends_without_output(events: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    subscribe(events, "prompt", "exit")
    bash_id = events.background(f"read x; {gate.wait}", open_stdin=True)
    assert next_event(events)["prompt"]["lineMode"] is None
    events.request("write_stdin", {"bash_id": bash_id, "text": "x\n"})
    assert next_event(events)["prompt"] is None
    gate.open()
    assert next_event(events)["method"] == "exited"


ASKS_TWICE = """python3 -c "
import signal
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGUSR1, stop)
try: input('Name? ')
except Stop: input('Delete all? ')
" """


CLOCK = """python3 -c "
import select
for number in range(1000):
    print(number, end='> ', flush=True)
    select.select([0], [], [], 0.3)
" """


@pytest.mark.slow
def test_prompt_of_a_program_with_a_timer_is_reported(events: RawDaemon) -> None:
    subscribe(events, "prompt")
    events.background(CLOCK, tty=True)
    prompt = next_event(events, "prompt")["prompt"]
    assert (prompt["program"], prompt["certainty"]) == ("python3", "proved")
    assert prompt["blocking"] is False


@pytest.mark.slow
def test_second_question_is_reported_although_the_first_is_open(events: RawDaemon) -> None:
    subscribe(events, "prompt")
    events.background(ASKS_TWICE, tty=True)
    first = next_event(events, "prompt")["prompt"]
    assert first["text"] == "Name?"
    events.bash(f"kill -USR1 {first['pid']}", session=None)
    while (second := next_event(events, "prompt")["prompt"]) is None:
        pass
    assert (second["pid"], second["text"].endswith("Delete all?")) == (first["pid"], True)


@pytest.mark.slow
def test_ports_follow_the_output_before_them(events: RawDaemon) -> None:
    # The first output is sent at once. The second output would wait for the interval if no other
    # event followed.
    subscribe(events, "output", "listening", interval_ms=5_000)
    bash_id = events.background(f"echo one; read; echo two; {SERVER}", open_stdin=True)
    found = events_to(events, "output")
    events.call("write_stdin", {"bash_id": bash_id, "text": "\n"})
    found += events_to(events, "listening")
    assert text_of(found) == "one\ntwo\n"


def test_port_of_a_forking_server_names_its_last_owner(
    events: RawDaemon,
) -> None:
    subscribe(events, "listening")
    code = "import os, socket, time; s = socket.create_server(('127.0.0.1', 0)); os.read(0, 1)"
    code += "; os.fork() and os._exit(0); os.setsid(); time.sleep(300)"
    bash_id = events.background(f'python3 -c "{code}"; sleep 300', open_stdin=True)
    (first,) = next_event(events, "listening")["listening"]
    events.request("write_stdin", {"bash_id": bash_id, "text": "x"})
    while (found := next_event(events, "listening")["listening"]) in ([], [first]):
        pass
    (last,) = found
    assert (last["port"], is_alive(last["pid"])) == (first["port"], True)


@pytest.mark.slow
def test_changes_of_listening_ports_are_reported(events: RawDaemon) -> None:
    subscribe(events, "listening", "exit")
    bash_id = events.background(f"( {SERVER} ); {SERVER}")
    first = next_event(events)
    assert first["method"] == "listening"
    (listener,) = first["listening"]
    assert listener["address"] == "127.0.0.1"
    events.bash(f"kill {listener['pid']}", session=None)
    second = next_event(events, "listening")
    while not second["listening"]:
        second = next_event(events, "listening")
    assert [each["port"] for each in second["listening"]] != [listener["port"]]
    events.call("kill_shell", {"shell_id": bash_id})


@pytest.mark.slow
def test_screen_event_has_the_changed_lines(events: RawDaemon) -> None:
    pytest.importorskip("avt")
    subscribe(events, "screen", "exit")
    bash_id = events.background("printf one; read x; printf two", tty=True, rows=4, cols=20)
    seen = next_event(events, "screen")
    while not any(seen["lines"]):
        seen = next_event(events, "screen")
    assert seen["lines"][seen["changed"].index(0)] == "one"
    events.call("write_stdin", {"bash_id": bash_id, "text": "\n"})
    found = events_to(events, "exited")
    last = found[-2]
    assert last["method"] == "screen"
    assert last["lines"][last["changed"].index(1)] == "two"
    assert len(last["changed"]) < 4


# -- notify -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_notify_of_a_background_command_follows_its_answer(events: RawDaemon) -> None:
    request = events.request(
        "bash", {"command": "echo out", "run_in_background": True, "notify": ["output", "exit"]}
    )
    answer = events.receive()
    assert answer["id"] == request
    found = events_to(events, "exited")
    assert text_of(found) == "out\n"
    assert {each["subscription"] for each in found} == {answer["result"]["subscription"]}
    assert {each["requestId"] for each in found} == {request}
    assert [each["seq"] for each in found] == [1, 2]


@pytest.mark.slow
def test_notify_of_a_foreground_command_comes_before_its_answer(
    events: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    params = {"command": f"cd /; echo out; {gate.wait}", "notify": ["output", "exit"]}
    request = events.request("bash", params, request_id="my-id")
    first = events.receive()
    assert (first["params"]["text"], first["params"]["requestId"]) == ("out\n", request)
    gate.open()
    answer = events.answer(request)["result"]
    assert answer["subscription"] == first["params"]["subscription"]
    assert answer["sessionCwd"] == "/"
    assert events_to(events, "exited")[-1]["exitCode"] == 0


def test_command_starts_although_its_events_end_meanwhile(events: RawDaemon) -> None:
    before = subscribe(events, "exit").removeprefix("sub_")
    # The names of all subscriptions of a daemon end with the same eight characters.
    name = f"sub_{int(before[:-8]) + 1}{before[-8:]}"
    params = {"command": "true", "run_in_background": True, "notify": ["output", "exit"]}
    start = {"jsonrpc": "2.0", "id": "start", "method": "bash", "params": params}
    # The test can predict the name of the next subscription. The daemon reads both requests at
    # once.
    end = {"method": "unsubscribe", "params": {"subscription": name}}
    lines = [json.dumps(each).encode() + b"\n" for each in (start, {"jsonrpc": "2.0", **end})]
    events.send_raw(b"".join(lines))
    answer = events.answer("start")
    assert answer["result"]["subscription"] == name
    assert next_event(events, "exited")["subscription"] != name
    assert events.fail("subscribe", {"subscription": name})["code"] == -32602


@pytest.mark.slow
def test_notify_of_a_command_that_cannot_start_leaves_no_subscription(events: RawDaemon) -> None:
    for _ in range(300):
        params = {"command": "true", "cwd": "/nonexistent", "notify": ["exit"]}
        assert events.fail("bash", params)["data"]["kind"] == "spawn_failed"
    name = events.bash("true", notify=["exit"])["subscription"]
    # The names of all subscriptions of a daemon end with the same eight characters.
    error = events.fail("subscribe", {"subscription": f"sub_1{name[-8:]}"})
    assert error["data"]["parameter"] == "subscription"


@pytest.mark.slow
def test_notify_outlives_a_move_to_the_background(events: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    result = events.bash(
        f"{gate.wait}; echo out", timeout=1_000, on_timeout="background", notify=["output", "exit"]
    )
    assert result["status"] == "running"
    gate.open()
    assert text_of(events_to(events, "exited")) == "out\n"


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "kind", "parameter"),
    [
        ({}, "invalid_params", "events"),
        ({"events": []}, "invalid_params", "events"),
        ({"events": ["nothing"]}, "invalid_params", "events"),
        ({"events": ["exit"], "bash_id": "x", "session": "main"}, "invalid_params", "session"),
        ({"events": ["exit"], "bash_id": "shell_1"}, "shell_not_found", None),
        ({"events": ["exit"], "session": "unknown"}, "session_not_found", None),
        ({"events": ["exit"], "from_seq": 0}, "invalid_params", "subscription"),
        ({"subscription": "sub_77"}, "invalid_params", "subscription"),
        ({"events": ["exit"], "interval_ms": 5_001}, "invalid_params", "interval_ms"),
        ({"events": ["exit"], "interval_ms": -1}, "invalid_params", "interval_ms"),
        ({"events": ["exit"], "max_bytes": 1_023}, "invalid_params", "max_bytes"),
        ({"events": ["exit"], "max_bytes": 1_048_577}, "invalid_params", "max_bytes"),
        ({"subscription": "sub_1", "from_seq": -1}, "invalid_params", "from_seq"),
        (
            {"subscription": "sub_1", "idempotency_key": "x"},
            "invalid_params",
            "idempotency_key",
        ),
        ({"events": ["exit"], "idempotency_key": ""}, "invalid_params", "idempotency_key"),
        ({"events": ["exit"], "idempotency_key": "x" * 129}, "invalid_params", "idempotency_key"),
        ({"events": ["exit"], "idempotency_key": "x", "from_seq": 1}, "invalid_params", "from_seq"),
        ({"idempotency_key": "x"}, "invalid_params", "events"),
    ],
)
def test_bad_params_are_refused(
    daemon: RawDaemon, params: Json, kind: str, parameter: str | None
) -> None:
    error = daemon.fail("subscribe", params)
    assert (error["data"]["kind"], error["data"].get("parameter")) == (kind, parameter)


def test_continuing_a_subscription_cannot_change_it(events: RawDaemon) -> None:
    name = subscribe(events, "exit", "output", session="main")
    same = {"subscription": name, "events": ["output", "exit"], "session": "main"}
    assert events.call("subscribe", same)["subscription"] == name
    for other in ({"events": ["exit"]}, {"bash_id": "x"}, {"interval_ms": 1}):
        error = events.fail("subscribe", {"subscription": name, **other})
        assert error["data"]["parameter"] == next(iter(other))


def test_repeated_request_continues_its_subscription(events: RawDaemon) -> None:
    params = {"events": ["exit"], "idempotency_key": "mine"}
    first = events.call("subscribe", params)
    events.bash("exit 1")
    assert next_event(events)["seq"] == 1
    again = events.call("subscribe", params)
    assert (again["subscription"], again["seq"]) == (first["subscription"], 1)
    # The first answer may have been lost, so all events come again.
    assert next_event(events)["exitCode"] == 1
    only_new = events.call("subscribe", {**params, "from_seq": 1})
    assert only_new["subscription"] == first["subscription"]
    events.bash("exit 2")
    assert next_event(events)["exitCode"] == 2
    refused = events.fail("subscribe", {**params, "events": ["output"]})
    assert refused["data"]["parameter"] == "events"


@pytest.mark.parametrize(
    ("option", "parameter"),
    [
        ({"session": "main"}, "session"),
        ({"interval_ms": 1}, "interval_ms"),
        ({"max_bytes": 2_048}, "max_bytes"),
        ({"strip_ansi": False}, "strip_ansi"),
    ],
)
def test_repeated_request_without_an_option_is_refused(
    events: RawDaemon, option: Json, parameter: str
) -> None:
    params = {"events": ["exit"], "idempotency_key": "mine"}
    events.call("subscribe", {**params, **option})
    assert events.fail("subscribe", params)["data"]["parameter"] == parameter


def test_key_of_a_single_shell_is_not_taken_for_all_shells(events: RawDaemon) -> None:
    shell = events.bash("sleep 300", run_in_background=True)["bash_id"]
    params = {"events": ["exit"], "idempotency_key": "mine"}
    events.call("subscribe", {**params, "bash_id": shell})
    assert events.fail("subscribe", params)["data"]["parameter"] == "bash_id"


def test_key_of_an_ended_subscription_is_free(events: RawDaemon) -> None:
    shell = events.bash("true")["bash_id"]
    for params in ({}, {"bash_id": shell}):
        subscribed = {"events": ["exit"], "idempotency_key": "mine", **params}
        first = events.call("subscribe", subscribed)["subscription"]
        events.call("unsubscribe", {"subscription": first})
        second = events.call("subscribe", {"events": ["exit"], "idempotency_key": "mine"})
        assert second["subscription"] != first
        assert second["seq"] == 0
        events.call("unsubscribe", {"subscription": second["subscription"]})


def test_subscriptions_are_limited(events: RawDaemon) -> None:
    names = [subscribe(events, "exit") for _ in range(256)]
    error = events.fail("subscribe", {"events": ["exit"]})
    assert (error["code"], error["data"]["limit"]) == (1005, "subscriptions")
    error = events.fail("bash", {"command": "true", "notify": ["exit"]})
    assert error["data"]["limit"] == "subscriptions"
    events.call("unsubscribe", {"subscription": names[0]})
    assert subscribe(events, "exit")
    events.bash("true")
    assert len([next_event(events) for _ in range(256)]) == 256


@pytest.mark.slow
def test_ended_subscriptions_do_not_count(events: RawDaemon) -> None:
    for _ in range(300):
        events.bash("true", notify=["exit"])
    assert subscribe(events, "exit")


@pytest.mark.parametrize("limit", ["MAX_OVER", "MAX_OVER_WEIGHT"])
def test_only_the_latest_ended_subscriptions_are_kept(limit: str) -> None:
    # Each of these subscriptions has one event.
    constants = {f"shelld.events.subscriptions.{limit}": 3}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        names = [daemon.bash("true", notify=["exit"])["subscription"] for _ in range(5)]
        while next_event(daemon)["subscription"] != names[-1]:
            pass
        for name in names[:2]:
            assert daemon.fail("subscribe", {"subscription": name})["code"] == -32602
        for name in names[2:]:
            assert daemon.call("subscribe", {"subscription": name})["seq"] == 1


def test_unknown_subscription_is_ended_without_error(daemon: RawDaemon) -> None:
    assert daemon.call("unsubscribe", {"subscription": "sub_none"}) == {}


def test_nothing_follows_the_end_of_a_subscription(events: RawDaemon) -> None:
    name = subscribe(events, *ALL)
    bash_id = events.background("while :; do echo x; done")
    next_event(events)
    request = events.request("unsubscribe", {"subscription": name})
    events.answer(request)
    events.forget_answers()
    kill = {"shell_id": bash_id, "grace": 0}
    for method, params in (("kill_shell", kill), ("bash", {"command": "true"}), ("ping", {})):
        assert events_to_answer(events, events.request(method, params)) == []
    assert events.fail("subscribe", {"subscription": name})["code"] == -32602


# -- order ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_commands_end_once_each_and_in_order() -> None:
    with raw_daemon("--max-shells", "400") as events:
        run_many_commands(events)


def run_many_commands(events: RawDaemon) -> None:
    name = subscribe(events, "output", "exit")
    count = 300
    requests = {
        events.request("bash", {"command": f"echo {number}", "session": None}): number
        for number in range(count)
    }
    found: list[Json] = []
    numbers: dict[str, str] = {}
    while len(numbers) < count or sum(each["method"] == "exited" for each in found) < count:
        message = events.receive()
        if "method" in message:
            found.append({"method": message["method"].removeprefix("shell/"), **message["params"]})
        else:
            result = message["result"]
            assert result["stdout"] == f"{requests[message['id']]}\n"
            numbers[result["bash_id"]] = result["stdout"]
    assert [each["seq"] for each in found] == list(range(1, len(found) + 1))
    assert {each["subscription"] for each in found} == {name}
    ended: set[str] = set()
    for each in found:
        assert each["bash_id"] not in ended
        if each["method"] == "exited":
            ended.add(each["bash_id"])
    assert ended == set(numbers)
    for bash_id, expected in numbers.items():
        assert text_of([each for each in found if each["bash_id"] == bash_id]) == expected


@pytest.mark.slow
def test_each_subscription_reports_an_end_at_most_once(events: RawDaemon) -> None:
    first = subscribe(events, "exit")
    for _ in range(50):
        bash_id = events.background("echo out")
        request = events.request("subscribe", {"events": ["output", "exit"], "bash_id": bash_id})
        kill = events.request("kill_shell", {"shell_id": bash_id})
        name = events.answer(request)["result"]["subscription"]
        events.answer(events.request("unsubscribe", {"subscription": name}))
        events.answer(kill)
    ends = [each["params"] for each in drain(events) if each["method"] == "shell/exited"]
    told = {(each["subscription"], each["bash_id"]) for each in ends}
    assert len(told) == len(ends)
    assert sum(name == first for name, _ in told) == 50


def drain(daemon: RawDaemon) -> list[Json]:
    daemon.end_input()
    return [each for each in daemon.answers_to_the_end() if "method" in each]


@pytest.fixture
def gentle() -> Generator[RawDaemon]:
    with raw_daemon(command=GENTLE_DAEMON) as daemon:
        yield daemon


def test_shutdown_sends_the_end_of_each_shell(gentle: RawDaemon) -> None:
    subscribe(gentle, "output", "exit")
    ids = {gentle.background("trap 'echo bye; exit 1' TERM; while :; do sleep 0.01; done")}
    ids |= {gentle.background("sleep 300") for _ in range(3)}
    found = drain(gentle)
    assert {each["params"]["bash_id"] for each in found if each["method"] == "shell/exited"} == ids
    assert [each["params"]["seq"] for each in found] == list(range(1, len(found) + 1))


@pytest.mark.slow
def test_ends_that_come_late_in_the_stop_are_sent() -> None:
    # Killing the command takes longer than it should, as on a busy machine, but the daemon has
    # enough time to stop.
    slow_kill = {"shelld.app.STOP_GRACE_MS": 500, "shelld.app.STOP_KILL_S": 0}
    with raw_daemon(command=altered_daemon({**slow_kill, "shelld.app.STOP_S": 60})) as events:
        subscribe(events, "output", "exit")
        events.background("trap '' TERM; echo set; while :; do sleep 0.05; done")
        next_event(events, "output")
        assert [each["method"] for each in drain(events)] == ["shell/exited"]


@pytest.mark.slow
def test_shutdown_shows_the_last_screen(gentle: RawDaemon) -> None:
    pytest.importorskip("avt")
    subscribe(gentle, "screen", "exit")
    command = "trap 'printf bye; exit 1' TERM; printf hi; while :; do sleep 0.01; done"
    gentle.background(command, tty=True, rows=2, cols=20)
    while not any(next_event(gentle, "screen")["lines"]):
        pass
    found = drain(gentle)
    assert [each["method"] for each in found][-2:] == ["shell/screen", "shell/exited"]
    assert "bye" in "".join(found[-2]["params"]["lines"])


@pytest.mark.slow
def test_client_that_leaves_in_the_middle_of_an_event_ends_the_daemon() -> None:
    for framing in (b"\n", None):
        with raw_daemon(stderr_is_silent=False) as daemon:
            body = b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"events":["output"]}}'
            head = b"" if framing else b"Content-Length: %d\r\n\r\n" % len(body)
            daemon.send_raw(head + body + (framing or b""))
            body = b'{"jsonrpc":"2.0","id":2,"method":"bash","params":{"command":"yes"}}'
            head = b"" if framing else b"Content-Length: %d\r\n\r\n" % len(body)
            daemon.send_raw(head + body + (framing or b""))
            daemon.read_bytes()
            assert daemon.process.stdout is not None
            daemon.process.stdout.close()
            daemon.process.stdout = None
            assert daemon.wait() == 0
