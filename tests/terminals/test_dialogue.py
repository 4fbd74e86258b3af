"""The parts of a program's output to which a terminal reacts, and the terminal's answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.terminals.dialogue import MAX_ANSWERS, Dialogue, pasted


def fed(*outputs: bytes) -> tuple[bytes, Dialogue]:
    """Return the answers, with "?" for the position of the cursor."""
    dialogue = Dialogue()
    answers = [answer for output in outputs for answer, _ in dialogue.feed(memoryview(output))]
    return b"".join(b"?" if answer is None else answer for answer in answers), dialogue


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (b"\x1b[c", b"\x1b[?1;2c"),
        (b"\x1b[0c", b"\x1b[?1;2c"),
        (b"\x1b[>c", b"\x1b[>0;0;0c"),
        (b"\x1b[>0c", b"\x1b[>0;0;0c"),
        (b"text\x1b[5n\x1b[5n", b"\x1b[0n\x1b[0n"),
        # The terminal does not answer requests for the window's size, its title, a setting or the
        # clipboard. It also ignores an answer that a program writes.
        (b"\x1b[18t", b""),
        (b"\x1b[21t", b""),
        (b"\x1bP$qm\x1b\\", b""),
        (b"\x1b]52;c;?\x07", b""),
        (b"\x1b[?1;2c", b""),
        (b"\x1b[5n\x1b[6n", b"\x1b[0n?"),
        (b"plain [c", b""),
    ],
)
def test_only_fixed_questions_are_answered(output: bytes, answer: bytes) -> None:
    assert fed(output)[0] == answer


def test_question_offset_is_reported() -> None:
    dialogue = Dialogue()
    assert dialogue.feed(memoryview(b"ab\x1b[6ncd\x1b[5n\x1b[")) == [(None, 6), (b"\x1b[0n", 12)]
    assert dialogue.feed(memoryview(b"6nrest")) == [(None, 2)]


def test_answers_to_one_output_are_limited() -> None:
    assert fed(b"\x1b[5n" * 100_000)[0] == b"\x1b[0n" * MAX_ANSWERS


@pytest.mark.parametrize(
    ("output", "cursor", "paste"),
    [
        (b"\x1b[?1h", True, False),
        (b"\x1b[?1h\x1b[?1l", False, False),
        (b"\x1b[?2004h", False, True),
        (b"\x1b[?1;2004h", True, True),
        (b"\x1b[?1049;12h", False, False),
        (b"\x1b[?1;2004h\x1bc", False, False),
        (b"\x1b[?1;2004h\x1b[!p", False, False),
        (b"\x1b[1h", False, False),
    ],
)
def test_modes_are_followed(output: bytes, cursor: bool, paste: bool) -> None:
    dialogue = fed(output)[1]
    assert (dialogue.application_cursor, dialogue.bracketed_paste) == (cursor, paste)


pieces = st.sampled_from(
    [
        b"\x1b[c",
        b"\x1b[>0c",
        b"\x1b[5n",
        b"\x1b[?1h",
        b"\x1b[?2004;1l",
        b"\x1bc",
        b"\x1b",
        b"x[",
        b"1",
    ]
)


@given(st.lists(pieces, max_size=20).map(b"".join), st.data())
def test_split_output_gives_the_same_result(output: bytes, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(output)), max_size=8).map(sorted))
    parts = [
        output[start:end] for start, end in zip([0, *places], [*places, len(output)], strict=True)
    ]
    answer, dialogue = fed(*parts)
    whole, expected = fed(output)
    assert answer == whole
    assert vars(dialogue) == vars(expected)


@given(
    st.lists(st.sampled_from([b"\x1b[201~", b"\x1b[20", b"1~", b"~", b"a"]), max_size=30).map(
        b"".join
    )
)
def test_paste_cannot_close_its_brackets(data: bytes) -> None:
    inside = pasted(data).removeprefix(b"\x1b[200~").removesuffix(b"\x1b[201~")
    assert b"\x1b[201~" not in inside
    if b"\x1b[201~" not in data:
        assert inside == data
