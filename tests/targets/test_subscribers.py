"""When the connection to a target is lost, the owners of subscriptions at this target are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shelld.targets.subscribers import MAX_KEPT, Subscribers


def begun(subscribers: Subscribers, name: str, **members: object) -> None:
    subscribers.note(json.dumps({"subscription": name, **members}).encode(), b"7")


def lost(subscribers: Subscribers) -> list[Any]:
    found: list[Any] = []
    while (params := subscribers.take_lost("box", "gone")) is not None:
        found.append(params["subscription"])
    return found


def test_lost_subscription_has_the_id_of_its_last_request() -> None:
    subscribers = Subscribers()
    begun(subscribers, "sub_1")
    subscribers.note(b'{"subscription": "sub_1"}', b'"again"')
    params = subscribers.take_lost("box", "gone")
    assert params is not None
    assert bytes(params["requestId"]) == b'"again"'
    assert (params["subscription"], params["target"]) == ("box:sub_1", "box")
    assert subscribers.take_lost("box", "gone") is None


@pytest.mark.parametrize(
    ("method", "members", "is_over"),
    [
        ("shell/exited", {"leftover": []}, True),
        ("shell/exited", {"leftover": [5]}, False),
        ("shell/leftover", {"leftover": []}, True),
        ("shell/lost", {}, True),
        ("shell/over", {}, True),
        ("shell/output", {}, False),
        ("shell/exited", {"leftover": [], "subscription": "sub_2"}, False),
    ],
)
def test_subscription_of_one_shell_is_over_with_its_last_event(
    method: str, members: dict[str, object], *, is_over: bool
) -> None:
    subscribers = Subscribers()
    begun(subscribers, "sub_1", bash_id="shell_1", events=["exit", "leftover"])
    subscribers.note_event(method, json.dumps({"subscription": "sub_1", **members}).encode())
    assert lost(subscribers) == ([] if is_over else ["box:sub_1"])


@pytest.mark.parametrize(
    ("events", "leftovers", "is_over"),
    [
        ('["exit"]', ["[5]"], True),
        ('["exit", "leftover"]', ["[]"], True),
        ('["exit", "leftover"]', ["[5]"], False),
        ('["exit", "leftover"]', ["[5]", "[5]", "[]"], True),
    ],
)
@pytest.mark.parametrize("is_answered_first", [True, False])
def test_requested_events_decide_which_event_is_the_last(
    events: str, leftovers: list[str], *, is_over: bool, is_answered_first: bool
) -> None:
    subscribers = Subscribers()
    answer = json.dumps({"subscription": "sub_1", "bash_id": "shell_1"}).encode()

    def note() -> None:
        subscribers.note(answer, b"7", events.encode())

    if is_answered_first:
        note()
    method = "shell/exited"
    for leftover in leftovers:
        params = f'{{"subscription": "sub_1", "leftover": {leftover}}}'
        subscribers.note_event(method, params.encode())
        method = "shell/leftover"
    if not is_answered_first:
        # The events of a foreground command come before its answer.
        note()
    assert lost(subscribers) == ([] if is_over else ["box:sub_1"])


def test_subscription_that_was_continued_after_its_end_is_noted() -> None:
    subscribers = Subscribers()
    subscribers.note_event("shell/exited", b'{"subscription": "sub_1", "leftover": []}')
    # The daemon sends the events again.
    begun(subscribers, "sub_1", bash_id="shell_1", events=["exit"], isOver=True)
    assert lost(subscribers) == ["box:sub_1"]


def test_subscription_of_many_shells_outlives_them() -> None:
    subscribers = Subscribers()
    begun(subscribers, "sub_1")
    subscribers.note_event("shell/exited", b'{"subscription": "sub_1", "leftover": []}')
    assert lost(subscribers) == ["box:sub_1"]


def test_the_number_of_subscriptions_is_limited() -> None:
    subscribers = Subscribers()
    for number in range(MAX_KEPT + 1):
        begun(subscribers, f"sub_{number}")
    assert len(lost(subscribers)) == MAX_KEPT


def test_subscriptions_without_exit_events_are_forgotten_first() -> None:
    subscribers = Subscribers()
    begun(subscribers, "all", events=["output"])
    begun(subscribers, "long", bash_id="shell_1", events=["exit"])
    for number in range(MAX_KEPT):
        begun(subscribers, f"sub_{number}", bash_id=f"shell_{number}", events=["output"])
    found = lost(subscribers)
    assert len(found) == MAX_KEPT
    assert found[:3] == ["box:all", "box:long", "box:sub_2"]


def test_early_events_are_limited() -> None:
    subscribers = Subscribers()
    for number in range(MAX_KEPT + 1):
        params = f'{{"subscription": "sub_{number}", "leftover": []}}'
        subscribers.note_event("shell/exited", params.encode())
    for number in range(MAX_KEPT + 1):
        result = {"subscription": f"sub_{number}", "bash_id": "shell_1"}
        subscribers.note(json.dumps(result).encode(), b"7", b'["exit"]')
    assert lost(subscribers) == ["box:sub_0"]


def test_result_without_a_subscription_is_not_noted() -> None:
    subscribers = Subscribers()
    subscribers.note(b'{"exitCode": 0}', b"1")
    subscribers.note(b'{"subscription": null}', b"1")
    assert lost(subscribers) == []
