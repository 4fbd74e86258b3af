"""The table of requests in flight. It lets requests wait, says which request may start next, and
finds requests by their id.
"""

from __future__ import annotations

import pytest

from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.server.in_flight import InFlight, RequestTable
from shelld.shells.manager import Manager
from shelld_protocol.jsonrpc import Request


def entry(request_id: bytes | None, params: bytes = b"") -> InFlight:
    context = RequestContext(Daemon(Options(), Manager()))
    return InFlight(Request("ping", params, request_id), context, lambda _reply: None)


def test_requests_start_in_the_order_in_which_they_came() -> None:
    table = RequestTable(1)
    runs, first, second = entry(b"1"), entry(b"2"), entry(b"3")
    table.enter(runs)
    assert table.is_full
    assert table.put_off(first)
    assert table.put_off(second)
    assert table.next_to_start() is None
    table.leave(runs)
    assert table.next_to_start() is first
    assert not table.is_waiting(first)
    assert table.next_to_start() is None
    table.leave(first)
    assert table.next_to_start() is second
    assert not table.has_waiting


@pytest.mark.parametrize(("name", "limit"), [("MAX_WAITING", 1), ("MAX_WAITING_BYTES", 15)])
def test_too_many_waiting_requests_are_not_entered(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"shelld.server.in_flight.{name}", limit)
    table = RequestTable(1)
    table.enter(entry(b"1"))
    waiting = entry(b"2", b"x" * 10)
    assert table.put_off(waiting)
    assert not table.put_off(entry(b"3", b"x" * 10))
    assert len(table) == 2
    # A request that leaves the table makes room for another request.
    table.leave(waiting)
    assert table.put_off(entry(b"4", b"x" * 10))


def test_an_id_may_mean_several_requests() -> None:
    table = RequestTable(9)
    one, other, notification = entry(b'"a"'), entry(b'"a"'), entry(None)
    for each in (one, other, notification):
        table.enter(each)
    assert one.key is not None
    assert set(table.with_id(one.key)) == {one, other}
    table.leave(one)
    assert table.with_id(one.key) == (other,)
    table.forget_id(one.key)
    assert table.with_id(one.key) == ()
    assert set(table.all()) == {other, notification}
    # After `forget_id`, the request can still leave the table.
    table.leave(other)
    assert len(table) == 1
