"""The channel between daemon, keeper and runners: messages of any size, with descriptors."""

from __future__ import annotations

import errno
import marshal
import os
import resource
import socket
import threading
from typing import Any, Self

import pytest

from shelld.keeper.channel import FILE_LOST, INLINE_BYTES, KILL, RUN, Channel, anonymous_file


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


def small_pair(*, blocking: bool) -> tuple[Channel, Channel]:
    """Return the two ends of a channel whose buffer is too small for a message."""
    ours, theirs = socket.socketpair()
    ours.setblocking(blocking)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return Channel(ours), Channel(theirs)


def test_a_message_sent_in_part_ends_the_channel() -> None:
    ours, theirs = small_pair(blocking=False)
    with pytest.raises(BlockingIOError):
        ours.send((RUN, b"x" * (INLINE_BYTES - 100)))
    # The rest of this message was not sent. The peer would take the next message for the missing
    # rest, so the channel refuses to send another message.
    with pytest.raises(BrokenPipeError):
        ours.send((KILL, 9))
    assert ours.receive() is None
    received = theirs.receive()
    while received == []:
        received = theirs.receive()
    assert received is None
    ours.close()
    theirs.close()


def test_blocking_socket_sends_whole_messages() -> None:
    ours, theirs = small_pair(blocking=True)
    message = (RUN, b"x" * (INLINE_BYTES - 100))
    sender = threading.Thread(target=ours.send, args=(message,))
    sender.start()
    received: list[object] = []
    while not received:
        messages = theirs.receive()
        assert messages is not None
        received += [message for message, _ in messages]
    sender.join()
    assert received == [message]
    ours.close()
    theirs.close()


def test_message_without_its_file_is_lost() -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    with open(os.devnull, "rb") as null:
        ours.send((RUN, b"x" * (INLINE_BYTES + 1)), (null.fileno(),) * 3)
    ours.send((KILL, 9))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        first = other.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert first == [((FILE_LOST,), [])]
    assert other.receive() == [((KILL, 9), [])]
    ours.close()
    other.close()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOMEM, []),
        (errno.ENOBUFS, []),
        (errno.EINTR, []),
        (errno.EAGAIN, []),
        (errno.ECONNRESET, None),
        (errno.EIO, None),
        (errno.EBADF, None),
    ],
)
def test_transient_error_is_not_the_end(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: list[object] | None
) -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    ours.send((KILL, 9))

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("socket.socket.recvmsg", refuse)
        assert other.receive() == expected
    assert other.receive() == [((KILL, 9), [])]
    ours.close()
    other.close()


@pytest.mark.parametrize("function", ["os.memfd_create", "os.write", "os.lseek"])
def test_message_without_room_leaves_channel_usable(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(function, refuse)
        with pytest.raises(OSError, match="no room"):
            ours.send((RUN, b"x" * (INLINE_BYTES + 1)))
    ours.send((KILL, 9))
    assert other.receive() == [((KILL, 9), [])]
    ours.close()
    other.close()


class _ShortBuffer(bytearray):
    """A buffer in which `operation` raises MemoryError the first `failures` times."""

    failures = 1

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation

    def _fail(self, operation: str) -> None:
        if operation == self._operation and self.failures:
            self.failures -= 1
            raise MemoryError

    def __iadd__(self, data: Any) -> Self:  # type: ignore[misc]
        self._fail("add")
        return super().__iadd__(data)

    def __getitem__(self, key: slice) -> bytearray:  # type: ignore[override]  # pyright: ignore
        self._fail("get")
        return super().__getitem__(key)


@pytest.mark.parametrize("operation", ["add", "get", "loads", "recvmsg"])
def test_shortage_of_memory_loses_no_message(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    ours, theirs = Channel.pair()
    theirs.setblocking(False)
    other = Channel(theirs)
    other._buffer = _ShortBuffer(operation)  # pyright: ignore[reportPrivateUsage]
    for number in range(3):
        ours.send((KILL, number))
    with open(os.devnull, "rb") as null:
        ours.send((RUN, 3), (null.fileno(),))
    loads, calls = marshal.loads, iter(range(10))

    def load(data: bytes) -> object:
        # The second message fails.
        if operation == "loads" and next(calls) == 1:
            raise MemoryError
        return loads(data)

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(marshal, "loads", load)
    with monkeypatch.context() as patch:
        if operation == "recvmsg":
            patch.setattr("socket.socket.recvmsg", no_memory)
        with pytest.raises(MemoryError):
            other.receive()
    received = other.receive()
    assert received is not None
    assert [message for message, _ in received] == [*((KILL, n) for n in range(3)), (RUN, 3)]
    assert [len(descriptors) for _, descriptors in received] == [0, 0, 0, 1]
    os.close(received[-1][1][0])
    assert other.receive() == []
    ours.close()
    assert other.receive() is None
    other.close()


@pytest.mark.parametrize("operation", ["add", "get"])
def test_descriptors_of_a_failed_read_are_closed(operation: str) -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    other._buffer = _ShortBuffer(operation)  # pyright: ignore[reportPrivateUsage]
    reader, writer = os.pipe()
    ours.send((RUN, 3), (writer,))
    os.close(writer)
    with pytest.raises(MemoryError):
        other.receive()
    other.close()
    # No writer is left, so the read finds the end of the pipe.
    assert os.read(reader, 1) == b""
    os.close(reader)
    ours.close()
