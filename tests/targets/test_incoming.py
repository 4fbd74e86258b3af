"""The search finds messages of a target between other lines, and ends at an invalid message."""

from __future__ import annotations

import pytest

from shelld.targets.greeting import MAX_BANNER_BYTES
from shelld.targets.incoming import Incoming, IncomingError

ANSWER = b'{"jsonrpc":"2.0","id":"1","result":{}}'


def ids_in(incoming: Incoming, data: bytes) -> list[bytes]:
    """Return the ids of the messages in some data."""
    incoming.receive_data(data)
    ids: list[bytes] = []
    while (message := incoming.next_message()) is not None:
        ids.append(bytes(message.id))
    return ids


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"Warning\n",
        b"{not JSON\n",
        b"\xff{}\n",
        b"Connection shared\n",
        b"Content-Length: 5\n\n",
        b"no newline",
        b"{no newline",
        b"{}",
    ],
)
def test_other_lines_are_skipped(noise: bytes) -> None:
    assert ids_in(Incoming("box"), noise + ANSWER + b"\n" + noise + ANSWER + b"\n") == [b'"1"'] * 2


def test_incomplete_message_waits_for_its_rest() -> None:
    incoming = Incoming("box")
    assert ids_in(incoming, ANSWER[:10]) == []
    assert ids_in(incoming, ANSWER[10:] + b"\n") == [b'"1"']


@pytest.mark.parametrize(
    "message", [b'{"jsonrpc":"2.0","id":', b'{"jsonrpc":"2.0","id":"1","result":"\xff"}']
)
def test_invalid_message_is_an_error_and_not_skipped(message: bytes) -> None:
    incoming = Incoming("box")
    incoming.receive_data(message + b"\n")
    with pytest.raises(IncomingError, match="an invalid message"):
        incoming.next_message()


def test_text_between_two_messages_is_limited_in_size() -> None:
    incoming = Incoming("box")
    line = b"x" * (MAX_BANNER_BYTES // 2) + b"\n"
    assert ids_in(incoming, line + ANSWER + b"\n") == [b'"1"']
    assert ids_in(incoming, line) == []
    incoming.receive_data(line)
    with pytest.raises(IncomingError, match="too much"):
        incoming.next_message()
