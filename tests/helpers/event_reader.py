"""Read the events of a daemon as they come over the wire."""

from __future__ import annotations

from typing import cast

from support import Json, RawDaemon


def subscribe(daemon: RawDaemon, *names: str, **params: object) -> str:
    result = daemon.call("subscribe", {"events": list(names), **params})
    return cast("str", result["subscription"])


def next_event(daemon: RawDaemon, name: str = "", *, of: str = "") -> Json:
    """Return the next notification with this name and subscription. Drop all other messages."""
    while True:
        message = daemon.receive()
        if "method" not in message:
            continue
        event = {"method": message["method"].removeprefix("shell/"), **message["params"]}
        if name in ("", event["method"]) and of in ("", event["subscription"]):
            return event


def events_to(daemon: RawDaemon, last: str, *, of: str = "") -> list[Json]:
    """Return all events up to the first one of this name."""
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
    """Check that the gaps in the output of each stream are exactly the reported gaps."""
    ends: dict[tuple[str, str], int] = {}
    for each in found:
        if each["method"] == "output":
            key = each["bash_id"], each["stream"]
            assert each["start"] == ends.get(key, 0) + each["skipped"]
            assert each["start"] <= each["end"]
            ends[key] = each["end"]
