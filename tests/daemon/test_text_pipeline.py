"""What a command writes is the same text however it arrives and is read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.text_pipeline import check
from terminal import outputs


@settings(max_examples=150)
@given(st.binary(min_size=4, max_size=4), outputs | st.binary(max_size=600))
def test_the_pipeline_gives_the_same_text_in_every_way(how: bytes, data: bytes) -> None:
    check(how + data)


@pytest.mark.parametrize(
    "program",
    [
        # A sequence, a character and a line end in two halves each; one that is longer than a read.
        b"\x01\x01\x1e\x01a\x1b[31mb\xe2\x82\xac\r\nc\x1b]0;title\x07d",
        b"\x05\x03\x14\x0110%\r20%\r\x1b[K30%\r\n" * 40,
        b"\xff\x02\xff\x00" + b"\x1b]0;" + b"x" * 300,
        b"\x07\xff\x20\x01" + bytes(range(256)) * 4,
    ],
)
def test_what_was_hard_before_still_holds(program: bytes) -> None:
    check(program)
