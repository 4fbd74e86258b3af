"""The value of `$_` is the last argument of the previous command. No dangerous command runs."""

from __future__ import annotations

import os
import subprocess

import pytest

from guard_lines import ENV
from shelld.guard import StartState
from shelld.guard.judgement import judge

LINES = r"""
true a b
true a; { :; }
f() { true in; }; f out
f() { :; }; true a; f
true a; true b | cat
true a; (true b)
true a; for i in 1 2; do true $i; done
true a; true $_ b
true a; true $_
true a; eval "true b"
true a; x=1 true b
true a >/dev/null
true a; command true b c
set -- 1 2; true "$@"
true a; cd /
true ""
true a; $unset
true a; if true; then true b; fi
"""


@pytest.mark.parametrize("line", LINES.split("\n")[1:-1])
def test_last_argument_is_that_of_bash(line: str) -> None:
    script = f'{line}\necho "[$_]"'
    shown = subprocess.run(
        ["/bin/bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},
        check=True,
        text=True,
    ).stdout
    trace = judge(script, StartState("/work", ENV), traces=True).trace
    assert trace[-1] == f"echo {shown.strip()}"


@pytest.mark.parametrize(
    "command",
    ["ls /; rm -rf $_", 'ls /etc && rm -rf "$_"', "true a /; chmod -R 777 $_", "cd /; rm -rf $_*"],
)
@pytest.mark.parametrize("before", ["/usr/bin/env", "/tmp/x"])
def test_dangerous_last_argument_is_found(command: str, before: str) -> None:
    assert judge(command, StartState("/work", {**ENV, "_": before})).verdict == "block"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf $_",
        "ls /tmp/x; bash -c 'rm -rf $_'",
        "ls /tmp/x; x=1; rm -rf $_",
        "ls /tmp/x; export x=/; rm -rf $_",
        "ls /tmp/x; unset x; rm -rf $_",
    ],
)
def test_last_argument_may_be_unknown(command: str) -> None:
    start = StartState("/work", {**ENV, "_": "/tmp/x"})
    assert judge(command, start).verdict == "unresolved"


@pytest.mark.parametrize(
    "command", ["mkdir -p /tmp/x; rm -rf $_", "mkdir build && cd $_; rm -rf *"]
)
def test_harmless_last_argument_is_allowed(command: str) -> None:
    assert judge(command, StartState("/work", {**ENV, "_": "/"})).verdict == "allow"
