"""When a client continues a subscription, the client gets its events again."""

from __future__ import annotations

from pathlib import Path

import pytest

from event_reader import (
    events_to,
    events_to_answer,
    next_event,
    subscribe,
    text_of,
)
from support import Gate, Json, RawDaemon, altered_daemon, raw_daemon, wait_for


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


@pytest.mark.slow
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


@pytest.mark.parametrize("names", [["output"], ["leftover"], ["output", "leftover"]])
def test_continued_subscription_without_exit_tells_its_end(
    events: RawDaemon, names: list[str], tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    command = {"command": f"{gate.wait}; echo out", "run_in_background": True}
    name = events.call("bash", {**command, "notify": names})["subscription"]
    events.call("subscribe", {"subscription": name})
    request = events.request("subscribe", {"subscription": name})
    events.answer(request)
    gate.open()
    *found, over = events_to(events, "over")
    assert [each["method"] for each in found] == ["output"] * ("output" in names)
    assert over == {"method": "over", "subscription": name, "requestId": request}
    # The answer to a later `subscribe` says that the subscription is over, so no `over` event
    # follows.
    again = events.call("subscribe", {"subscription": name, "from_seq": 0})
    assert (again["isOver"], again["seq"]) == (True, len(found))
    repeated = [next_event(events) for _ in found]
    assert [each["seq"] for each in repeated] == [each["seq"] for each in found]
    ping = events.request("ping")
    assert events_to_answer(events, ping) == []


@pytest.mark.slow
def test_subscription_of_an_expired_shell_is_gone() -> None:
    with raw_daemon("--retain-seconds", "1") as daemon:
        result = daemon.bash("true", notify=["exit"])
        bash_id, name = result["bash_id"], result["subscription"]
        read = {"bash_id": bash_id}
        wait_for(lambda: "error" in daemon.answer(daemon.request("bash_output", read)))
        error = daemon.fail("subscribe", {"subscription": name, "from_seq": 0})
        assert error["data"]["parameter"] == "subscription"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "max_over"),
    [(("--max-retained", "1"), 1_000), ((), 1)],
    ids=["shells", "subscriptions"],
)
def test_continued_subscription_gets_all_events_whatever_ends_meanwhile(
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
        # The client reads nothing until these commands have ended.
        wait_for(lambda: all(file.exists() for file in done))
        found: list[Json] = []
        while len(found) < count:
            event = next_event(daemon, of=result["subscription"])
            found += [event] * (event["requestId"] == request)
        assert [each["seq"] for each in found] == list(range(1, count + 1))
        assert len(text_of(found)) == 4_000_000


def test_error_for_a_wrong_number_gives_the_available_range(events: RawDaemon) -> None:
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
