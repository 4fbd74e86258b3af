"""How the kernel's line editor edits typed bytes: tables, and a comparison with the kernel."""

from __future__ import annotations

import os
import termios
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shelld.terminals.line_editor import Line, edit, received
from shelld.terminals.pty import NEW_MODES, Size, modes, open_pty

IUTF8 = 0o40000
RAW = NEW_MODES._replace(line_mode=False, icrnl=False)


@pytest.mark.parametrize(
    ("data", "texts", "text"),
    [
        (b"", [], b""),
        (b"ls\npw", [b"ls"], b"pw"),
        (b"lx\x7fs\n", [b"ls"], b""),
        (b"\x7f\x7fa\n", [b"a"], b""),
        ("x\u00e9\x7f\n".encode(), [b"x"], b""),
        (b"one two-\x17\n", [b"one "], b""),
        (b"rm -rf /\x15ls\n", [b"ls"], b""),
        (b"rm\x03ls\n", [None, b"ls"], b""),
        (b"rm\x1als\n", [b"ls"], b""),
        (b"l\x13s\x11\n", [b"ls"], b""),
        (b"l\x12s\n", [b"ls"], b""),
        # A quoting key turns the next key into text.
        (b"a\x16\x15b\n", [b"a\x15b"], b""),
        (b"a\x16\nb\n", [b"a\nb"], b""),
        (b"a\x16\x16\x15b\n", [b"b"], b""),
        (b"a\x16\x13b\n", [b"a\x13b"], b""),
        # The end-of-file key passes the line's text on to the program, without ending the line. If
        # there is no text to pass on, the key ends the line.
        (b"ls\x04", [], b""),
        (b"l\x04s\n", [b"ls"], b""),
        (b"ls\x04\x04", [b"ls"], b""),
        (b"\x04", [b""], b""),
    ],
)
def test_keys_edit_the_line(data: bytes, texts: list[bytes | None], text: bytes) -> None:
    edited = edit(Line(), data, NEW_MODES)
    assert (edited.texts, edited.line.text) == (texts, text)


@pytest.mark.parametrize(
    ("mode", "data", "expected"),
    [
        ({"icrnl": True}, b"a\r\n", b"a\n\n"),
        ({"icrnl": False}, b"a\r\n", b"a\r\n"),
        ({"igncr": True}, b"a\rb\n", b"ab\n"),
        ({"inlcr": True}, b"a\r\n", b"a\n\r"),
        ({"istrip": True}, bytes([0xE1, 0x8D]), b"a\n"),
        ({"iuclc": True}, b"LS", b"ls"),
    ],
)
def test_input_modes_change_bytes(mode: Any, data: bytes, expected: bytes) -> None:
    assert received(data, NEW_MODES._replace(**mode)) == expected


@pytest.mark.parametrize(
    ("data", "is_cut", "text"),
    [
        (b"b" * 95, False, b"a" * 4_000 + b"b" * 95),
        (b"b" * 96, True, b"a" * 4_000 + b"b" * 95),
        # Erasing text does not bring back the keys that the kernel has already dropped.
        (b"b" * 96 + b"\x15e", True, b"e"),
        (b"b" * 96 + b"\x7f", True, b"a" * 4_000 + b"b" * 94),
        (b"\x15" + b"b" * 4_095, False, b"b" * 4_095),
        (b"\n" + b"b" * 4_095, False, b"b" * 4_095),
    ],
    ids=["fits", "too long", "dropped", "erased", "after a drop", "after a line"],
)
def test_kernel_cuts_long_line(data: bytes, is_cut: bool, text: bytes) -> None:
    edited = edit(Line(text=b"a" * 4_000), data, NEW_MODES)
    assert (edited.is_cut, edited.line.text) == (is_cut, text)


def test_line_editor_accepts_every_key_in_a_full_line() -> None:
    full = edit(Line(), b"a" * 5_000, NEW_MODES).line
    for key in (b"\n", b"\r", b"\x03", b"\x15", b"\x04", b"\x7f", b"\x16"):
        assert not edit(full, received(key, NEW_MODES), NEW_MODES).is_cut


def test_program_that_reads_keys_has_no_longest_line() -> None:
    edited = edit(Line(), b"a" * 5_000, RAW)
    assert (edited.is_cut, len(edited.line.text)) == (False, 5_000)


def test_program_that_reads_keys_ends_lines_at_returns() -> None:
    assert edit(Line(), b"a\x1cb\rc", RAW).texts == [b"ab"]
    assert edit(Line(), b"a\x03b\r", RAW).texts == [None, b"b"]
    assert edit(Line(), b"a\x03b\r", RAW, ignores_interrupt=True).texts == [b"ab"]


def test_ignored_interrupt_drops_kernel_line() -> None:
    assert edit(Line(), b"a\x03b\n", NEW_MODES, ignores_interrupt=True).texts == [b"b"]


KEYS = [b"a", b" ", b"b_", b"-", b"\n", b"\r", b"\x7f", b"\x15", b"\x17", b"\x16", b"\x04", b"\x80"]
SIGNALS = [b"\x03", b"\x1c", b"\x1a"]
FLOW = [b"\x11", b"\x13", b"\x12"]
# This text nearly fills a line.
LONG = b"a" * 4_093
CHARACTERS = ["\u00e9".encode(), "\u05e9".encode()]


# A terminal can hold all these keys, although nobody reads them.
typing = st.lists(
    st.lists(st.sampled_from(KEYS + SIGNALS + FLOW + CHARACTERS), max_size=10).map(b"".join),
    max_size=3,
).map(lambda parts: LONG.join(parts) if len(parts) > 2 else b"".join(parts))


@pytest.mark.slow
@given(
    typing,
    st.sampled_from([termios.ICRNL, termios.ICRNL | termios.IGNCR, termios.INLCR | termios.ICRNL]),
    st.sampled_from([0, termios.IXON]),
    st.sampled_from([0, IUTF8]),
    st.sampled_from([0, termios.ECHO]),
)
def test_line_editor_edits_any_keys_as_the_kernel_does(
    data: bytes, flags: int, flow: int, utf8: int, echo: int
) -> None:
    # A program that reads a quoted newline cannot tell it from the end of the line.
    assume(b"\x16\n" not in data)
    # The data may end with a quoting key. This key then quotes only the `q` that is added here, so
    # the line with END stays intact.
    data += b"q\x15\x1dEND" + (b"\r" if flags & termios.INLCR else b"\n")
    pty = open_pty(Size(24, 80))
    try:
        attributes = termios.tcgetattr(pty.slave)
        attributes[0] = flags | flow | utf8
        # Without NOFLSH, signals also drop earlier lines that nobody has read yet.
        attributes[3] = attributes[3] & ~termios.ECHO | echo | termios.NOFLSH
        termios.tcsetattr(pty.slave, termios.TCSANOW, attributes)
        os.write(pty.master, data)
        now = modes(pty.master)
        assert edit(Line(), received(data, now), now).texts == read_lines(pty.slave)
    finally:
        for descriptor in pty:
            os.close(descriptor)


def read_lines(descriptor: int) -> list[bytes]:
    """Return the lines that a program reads, up to the line with "END".

    An end of input also ends a line.
    """
    found, line = list[bytes](), b""
    while not (found and b"\x1dEND" in found[-1]):
        read = os.read(descriptor, 10_000)
        line += read
        if not read or line.endswith(b"\n"):
            found.append(line.removesuffix(b"\n"))
            line = b""
    return found
