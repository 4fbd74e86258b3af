"""The protocol begins at the answer to the first request, whatever comes before it."""

from __future__ import annotations

import re

import msgspec
import pytest

from shelld.targets.greeting import (
    MAX_BANNER_BYTES,
    Greeting,
    GreetingReader,
    NoGreetingError,
    check_version,
    last_line,
    quoted,
)
from shelld_protocol.about import PROTOCOL
from shelld_protocol.encoding import decode
from shelld_protocol.errors import ErrorKind, RpcError

GREETING = msgspec.json.Decoder(Greeting)


def answer_to(reader: GreetingReader) -> bytes:
    found = re.search(rb'"id":("[^"]+")', reader.request)
    assert found is not None
    return b'{"jsonrpc":"2.0","id":%b,"result":{"version":"1"}}' % found[1]


@pytest.mark.parametrize(
    "banner",
    [b"", b"Welcome\n", b"Welcome ", b'{"jsonrpc":"2.0","id":1,"result":{}}\n', b"\xff\x00{\n"],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_answer_is_found_behind_a_banner(banner: bytes, size: int) -> None:
    reader = GreetingReader()
    answer = answer_to(reader)
    data = banner + answer + b"\nrest"
    found: tuple[bytes, bytes] | None = None
    for start in range(0, len(data), size):
        if found is None:
            found = reader.receive(data[start : start + size])
        else:
            found = (found[0], found[1] + data[start : start + size])
    assert found == (answer, b"rest")
    assert reader.banner == banner


def test_echo_of_the_request_is_no_answer() -> None:
    reader = GreetingReader()
    assert reader.receive(reader.request + b"\n") is None


def test_too_much_other_text_is_refused() -> None:
    reader = GreetingReader()
    assert reader.receive(b"x" * MAX_BANNER_BYTES) is None
    with pytest.raises(NoGreetingError):
        reader.receive(b"x")


def test_other_version_is_refused_with_both_versions() -> None:
    text = b'{"version":"9.9","protocol":%d,"limits":{"maxMessageBytes":1}}'
    check_version("box", decode(text % PROTOCOL, GREETING))
    with pytest.raises(RpcError) as refusal:
        check_version("box", decode(text % (PROTOCOL + 1), GREETING))
    assert refusal.value.kind is ErrorKind.UNAVAILABLE
    assert "9.9" in refusal.value.data["hint"]


def test_quoted_text_has_no_control_characters() -> None:
    text = quoted(b"\x1b[31mred\n", b"", b"end\x00\n")
    assert text == "[31mred\nend"
    assert last_line(text) == "end"
