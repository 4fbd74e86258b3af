"""Makes a command line from the words that follow a subcommand. Commands are UTF-8."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Final

_NOT_UTF_8: Final = r"the command is not UTF-8: write the other bytes as in $'\xff'"

# The bytes that need no escape within $'...'.
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - frozenset(b"\\'")


def command_of(words: Sequence[str]) -> str:
    """Return a single word as it is, because it is a command line. Join several words, which are a
    program and its arguments. Raises ValueError if a command line is not UTF-8.
    """
    # Python has decoded the words with the encoding of the locale.
    given = [os.fsencode(word) for word in words]
    if len(given) > 1:
        return " ".join(map(_quoted, given))
    try:
        return given[0].decode()
    except UnicodeDecodeError:
        raise ValueError(_NOT_UTF_8) from None


def _quoted(word: bytes) -> str:
    """Quote a word for bash."""
    try:
        return shlex.quote(word.decode())
    except UnicodeDecodeError:
        escaped = "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in word)
        return f"$'{escaped}'"
