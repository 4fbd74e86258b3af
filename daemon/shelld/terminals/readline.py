"""Computes the line that GNU readline makes from typed keys, with its usual bindings.

Pure. Knows the keys that move the cursor or change the line. Ignores all other keys, such as the
keys that fetch earlier lines from the history. A shell may have bound keys in another way, as in vi
mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from shelld.terminals.characters import is_in_word, is_mark

# Each of these keys inserts the next character, even if the next character is itself a key.
QUOTES: Final = "\x11\x16"
# Matches escape sequences, Escape with the character after it, and all control characters except
# tabs and newlines. A quoted control character is one key.
KEY: Final = re.compile(
    r"(\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|.)?|[\x11\x16]?[\x00-\x08\x0b-\x1f\x7f])", re.DOTALL
)


class _Line:
    """`after`: the characters that follow the cursor, in reverse order."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.after: list[str] = []
        # The text that the last kill keys have cut out. If several kill keys follow each other,
        # each of them adds to this text.
        self.killed: list[str] = []
        self.is_killing = False
        self.joins_kills = False

    def _last(self) -> int:
        """Return the index of the start of the last character before the cursor. Combining marks
        belong to the character before them.
        """
        place = len(self.before) - 1
        while place > 0 and is_mark(self.before[place]):
            place -= 1
        return max(place, 0)

    def _take_next(self) -> list[str]:
        """Cut out the character after the cursor, and the marks before and after this character."""
        place = len(self.after)
        while place and is_mark(self.after[place - 1]):
            place -= 1
        place = max(place - 1, 0)
        while place and is_mark(self.after[place - 1]):
            place -= 1
        taken = self.after[place:]
        del self.after[place:]
        return taken[::-1]

    def left(self) -> None:
        start = self._last()
        self.after += reversed(self.before[start:])
        del self.before[start:]

    def right(self) -> None:
        self.before += self._take_next()

    def home(self) -> None:
        self.after += reversed(self.before)
        self.before.clear()

    def end(self) -> None:
        self.before += reversed(self.after)
        self.after.clear()

    def word_left(self) -> None:
        while self.before and not is_in_word(self.before[self._last()]):
            self.left()
        while self.before and is_in_word(self.before[self._last()]):
            self.left()

    def word_right(self) -> None:
        while self.after and not is_in_word(self.after[-1]):
            self.right()
        while self.after and is_in_word(self.after[-1]):
            self.right()

    def erase(self) -> None:
        del self.before[self._last() :]

    def delete(self) -> None:
        self._take_next()

    def kill_before(self) -> None:
        self._kill_back_to(0)

    def kill_after(self) -> None:
        self._kill(self.after[::-1], is_backward=False)
        self.after.clear()

    def kill_blank_word(self) -> None:
        start = len(self.before)
        while start and self.before[start - 1] in " \t":
            start -= 1
        while start and self.before[start - 1] not in " \t":
            start -= 1
        self._kill_back_to(start)

    def kill_word_left(self) -> None:
        end = len(self.before)
        self.word_left()
        start = len(self.before)
        self._kill([self.after.pop() for _ in range(end - start)], is_backward=True)

    def kill_word_right(self) -> None:
        start = len(self.before)
        self.word_right()
        self._kill_back_to(start, is_backward=False)

    def yank(self) -> None:
        self.before += self.killed

    def transpose(self) -> None:
        if not self.before or len(self.before) + len(self.after) == 1:
            return
        if not self.after:
            self.left()
        start = self._last()
        taken = self.before[start:]
        del self.before[start:]
        self.right()
        self.before += taken

    def upper(self) -> None:
        self._change_word(str.upper)

    def lower(self) -> None:
        self._change_word(str.lower)

    def capitalize(self) -> None:
        self._change_word(_capital)

    def _change_word(self, change: Callable[[str], str]) -> None:
        start = len(self.before)
        self.word_right()
        self.before[start:] = change("".join(self.before[start:]))

    def _kill_back_to(self, start: int, *, is_backward: bool = True) -> None:
        self._kill(self.before[start:], is_backward=is_backward)
        del self.before[start:]

    def _kill(self, cut: list[str], *, is_backward: bool) -> None:
        if cut:
            earlier = self.killed if self.joins_kills else []
            self.killed = [*cut, *earlier] if is_backward else [*earlier, *cut]
            self.is_killing = True


def _capital(word: str) -> str:
    first = next((place for place, each in enumerate(word) if is_in_word(each)), 0)
    return word[:first] + word[first : first + 1].upper() + word[first + 1 :].lower()


_EDITS: Final[dict[str, Callable[[_Line], None]]] = {
    key: edit
    for edit, keys in (
        (_Line.left, ("\x02", "\x1b[D", "\x1bOD")),
        (_Line.right, ("\x06", "\x1b[C", "\x1bOC")),
        (_Line.home, ("\x01", "\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~")),
        (_Line.end, ("\x05", "\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~")),
        (_Line.word_left, ("\x1bb", "\x1b[1;5D", "\x1b[1;3D")),
        (_Line.word_right, ("\x1bf", "\x1b[1;5C", "\x1b[1;3C")),
        (_Line.erase, ("\x08", "\x7f")),
        (_Line.delete, ("\x04", "\x1b[3~")),
        (_Line.kill_before, ("\x15",)),
        (_Line.kill_after, ("\x0b",)),
        (_Line.kill_blank_word, ("\x17",)),
        (_Line.kill_word_left, ("\x1b\x7f", "\x1b\x08")),
        (_Line.kill_word_right, ("\x1bd",)),
        (_Line.yank, ("\x19",)),
        (_Line.transpose, ("\x14",)),
        (_Line.upper, ("\x1bu",)),
        (_Line.lower, ("\x1bl",)),
        (_Line.capitalize, ("\x1bc",)),
    )
    for key in keys
}


# The time that these keys take depends on the number of marks in the line, but not on the length of
# the line.
_STEPS: Final = frozenset((_Line.left, _Line.right, _Line.erase, _Line.delete))


def work(pieces: Sequence[str]) -> int:
    """Return an upper bound for the work of `edited`. The work is the number of characters that
    each key may have to process, added up over all keys.

    A key in `_STEPS` counts as one character, plus twice the number of marks in the line. A key
    that edits nothing counts as one character.
    """
    longest = longest_line(pieces)
    step = 1
    if len(pieces) > 1:
        texts = (text for text in pieces[::2] if not text.isascii())
        step += 2 * sum(sum(map(is_mark, text)) for text in texts)
    edits = (_EDITS.get(key) for key in pieces[1::2])
    return sum(1 if edit is None else step if edit in _STEPS else longest for edit in edits)


def edits(key: str) -> bool:
    """Return whether readline changes the line, or the position of the cursor, at this key."""
    return key in _EDITS or _is_quoted(key)


def _is_quoted(key: str) -> bool:
    return len(key) > 1 and key[0] in QUOTES


def edited(pieces: Sequence[str], *, is_typed_ahead: bool = False) -> str | None:
    """Return the line that results from `pieces`.

    `pieces` holds text and keys alternately, as `KEY.split` returns them.

    `is_typed_ahead`: the keys arrive faster than readline reads them. In that case, two kill keys
    count as keys in a row even if there is text between them.

    Returns None if the keys make the line much longer than the typed text. Each key takes a time
    that is linear in the length of the line.
    """
    line = _Line()
    limit = longest_line(pieces)
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            line.before += piece
            line.is_killing = line.is_killing and (is_typed_ahead or not piece)
            continue
        line.joins_kills, line.is_killing = line.is_killing, False
        if _is_quoted(piece):
            line.before.append(piece[1])
        elif (edit := _EDITS.get(piece)) is not None:
            edit(line)
        if len(line.before) + len(line.after) > limit:
            return None
    line.end()
    return "".join(line.before)


def longest_line(pieces: Sequence[str]) -> int:
    """Return the length of the line above which `edited` gives up. Without this limit, a few keys
    that are typed again and again could double the line each time.
    """
    quoted = sum(map(_is_quoted, pieces[1::2]))
    return 1_000 + 2 * (sum(map(len, pieces[::2])) + quoted)
