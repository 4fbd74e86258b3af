"""The guard judges the lines that `stdin` types into a terminal."""

from __future__ import annotations

import pytest

from guarded_typing import BASH, CONTINUED, DASH, assert_refused, assert_taken_by_cat, text
from support import RawDaemon
from typing_session import Session


@pytest.mark.parametrize(
    ("command", "stdin"),
    [
        (BASH, "forbidden\n"),
        (BASH, "forbiddenx\x7f\n"),
        (BASH, "idden\x01forb\n"),
        (BASH, "true \x03forbidden\n"),
        (BASH, "echo ) <<X\nforbidden\n"),
        (DASH, "forbidd\x16\x7f\x7fen\n"),
        (DASH, "forbiddenx\x7f\x04\x04"),
        (DASH, CONTINUED + "idden\n"),
        # The DEL makes the terminal erase C-f, but the terminal passes C-a on to bash, which moves
        # the cursor.
        (BASH, "idden\x06\x7f\x01forb\n"),
        ("export x=forbidden; bash --norc --noediting", "$y\x7fx\n"),
        ('read -r line; eval "$line"', "forbiddenx\x7f\n"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_keys_in_stdin_do_not_hide_a_forbidden_line(
    guarded: RawDaemon, command: str, stdin: str, dry_run: bool
) -> None:
    start = {"command": command, "tty": True, "stdin": stdin, "run_in_background": True}
    error = guarded.fail("bash", {**start, "dry_run": dry_run})
    assert (error["code"], error["data"]["kind"]) == (1002, "blocked"), error


@pytest.mark.parametrize(
    ("stdin", "write"),
    [
        ("forb", "idden\n"),
        ("forbx\x7f", "idden\n"),
        ("forb\\\n", "idden\n"),
        (CONTINUED, "idden\n"),
        ("for x in forbidden; do\n", "$x now\n"),
    ],
)
def test_write_continues_a_line_of_stdin(guarded: RawDaemon, stdin: str, write: str) -> None:
    assert_refused(Session(guarded, DASH, stdin=stdin), text(write))


@pytest.mark.parametrize(
    ("command", "stdin", "write"),
    [
        (BASH, "echo ", "forbidden\n"),
        (BASH, "echo lx\x7fs\n", "ls\n"),
        (DASH, "forb\\\n\x03", "idden\n"),
        ("cat", "forbiddenx\x7f\n", "forbidden\n"),
        ("read -r line", "forbiddenx\x7f\n", None),
    ],
)
def test_harmless_stdin_is_typed(
    guarded: RawDaemon, command: str, stdin: str, write: str | None
) -> None:
    typing = Session(guarded, command, stdin=stdin)
    if command == "cat":
        assert_taken_by_cat(guarded, typing)
    elif write is not None:
        typing.until("ready> ")
        typing.write(write)
