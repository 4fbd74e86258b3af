"""Splits typed input into lines, and lists the texts that a shell may read from each line.

The program may edit its line in ways that this module cannot follow, for example with the history
of a shell. This module knows the usual editing keys. It also lists the text between the keys, so
that the guard can judge this text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from shelld.terminals.dialogue import PASTE_END, PASTE_START
from shelld.terminals.line_editor import MAX_KEPT, MAX_LINE_BYTES, Line, edit, received
from shelld.terminals.pty import NEW_MODES, Modes
from shelld.terminals.readline import KEY, QUOTES, edited, edits, work

# After these keys, the program may read a line that has not ended. They are Ctrl-D, and the keys of
# GNU readline that accept the line, expand it, open it in an editor, or comment or uncomment it.
_PASSING_ON: Final = re.compile(rb"[\x04\x0f]|\x1b\x05|\x18\x05|\x1b#")
_TOGGLES_COMMENT: Final = "\x1b#"
# At these keys, readline passes the line on, and the next key begins another line. C-x is the first
# of the two keys that open the line in an editor.
_ENDS: Final = frozenset({"\x0f", _TOGGLES_COMMENT, "\x18"})
# These patterns match the first bytes of keys that readline may not know. Readline always knows the
# arrow keys and the brackets of a paste. Some other keys for the cursor are known to readline only
# if /etc/inputrc or the terminal names them.
_BEGINS_KEY: Final = [
    re.compile(rf"(?!\x1b\[(?:[A-DFH]|1;[35][CD]|{known}~|20[01]~))\x1b\[[0-?]*+")
    for known in ("[13478]", "3")
]
# The maximum of `work`. If a line causes more work, this module does not compute what its keys do.
# A unit of work takes up to 0.1 us.
_MAX_WORK: Final = 1_000_000


class Dropped(NamedTuple):
    """Text that an interrupt has dropped just before this line.

    Readline may put this text before the line: see `Typed.kept`. `whole`: all of the text. `early`:
    only the text from before the write that contains the interrupt. The terminal may drop the text
    of that write. `at`: the time.monotonic() at which the interrupt was typed.
    """

    early: bytes
    whole: bytes
    at: float = 0.0

    def before(self, line: bytes) -> list[bytes]:
        """Return the lines that readline may hold if it has put the dropped text before `line`."""
        return list(dict.fromkeys(text + line for text in (self.early, self.whole)))


class TypedLine(NamedTuple):
    """The line that is being typed into a command, as far as it is known.

    `keys`: the line with all its keys, or the end of a long line. `starts`: offsets in `keys` at
    which a line may begin, because a program may have read the bytes before the offset.
    `is_collected`: False if a program other than a shell may have read a part of `keys`. `script`:
    the lines before this line, if they are the beginning of a shell command that is not complete
    yet. `edited_script`: the same lines, as the terminal's own line editor passes them on.

    `kernel_line`: the line as the kernel's line editor holds it. `was_in_line_mode`: whether the
    terminal collected lines when input was last typed. `has_secret`: whether a part of the line, or
    of the lines before it, was typed as a secret.

    `dropped`: if an interrupt came right before this line, the text that this interrupt has
    dropped; otherwise None. `kept_scripts`: incomplete shell commands that this line may continue.
    There are such commands if readline has kept the text that an interrupt dropped, or if a part of
    this line seems to have been passed on already.
    """

    keys: bytes = b""
    starts: tuple[int, ...] = ()
    is_collected: bool = True
    script: str = ""
    edited_script: str = ""
    kernel_line: Line = Line()
    was_in_line_mode: bool = True
    has_secret: bool = False
    dropped: Dropped | None = None
    kept_scripts: tuple[str, ...] = ()

    @property
    def is_begun(self) -> bool:
        """Whether the next input continues a partly typed line or shell command."""
        line = self.kernel_line
        scripts = self.script or self.edited_script or self.kept_scripts
        dropped = self.dropped is not None and self.dropped.whole
        return bool(self.keys or scripts or line.passed or line.text or dropped)

    def followed_by(self, answer: bytes) -> TypedLine:
        """Return the line that results when the terminal appends an answer to the keys."""
        keys = (self.keys + answer)[-MAX_KEPT:]
        dropped = len(self.keys) + len(answer) - len(keys)
        starts = tuple(each - dropped for each in self.starts if each >= dropped)
        return self._replace(keys=keys, starts=starts)

    def kernel_line_under(self, now: Modes) -> Line:
        """Return the line that the kernel's line editor holds, given the current modes `now`."""
        # If bytes were typed before line mode began, they went to the program at once, without the
        # editor.
        return Line() if now.line_mode and not self.was_in_line_mode else self.kernel_line


NOTHING_TYPED: Final = TypedLine()


class Typed(NamedTuple):
    """`lines`: the lines that are complete now. None stands for an interrupt, which drops the line
    before it and all lines that a shell has collected. `rest`: the typed part of the next line.

    `is_passed_on`: the program may read `rest` before the line ends. `parts`: for each pasted or
    quoted newline, the text from the previous newline, or from the start of the line, up to this
    newline. Readline adds a pasted or quoted newline to its line, but another program may end its
    line there. If `rest` has such newlines, `parts` also has the text of `rest` up to the last such
    newline. If the typed part of the next line is too long, `rest` has only the end of this part,
    and `parts` also has the whole part.

    `kept`: each item has an index in `readable`, and a text. The text is an interrupted line,
    followed by the line at this index. If more text comes while bash handles an interrupt, readline
    may keep the interrupted line without its first byte, and add the new text to it. So bash may
    run the text without its first byte. `dropped`: if an interrupt comes right before `rest`, the
    text that this interrupt has dropped; otherwise None.
    """

    lines: list[bytes | None]
    rest: bytes
    is_passed_on: bool
    parts: list[bytes]
    kept: tuple[tuple[int, bytes], ...] = ()
    dropped: Dropped | None = None

    @property
    def first(self) -> bytes | None:
        """The first item of `readable`, or None. Only this item can contain text that earlier
        writes have typed.
        """
        return next(iter(self.readable), None)

    @property
    def readable(self) -> list[bytes | None]:
        """The lines that a shell may run now. They include `rest` if the program may read it
        already.
        """
        return [*self.lines, self.rest] if self.rest and self.is_passed_on else self.lines


def typed(
    before: bytes,
    data: bytes,
    *,
    interrupt: bytes = b"",
    lnext: bytes = b"",
    swallowed: bytes = b"",
    dropped: Dropped | None = None,
) -> Typed:
    """Return the result of typing `data` after `before`.

    `interrupt`: a key that makes the program drop the line, unless `lnext` or a quoting key of
    readline comes before it. `swallowed`: keys that the terminal does not pass on. `dropped`: the
    text that an interrupt has dropped just before the first key of `before`; None if there was no
    such interrupt.
    """
    quotes = (QUOTES.encode() + lnext).translate(None, swallowed)
    ends = rb"\r\n?|\n|\x1b\[20[01]~"
    if interrupt:
        ends += b"|" + re.escape(interrupt)
    lines, parts, kept = list[bytes | None](), list[bytes](), list[tuple[int, bytes]]()
    is_pasting = before.rfind(PASTE_START) > before.rfind(PASTE_END)
    start, part = 0, 1 + max(before.rfind(b"\n"), before.rfind(b"\r"))
    whole = before + data
    # A bracket of a paste may begin in `before`.
    for match in re.compile(ends).finditer(whole, max(0, len(before) - len(PASTE_START) + 1)):
        found, at = match[0], match.start()
        is_quoted = at > start and whole[at - 1] in quotes
        if found in (PASTE_START, PASTE_END):
            is_pasting = found == PASTE_START
        elif at < len(before) or (found == interrupt and is_quoted):
            # A newline in `before` is a part of the line. An interrupt in `before` had no effect.
            continue
        elif found != interrupt and (is_pasting or is_quoted):
            parts.append(whole[part:at])
            part = match.end()
        else:
            line = whole[start:at]
            if found == interrupt:
                lines.append(None)
                earlier = Dropped(before[start:], b"") if dropped is None else dropped
                dropped = Dropped(earlier.early, (earlier.whole + line)[-MAX_KEPT:])
            else:
                if dropped is not None:
                    kept += [(len(lines), each) for each in dropped.before(line)]
                lines.append(line)
                dropped = None
            start = part = match.end()
            is_pasting = False
    if part > start:
        parts.append(whole[start:part])
    rest = whole[start:]
    if len(rest) > MAX_KEPT:
        parts.append(rest)
    is_passed_on = bool(_PASSING_ON.search(data))
    if is_passed_on and dropped is not None:
        kept += [(len(lines), each) for each in dropped.before(rest)]
    return Typed(lines, rest[-MAX_KEPT:], is_passed_on, parts, tuple(kept), dropped)


def last_line(before: bytes, data: bytes) -> bytes | None:
    """Return the same as the `rest` of `typed(before, data)`, but many times faster.

    `data` must contain the end of a line. Returns None if the text has keys that only `typed` can
    handle.
    """
    keys = (b"\x1b", *(quote.encode() for quote in QUOTES))
    if before.endswith(b"\r") or any(key in text for key in keys for text in (before, data)):
        return None
    return data[1 + max(data.rfind(b"\n"), data.rfind(b"\r")) :][-MAX_KEPT:]


def readings(line: bytes) -> Iterator[str]:
    """Yield the texts that a shell may read if this line is typed, the likeliest text first.

    First come the lines that readline may pass on: the line as readline edits it, the line without
    its keys, and each part between two keys. A key may have dropped the text before it, may have
    done nothing, or may have left its own last bytes in the line. Then come the lines that the
    kernel's line editor may pass on. The shell may read such a line if the shell has another
    terminal, which gets its input from ours. Only the first text may be empty.
    """
    line = line.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    shown = line.decode("utf-8", "replace")
    pieces = KEY.split(shown)
    # A line without keys must be processed quickly.
    if len(pieces) == 1 and "\ufffd" not in shown and len(line) <= MAX_LINE_BYTES:
        yield shown
        if "\t" in shown and (without := shown.replace("\t", "")):
            # Readline completes a word at a tab, and may find nothing to add to the word.
            yield without
        return
    followed, between = list[str | None](), list[str]()
    variants = [pieces, *_with_fewer_quotes(shown), *_with_ends_of_keys(shown)]
    if "\ufffd" in shown:
        # If a key or the end of the line follows an incomplete character, readline drops this
        # character.
        variants.append(KEY.split(line.decode("utf-8", "ignore")))
    for variant in variants:
        # It would take too long to follow many keys in a long line.
        if work(variant) <= _MAX_WORK:
            followed += [edited(variant), edited(variant, is_typed_ahead=True)]
            between += [*_between_unknown(variant), *_between_ends(variant)]
    texts = [text for text in followed if text is not None]
    texts += ["".join(pieces[::2]), *between, *pieces[::2]]
    if _TOGGLES_COMMENT in pieces:
        texts += [text.lstrip("# ") for text in texts]
    texts += _edited_by_kernel(line)
    texts += [text.replace("\t", "") for text in texts if "\t" in text]
    first, *others = dict.fromkeys(texts)
    yield first
    yield from (text for text in others if text.strip())


def _with_fewer_quotes(shown: str) -> Iterator[list[str]]:
    """Yield the pieces of the line without C-q, and then the pieces without C-q and without C-v.

    Not every shell knows these keys. A terminal that gets its input from ours may intercept only
    C-q.
    """
    for unknown in (QUOTES[:1], QUOTES):
        if any(quote in shown for quote in unknown):
            yield KEY.split(shown.translate(dict.fromkeys(map(ord, unknown))))


def _with_ends_of_keys(shown: str) -> Iterator[list[str]]:
    """Remove the first bytes of each key that readline may not know. Yield the pieces of the
    resulting line. If there are no such keys, yield nothing.

    If readline does not know a key, it drops the first bytes of the key, and treats the other bytes
    as text. So the key F5 may leave a tilde in the line.
    """
    for begins_key in _BEGINS_KEY:
        if (without := begins_key.sub("", shown)) != shown:
            yield KEY.split(without)


def _edited_by_kernel(line: bytes) -> Iterator[str]:
    """A new terminal behind ours may edit the line as well. Yield the texts that may result.

    Leave out texts that equal the line.

    The program that opens the new terminal decides whether the terminal erases whole characters of
    UTF-8. This program may also intercept escape sequences, such as the answers of our terminal.
    """
    pieces = KEY.split(line.decode("utf-8", "surrogateescape"))
    others = "".join(piece for piece in pieces if not piece.startswith("\x1b"))
    for keys in dict.fromkeys((line, others.encode("utf-8", "surrogateescape"))):
        for utf8 in (True,) if keys.isascii() else (True, False):
            modes = NEW_MODES._replace(utf8=utf8)
            now, lines, _ = edit(Line(), received(keys, modes), modes)
            complete = [line for line in lines if line is not None]
            text = b"\n".join([*complete, now.passed + now.text])
            if text != keys:
                yield text.decode("utf-8", "replace")


def _between_unknown(pieces: Sequence[str]) -> Iterator[str]:
    """Split the line at unknown keys. Yield each part after readline has edited it.

    Each part is a possible line, because an unknown key may drop the text before it.
    """
    start = 0
    for number in range(1, len(pieces), 2):
        if not edits(pieces[number]):
            yield edited(pieces[start:number]) or ""
            start = number + 1
    yield edited(pieces[start:]) or ""


def _between_ends(pieces: Sequence[str]) -> Iterator[str]:
    """Split the line at the keys that end it. Yield each part after readline has edited it."""
    start = 0
    for number in range(1, len(pieces), 2):
        if pieces[number] in _ENDS:
            yield edited(pieces[start:number]) or ""
            start = number + 1
    if start:
        yield edited(pieces[start:]) or ""
