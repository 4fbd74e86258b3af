"""Events of shells: who gets them, in which order, and what a slow client gets."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from support import Gate, Json, RawDaemon, altered_daemon, is_alive, raw_daemon, wait_for

# Listens on a free port of this machine.
SERVER = """exec python3 -c '
import socket, time
server = socket.create_server(("127.0.0.1", 0))
time.sleep(300)'"""
ALL = ["exit", "output", "prompt", "listening", "leftover", "screen"]


@pytest.fixture
def events() -> Generator[RawDaemon]:
    with raw_daemon() as daemon:
        yield daemon


def subscribe(daemon: RawDaemon, *names: str, **params: object) -> str:
    result = daemon.call("subscribe", {"events": list(names), **params})
    return cast("str", result["subscription"])


def next_event(daemon: RawDaemon, name: str = "", *, of: str = "") -> Json:
    """Return the next notification, of this name and subscription. Drop answers and others."""
    while True:
        message = daemon.receive()
        if "method" not in message:
            continue
        event = {"method": message["method"].removeprefix("shell/"), **message["params"]}
        if name in ("", event["method"]) and of in ("", event["subscription"]):
            return event


def events_to(daemon: RawDaemon, last: str, *, of: str = "") -> list[Json]:
    """Return all events up to one of this name."""
    found = [next_event(daemon, of=of)]
    while found[-1]["method"] != last:
        found.append(next_event(daemon, of=of))
    return found


def events_to_answer(daemon: RawDaemon, request_id: object) -> list[Json]:
    """Return all events that come before an answer."""
    found: list[Json] = []
    while (message := daemon.receive()).get("id") != request_id:
        found.append({"method": message["method"].removeprefix("shell/"), **message["params"]})
    return found


def text_of(found: list[Json], stream: str = "stdout") -> str:
    return "".join(each["text"] for each in found if each.get("stream") == stream)


def assert_continuous(found: list[Json]) -> None:
    """The output events of each stream leave out exactly what they say."""
    ends: dict[tuple[str, str], int] = {}
    for each in found:
        if each["method"] == "output":
            key = each["bash_id"], each["stream"]
            assert each["start"] == ends.get(key, 0) + each["skipped"]
            assert each["start"] <= each["end"]
            ends[key] = each["end"]


# -- what is sent -----------------------------------------------------------------------------


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


def test_end_leaves_no_part_of_a_character_unsent(events: RawDaemon) -> None:
    subscribe(events, "output", "exit")
    result = events.bash("sleep 300 & printf 'abc\\xc3'")
    found = events_to(events, "exited")
    assert text_of(found) == "abc\ufffd"
    assert found[-2]["end"] == found[-1]["stdoutBytes"] == 4
    events.call("kill_shell", {"shell_id": result["bash_id"], "grace": 0})


def test_only_wanted_events_are_sent(events: RawDaemon) -> None:
    subscribe(events, "exit")
    events.bash("echo out")
    assert [each["method"] for each in events_to(events, "exited")] == ["exited"]


def test_nobody_else_hears_anything(events: RawDaemon) -> None:
    events.bash("echo out")
    ended = {"bash_id": events.background("echo out"), "until": "exit", "wait": 60_000}
    events.call("bash_output", ended)
    assert events_to_answer(events, events.request("ping")) == []


def test_events_of_one_shell(events: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = events.background(f"echo early; {gate.wait}; echo late")
    subscribe(events, "output", "exit", bash_id=bash_id)
    events.bash("echo other")
    gate.open()
    found = events_to(events, "exited")
    assert {each["bash_id"] for each in found} == {bash_id}
    # What nobody has read yet belongs to it.
    assert text_of(found) == "early\nlate\n"


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


def test_events_do_not_take_output_from_readers(events: RawDaemon) -> None:
    subscribe(events, "output", "exit")
    bash_id = events.background("echo out")
    end = events_to(events, "exited")[-1]
    assert end["unreadBytes"] == 4
    assert events.call("bash_output", {"bash_id": bash_id})["stdout"] == "out\n"


def test_events_of_an_ended_shell(events: RawDaemon) -> None:
    bash_id = events.background("echo out; exit 4")
    events.call("bash_output", {"bash_id": bash_id, "until": "exit", "wait": 60_000})
    subscribe(events, "output", "exit", bash_id=bash_id)
    found = events_to(events, "exited")
    assert [each["method"] for each in found] == ["exited"]
    assert found[0]["exitCode"] == 4


def test_events_of_a_session(events: RawDaemon, tmp_path: Path) -> None:
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
    """A daemon whose default interval never passes."""
    constants = {"shelld.methods.events.DEFAULT_INTERVAL_MS": 3_600_000}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        yield daemon


def test_only_the_end_cuts_the_interval_short(rare: RawDaemon, tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "1"), Gate(tmp_path / "2")
    subscribe(rare, "output", "exit")
    bash_id = rare.background(f"echo one; {first.wait}; echo two; {second.wait}; echo three")
    assert next_event(rare)["text"] == "one\n"
    first.open()
    read = {"bash_id": bash_id, "stdout_offset": 4, "wait": 60_000}
    assert rare.call("bash_output", read)["stdout"] == "two\n"
    second.open()
    # The second line waited, and nothing waits longer than the command runs.
    output, end = events_to(rare, "exited")
    assert (output["text"], end["bash_id"]) == ("two\nthree\n", bash_id)


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
def test_escape_sequences(events: RawDaemon, strip: bool) -> None:
    subscribe(events, "output", "exit", strip_ansi=strip)
    events.bash("printf '\\e[31mred\\e[0m\\n'")
    shown = text_of(events_to(events, "exited"))
    assert shown == ("red\n" if strip else "\x1b[31mred\x1b[0m\n")


def test_leftover_processes_are_told_until_the_last_has_ended(events: RawDaemon) -> None:
    subscribe(events, "exit", "leftover")
    events.bash("setsid sleep 300 > /dev/null 2>&1 & echo $!")
    end = next_event(events, "exited")
    first = next_event(events)
    assert first["method"] == "leftover"
    assert first["leftover"] == end["leftover"] != []
    events.call("kill_shell", {"shell_id": end["bash_id"], "grace": 0})
    assert events_to(events, "leftover")[-1]["leftover"] == []
    assert not any(map(is_alive, first["leftover"]))


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
for number in range(4):
    print(number, end='> ', flush=True)
    select.select([0], [], [], 0.3)
" """


def test_prompt_of_a_program_with_a_clock_is_not_withdrawn(events: RawDaemon) -> None:
    subscribe(events, "prompt", "exit")
    events.background(CLOCK, tty=True)
    *told, _ = events_to(events, "exited")
    # Only its end withdraws the last one.
    assert told
    assert None not in [each["prompt"] for each in told[:-1]]


def test_second_question_without_an_answer_is_told(events: RawDaemon) -> None:
    subscribe(events, "prompt")
    events.background(ASKS_TWICE, tty=True)
    first = next_event(events, "prompt")["prompt"]
    assert first["text"] == "Name?"
    events.bash(f"kill -USR1 {first['pid']}", session=None)
    while (second := next_event(events, "prompt")["prompt"]) is None:
        pass
    assert (second["pid"], second["text"].endswith("Delete all?")) == (first["pid"], True)


def test_ports_follow_the_output_before_them(events: RawDaemon) -> None:
    # The first output is sent at once. The second would wait, if nothing came after it.
    subscribe(events, "output", "listening", interval_ms=5_000)
    bash_id = events.background(f"echo one; read; echo two; {SERVER}", open_stdin=True)
    found = events_to(events, "output")
    events.call("write_stdin", {"bash_id": bash_id, "text": "\n"})
    found += events_to(events, "listening")
    assert text_of(found) == "one\ntwo\n"


def test_port_of_a_server_that_goes_to_the_background_has_its_last_owner(
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


def test_ports_are_told_when_they_change(events: RawDaemon) -> None:
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


def test_screen_is_told_with_its_changes(events: RawDaemon) -> None:
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


def test_notify_of_a_command_that_cannot_start_leaves_nothing(events: RawDaemon) -> None:
    for _ in range(300):
        params = {"command": "true", "cwd": "/nonexistent", "notify": ["exit"]}
        assert events.fail("bash", params)["data"]["kind"] == "spawn_failed"
    assert events.bash("true", notify=["exit"])["subscription"]
    error = events.fail("subscribe", {"subscription": "sub_1"})
    assert error["data"]["parameter"] == "subscription"


def test_notify_outlives_a_move_to_the_background(events: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    result = events.bash(
        f"{gate.wait}; echo out", timeout=1_000, on_timeout="background", notify=["output", "exit"]
    )
    assert result["status"] == "running"
    gate.open()
    assert text_of(events_to(events, "exited")) == "out\n"


# -- continuing -------------------------------------------------------------------------------


def test_journal_is_sent_again_from_a_number(events: RawDaemon) -> None:
    subscription = subscribe(events, "output", "exit")
    for number in range(3):
        events.bash(f"echo {number}; printf '\\e[1m%s' \xe9")
    found = list[Json]()
    while sum(each["method"] == "exited" for each in found) < 3:
        found.append(next_event(events))
    for from_seq in (0, 1, 4, len(found)):
        request = events.request("subscribe", {"subscription": subscription, "from_seq": from_seq})
        assert events.receive() == {
            "jsonrpc": "2.0",
            "id": request,
            "result": {
                "subscription": subscription,
                "seq": len(found),
                "events": ["exit", "output"],
            },
        }
        again = [next_event(events) for _ in found[from_seq:]]
        assert [{**each, "requestId": 0} for each in again] == [
            {**each, "requestId": 0} for each in found[from_seq:]
        ]
        assert {each["requestId"] for each in again} <= {request}
    events.bash("true")
    assert next_event(events)["seq"] == len(found) + 1


def test_subscription_continues_without_a_number(events: RawDaemon) -> None:
    subscription = subscribe(events, "exit")
    events.bash("true")
    next_event(events)
    assert events.call("subscribe", {"subscription": subscription})["seq"] == 1
    events.bash("true")
    assert next_event(events)["seq"] == 2


def test_subscription_of_an_ended_shell_can_be_continued(events: RawDaemon) -> None:
    result = events.bash("echo out", notify=["output", "exit"])
    found = events_to(events, "exited")
    name, bash_id = result["subscription"], result["bash_id"]
    again_params = {"subscription": name, "from_seq": 0, "bash_id": bash_id}
    continued = events.call("subscribe", again_params)
    assert (continued["bash_id"], continued["isOver"]) == (bash_id, True)
    again = events_to(events, "exited")
    assert [each["seq"] for each in again] == [each["seq"] for each in found] == [1, 2]
    assert text_of(again) == "out\n"


def test_subscription_of_an_expired_shell_is_gone() -> None:
    with raw_daemon("--retain-seconds", "1") as daemon:
        result = daemon.bash("true", notify=["exit"])
        bash_id, name = result["bash_id"], result["subscription"]
        read = {"bash_id": bash_id}
        wait_for(lambda: "error" in daemon.answer(daemon.request("bash_output", read)))
        error = daemon.fail("subscribe", {"subscription": name, "from_seq": 0})
        assert error["data"]["parameter"] == "subscription"


@pytest.mark.parametrize(
    ("args", "max_over"),
    [(("--max-retained", "1"), 1_000), ((), 1)],
    ids=["shells", "subscriptions"],
)
def test_all_events_of_a_continued_subscription_come_whatever_ends_meanwhile(
    args: tuple[str, ...], max_over: int, tmp_path: Path
) -> None:
    constants = {
        # The events wait until the client reads.
        "shelld.events.subscription.PATIENCE_S": 60,
        "shelld.events.subscriptions.MAX_OVER": max_over,
    }
    with raw_daemon(*args, command=altered_daemon(constants)) as daemon:
        result = daemon.bash("head -c 4000000 /dev/zero | tr '\\0' x", notify=["output", "exit"])
        count = events_to(daemon, "exited")[-1]["seq"]
        again = {"subscription": result["subscription"], "from_seq": 0}
        request = daemon.request("subscribe", again)
        done = [tmp_path / str(number) for number in range(5)]
        for file in done:
            daemon.request("bash", {"command": f"touch {file}", "notify": ["exit"]})
        # The client reads nothing until these have ended.
        wait_for(lambda: all(file.exists() for file in done))
        found: list[Json] = []
        while len(found) < count:
            event = next_event(daemon, of=result["subscription"])
            found += [event] * (event["requestId"] == request)
        assert [each["seq"] for each in found] == list(range(1, count + 1))
        assert len(text_of(found)) == 4_000_000


def test_old_number_names_what_is_available(events: RawDaemon) -> None:
    subscription = subscribe(events, "exit")
    events.bash("true")
    error = events.fail("subscribe", {"subscription": subscription, "from_seq": 2})
    assert error["code"] == -32602
    assert error["data"]["available"] == {"from": 0, "to": 1}


def test_journal_keeps_the_last_events() -> None:
    constants = {"shelld.events.subscription.JOURNAL_EVENTS": 10}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        subscription = subscribe(daemon, "exit")
        for _ in range(12):
            daemon.bash("true")
        error = daemon.fail("subscribe", {"subscription": subscription, "from_seq": 1})
        assert error["data"]["available"] == {"from": 2, "to": 12}
        daemon.forget_answers()
        daemon.call("subscribe", {"subscription": subscription, "from_seq": 2})
        assert [next_event(daemon)["seq"] for _ in range(10)] == list(range(3, 13))


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
    ],
)
def test_bad_params_are_refused(
    daemon: RawDaemon, params: Json, kind: str, parameter: str | None
) -> None:
    error = daemon.fail("subscribe", params)
    assert (error["data"]["kind"], error["data"].get("parameter")) == (kind, parameter)


def test_continued_subscription_cannot_become_another(events: RawDaemon) -> None:
    name = subscribe(events, "exit", "output", session="main")
    same = {"subscription": name, "events": ["output", "exit"], "session": "main"}
    assert events.call("subscribe", same)["subscription"] == name
    for other in ({"events": ["exit"]}, {"bash_id": "x"}, {"interval_ms": 1}):
        error = events.fail("subscribe", {"subscription": name, **other})
        assert error["data"]["parameter"] == next(iter(other))


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


def test_ended_subscriptions_do_not_count(events: RawDaemon) -> None:
    for _ in range(300):
        events.bash("true", notify=["exit"])
    assert subscribe(events, "exit")


@pytest.mark.parametrize("limit", ["MAX_OVER", "MAX_OVER_EVENTS"])
def test_only_the_last_subscriptions_that_are_over_are_kept(limit: str) -> None:
    # Each has one event.
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


def test_subscribing_ending_and_unsubscribing_at_once(events: RawDaemon) -> None:
    subscribe(events, "exit")
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
    assert sum(name == "sub_1" for name, _ in told) == 50


def drain(daemon: RawDaemon) -> list[Json]:
    daemon.end_input()
    return [each for each in daemon.answers_to_the_end() if "method" in each]


def test_shutdown_tells_the_ends(events: RawDaemon) -> None:
    subscribe(events, "output", "exit")
    ids = {events.background("trap 'echo bye; exit 1' TERM; while :; do sleep 0.01; done")}
    ids |= {events.background("sleep 300") for _ in range(3)}
    found = drain(events)
    assert {each["params"]["bash_id"] for each in found if each["method"] == "shell/exited"} == ids
    assert [each["params"]["seq"] for each in found] == list(range(1, len(found) + 1))


def test_shutdown_shows_the_last_screen(events: RawDaemon) -> None:
    pytest.importorskip("avt")
    subscribe(events, "screen", "exit")
    command = "trap 'printf bye; exit 1' TERM; printf hi; while :; do sleep 0.01; done"
    events.background(command, tty=True, rows=2, cols=20)
    while not any(next_event(events, "screen")["lines"]):
        pass
    found = drain(events)
    assert [each["method"] for each in found][-2:] == ["shell/screen", "shell/exited"]
    assert "bye" in "".join(found[-2]["params"]["lines"])


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


# -- slow clients -----------------------------------------------------------------------------


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
    while not found or found[-1]["method"] != "exited":
        message = events.receive()
        if message.get("id") != request:
            found.append({"method": message["method"].removeprefix("shell/"), **message["params"]})
    end = found[-1]
    assert_continuous(found)
    sent = sum(each["end"] - each["start"] for each in found if each["method"] == "output")
    assert sent + end["skipped"] == end["stdoutBytes"]
    assert end["skipped"] > 0
    assert [each["seq"] for each in found] == list(range(1, len(found) + 1))
    # What was skipped can be read.
    outputs = [each for each in found if each["method"] == "output"]
    start = next((each["start"] for each in outputs if each["skipped"]), end["stdoutBytes"])
    skipped = {"bash_id": end["bash_id"], "stdout_offset": start - 200, "max_bytes": 100}
    assert "x" * 40 in events.call("bash_output", skipped)["stdout"]


@pytest.fixture
def impatient() -> Generator[RawDaemon]:
    """A daemon that skips output as soon as the client is slow."""
    with raw_daemon(command=altered_daemon({"shelld.events.subscription.PATIENCE_S": 0})) as daemon:
        yield daemon


def test_output_goes_on_after_what_was_skipped(impatient: RawDaemon, tmp_path: Path) -> None:
    subscribe(impatient, "output", "exit", interval_ms=0)
    done, first, second = tmp_path / "done", Gate(tmp_path / "1"), Gate(tmp_path / "2")
    lines = "yes 0123456789 | head -c 8000000"
    later = f"{first.wait}; echo one; {second.wait}; echo two"
    bash_id = impatient.background(f"{lines}; touch {done}; {later}")
    wait_for(done.exists)
    # Now the client reads. Once the daemon has all output, nothing more is queued.
    all_of_it = {"bash_id": bash_id, "stdout_offset": 7_999_990, "wait": 60_000}
    found = events_to_answer(impatient, impatient.request("bash_output", all_of_it))
    found += events_to_answer(impatient, impatient.request("ping"))
    first.open()
    found.append(next_event(impatient))
    while not found[-1]["text"].endswith("one\n"):
        found.append(next_event(impatient))
    second.open()
    found += events_to(impatient, "exited")
    assert_continuous(found)
    assert text_of(found).endswith("one\ntwo\n")
    skips = [each["skipped"] for each in found if each["method"] == "output"]
    assert sum(skips) == found[-1]["skipped"] > 0
    assert skips[-1] == 0
    # It goes on at the beginning of a line.
    assert all(
        each["start"] % 11 == 0 for each in found if each["method"] == "output" and each["skipped"]
    )
    assert found[-1]["bash_id"] == bash_id


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


def test_slow_client_gets_no_more_screens(impatient: RawDaemon, tmp_path: Path) -> None:
    pytest.importorskip("avt")
    subscribe(impatient, "screen", "exit", interval_ms=0)
    done = tmp_path / "done"
    draw = "for n in $(seq 50); do printf '%0190d\\n' $RANDOM; done"
    often = f"for m in $(seq 400); do {draw}; done"
    bash_id = impatient.background(f"{often}; touch {done}; sleep 300", tty=True, rows=50, cols=200)
    # The client reads nothing meanwhile.
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


def test_journal_tells_what_is_no_longer_kept() -> None:
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


def test_slow_client_delays_no_other_command(events: RawDaemon, tmp_path: Path) -> None:
    subscribe(events, "output", "exit")
    flood = events.background("yes")
    files = [tmp_path / str(number) for number in range(20)]
    for file in files:
        events.request("bash", {"command": f"echo out; touch {file}"})
    # They end although nobody reads the events, or the answers.
    wait_for(lambda: all(file.exists() for file in files))
    events.request("kill_shell", {"shell_id": flood, "grace": 0})
    ends: set[str] = set()
    while len(ends) < 21:
        message = events.receive()
        if message.get("method") == "shell/exited":
            assert message["params"]["bash_id"] not in ends
            ends.add(message["params"]["bash_id"])
