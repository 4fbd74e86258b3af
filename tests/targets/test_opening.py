"""Opening a connection, with and without the bootstrap, tested without any process."""

from __future__ import annotations

import re

import pytest

from shelld.targets.bootstrap import Bootstrap
from shelld.targets.bundle import Bundle
from shelld.targets.greeting import NoGreetingError
from shelld.targets.opening import Opened, Opening
from shelld_protocol.about import PROTOCOL
from shelld_protocol.errors import ErrorKind, RpcError

BUNDLE = Bundle(b"the bundle", "c0ffee")


def answer_to(request: bytes, protocol: int = PROTOCOL) -> bytes:
    found = re.search(rb'"id":("[^"]+")', request)
    assert found is not None
    result = b'{"version":"1","protocol":%d,"limits":{"maxMessageBytes":9}}' % protocol
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (found[1], result)


def test_greeting_follows_the_first_request() -> None:
    opening = Opening("box", None)
    assert opening.receive(b"Welcome\n") == b""
    assert opening.texts == (b"", b"Welcome\n")
    opened = opening.receive(answer_to(opening.first) + b"rest")
    assert isinstance(opened, Opened)
    assert (opened.greeting.limits.max_message_bytes, opened.rest) == (9, b"rest")


def test_bootstrap_comes_before_the_first_request() -> None:
    opening = Opening("box", Bootstrap("box", ["sh"], BUNDLE))
    marker = re.search(rb"bootstrap-[0-9a-f]{16}", opening.first)
    assert marker is not None
    assert opening.receive(b"Welcome\n%b send\n" % marker[0]) == BUNDLE.data
    assert opening.texts == (b"Welcome\n", b"")
    request = opening.receive(b"\n%b ready\n" % marker[0])
    assert isinstance(request, bytes)
    assert isinstance(opening.receive(answer_to(request)), Opened)


def test_another_protocol_is_refused() -> None:
    opening = Opening("box", None)
    with pytest.raises(RpcError) as refusal:
        opening.receive(answer_to(opening.first, PROTOCOL + 1))
    assert refusal.value.kind is ErrorKind.UNAVAILABLE


def test_greeting_without_its_members_is_refused() -> None:
    opening = Opening("box", None)
    with pytest.raises(NoGreetingError):
        opening.receive(answer_to(opening.first).replace(b"protocol", b"other"))


def test_greeting_that_is_nested_too_deeply_is_refused() -> None:
    opening = Opening("box", None)
    answer, _, _ = answer_to(opening.first).partition(b'"result"')
    with pytest.raises(NoGreetingError):
        opening.receive(answer + b'"result":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n")


def test_refusal_of_the_first_request_is_quoted() -> None:
    # Another program that speaks JSON-RPC gives such an answer, and a daemon that is shutting down.
    opening = Opening("box", None)
    error = b'"error":{"code":-32601,"message":"Method not found"}}'
    answer, _, _ = answer_to(opening.first).partition(b'"result"')
    with pytest.raises(NoGreetingError, match="refused the first request: Method not found"):
        opening.receive(answer + error + b"\n")
