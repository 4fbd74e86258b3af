"""Entries of a journal.

An entry holds enough data to send its event now, and to send it again later.

An entry does not keep the text of output. It has a range of offsets, and reads the text from the
shell's output when the event is sent. So a journal is small. If the shell no longer keeps the
output at that time, `dropped` counts the lost bytes. For each screen, only the entry of the last
change has rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary, ref

from shelld.output.retention import StreamName
from shelld.output.store import StreamStore
from shelld.output.text import JoinedText, Piece, begins_within_line, read_text
from shelld.shells.shell import Shell
from shelld_protocol.event_methods import Event, OutputEvent, ScreenEvent

# A list of this many ports or processes takes more memory than the rest of its event.
_ITEMS_PER_WEIGHT: Final = 4


class Header(NamedTuple):
    """The members that all events have."""

    subscription: str
    seq: int
    bash_id: str
    session: str | None
    request_id: Any


class Entry(Protocol):
    """One event in the journal. `bash_id` and `session` belong to the event's shell."""

    @property
    def bash_id(self) -> str: ...

    @property
    def session(self) -> str | None: ...

    @property
    def method(self) -> str: ...

    @property
    def weight(self) -> int:
        """The weight of the entry in a journal. A usual event has the weight 1."""
        ...

    def event(self, header: Header) -> Event:
        """Return the event in full."""
        ...

    def for_slow_client(self, header: Header) -> Event:
        """Return the event for a client that reads too slowly."""
        ...


class FactEntry(NamedTuple):
    """An event that is kept with all its members.

    Output events and screen events have entries of other types.
    """

    bash_id: str
    session: str | None
    method: str
    event_type: type[Event]
    facts: Mapping[str, Any]

    @property
    def weight(self) -> int:
        lists: list[list[object]] = [each for each in self.facts.values() if isinstance(each, list)]
        return max(1, sum(map(len, lists)) // _ITEMS_PER_WEIGHT)

    def event(self, header: Header) -> Event:
        return self.event_type(**header._asdict(), **self.facts)

    def for_slow_client(self, header: Header) -> Event:
        return self.event(header)


class OutputEntry(NamedTuple):
    """An output event: a range of a stream.

    `skipped`: how many bytes just before the range were not sent.

    `strip`, `stop`, `max_bytes` and `final` are the arguments of the first read, so that a later
    read returns the same text.
    """

    bash_id: str
    session: str | None
    stream: StreamName
    store: StreamStore
    start: int
    end: int
    skipped: int
    strip: bool
    stop: int
    max_bytes: int
    final: bool

    @property
    def method(self) -> str:
        return "shell/output"

    @property
    def weight(self) -> int:
        return 1

    def event(self, header: Header) -> Event:
        piece = self._read(self.start, self.max_bytes)
        if piece.end != self.end:
            piece = self._rest()
        return self.with_text(header, piece.text, piece.dropped)

    def _rest(self) -> Piece:
        """Return the text of the range without its lost bytes.

        Call this if bytes in the range or after it were lost.
        """
        continues = begins_within_line(self.store, self.start)
        text = JoinedText(strip=self.strip, continues=continues)
        position, dropped = self.start, 0
        while position < self.end:
            gap_end = min(self.end, self.store.read(position, 0).start)
            if gap_end > position:
                # These bytes were lost after the event was first sent.
                dropped += gap_end - position
                position = gap_end
                continue
            piece = self._read(position, self.end - position)
            if piece.dropped:
                # These bytes could not be read, so they are a gap now.
                continue
            if piece.end == position:
                # Only a part of a unit (see `escapes`) is left, because its beginning or its end
                # was lost.
                dropped += self.end - position
                break
            text.add(piece.text)
            position = piece.end
        return Piece(text.joined(is_end=False), self.end, dropped)

    def _read(self, start: int, max_bytes: int) -> Piece:
        return read_text(
            self.store, start, self.stop, max_bytes, strip=self.strip, final=self.final
        )

    def with_text(self, header: Header, text: str, dropped: int) -> Event:
        """Return the event with the text of its range."""
        return self._event(header, text, self.start, self.skipped, dropped)

    def for_slow_client(self, header: Header) -> Event:
        return self._event(header, "", self.end, self.skipped + self.end - self.start, 0)

    def _event(
        self, header: Header, text: str, start: int, skipped: int, dropped: int
    ) -> OutputEvent:
        return OutputEvent(
            **header._asdict(),
            stream=self.stream,
            text=text,
            start=start,
            end=self.end,
            dropped=dropped,
            skipped=skipped,
        )


class Rows(NamedTuple):
    """All rows of one version of a screen."""

    version: int
    lines: list[str]


class ScreenEntry:
    """A change of a screen.

    `screens` maps each shell to all rows of its screen, as they were after the last change.

    If the journal is sent again, only the event of a screen's last change has rows. This event has
    all rows of the screen.
    """

    method = "shell/screen"
    weight = 1

    def __init__(
        self, shell: Shell, facts: Mapping[str, Any], screens: WeakKeyDictionary[Shell, Rows]
    ) -> None:
        self.bash_id = shell.id
        self.session = shell.session
        self._shell = ref(shell)
        self._facts = facts
        self._screens = screens

    def event(self, header: Header) -> Event:
        shell = self._shell()
        rows = None if shell is None else self._screens.get(shell)
        if rows is None or rows.version != self._facts["version"]:
            return self.with_changes(header, [], [])
        return self.with_changes(header, rows.lines, list(range(len(rows.lines))))

    def with_changes(self, header: Header, lines: list[str], changed: list[int]) -> Event:
        """Return the event with the rows that have changed."""
        return ScreenEvent(**header._asdict(), **self._facts, lines=lines, changed=changed)

    def for_slow_client(self, header: Header) -> Event:
        # A slow client also gets the rows, because later events contain only the changes of these
        # rows. This costs little, because at most one stored screen per shell is sent.
        return self.event(header)
