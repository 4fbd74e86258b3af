"""Bytes become messages, however they are split, and also after a bad message."""

from __future__ import annotations

import itertools
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld_protocol import framing as framing_module
from shelld_protocol.framing import (
    MAX_HEADER_LINE_BYTES,
    NEED_DATA,
    FrameError,
    FrameReader,
    Framing,
    NeedData,
    encode_frame,
)
from shelld_protocol.jsonrpc import id_at_start

LIMIT = 64
TOO_LARGE = FrameError.TOO_LARGE
BAD_HEADER = FrameError.BAD_HEADER
NO_HEADER = FrameError.NO_HEADER


def events(pieces: list[bytes], *, eof: bool = True) -> list[bytes | FrameError]:
    reader = FrameReader(LIMIT)
    found: list[bytes | FrameError] = []

    def collect() -> None:
        while (event := reader.next_event()) is not NEED_DATA:
            found.append(event)

    for piece in pieces:
        reader.receive_data(piece)
        collect()
    if eof:
        reader.receive_eof()
        collect()
    return found


CASES: list[tuple[bytes, list[bytes | FrameError]]] = [
    (b"", []),
    (b"\n \r\n\t\n", []),
    (b"{}\n", [b"{}"]),
    (b"{}\r\n[]\n", [b"{}", b"[]"]),
    (b"\xef\xbb\xbf{}\n", [b"{}"]),
    (b"\n \xef\xbb\xbf \n{}\n", [b"{}"]),
    (b"\xef\xbb", [b"\xef\xbb"]),
    (b"{}", [b"{}"]),
    (b"{}\n\n\n{}\n", [b"{}", b"{}"]),
    (b"{ }\x0b\n", [b"{ }\x0b"]),
    (b"\x0b{}\n", [b"\x0b{}"]),
    (b"X\n", [b"X"]),
    (b"\xff\n{}\n", [b"\xff", b"{}"]),
    (b"{\xe2\x80\xa8}\n", [b"{\xe2\x80\xa8}"]),
    (b"x" * LIMIT + b"\n{}\n", [b"x" * LIMIT, b"{}"]),
    (b"x" * (LIMIT + 1) + b"\n{}\n", [TOO_LARGE, b"{}"]),
    (b"x" * LIMIT + b"\r\n{}\r\n", [b"x" * LIMIT, b"{}"]),
    (b"x" * LIMIT + b"\r", [b"x" * LIMIT]),
    (b"x" * (LIMIT + 1) + b"\r\n{}\n", [TOO_LARGE, b"{}"]),
    (b"x" * LIMIT + b"\rx\n{}\n", [TOO_LARGE, b"{}"]),
    (b"x" * 1000 + b"\n{}\n", [TOO_LARGE, b"{}"]),
    (b"{}\n" + b"x" * 1000, [b"{}", TOO_LARGE]),
    (b"Content-Length: 2\r\n\r\n{}", [b"{}"]),
    (b"content-length:2\r\nX: y\r\n\r\n{}", [b"{}"]),
    (b"Content-Type: x\r\nContent-Length: 2\r\n\r\n{}", [b"{}"]),
    (b"Content-Length: 2\n\n{}", [b"{}"]),
    (b"Content-Length: 2\r\n\r\n{}\r\n\r\nContent-Length: 2\r\n\r\n[]", [b"{}", b"[]"]),
    (b"Content-Length: 0\r\n\r\nContent-Length: 2\r\n\r\n[]", [b"[]"]),
    (b"Content-Length: x\r\n\r\nContent-Length: 2\r\n\r\n{}", [BAD_HEADER, b"{}"]),
    (b"Content-Length: 2\r\nX: " + b"y" * 5_000 + b"\r\n\r\n{}", [b"{}"]),
    (b"Content-Length: 1\r\n\r\n{}Content-Length: 2\r\n\r\n[]", [b"{", b"[]"]),
    (b"Content-Length: -2\r\n\r\nContent-Length: 2\r\n\r\n{}", [BAD_HEADER, b"{}"]),
    (b"Content-Length: " + b"9" * 30 + b"\r\n\r\nContent-Length: 2\r\n\r\n{}", [BAD_HEADER, b"{}"]),
    (b"Connection: x\r\n\r\nContent-Length: 2\r\n\r\n{}", [BAD_HEADER, b"{}"]),
    (
        b"Content-Length: 100\r\n\r\n" + b"x" * 100 + b"Content-Length: 2\r\n\r\n{}",
        [TOO_LARGE, b"{}"],
    ),
    (b"Content-Length: 3\r\n\r\n{}", []),
    (b"Content-Length: 3\r\n\r", []),
    (b"Content-Length: 64\r\n\r\n" + b"x" * 64, [b"x" * 64]),
    (b"Connection: x\r\n\r", []),
    (b"Content-Length: 1\r\n\r\n\x0b", [b"\x0b"]),
    (b"Content-Length: 2\x0b\r\n\r\nContent-Length: 2\r\n\r\n[]", [BAD_HEADER, b"[]"]),
    (b"Content-Length\x0b: 2\r\n\r\nContent-Length: 2\r\n\r\n[]", [NO_HEADER, b"[]"]),
    (b"Content-Length: 2\r\nContent-Length: 3:4\r\n\r\n", [BAD_HEADER]),
    (b"Content-Length: " + b"2".zfill(18) + b"\r\n\r\n{}", [b"{}"]),
    (b"Content-Length: " + b"2".zfill(19) + b"\r\n\r\n", [BAD_HEADER]),
    (b"connecting ...\nContent-Length: 2\r\n\r\n{}", [NO_HEADER, b"{}"]),
    (b'connecting ...\n{"id": 1}\n{"id": 2}\n', [NO_HEADER] * 3),
    (b"Content-Length: 2\r\n\r\n{}\n[1]\n\nContent-Length: 2\n\n[]", [b"{}", NO_HEADER, b"[]"]),
    (b"Content-Length: 2\r\n{}\r\nX: y\r\n\r\n{}", [NO_HEADER, b"{}"]),
    (b"Content-Length: 0\n\n" + b"[" * 5_000 + b"\nContent-Length: 2\n\n{}", [NO_HEADER, b"{}"]),
]


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_stream_in_one_piece_is_split(stream: bytes, expected: list[bytes | FrameError]) -> None:
    assert events([stream]) == expected


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_stream_arriving_byte_by_byte_is_split(
    stream: bytes, expected: list[bytes | FrameError]
) -> None:
    assert events([bytes([byte]) for byte in stream]) == expected


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_messages_before_end_of_stream_are_read(
    stream: bytes, expected: list[bytes | FrameError]
) -> None:
    reader = FrameReader(LIMIT)
    reader.receive_data(stream)
    reader.receive_eof()
    for event in [*expected, NEED_DATA]:
        assert reader.next_event() == event


def test_frame_has_the_expected_bytes() -> None:
    assert encode_frame(b"{}", Framing.LINES) == b"{}\n"
    assert encode_frame(b"{}", Framing.CONTENT_LENGTH) == b"Content-Length: 2\r\n\r\n{}"


@given(
    st.lists(st.sampled_from([stream for stream, _ in CASES]), max_size=4),
    st.lists(st.integers(0, 400) | st.integers(0, 6_000), max_size=6),
)
def test_split_of_a_stream_does_not_change_its_messages(
    streams: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(streams)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert events(pieces) == events([stream])


@given(
    st.lists(st.binary(min_size=1, max_size=LIMIT).map(lambda data: data.hex().encode()[:LIMIT]))
)
def test_encoded_messages_are_decoded(messages: list[bytes]) -> None:
    for framing in Framing:
        # The first byte must identify the framing, as it does for JSON.
        stream = b"".join(encode_frame(b"[" + message, framing) for message in messages)
        expected = [b"[" + message if len(message) < LIMIT else TOO_LARGE for message in messages]
        assert events([stream]) == expected


def test_overlong_line_is_reported_early_and_not_held() -> None:
    reader = FrameReader(LIMIT)
    reader.receive_data(b"[" * 100)
    assert reader.next_event() is TOO_LARGE
    for _ in range(1000):
        reader.receive_data(b"[" * 1000)
        assert reader.next_event() is NEED_DATA
    assert len(reader._buffer) == 0  # pyright: ignore[reportPrivateUsage]
    reader.receive_data(b"\n{}\n")
    assert reader.next_event() == b"{}"


def test_an_endless_header_line_is_not_held() -> None:
    reader = FrameReader(LIMIT)
    reader.receive_data(b"C" * MAX_HEADER_LINE_BYTES)
    assert reader.next_event() is NEED_DATA
    for _ in range(1000):
        reader.receive_data(b"C" * 1000)
        assert reader.next_event() is NEED_DATA
    assert len(reader._buffer) <= MAX_HEADER_LINE_BYTES  # pyright: ignore[reportPrivateUsage]
    reader.receive_data(b"\r\n\r\nContent-Length: 2\r\n\r\n{}")
    assert reader.next_event() is NO_HEADER
    assert reader.next_event() == b"{}"


@pytest.mark.parametrize("size", [1, 100, 5000, 20_000])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_long_header_line_is_skipped(size: int, order: tuple[int, int]) -> None:
    lines = (b"Content-Length: 2\r\n", b"X-Long: " + b"y" * 9000 + b"\r\n")
    header = b"".join(lines[number] for number in order)
    start = encode_frame(b"0", Framing.CONTENT_LENGTH)
    assert events_of(start + header + b"\r\n{}" + header + b"\r\n[]", size) == [
        *(b"0", b"{}", b"[]")
    ]


SHORT_BODY = '{"id": "\u00e9"}'
AFTER_MISTAKES = {
    "length in characters": (
        f"Content-Length: {len(SHORT_BODY)}\r\n\r\n{SHORT_BODY}".encode(),
        [SHORT_BODY.encode()[:-1]],
    ),
    "no number": (b"Content-Length: x\r\n\r\n" + b"[" * 9000 + b"]", [BAD_HEADER]),
    "no header": (b'{"id": 1}\r\n\r\n', [NO_HEADER]),
    "length too large": (
        b'Content-Length: 12\r\n\r\n{"id": 1}Content-Length: 2\r\n\r\n{}',
        [b'{"id": 1}Con', BAD_HEADER],
    ),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(("mistake", "yields"), AFTER_MISTAKES.values(), ids=AFTER_MISTAKES)
def test_messages_after_a_wrong_frame_are_read(
    mistake: bytes, yields: list[object], size: int
) -> None:
    messages = [b'{"id": %d}' % number for number in range(3)]
    frames = b"".join(encode_frame(message, Framing.CONTENT_LENGTH) for message in messages)
    start = encode_frame(b"[]", Framing.CONTENT_LENGTH)
    assert events_of(start + mistake + frames, size) == [b"[]", *yields, *messages]


def events_of(data: bytes, size: int) -> list[object]:
    """Return the events that a reader yields for a stream that arrives in pieces of `size`
    bytes.
    """
    reader = FrameReader(1 << 20)
    events: list[object] = []
    for start in range(0, len(data), size):
        reader.receive_data(data[start : start + size])
        while (event := reader.next_event()) is not NEED_DATA:
            events.append(event)
    return events


def test_a_line_in_many_pieces_is_searched_once() -> None:
    class CountingBuffer(bytearray):
        searched = 0

        def find(self, sub: bytes, start: int = 0, *_: int) -> int:  # type: ignore[override]
            CountingBuffer.searched += len(self) - start
            return super().find(sub, start)

    reader = FrameReader(1 << 20)
    reader._buffer = CountingBuffer()  # pyright: ignore[reportPrivateUsage]
    reader.receive_data(b"[")
    for _ in range(1000):
        assert reader.next_event() is NEED_DATA
        reader.receive_data(b"x" * 100)
    assert CountingBuffer.searched <= 200_000


def test_framing_is_unknown_until_the_first_significant_byte() -> None:
    reader = FrameReader()
    for data, framing in (
        (b" \r\n", None),
        (b"\xef\xbb", None),
        (b"\xbf", None),
        (b"c", "headers"),
    ):
        reader.receive_data(data)
        assert reader.next_event() is NEED_DATA
        assert (reader.framing is None) == (framing is None)
    assert reader.framing is Framing.CONTENT_LENGTH


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_head_of_refused_line_is_kept(size: int) -> None:
    reader = FrameReader(300)
    data = b'{"id":1}\n  {"id":2,"x":"' + b"y" * 400 + b'"}\n{"id":3}\n'
    events: list[object] = []
    for start in range(0, len(data), size):
        reader.receive_data(data[start : start + size])
        while (event := reader.next_event()) is not NEED_DATA:
            events.append(event)
    assert events == [b'{"id":1}', FrameError.TOO_LARGE, b'{"id":3}']
    assert reader.refused_head == (b'  {"id":2,"x":"' + b"y" * 100)[:100]


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("failing", range(1, 8))
def test_failed_copy_costs_at_most_one_message(
    monkeypatch: pytest.MonkeyPatch, framing: Framing, failing: int
) -> None:
    copies = 0

    def copy(data: Any) -> bytes:
        nonlocal copies
        copies += 1
        if copies == failing:
            if isinstance(data, memoryview):
                data.release()
            raise MemoryError
        return bytes(data)

    monkeypatch.setattr(framing_module, "bytes", copy, raising=False)
    messages = [b'{"id": %d}' % number for number in range(6)]
    reader = FrameReader(LIMIT)
    reader.receive_data(b"".join(encode_frame(message, framing) for message in messages))
    found: list[bytes | FrameError] = []
    attempts = 0
    while True:
        try:
            event = reader.next_event()
        except MemoryError:
            attempts += 1
            continue
        if event is NEED_DATA:
            break
        found.append(event)
    assert copies > failing
    assert attempts + found.count(FrameError.NO_MEMORY) == 1
    lost = [message for message in messages if message not in found]
    assert len(lost) == found.count(FrameError.NO_MEMORY) <= 1
    assert [event for event in found if isinstance(event, FrameError)] in (
        [],
        [FrameError.NO_MEMORY],
    )


class ShortBuffer(bytearray):
    """A buffer whose first `failures` attempts to grow raise MemoryError."""

    failures = 0

    def __iadd__(self, data: Any) -> Self:  # type: ignore[misc]
        if self.failures:
            self.failures -= 1
            raise MemoryError
        return super().__iadd__(data)


def short_reader() -> tuple[FrameReader, ShortBuffer]:
    reader, buffer = FrameReader(), ShortBuffer()
    reader._buffer = buffer  # pyright: ignore[reportPrivateUsage]
    return reader, buffer


def waiting_events(reader: FrameReader) -> list[bytes | FrameError]:
    events: list[bytes | FrameError] = []
    while not isinstance(event := reader.next_event(), NeedData):
        events.append(event)
    return events


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("failures", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("cut", [0, 1, 60, 150])
def test_repeated_shortage_refuses_one_message_with_its_id(
    framing: Framing, failures: int, cut: int
) -> None:
    messages = [
        b'{"jsonrpc": "2.0", "id": %d, "method": "m", "x": "%b"}' % (number, b"x" * 200)
        for number in range(3)
    ]
    data = b"".join(encode_frame(message, framing) for message in messages)
    first = len(encode_frame(messages[0], framing))
    # The shortage begins in the middle of the second message, or at its start.
    cut += first + data[first:].index(b"{")
    reader, buffer = short_reader()
    reader.receive_data(data[:cut])
    assert waiting_events(reader) == messages[:1]
    buffer.failures = failures
    # The server tries again with the same bytes.
    for _ in range(failures):
        try:
            reader.receive_data(data[cut:])
        except MemoryError:
            continue
        break
    else:
        reader.receive_data(data[cut:])
    events = waiting_events(reader)
    assert events == [FrameError.NO_MEMORY, messages[2]]
    assert id_at_start(reader.refused_head) == b"1"


@pytest.mark.parametrize("framing", Framing)
def test_bytes_of_a_refused_message_need_no_memory(framing: Framing) -> None:
    message = b'{"jsonrpc": "2.0", "id": 7, "method": "m", "x": "%b"}' % (b"x" * 1000)
    data = encode_frame(message, framing)
    end = len(data) - 10
    reader, buffer = short_reader()
    reader.receive_data(data[:200])
    assert waiting_events(reader) == []
    buffer.failures = 1
    for start in range(200, end, 100):
        reader.receive_data(data[start : min(start + 100, end)])
    assert buffer == b""
    reader.receive_data(data[end:] + encode_frame(b'{"id": 8}', framing))
    assert waiting_events(reader) == [FrameError.NO_MEMORY, b'{"id": 8}']
    assert id_at_start(reader.refused_head) == b"7"


@pytest.mark.parametrize("start", [b"", b"\n", b' \r\n{"id": 2}\n'])
def test_shortage_before_a_message_takes_nothing(start: bytes) -> None:
    reader, buffer = short_reader()
    reader.receive_data(b'{"id": 1}\n')
    assert waiting_events(reader) == [b'{"id": 1}']
    buffer.failures = 1
    with pytest.raises(MemoryError):
        reader.receive_data(start)
    reader.receive_data(start)
    assert waiting_events(reader) == ([b'{"id": 2}'] if start.strip() else [])
