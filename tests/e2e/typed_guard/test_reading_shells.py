"""The guard judges a line only if a shell reads it, wherever that shell is."""

from __future__ import annotations

from pathlib import Path

import pytest

from guarded_typing import BASH, DASH, assert_taken_by_cat, at_prompt
from support import Json, RawDaemon, wait_for
from typing_session import Session


@pytest.mark.parametrize(
    ("command", "first"),
    [
        (f"sleep 300 & exec {BASH}", ""),
        (f"exec > >(cat); exec {BASH}", ""),
        (BASH, "exec 3> >(cat)\n"),
        (BASH, "coproc cat\n"),
        (BASH, "set +m; sleep 300 &\n"),
    ],
)
def test_shell_with_background_jobs_is_guarded(
    guarded: RawDaemon, command: str, first: str
) -> None:
    typing = Session(guarded, command.replace("PS1='", "env PS1='") if not first else command)
    typing.until("ready> ")
    if first:
        typing.write(first)
        typing.until("ready> ")
    assert typing.refused("forbidden\n")["code"] == 1002


@pytest.mark.parametrize(
    "command", ["bash", "cat | bash", "timeout 300 bash; true", "setsid -w bash; true"]
)
def test_shell_on_a_pipe_is_guarded_too(guarded: RawDaemon, command: str) -> None:
    typing = Session(guarded, command, tty=False, open_stdin=True)
    if command != "cat | bash":
        # Wait until this shell reads input: before that, another shell may be about to start it.
        typing.write("echo ready; sleep 300 &\n")
        typing.until("ready\n")
    for line in ("forbidden\n", "forbidden;\x17\n", "forbidden #" + "\x7f" * 11 + "\n"):
        assert typing.refused(line)["code"] == 1002
    typing.write("echo fine\n")
    typing.until("fine\n")


def test_shell_in_other_session_is_guarded(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, f"env {DASH.replace('dash', 'setsid -w dash')}")
    assert typing.refused("forbidden\n")["code"] == 1002


@pytest.mark.parametrize("params", [{"tty": True}, {"tty": False, "open_stdin": True}])
@pytest.mark.parametrize("command", ["(bash --norc <&0 &)", "setsid -f bash --norc <&0"])
def test_shell_whose_parent_has_ended_is_guarded(
    guarded: RawDaemon, command: str, params: Json
) -> None:
    typing = Session(guarded, f"{command}; exec sleep 300", **params)
    prompt = wait_for_prompt(typing)
    assert (prompt["certainty"], prompt["program"]) == ("proved", "bash")
    assert typing.refused("forbidden\n")["code"] == 1002


@pytest.mark.parametrize("params", [{"tty": True}, {"tty": False, "open_stdin": True}])
def test_line_is_judged_in_the_directory_of_each_shell_that_may_read_it(
    guarded: RawDaemon, params: Json
) -> None:
    # No line can do harm here.
    command = 'rm() { :; }; PATH=/nonexistent; x=$(cd / && read -r line && eval "$line"); true'
    typing = Session(guarded, command, **params)
    assert wait_for_prompt(typing)["program"] == "bash"
    assert typing.refused("rm -rf *\n")["code"] == 1002


def wait_for_prompt(typing: Session) -> Json:
    wait = {"bash_id": typing.bash_id, "wait": 20_000, "until": "prompt"}
    prompt: Json = typing.daemon.call("bash_output", wait)["prompt"]
    return prompt


RELAY = """python3 -c 'import pty; pty.spawn(["bash", "--norc", "-i"])'; true"""


def test_shell_behind_a_program_that_passes_the_terminal_on_is_guarded(
    guarded: RawDaemon, tmp_path: Path
) -> None:
    typing = Session(guarded, RELAY)
    assert wait_for_prompt(typing)["program"] == "bash"
    assert typing.refused("forbidden\n")["code"] == 1002
    # Its child reads now.
    typing.write(f"touch {tmp_path}/begun; cat\n")
    wait_for((tmp_path / "begun").exists, "the command")
    assert_taken_by_cat(guarded, typing)


@pytest.mark.parametrize(
    "line",
    [
        # The words of the kernel's editor are shorter than those of readline.
        "forb''xx\x17idden\n",
        # It erases a byte with each key.
        "forbidden\u00e9\x7f\x7f\n",
        # It drops the end of a long line.
        "forbidden".rjust(4_095) + "foo\n",
    ],
)
def test_line_that_an_inner_terminal_edits_is_judged(guarded: RawDaemon, line: str) -> None:
    typing = Session(guarded, """python3 -c 'import pty; pty.spawn(["dash"])'; true""")
    assert wait_for_prompt(typing)["program"] == "dash"
    assert typing.refused(line)["code"] == 1002


def test_other_programs_on_a_terminal_get_any_line(guarded: RawDaemon, typing: Session) -> None:
    typing.write("cat\n")
    typing.until("cat\r\n")
    assert_taken_by_cat(guarded, typing)


@pytest.mark.parametrize("command", ["cat; true", "timeout 300 cat; true", "setsid -w cat; true"])
def test_other_programs_on_a_pipe_get_any_line(guarded: RawDaemon, command: str) -> None:
    assert_taken_by_cat(guarded, Session(guarded, command, tty=False, open_stdin=True))
