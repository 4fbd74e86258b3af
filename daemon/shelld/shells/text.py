"""Paths and values as text, whatever the locale says.

The kernel and bash know bytes, requests and answers are UTF-8. Where bytes are not UTF-8, the text
holds surrogates that stand for them, so the way back gives the same bytes. Such text must not
leave the process: `shown` is what an answer holds.
"""

from __future__ import annotations

from shelld_protocol.structs import CUT_MARK, MAX_SHOWN_CHARACTERS


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def beginning(text: str) -> str:
    """Return text as it is listed: of a long one the beginning, and a mark."""
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return text[:MAX_SHOWN_CHARACTERS] + CUT_MARK


def shown(text: str) -> str:
    """Return text that can be encoded, with U+FFFD for what is not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
