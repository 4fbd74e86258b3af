"""The fuzz targets, run briefly on inputs that Hypothesis generates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import guard, messages, store, text_pipeline
from terminal import outputs

# These pieces have a meaning in JSON-RPC, and would be rare among random bytes.
JSON_PIECES = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\n", b"\r\n", b" ", b"\xff", b"1"),
        *(b"null", b"true", b'"jsonrpc"', b'"2.0"', b'"method"', b'"id"', b'"params"', b"1e9"),
        *(b"Content-Length: ", b"2", b"\r\n\r\n", b"\xef\xbb\xbf", b'"command"', b'"_meta"'),
        b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"true"}}\n',
    ]
)
SHELL_PIECES = st.sampled_from(
    [
        *("rm", " -rf ", "/", "~", "*", "$", "{", "}", "(", ")", "`", "'", '"', "\\", ";", "|"),
        *("\n", "<<", "EOF", "$((", "))", "[[", "]]", "if ", "then ", "fi", "for x in ", "do "),
        *("X", "=", "echo ", "eval ", "bash -c ", "sudo ", "xargs ", ">", "\x00", "\ue000", "#"),
        *("&", "done", "ü", "case ", "esac", "${", "!", "$@", "cd ", "alias "),
    ]
)


@settings(max_examples=150)
@given(st.binary(min_size=4, max_size=4), outputs | st.binary(max_size=600))
def test_pipeline_gives_the_same_text_in_any_split(how: bytes, data: bytes) -> None:
    text_pipeline.check(how + data)


@settings(max_examples=400)
@given(st.binary(min_size=1, max_size=1), st.lists(JSON_PIECES, max_size=60).map(b"".join))
def test_messages_are_the_same_in_any_split(how: bytes, data: bytes) -> None:
    messages.check(how + data)


@settings(max_examples=200)
@given(st.lists(SHELL_PIECES, max_size=40).map("".join))
def test_the_guard_always_comes_to_a_verdict(command: str) -> None:
    guard.check(command.encode())


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_store_agrees_with_a_complete_copy(program: bytes) -> None:
    store.check(program)


@pytest.mark.parametrize(
    "program",
    [
        # Some reads end within a sequence, a character or a line end. Others are shorter than a
        # sequence.
        b"\x01\x01\x1e\x01a\x1b[31mb\xe2\x82\xac\r\nc\x1b]0;title\x07d",
        b"\x05\x03\x14\x0110%\r20%\r\x1b[K30%\r\n" * 40,
        b"\xff\x02\xff\x00" + b"\x1b]0;" + b"x" * 300,
        b"\x07\xff\x20\x01" + bytes(range(256)) * 4,
    ],
)
def test_recorded_hard_output_is_unchanged(program: bytes) -> None:
    text_pipeline.check(program)
