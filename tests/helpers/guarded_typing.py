"""Texts and shells for the tests in which the guard judges typed text."""

from __future__ import annotations

from support import Json, RawDaemon, wait_for
from typing_session import Session

RULES = """
[[block]]
name = "no"
program = "forbidden"
reason = "a test forbids it"
"""

BASH = "PS1='ready> ' PS2='more> ' bash --norc --noprofile -i"
# Dash leaves line editing to the terminal.
DASH = "PS1='ready> ' dash -i"
# After these keys, the terminal's own line editing leaves "forb" and a backslash. Readline would
# erase more.
CONTINUED = "forb\\.x\x17\x7f\n"


def at_prompt(daemon: RawDaemon, command: str) -> Session:
    typing = Session(daemon, command)
    typing.until("ready> ")
    return typing


def text(*texts: str) -> list[Json]:
    return [{"text": each} for each in texts]


def keys(*names: str) -> Json:
    return {"keys": list(names)}


def assert_refused(typing: Session, writes: list[Json]) -> None:
    """Check that the guard refuses the last write and no earlier write."""
    for write in writes[:-1]:
        typing.write(**write)
    error = typing.refused(**writes[-1])
    assert (error["code"], error["data"]["kind"]) == (1002, "blocked"), error


def assert_taken_by_cat(daemon: RawDaemon, typing: Session) -> None:
    def is_written() -> bool:
        # Until cat runs, a shell reads the input, and the guard refuses this line.
        params = {"bash_id": typing.bash_id, "text": "forbidden\n"}
        return "error" not in daemon.answer(daemon.request("write_stdin", params))

    wait_for(is_written, "cat as the reader")
    typing.until("forbidden")
