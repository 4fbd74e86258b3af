"""The output that scrolls off a screen before anybody sees it."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelld.screens import emulator as emulators
from shelld.screens.emulator import Emulator
from shelld.screens.scrolling import unseen

LINES = b"".join(b"line %d\r\n" % number for number in range(2_000))
ACCENTS = "\u00e9 \u65e5 e\u0301 \u200b\r\n".encode() * 900


def test_all_but_the_last_lines_are_unseen() -> None:
    found = unseen(LINES, 12, 10)
    assert found is not None
    assert LINES[: found.start] == b"line 0\r\n"
    assert LINES[found.end :].split(b"\r\n")[1] == b"line 1966"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(LINES[:4_000], id="little"),
        pytest.param(LINES.replace(b"\r", b""), id="lines that begin anywhere"),
        pytest.param(LINES.replace(b"\n", b""), id="one line"),
        pytest.param(LINES.replace(b"line 99", b"\x1b[1m"), id="a sequence"),
        pytest.param(LINES.replace(b"line 99", b"\x0e"), id="another character set"),
        pytest.param(LINES.replace(b"line 99", "\u009b".encode()), id="a control character"),
    ],
)
def test_output_that_may_be_seen_is_shown(output: bytes) -> None:
    assert unseen(output, 24, 0) is None


def all_shown(*_: object) -> None:
    """This function replaces `unseen`, and finds no unseen output."""


Step: TypeAlias = str | bytes | tuple[int, int]


def screens(steps: list[Step], scrollback: int) -> list[tuple[object, ...]]:
    emulator = Emulator(6, 20, scrollback)
    found: list[tuple[object, ...]] = []
    for step in steps:
        if isinstance(step, tuple):
            emulator.resize(*step)
        else:
            emulator.feed(LONG[step] if isinstance(step, str) else step)
        rows, cols, lines, cursor, *rest = emulator.view(None, scrollback)
        found.append((rows, cols, lines, cursor, *rest[:2]))
    return found


LONG = {
    "lines": LINES,
    "lines and a part": LINES + b"end",
    "wide lines": ACCENTS,
    "lines from the middle of a character on": ACCENTS[1:],
    "lines with tabs": LINES.replace(b"1", b"\t\b"),
}
SHORT = (
    *(b"\x1b[2;4r", b"\x1b[r", b"\x1b[3r", b"\x1b[2;", b"\x1b[?6h", b"\x1b[?7l", b"\x1b[4h"),
    *(b"\x1b[H", b"\x1b[3;5H", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1bc", b"\x1b7", b"\x1b8"),
    *(b"\x1b]0;title", b"\x07", b"\x1b\\", b"\x1bP", b"\x1b_", b"\x1b(0", b"\x0e", b"\x1b"),
    *(b"wide line " * 9, b"\xe6\x97", b"\x1b[", b"2C", b"\x1b[5C", b"\x1b[1;31m", b"x"),
)
sizes = st.sampled_from([(6, 20), (9, 20), (3, 7), (6, 1)])
steps = st.lists(st.one_of(st.sampled_from([*LONG]), st.sampled_from(SHORT), sizes), max_size=8)


@settings(max_examples=100)
@given(steps, st.sampled_from([0, 0, 30]))
def test_screen_is_the_same_as_if_all_were_shown(steps: list[Step], scrollback: int) -> None:
    found = screens(steps, scrollback)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulators, "unseen", all_shown)
        assert found == screens(steps, scrollback)
