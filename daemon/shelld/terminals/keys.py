"""Returns the bytes that xterm sends for a key. The names of the keys are those of tmux."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = b"\x1b"

# Keys that take only the modifier M- (Meta). The exceptions are S-Tab and C-Space.
_PLAIN: Final = {
    "Enter": b"\r",
    "Escape": _ESCAPE,
    "Tab": b"\t",
    "BTab": b"\x1b[Z",
    "Space": b" ",
    "BSpace": b"\x7f",
}
# The letter X in the sequence ESC [ X. While the program wants application cursor keys, the
# terminal sends ESC O X instead.
_CURSOR: Final = {"Up": b"A", "Down": b"B", "Right": b"C", "Left": b"D", "Home": b"H", "End": b"F"}
# The letter X in the sequence ESC O X.
_FIRST_FUNCTIONS: Final = {"F1": b"P", "F2": b"Q", "F3": b"R", "F4": b"S"}
# The number N in the sequence ESC [ N ~.
_NUMBERED: Final = {
    "IC": 2,
    "Insert": 2,
    "DC": 3,
    "Delete": 3,
    "PPage": 5,
    "PageUp": 5,
    "PgUp": 5,
    "NPage": 6,
    "PageDown": 6,
    "PgDn": 6,
    "F5": 15,
    "F6": 17,
    "F7": 18,
    "F8": 19,
    "F9": 20,
    "F10": 21,
    "F11": 23,
    "F12": 24,
}
# In a sequence, xterm writes the modifiers as one number: the sum of these values, plus one.
_MODIFIERS: Final = {"S": 1, "M": 2, "C": 4}
_NAME: Final = re.compile(r"((?:[SMC]-)*)(.+)", re.DOTALL)

# The characters that Ctrl changes in addition to letters and @ [ \ ] ^ _.
_WITH_CTRL: Final = {"Space": b"\0", " ": b"\0", "/": b"\x1f", "?": b"\x7f"}


class UnknownKey(ValueError):
    """No key has this name. `args` holds the name."""


def key_bytes(name: str, *, application_cursor: bool = False) -> bytes:
    """Return the bytes that a terminal sends for a key, or for a character with modifiers.

    Modifiers are written as in ``C-c`` (or ``^c``), ``M-x`` and ``S-Up``. They are combined as in
    ``C-M-Left``. Raises `UnknownKey`.
    """
    if len(name) == 2 and name[0] == "^":
        name = f"C-{name[1]}"
    match = _NAME.fullmatch(name)
    if match is None:
        raise UnknownKey(name)
    modifiers, key = frozenset(match[1].split("-")[:-1]), match[2]
    if match[1] == "S-" and key == "Tab":
        return _PLAIN["BTab"]
    sequence = _sequence(key, modifiers, application_cursor=application_cursor)
    if sequence is not None:
        return sequence
    if "S" in modifiers:
        # A shifted character is written as the character itself, without S-.
        raise UnknownKey(name)
    try:
        plain = _with_ctrl(key) if "C" in modifiers else _PLAIN.get(key) or _character(key)
    except UnknownKey:
        raise UnknownKey(name) from None
    return _ESCAPE + plain if "M" in modifiers else plain


def _sequence(key: str, modifiers: frozenset[str], *, application_cursor: bool) -> bytes | None:
    number = 1 + sum(_MODIFIERS[modifier] for modifier in modifiers)
    if key in _NUMBERED:
        code = b"%d" % _NUMBERED[key]
        return b"\x1b[%s~" % code if number == 1 else b"\x1b[%s;%d~" % (code, number)
    last = _CURSOR.get(key) or _FIRST_FUNCTIONS.get(key)
    if last is None:
        return None
    if number > 1:
        return b"\x1b[1;%d%s" % (number, last)
    return (b"\x1bO" if application_cursor or key in _FIRST_FUNCTIONS else b"\x1b[") + last


def _with_ctrl(key: str) -> bytes:
    if key in _WITH_CTRL:
        return _WITH_CTRL[key]
    if len(key) == 1 and key.isascii() and "@" <= key.upper() <= "_":
        return bytes((ord(key.upper()) & 0x1F,))
    raise UnknownKey(key)


def _character(key: str) -> bytes:
    if len(key) != 1:
        raise UnknownKey(key)
    return key.encode()
