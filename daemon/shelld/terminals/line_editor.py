"""Computes the lines that the kernel's line editor (N_TTY) makes from typed bytes.

Pure. Obeys the special keys (such as erase) and the modes that the program has set. While the
terminal collects lines, a program reads exactly these lines. A line that is too long is cut as the
kernel cuts it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from shelld.terminals.pty import Modes
from shelld_protocol.errors import invalid_params

# The maximum length of a line in bytes, without its line end. The kernel silently drops further
# bytes.
MAX_LINE_BYTES: Final = 4_095
_RETURN: Final = 0x0D
_NEWLINE: Final = 0x0A
# At most this number of bytes of each part of a line is remembered. The guard examines only texts
# that are shorter than this.
MAX_KEPT: Final = 64 * 1024 + 1
# The bytes of a UTF-8 character after its first byte.
_CONTINUATION: Final = range(0x80, 0xC0)
# The signs of multiplication and division in Latin-1.
_SIGNS: Final = frozenset((0xD7, 0xF7))


class Line(NamedTuple):
    """The bytes typed since the last line end.

    `passed`: the part that the program can read already. `text`: the part that can still be edited.
    `is_quoting`: the next key is an ordinary character.
    """

    passed: bytes = b""
    text: bytes = b""
    is_quoting: bool = False


class Edited(NamedTuple):
    """`texts`: the lines that were completed by a line end or by the end of the input. They do not
    include their line ends. None stands for an interrupt, which also drops all lines that a shell
    has collected. `is_cut`: some typed bytes did not fit into their line.
    """

    line: Line
    texts: list[bytes | None]
    is_cut: bool


def received(data: bytes, modes: Modes, *, is_quoting: bool = False) -> bytes:
    """Apply the terminal's input modes to typed bytes.

    The modes change some bytes, and drop others.

    The modes leave a quoted return or newline unchanged. `is_quoting`: the first byte is quoted.
    """
    table, dropped = _translation(modes.istrip, modes.iuclc, modes.igncr, modes.icrnl, modes.inlcr)
    if not (modes.line_mode and modes.lnext):
        return data.translate(table, dropped)
    plain, _ = _translation(modes.istrip, modes.iuclc, False, False, False)
    first, rest = (data[:1], data[1:]) if is_quoting else (b"", data)
    parts = re.split(rb"(%s.)" % re.escape(modes.lnext), rest, flags=re.DOTALL)
    # Every second part is a quoting key and the byte that it quotes.
    parts[::2] = [part.translate(table, dropped) for part in parts[::2]]
    parts[1::2] = [part.translate(plain) for part in parts[1::2]]
    return first.translate(plain) + b"".join(parts)


@cache
def _translation(
    istrip: bool, iuclc: bool, igncr: bool, icrnl: bool, inlcr: bool
) -> tuple[bytes, bytes]:
    table, dropped = bytearray(range(256)), bytearray()
    for byte in range(256):
        now = byte & 0x7F if istrip else byte
        now = _lower(now) if iuclc else now
        if now == _RETURN and igncr:
            dropped.append(byte)
        elif now == _RETURN and icrnl:
            now = _NEWLINE
        elif now == _NEWLINE and inlcr:
            now = _RETURN
        table[byte] = now
    return bytes(table), bytes(dropped)


def _lower(byte: int) -> int:
    """Return a letter of Latin-1 in lower case."""
    is_upper = 0x41 <= byte <= 0x5A or (0xC0 <= byte <= 0xDE and byte not in _SIGNS)
    return byte + 0x20 if is_upper else byte


def edit(line: Line, data: bytes, modes: Modes, *, ignores_interrupt: bool = False) -> Edited:
    """Return the result of typing `data` after `line`. `data` is a result of `received`.

    Outside of line mode, a program edits its line itself, usually with the same keys. In that case,
    a carriage return also ends a line, and the interrupt key is the only key that sends a signal
    and drops the line. `ignores_interrupt`: the program ignores the interrupt key.
    """
    signals = {modes.intr, modes.quit, modes.susp}
    swallowed = {modes.start, modes.stop, *signals}
    passing = {modes.eof, modes.eol, modes.eol2}
    interrupts = set[bytes]() if ignores_interrupt else {modes.intr}
    if modes.line_mode:
        ends, longest = {b"\n"}, MAX_LINE_BYTES
        drops = signals if modes.flushes else set[bytes]()
        swallowed.add(modes.reprint)
    else:
        ends, longest = {b"\n", b"\r"}, len(line.text) + len(data)
        drops = {modes.kill, *interrupts}
    keys = {*ends, *drops, *swallowed, *passing}
    keys |= {modes.kill, modes.erase, modes.werase, modes.lnext}
    keys.discard(b"")
    passed, text = bytearray(line.passed), _Text(line.text, is_utf8=modes.utf8)
    is_quoting = line.is_quoting
    texts: list[bytes | None] = []
    is_cut = False
    for part in filter(None, _splitter(frozenset(keys)).split(data)):
        if is_quoting or part not in keys:
            is_quoting = False
            text += part
            is_cut |= text.cut(longest)
        elif part == modes.kill and modes.line_mode:
            text.kill(modes)
        elif part in drops:
            text.clear()
            texts += [None] if part in interrupts else []
        elif part in swallowed:
            continue
        elif part == modes.lnext:
            is_quoting = True
        elif part == modes.erase:
            text.erase()
        elif part == modes.werase:
            text.erase_word()
        elif part in passing and (text or part != modes.eof):
            passed += text if part == modes.eof else text + part
            text.clear()
        else:
            # This part is a line end or the end-of-file key.
            texts.append(bytes(passed + text))
            passed.clear()
            text.clear()
    now = Line(bytes(passed[-MAX_KEPT:]), bytes(text[-MAX_KEPT:]), is_quoting)
    return Edited(now, texts, is_cut)


def check_length(edited: Edited, parameter: str, before: bytes = b"") -> None:
    """Refuse input that a terminal would cut. Raises `RpcError` (invalid_params).

    `before`: the part of the line that was typed earlier.
    """
    if edited.is_cut:
        limit = f"a terminal accepts at most {MAX_LINE_BYTES} bytes per line"
        sentence = f"Invalid value for {parameter}: {limit}"
        more = ", including what was typed before" if before else ""
        raise invalid_params(sentence + more, parameter)


@cache
def _splitter(keys: frozenset[bytes]) -> re.Pattern[bytes]:
    return re.compile(rb"([%s])" % b"".join(re.escape(key) for key in sorted(keys)))


class _Text(bytearray):
    """The text that can be edited. All erasures together take a time that is linear in the number
    of typed bytes.
    """

    def __init__(self, text: bytes, *, is_utf8: bool) -> None:
        super().__init__(text)
        self._is_utf8 = is_utf8
        # No character begins before this offset.
        self._barren = 0

    def clear(self) -> None:
        super().clear()
        self._barren = 0

    def cut(self, length: int) -> bool:
        """Drop all bytes after the first `length` bytes. Return whether any were dropped."""
        is_cut = len(self) > length
        del self[length:]
        self._barren = min(self._barren, length)
        return is_cut

    def kill(self, modes: Modes) -> None:
        if not modes.kills_characters:
            self.clear()
        while self.erase():
            pass

    def erase(self) -> bool:
        """Erase the last character. Return False if there is no whole character."""
        start = self._last()
        if start is None:
            return False
        del self[start:]
        return True

    def erase_word(self) -> None:
        """Erase the last word (letters, digits and underscores) and the characters after it."""
        was_in_word = False
        while (start := self._last()) is not None:
            is_in_word = _is_in_word(self[start])
            if was_in_word and not is_in_word:
                return
            was_in_word = is_in_word
            del self[start:]

    def _last(self) -> int | None:
        """Return the offset at which the last character begins; None if there is no whole
        character.
        """
        for start in range(len(self) - 1, self._barren - 1, -1):
            if not self._is_utf8 or self[start] not in _CONTINUATION:
                return start
        self._barren = len(self)
        return None


def _is_in_word(byte: int) -> bool:
    """Return whether the kernel treats a character that begins with this byte as a part of a word.

    The kernel reads the byte as Latin-1.
    """
    return bytes([byte]).isalnum() or byte == 0x5F or (byte >= 0xC0 and byte not in _SIGNS)
