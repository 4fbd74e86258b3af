"""The answer to a batch is one message, which comes when the last member has its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shelld.server.batch_reply import BatchReply
from shelld_protocol.jsonrpc import encode_batch, encode_result


def members_of(message: bytes | None) -> Any:
    return None if message is None else json.loads(message)


def test_answers_come_in_the_order_of_the_members() -> None:
    delivered: list[bytes | None] = []
    batch = BatchReply([b"1", None, b"2"], delivered.append)
    batch.take(2, encode_result(b"2", "second"))
    batch.take(1, None)
    assert delivered == []
    batch.take(0, encode_result(b"1", "first"))
    assert [each["result"] for each in members_of(delivered[0])] == ["first", "second"]


def test_batch_of_notifications_gets_no_answer() -> None:
    delivered: list[bytes | None] = []
    batch = BatchReply([None, None], delivered.append)
    batch.take(0, None)
    batch.take(1, None)
    assert delivered == [None]


def test_shortage_of_memory_replaces_the_largest_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def join(replies: list[bytes]) -> bytes:
        if sum(map(len, replies)) > 10_000:
            raise MemoryError
        return encode_batch(replies)

    monkeypatch.setattr("shelld.server.batch_reply.encode_batch", join)
    delivered: list[bytes | None] = []
    batch = BatchReply([b"1", b"2"], delivered.append)
    batch.take(0, encode_result(b"1", "x" * 20_000))
    batch.take(1, encode_result(b"2", "small"))
    large, small = members_of(delivered[0])
    assert large["error"]["data"] == {"kind": "resource_exhausted", "limit": "memory"}
    assert (large["id"], small["result"]) == (1, "small")


def test_batch_without_any_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def join(_replies: list[bytes]) -> bytes:
        raise MemoryError

    monkeypatch.setattr("shelld.server.batch_reply.encode_batch", join)
    batch = BatchReply([b"1"], lambda _message: None)
    with pytest.raises(MemoryError):
        batch.take(0, encode_result(b"1", None))
