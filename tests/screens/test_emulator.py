"""The text that a terminal shows when output arrives in pieces."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.screens.emulator import MAX_TITLE, Emulator


class Shown(NamedTuple):
    rows: int
    cols: int
    lines: list[str]
    cursor: tuple[int, int, bool]
    alternate: bool
    title: str
    version: int
    changed: list[int]


def view(emulator: Emulator, since: int | None = None, scrollback: int = 0) -> Shown:
    return Shown(*emulator.view(since, scrollback))  # type: ignore[arg-type]


def shown(*outputs: bytes, rows: int = 3, cols: int = 10, scrollback: int = 0) -> Emulator:
    emulator = Emulator(rows, cols, scrollback)
    for output in outputs:
        emulator.feed(output)
    return emulator


@pytest.mark.parametrize(
    ("output", "lines", "cursor"),
    [
        (b"", ["", "", ""], (0, 0, True)),
        (b"one\r\ntwo", ["one", "two", ""], (1, 3, True)),
        (b"1\r\n2\r\n3\r\n4\r\n5", ["3", "4", "5"], (2, 1, True)),
        (b"\x1b[2;3Hx\x1b[?25l", ["", "  x", ""], (1, 3, False)),
        (b"0123456789", ["0123456789", "", ""], (0, 9, True)),
        (b"0123456789a", ["0123456789", "a", ""], (1, 1, True)),
        ("日本x".encode(), ["日本x", "", ""], (0, 5, True)),
        (b"\xff\xfe", ["\ufffd\ufffd", "", ""], (0, 2, True)),
        (b"one\x1b[2J\x1b[Htwo", ["two", "", ""], (0, 3, True)),
        (b"\x1b]52;c;?\x07\x1bP$qm\x1b\\text", ["text", "", ""], (0, 4, True)),
        (b"ab\x7fc", ["abc", "", ""], (0, 3, True)),
    ],
)
def test_screen_is_what_a_person_would_see(
    output: bytes, lines: list[str], cursor: tuple[int, int, bool]
) -> None:
    found = view(shown(output))
    assert (found.lines, tuple(found.cursor)) == (lines, cursor)
    assert (found.rows, found.cols, found.changed) == (3, 10, [0, 1, 2])


@pytest.mark.parametrize(
    ("output", "line", "col"),
    [
        ("e\u0301abc\r\x1b[2Cx", "e\u0301axc", 3),
        ("\u26a0\ufe0f ok\x1b[1;9H|", "\u26a0\ufe0f ok    |", 9),
        ("a\u200bbc", "a\u200bbc", 3),
        ("\u65e5\u0301x", "\u65e5\u0301x", 3),
        ("\u1112\u1161\u11abx", "\u1112\u1161\u11abx", 3),
        ("e\u0301" * 3 + "a\u0301", "e\u0301" * 3 + "a\u0301", 4),
        ("e" + "\u0301" * 40 + "x", "e" + "\u0301" * 16 + "x", 2),
        ("a\xadb", "a\xadb", 3),
        # These marks join no character.
        ("\u0301x", "x", 1),
        ("\x1b[2C\u0301x", "  x", 3),
        ("\x1b7ab\x1b8\u0301x", "xb", 1),
        ("\x1b(B\u200bx", "x", 1),
        ("\x1b]2;e\u0301\x07x", "x", 1),
        # The emulator could use these characters as stand-ins for other characters.
        ("\U00100000e\u0301\U00100001", "\U00100000e\u0301\U00100001", 3),
    ],
)
def test_characters_without_a_width_take_no_column(output: str, line: str, col: int) -> None:
    found = view(shown(output.encode()))
    assert (found.lines[0], found.cursor[1]) == (line, col)


def test_mark_does_not_wrap_into_the_next_line() -> None:
    found = view(shown("012345678e\u0301|".encode()))
    assert (found.lines[:2], found.cursor[:2]) == (["012345678e\u0301", "|"], (1, 1))


def test_marks_move_with_their_characters() -> None:
    emulator = shown("one e\u0301 two o\u0308".encode(), scrollback=3)
    emulator.resize(3, 5)
    lines = view(emulator, scrollback=3).lines
    assert [line for line in lines if line] == ["one e\u0301", " two", "o\u0308"]


@pytest.mark.parametrize(
    ("output", "title"),
    [
        (b"\x1b]0;both\x07", "both"),
        (b"\x1b]2;window\x1b\\", "window"),
        (b"\x1b]1;icon\x07", ""),
        (b"\x1b]2;one\x07\x1b]2;\x07", ""),
        (b"\x1b]2;a\nb\x07", "ab"),
        (b"\x1b]2;" + b"x" * 3_000 + b"\x07", "x" * MAX_TITLE),
        (b"\x1b]2;one\x07\x1bc", ""),
    ],
)
def test_title_is_the_last_one(output: bytes, title: str) -> None:
    assert view(shown(output)).title == title


@pytest.mark.parametrize(
    ("output", "alternate", "first"),
    [
        (b"one\x1b[?1049htwo", True, "   two"),
        (b"one\x1b[?1049h\x1b[Htwo\x1b[?1049l", False, "one"),
        (b"one\x1b[?1047h\x1b[Htwo", True, "two"),
        (b"\x1b[?25;1049h", True, ""),
        (b"\x1b[?1049h\x1bc", False, ""),
    ],
)
def test_alternate_screen_is_followed(output: bytes, alternate: bool, first: str) -> None:
    found = view(shown(output))
    assert (found.alternate, found.lines[0]) == (alternate, first)


def test_cursor_is_known_at_each_stop() -> None:
    emulator = Emulator(3, 10, 0)
    assert emulator.feed("ab\u65e5\r\ncd\x1b[3;9H".encode(), [0, 2, 5, 9, 15]) == [
        *((0, 0), (0, 2), (0, 4), (1, 2), (2, 8))
    ]
    assert emulator.feed(b"x") == []
    assert tuple(emulator.cursor) == (2, 9, True)
    assert emulator.feed("\re\u0301\x1b[6n".encode(), [8]) == [(2, 1)]


def test_titles_without_an_end_take_little_time() -> None:
    # Searching the rest of the output for each title would take many minutes.
    emulator = Emulator(3, 20, 0)
    emulator.feed("\x9d0;".encode() * 1_000_000)
    assert emulator.title == ""


def test_only_changed_rows_are_returned() -> None:
    emulator = shown(b"one\r\ntwo\r\n")
    before = view(emulator)
    assert view(emulator, before.version)[2:] == ([], *before[3:7], [])
    emulator.feed(b"\x1b[1;1HONE\x1b[3;1Hthree")
    after = view(emulator, before.version)
    assert (after.lines, after.changed) == (["ONE", "three"], [0, 2])
    assert after.version == before.version + 1


@pytest.mark.parametrize(
    "output", [b"\x1b[2;2H", b"\x1b]2;title\x07", b"\x1b[?25l", b"\x1b[?1049h"]
)
def test_version_counts_every_visible_change(output: bytes) -> None:
    emulator = shown(b"one")
    before = emulator.version
    emulator.feed(output)
    assert emulator.version == before + 1
    emulator.feed(b"\x1b[0m")
    assert emulator.version == before + 1


def test_scrollback_lines_can_be_read() -> None:
    emulator = shown(b"".join(b"%d\r\n" % number for number in range(8)), scrollback=4)
    assert view(emulator).lines == ["6", "7", ""]
    assert view(emulator, scrollback=2).lines == ["4", "5", "6", "7", ""]
    assert view(emulator, scrollback=100).lines == ["2", "3", "4", "5", "6", "7", ""]
    assert view(emulator, emulator.version, scrollback=1).lines == ["5"]


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (1_000, 1_000), (3, 11)])
def test_new_size_changes_the_screen(size: tuple[int, int]) -> None:
    emulator = shown(b"one\r\ntwo")
    before = emulator.version
    emulator.resize(*size)
    found = view(emulator, before)
    assert (found.rows, found.cols) == size
    assert found.version > before
    assert len(view(emulator).lines) == size[0]
    assert found.cursor[0] < size[0]
    assert found.cursor[1] < size[1]


pieces = st.sampled_from(
    [
        b"text",
        b"\r\n",
        "é日".encode(),
        b"\x1b[2;3H",
        b"\x1b[?1049h",
        b"\x1b[?1049l",
        b"\x1b]2;title\x07",
        b"\x1b]0;other\x1b\\",
        b"\x1b[31m",
        b"\x1bc",
        b"\x1b[?25l",
        b"\x1b",
        b"\xe6\x97",
        b"[",
        b"]2;",
        b"m",
        b"\x7f",
        "\u0301".encode(),
        "e\u0301".encode(),
        "\U00100000".encode(),
    ]
)


@pytest.mark.slow
@given(st.lists(pieces, max_size=20).map(b"".join), st.data())
def test_split_output_gives_the_same_result(output: bytes, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(output)), max_size=6).map(sorted))
    parts = [
        output[start:end] for start, end in zip([0, *places], [*places, len(output)], strict=True)
    ]
    whole, split = view(shown(output)), view(shown(*parts))
    assert split[:6] == whole[:6]


@pytest.mark.parametrize("output", ["\u65e5", "\x1b[?7l\u65e5", "\x1b[?7l\u65e5\u672cx"])
def test_wide_character_fits_into_one_column(output: str) -> None:
    found = view(shown(output.encode(), rows=1, cols=1))
    assert (found.rows, found.cols) == (1, 1)
    assert found.lines[0] != ""
    assert tuple(found.cursor) == (0, 0, True)


def test_one_column_is_shown_as_two() -> None:
    one, two = (shown("one\r\n\u65e5\u672c".encode(), rows=9) for _ in range(2))
    one.resize(9, 1)
    two.resize(9, 2)
    assert view(one).lines == view(two).lines
    assert (view(one).cols, view(two).cols) == (1, 2)
    one.resize(9, 10)
    assert "\u65e5\u672c" in view(one).lines


narrow = st.sampled_from(
    [
        *("\u65e5", "x", "e\u0301", "\u200b", "\x1b[?7l", "\x1b[?7h", "\r\n", "\b", "\t"),
        *(
            "\x1b[K",
            "\x1b[1K",
            "\x1b[P",
            "\x1b[@",
            "\x1b[2X",
            "\x1b[2b",
            "\x1b[1;2H",
            "\x1b[?1049h",
        ),
        *((rows, cols) for rows in (1, 2) for cols in (1, 2, 3)),
    ]
)


@given(st.integers(1, 2), st.integers(1, 3), st.lists(narrow, max_size=12))
def test_narrow_screen_shows_any_output(
    rows: int, cols: int, steps: list[str | tuple[int, int]]
) -> None:
    emulator = Emulator(rows, cols, 0)
    for step in steps:
        if isinstance(step, str):
            emulator.feed(step.encode())
        else:
            rows, cols = step
            emulator.resize(rows, cols)
        found = view(emulator)
        assert (found.rows, found.cols, len(found.lines)) == (rows, cols, rows)
        assert found.cursor[1] < cols


@given(st.binary(max_size=300), st.integers(1, 6), st.integers(1, 12))
def test_any_output_can_be_shown(output: bytes, rows: int, cols: int) -> None:
    found = view(shown(output, rows=rows, cols=cols))
    assert len(found.lines) == rows
    assert 0 <= found.cursor[0] < rows
    assert 0 <= found.cursor[1] < cols
