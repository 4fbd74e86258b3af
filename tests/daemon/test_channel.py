"""The channel between daemon, keeper and runners: messages of any size, with descriptors."""

from __future__ import annotations

import os

import pytest

from shelld.keeper.channel import INLINE_BYTES, KILL, RUN, Channel, anonymous_file


@pytest.mark.parametrize("size", [0, 100, INLINE_BYTES, INLINE_BYTES + 1, 3_000_000])
def test_messages_of_any_size_arrive_with_their_descriptors(size: int) -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    descriptor = anonymous_file(b"content")
    ours.send((RUN, b"x" * size), (descriptor,))
    os.close(descriptor)
    received = other.receive()
    assert received is not None
    ((message, (copy,)),) = received
    assert message == (RUN, b"x" * size)
    assert os.read(copy, 100) == b"content"
    assert not os.get_inheritable(copy)
    os.close(copy)
    ours.close()
    assert other.receive() is None
    other.close()


def test_several_messages_are_received_at_once() -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    for number in range(10):
        ours.send((KILL, number))
    received = other.receive()
    assert received is not None
    assert [message for message, _ in received] == [(KILL, number) for number in range(10)]
    assert ours.receive() == []
    ours.close()
    other.close()
