"""The guard judges a line only if a shell reads it, wherever that shell is."""

from __future__ import annotations

import resource

import pytest

from guarded_typing import BASH, DASH, at_prompt
from support import Json, RawDaemon, raw_daemon
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
        # Wait until the shell in `command` reads its input. Until then, the outer shell may not
        # have started it yet.
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
def test_line_is_refused_while_the_readers_cannot_be_seen(rules: str, params: Json) -> None:
    # The daemon writes about the shortage to stderr.
    with raw_daemon("--guard-rules", rules, stderr_is_silent=False) as daemon:
        typing = Session(daemon, "exec bash --norc", **params)
        # A shell reads the input, so the guard judges it.
        assert typing.refused("forbidden\n")["code"] == 1002
        limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        error = typing.refused("forbidden\n")
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, limits)
        assert (error["code"], error["data"]["limit"]) == (1005, "files")
        # The daemon has written no part of the refused line.
        typing.write("echo this\n")
        typing.until("this")
        assert "forbidden" not in typing.output
