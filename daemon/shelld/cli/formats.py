"""Formats durations, sizes and the texts of others for people. Pure."""

from __future__ import annotations

from typing import Final

_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
_TAB: Final = "    "

# The size that most programs assume for a terminal that does not know its size.
USUAL_COLS: Final = 80
USUAL_ROWS: Final = 24


def duration(seconds: float) -> str:
    """Format a duration: ``0.25 s``, ``12.3 s``, ``2 min 5 s``, ``1 h 2 min``.

    If `seconds` is an int below 60, the text has no decimals: ``12 s``.
    """
    if isinstance(seconds, int) and seconds < 60:
        return f"{seconds} s"
    if seconds < 59.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Format a number of bytes: ``12 B``, ``3.4 MiB``."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1023.95 or unit == "GiB":
            return f"{value:.1f} {unit}"
    raise AssertionError("the last unit takes any size")


def printable(text: str) -> str:
    """Replace all characters that could control a terminal."""
    if text.isprintable():
        return text
    text = text.replace("\t", _TAB)
    return "".join(each if each.isprintable() else _UNPRINTABLE for each in text)
