"""Splits the expanded pieces of a word into fields. Pure. Reference: bash(1), Word Splitting."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shelld.guard.markers import BREAK, UNKNOWN
from shelld.guard.scope import Scope


class Piece(NamedTuple):
    text: str
    quoted: bool
    # If true, the piece is an unquoted expansion, which is split at separators.
    splits: bool = False


_BLANK: Final = re.compile(r"[ \t\n\ue004]+")


def separators_of(scope: Scope) -> re.Pattern[str]:
    """Return a pattern for field separators, which are the characters of IFS."""
    characters = scope.value_of("IFS")
    if characters in (None, " \t\n") or UNKNOWN in (characters or ""):
        return _BLANK
    return re.compile(f"[{re.escape(characters or '')}\ue004]+")


def fields_of(pieces: list[Piece], separators: re.Pattern[str] = _BLANK) -> list[str]:
    fields: list[str] = []
    current: str | None = None
    for text, quoted, splits in pieces:
        if splits:
            parts: list[str] = separators.split(text)
            if len(parts) > 1 and not parts[0]:
                parts.pop(0)
                if current is not None:
                    fields.append(current)
                    current = None
            for index, part in enumerate(parts):
                if index and current is not None:
                    fields.append(current)
                    current = None
                if part:
                    current = part if current is None else current + part
        elif quoted and BREAK in text:
            *ended, last = text.split(BREAK)
            fields += [(current or "") + ended[0], *ended[1:]]
            current = last
        elif quoted or text:
            current = (current or "") + text
    if current is not None:
        fields.append(current)
    return fields
