"""The guard judges lines in the form that they have after the terminal's own line editing."""

from __future__ import annotations

import base64

import pytest

from guarded_typing import CONTINUED, DASH, assert_refused, at_prompt, keys, text
from support import Json, RawDaemon
from typing_session import Session


@pytest.mark.parametrize(
    "writes",
    [
        text("forbidden \x16\x15\n"),
        text("forbidden \x16\x03\n"),
        text("forbiddem\x7fn\n"),
        text("echo-\x17\x17forbidden\n"),
        [*text("forbidden"), keys("C-d", "C-d")],
    ],
)
def test_line_that_the_terminal_edits_is_judged(guarded: RawDaemon, writes: list[Json]) -> None:
    assert_refused(at_prompt(guarded, DASH), writes)


@pytest.mark.parametrize(
    ("mode", "writes"),
    [
        ("noflsh", [*text("forbidden"), keys("C-\\"), keys("Enter")]),
        ("noflsh", [*text("forbidden"), keys("C-c"), keys("Enter")]),
        ("erase Q", text("echoQQQQforbidden\n")),
        ("werase Q", text("echo Qforbidden\n")),
        ("kill Q", text("echoQforbidden\n")),
        ("eof ^A", [*text("forbidden"), keys("C-a"), keys("C-a")]),
        ("iuclc", text("FORBIDDEN\n")),
        ("igncr", text("forb\ridden\n")),
        ("start x", text("forbxidden\n")),
        ("stop x start y", text("forbxyidden\n")),
        ("rprnt x", text("forbxidden\n")),
        ("noflsh intr x", text("forbxidden\n")),
        (
            "istrip -iutf8",
            [{"base64": base64.b64encode(bytes(c | 128 for c in b"forbidden") + b"\n").decode()}],
        ),
    ],
)
def test_settings_of_the_terminal_do_not_hide_a_line(
    guarded: RawDaemon, mode: str, writes: list[Json]
) -> None:
    assert_refused(at_prompt(guarded, f"stty {mode}; {DASH}"), writes)


@pytest.mark.parametrize("writes", [text(CONTINUED, "idden\n"), text(CONTINUED + "idden\n")])
def test_line_in_two_writes_is_judged_as_one_edited_line(
    guarded: RawDaemon, writes: list[Json]
) -> None:
    assert_refused(at_prompt(guarded, DASH), writes)


def test_edited_line_gives_a_later_line_its_meaning(guarded: RawDaemon) -> None:
    assert_refused(at_prompt(guarded, DASH), text("x=forbidden;x\x17\n$x\n"))


def test_interrupt_drops_lines_that_the_terminal_has_edited(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, DASH)
    for write in text(CONTINUED, "\x03idden\n"):
        typing.write(**write)


@pytest.mark.parametrize("params", [{"tty": True}, {"tty": False, "open_stdin": True}])
@pytest.mark.parametrize("command", ["bash --norc --noediting", "exec sh"])
@pytest.mark.parametrize("first", ["written", "given"])
def test_eof_passing_forbidden_line_is_refused(
    guarded: RawDaemon, command: str, params: Json, first: str
) -> None:
    if first == "given":
        typing = Session(guarded, command, **params, stdin="forb")
    else:
        typing = Session(guarded, command, **params)
        typing.write("forb")
    assert typing.refused("idden", eof=True)["code"] == 1002
    if params["tty"]:
        assert typing.refused("idden", keys=["C-d"])["code"] == 1002
