"""What the tests of the typed guard type, and into which shells."""

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
# Dash leaves the editing of a line to the terminal.
DASH = "PS1='ready> ' dash -i"
# The terminal erases less than readline does, and leaves "forb" and a backslash.
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
    """Check that the last write is refused, and that no other write is."""
    for write in writes[:-1]:
        typing.write(**write)
    error = typing.refused(**writes[-1])
    assert (error["code"], error["data"]["kind"]) == (1002, "blocked"), error


def assert_taken_by_cat(daemon: RawDaemon, typing: Session) -> None:
    def is_written() -> bool:
        # Until cat runs, a shell reads.
        params = {"bash_id": typing.bash_id, "text": "forbidden\n"}
        return "error" not in daemon.answer(daemon.request("write_stdin", params))

    wait_for(is_written, "cat as the reader")
    typing.until("forbidden")
