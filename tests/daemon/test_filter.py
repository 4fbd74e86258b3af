"""Lines that match, and patterns that are refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.output.filter import MAX_PATTERN_CHARACTERS, SLICE_CHARACTERS, LineFilter
from shelld_protocol.errors import RpcError


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("b", "abc\nxyz\nb", "abc\nb"),
        ("^b", "abc\nbcd\n", "bcd\n"),
        ("c$", "abc\nabcd\nabc\r\n", "abc\nabc\r\n"),
        ("", "a\n\nb\n", "a\n\nb\n"),
        ("^$", "a\n\nb\n", "\n"),
        ("x", "a\u2028x\nb\u0085\n", "a\u2028x\n"),
        ("(?i:ERROR)|warn", "error\nWarn\nwarn\n", "error\nwarn\n"),
        (r"\p{Greek}", "α\nb\n", "α\n"),
        ("a.c", "abc", "abc"),
    ],
)
def test_only_matching_lines_are_returned(pattern: str, text: str, expected: str) -> None:
    assert LineFilter(pattern).lines(text) == expected


@given(st.text("ab\n\r", max_size=400), st.sampled_from(["a", "^$", "b$", "^a*$"]))
def test_slices_give_together_what_one_text_gives(text: str, pattern: str) -> None:
    text *= 50
    line_filter = LineFilter(pattern)
    assert "".join(line_filter.slices(text)) == line_filter.lines(text)
    longest = max(map(len, text.split("\n")))
    assert all(len(part) <= SLICE_CHARACTERS + longest + 1 for part in LineFilter("").slices(text))


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "(?=x)", "(a)\\1", "a{2000}", "\\", "*"])
def test_what_the_engine_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(RpcError, match=r"^Invalid filter regex: ."):
        LineFilter(pattern)


def test_an_over_long_pattern_is_refused() -> None:
    with pytest.raises(RpcError, match="Invalid filter regex"):
        LineFilter("a" * (MAX_PATTERN_CHARACTERS + 1))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(x+x+)+y", r"^(\w+\s?)*$", "(.*)*="])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    began = time.monotonic()
    LineFilter(pattern).lines(("a" * 5000 + "!\n") * 20)
    # A backtracking engine would need longer than the universe has.
    assert time.monotonic() - began < 20
