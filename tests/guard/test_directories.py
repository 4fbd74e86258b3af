"""The guard follows the directory, PWD, OLDPWD and the stack. No dangerous command runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from guard_lines import ENV
from shelld.guard import StartState
from shelld.guard.judgement import judge

# Bash ignores a PWD that is not its directory.
WRONG = {**ENV, "PWD": "/work/wrong", "OLDPWD": "/work/before"}

# These scripts only change the directory. They start in a directory that contains a, a/b and c.
MOVES = r"""
:
cd a
cd a; cd b
cd a; cd ..
cd a; cd -
cd a; cd - ; cd -
cd a/../c
cd ./a
cd ""
cd a; cd ""
cd -P a; cd -- ../c
PWD=/x; cd a
cd a; PWD=/x; cd b
OLDPWD=/usr; cd -
cd a; OLDPWD=/x
(cd a)
cd a | cat
f() { cd a; cd b; }; f
HOME=/usr; cd
HOME=/usr cd
for d in a b; do cd $d; done
eval cd a
builtin cd a
CDPATH=/; cd usr
CDPATH=/; cd ./a
CDPATH=; cd a
CDPATH=/nonexistent:/; cd usr/bin
CDPATH=/; pushd usr
pushd a
pushd a; pushd b
pushd a; pushd ../c; popd
pushd a; pushd b; popd; popd
pushd a; popd; popd
popd
pushd
pushd a; pushd
pushd a; pushd; pushd
pushd a; pushd b; pushd +1
pushd a; pushd b; pushd -0
pushd a; pushd b; pushd +3
pushd a; pushd b; popd +1
pushd a; pushd b; popd +0
pushd a; pushd b; popd -0
pushd a; pushd b; popd +7
pushd a; pushd b; popd -n
pushd a; pushd b; popd -n +2
pushd -n /usr
pushd -n /usr; popd
pushd -n a; popd
pushd a; cd b
pushd a; cd b; popd
pushd a; cd b; pushd
pushd a; pushd -
pushd a; dirs -c
pushd a; dirs -c; popd
(pushd a)
"""
SHOWN = (
    *("$PWD", "$OLDPWD", "~+", "~-", "~0", "~1", "~+1", "~-0", "~-1", "~9", "$(pwd)"),
    *("$DIRSTACK", '"${DIRSTACK[0]}"'),
)


@pytest.mark.parametrize("moves", MOVES.split("\n")[1:-1])
def test_directories_are_those_of_bash(moves: str, tmp_path: Path) -> None:
    here = tmp_path.resolve()
    for each in ("a/b", "c"):
        (here / each).mkdir(parents=True)
    show = "; ".join(f"echo -- {each}" for each in SHOWN)
    env = {**WRONG, "PATH": os.defpath, "OLDPWD": "/usr"}
    shown = subprocess.run(
        ["/bin/bash", "-c", f"{{ {moves}\n}} >/dev/null 2>&1\n{show}"],
        stdout=subprocess.PIPE,
        cwd=here,
        env=env,
        check=True,
        text=True,
    ).stdout
    trace = judge(f"{moves}\n{show}", StartState(str(here), env), traces=True).trace
    found = [line.removeprefix("echo ") for line in trace if line.startswith("echo -- ")]
    assert found == shown.splitlines()


@pytest.mark.parametrize(
    ("cwd", "command"),
    [
        ("/work", 'cd /; rm -rf "$PWD"/*'),
        ("/work", 'cd / && rm -rf "$PWD"'),
        ("/work", "cd /etc && rm -rf $PWD"),
        ("/work", "cd /; chmod -R 777 $PWD"),
        ("/work", "cd /; find $PWD -delete"),
        ("/work", 'cd /; cd /tmp; rm -rf "$OLDPWD"/*'),
        ("/work", "cd /; rm -rf ~+"),
        ("/work", "cd /; cd /tmp; rm -rf ~-/*"),
        ("/work", "cd /tmp; cd /; cd -; rm -rf $OLDPWD"),
        ("/work", "(cd /; rm -rf $PWD)"),
        ("/work", "cd /; bash -c 'rm -rf \"$PWD\"/*'"),
        ("/work", "cd /; cd /tmp; bash -c 'rm -rf $OLDPWD/*'"),
        ("/work", "env -C / bash -c 'rm -rf $PWD'"),
        ("/work", "export PWD=/tmp; cd /; bash -c 'rm -rf $PWD'"),
        ("/work", "cd /; export PWD=/tmp; bash -c 'rm -rf $PWD'"),
        ("/work", "PWD=/; rm -rf $PWD"),
        ("/work", "cd /tmp; PWD=/; rm -rf $PWD"),
        ("/work", "cd; rm -rf *"),
        ("/work", "cd && rm -rf ~+"),
        ("/work", "pushd /; rm -rf $PWD/*"),
        ("/work", "pushd /; pushd /tmp; popd; rm -rf *"),
        ("/work", "pushd /; pushd /tmp; rm -rf ~1/*"),
        ("/work", 'pushd /; pushd /tmp; rm -rf "${DIRSTACK[1]}"/*'),
        ("/work", "pushd /; pushd /tmp; pushd; rm -rf *"),
        ("/", "cd /tmp; pushd /work; popd; popd; cd ~-; rm -rf ../*"),
        ("/work", "CDPATH=/; cd etc && rm -rf *"),
        ("/work", "CDPATH=.:/usr; pushd lib && rm -rf *"),
        ("/work", "CDPATH=/home; cd me && rm -rf *"),
        ("/", 'rm -rf "$PWD"/*'),
        ("/", "rm -rf ${PWD}/*"),
        ("/", "rm -rf ~+"),
        ("/etc", 'rm -rf "$PWD"/*'),
        ("/tmp/..", 'rm -rf "$PWD"'),
        ("/usr/local/", 'rm -rf "${PWD%/*}"'),
    ],
)
def test_dangerous_directories_are_found(cwd: str, command: str) -> None:
    assert judge(command, StartState(cwd, WRONG)).verdict == "block"


@pytest.mark.parametrize(
    ("cwd", "command"),
    [
        ("/", 'cd /tmp/build && rm -rf "$PWD"/*'),
        ("/", 'mkdir -p /tmp/x && cd /tmp/x && rm -rf "$PWD"/cache'),
        ("/", 'cd /tmp/x && chmod -R u+w "$PWD"'),
        ("/", "cd /tmp/x; cd y; rm -rf $OLDPWD/*"),
        ("/", "pushd /tmp/x; rm -rf *; popd"),
        ("/", "cd /tmp/x; pushd /; popd; rm -rf *"),
        ("/", "cd /tmp/x && bash -c 'rm -rf \"$PWD\"/*'"),
        ("/tmp/x", 'rm -rf "$PWD"/*'),
        ("/tmp/x", 'rm -rf ~/.cache "$PWD"/build ~-/build'),
        ("/work", "popd; rm -rf *"),
        ("/work", "pushd build; make; popd; rm -rf *"),
        ("/work", "pushd /; pushd /tmp; dirs -c; popd; rm -rf *"),
        ("/work", "CDPATH=/; cd ./etc && rm -rf *"),
        ("/work", "CDPATH=.:/src; cd build && rm -rf *"),
    ],
)
@pytest.mark.parametrize("directory", ["/", "/work/wrong"])
def test_harmless_directories_are_allowed(cwd: str, command: str, directory: str) -> None:
    env = {**WRONG, "PWD": directory}
    assert judge(command, StartState(cwd, env)).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        'cd "$(cat f)"; rm -rf "$PWD"',
        'cd "$(cat f)"; cd /tmp; rm -rf "$OLDPWD"/*',
        'pushd "$(cat f)"; pushd /tmp; popd; rm -rf *',
        "cd $somewhere; rm -rf *",
        "pushd $somewhere; rm -rf *",
        "unset OLDPWD; cd -; rm -rf *",
        "unset HOME; cd; rm -rf *",
    ],
)
def test_unknown_directories_are_unresolved(command: str) -> None:
    assert judge(command, StartState("/work", WRONG)).verdict == "unresolved"


def test_cd_exports_oldpwd() -> None:
    command = "cd /tmp/x; cd y; bash -c 'rm -rf $OLDPWD/*'"
    assert judge(command, StartState("/", ENV)).verdict == "allow"


def test_guard_knows_the_directory_stack_of_the_session() -> None:
    script = "{\n\\builtin pushd -n -- '/'\n\\builtin pushd -n -- '/tmp/x'\n} >/dev/null\n"
    start = StartState("/work", ENV, script)
    assert judge("popd; rm -rf *", start).verdict == "allow"
    assert judge("bash -c 'popd; popd; rm -rf *'", start).verdict == "allow"
    for command in ("popd; popd; rm -rf *", "rm -rf ~2/*", "popd +0; pushd; rm -rf *"):
        assert judge(command, start).verdict == "block", command


@pytest.mark.parametrize(
    "command", ["rm -rf ~", "rm -rf ~/*", "rm -rf /data/user", "cd ~; rm -rf *"]
)
def test_home_of_the_user_is_protected_if_home_is_unset(command: str) -> None:
    assert judge(command, StartState("/work", {}, home="/data/user")).verdict == "block"


def test_only_the_tilde_has_a_value_if_home_is_unset() -> None:
    start = StartState("/work", {}, home="/data/user")
    assert judge("rm -rf ~/cache", start).verdict == "allow"
    assert judge('rm -rf "$HOME"/*', start).rule == "rm-root"
    assert judge("rm -rf ~", StartState("/work", {}, home="/")).rule == "rm-root"
    assert judge("rm -rf ~", StartState("/work", {})).verdict == "unresolved"
    assert judge("rm -rf ~", StartState("/work", {"HOME": ""}, home="/")).verdict == "allow"
