"""The guard judges long lines and many lines, and refuses input that exceeds its limits."""

from __future__ import annotations

import base64
from contextlib import AbstractContextManager

import pytest

from support import Json, RawDaemon, altered_daemon, raw_daemon
from typing_session import Session


def test_long_line_in_pieces_is_judged_as_a_whole(guarded: RawDaemon) -> None:
    typing = Session(guarded, "bash", tty=False, open_stdin=True)
    for _ in range(3):
        typing.write("x" * 10_000)
    assert typing.refused("; forbidden\n")["code"] == 1002


@pytest.mark.parametrize(
    "place", ["forbidden #", "ls; forbidden; x=", "x" * 100_000 + "; forbidden "]
)
def test_beginning_of_a_long_line_is_judged(guarded: RawDaemon, place: str) -> None:
    typing = Session(guarded, "bash", tty=False, open_stdin=True)
    assert typing.refused(place + "x" * 100_000 + "\n")["code"] == 1002
    typing.write("echo " + "x" * 100_000)
    typing.write("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "\n" * 25_000,
        "echo\n" * 3_000,
        "x='\n" + "y\n" * 250,
        ("a" * 60 + "\x01") * 250 + "\n",
    ],
)
def test_end_of_a_long_text_is_judged_too(rules: str, content: str) -> None:
    with soon_tired(rules) as daemon:
        typing = Session(daemon, "bash", tty=False, open_stdin=True)
        assert typing.refused(content + "forbidden\n")["code"] == 1002


@pytest.mark.slow
@pytest.mark.parametrize("quoted", ["", "x='\n" + "yyyyyyyyy\n" * 150 + "'\n"])
def test_line_after_many_others_continues_a_command(rules: str, quoted: str) -> None:
    with soon_tired(rules) as daemon:
        typing = Session(daemon, "bash", tty=False, open_stdin=True)
        assert typing.refused("echo\n" * 600 + quoted + "forb\\\nidden\n")["code"] == 1002


def soon_tired(rules: str) -> AbstractContextManager[RawDaemon]:
    """Return a daemon with a twentieth of the usual limits, because a test needs seconds to reach
    the usual limits.
    """
    module = "shelld.methods.typed_lines"
    limits = {f"{module}._MAX_COST": 100_000, f"{module}._MAX_COST_ALONE": 840_000}
    return raw_daemon("--guard-rules", rules, command=altered_daemon(limits))


@pytest.mark.slow
def test_oversized_input_is_refused_unjudged(guarded: RawDaemon) -> None:
    typing = Session(guarded, "stty raw -echo; echo ready; sleep 300")
    typing.until("ready")
    too_much: list[Json] = [
        {"text": "\n" * 5_000_000},
        {"keys": ["a"] * 2_000_000},
        {"base64": base64.b64encode(b"\n" * 5_000_000).decode()},
    ]
    for write in too_much:
        error = typing.refused(**write)
        assert (error["code"], error["data"]["limit"]) == (1005, "stdin")
