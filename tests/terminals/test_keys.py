"""Key names become the bytes that xterm sends."""

from __future__ import annotations

import pytest

from shelld.terminals.keys import UnknownKey, key_bytes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Enter", b"\r"),
        ("Tab", b"\t"),
        ("BTab", b"\x1b[Z"),
        ("S-Tab", b"\x1b[Z"),
        ("Escape", b"\x1b"),
        ("Space", b" "),
        ("BSpace", b"\x7f"),
        ("Up", b"\x1b[A"),
        ("Left", b"\x1b[D"),
        ("Home", b"\x1b[H"),
        ("End", b"\x1b[F"),
        ("C-Up", b"\x1b[1;5A"),
        ("S-Left", b"\x1b[1;2D"),
        ("C-M-Left", b"\x1b[1;7D"),
        ("DC", b"\x1b[3~"),
        ("Delete", b"\x1b[3~"),
        ("PageUp", b"\x1b[5~"),
        ("NPage", b"\x1b[6~"),
        ("C-PgDn", b"\x1b[6;5~"),
        ("F1", b"\x1bOP"),
        ("S-F1", b"\x1b[1;2P"),
        ("F5", b"\x1b[15~"),
        ("F12", b"\x1b[24~"),
        ("C-c", b"\x03"),
        ("^c", b"\x03"),
        ("C-C", b"\x03"),
        ("C-Space", b"\0"),
        ("C-@", b"\0"),
        ("C-[", b"\x1b"),
        ("C-\\", b"\x1c"),
        ("C-_", b"\x1f"),
        ("C-/", b"\x1f"),
        ("C-?", b"\x7f"),
        ("M-x", b"\x1bx"),
        ("M-Enter", b"\x1b\r"),
        ("C-M-x", b"\x1b\x18"),
        ("M-C-x", b"\x1b\x18"),
        ("a", b"a"),
        ("A", b"A"),
        ("^", b"^"),
        ("-", b"-"),
        ("M--", b"\x1b-"),
        ("é", "é".encode()),
    ],
)
def test_key_is_what_xterm_sends(name: str, expected: bytes) -> None:
    assert key_bytes(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Up", b"\x1bOA"), ("End", b"\x1bOF"), ("C-Up", b"\x1b[1;5A"), ("PageUp", b"\x1b[5~")],
)
def test_application_mode_changes_plain_cursor_keys(name: str, expected: bytes) -> None:
    assert key_bytes(name, application_cursor=True) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "enter",
        "Return",
        "C-",
        "M-",
        "S-a",
        "C-1",
        "C-é",
        "F13",
        "ab",
        "X-a",
        "C-Enter",
        "C-ß",
        "C-ı",
    ],
)
def test_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownKey):
        key_bytes(name)
