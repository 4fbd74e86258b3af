"""In a session, consecutive commands behave as if a person typed all of them into one bash."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_daemon import SharedDaemon
from support import Gate, Json, RawDaemon, altered_daemon, raw_daemon, wait_for


@pytest.fixture(scope="module", params=[0, 4], ids=["without spares", "with spares"])
def shared_daemon(request: pytest.FixtureRequest) -> Iterator[SharedDaemon]:
    shared = SharedDaemon("--spare-shells", str(request.param))
    yield shared
    shared.close()


def out(daemon: RawDaemon, command: str, **params: Any) -> str:
    result = daemon.bash(command, **params)
    assert result["stderr"] == ""
    return str(result["stdout"])


def count_running(daemon: RawDaemon) -> int:
    return sum(shell["isRunning"] for shell in daemon.call("list_shells")["shells"])


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("cd /usr", "pwd; echo $PWD", "/usr\n/usr\n"),
        ("cd /usr; cd /tmp", "cd -", "/usr\n"),
        ("pushd /usr >/dev/null", "popd >/dev/null; cd /; dirs", "/\n"),
        ("export A='x y'", 'echo "$A"; printenv A', "x y\nx y\n"),
        ("A='x y'", 'echo "$A"; printenv A || echo none', "x y\nnone\n"),
        ("export PATH=/nowhere:$PATH", "echo ${PATH%%:*}", "/nowhere\n"),
        ("unset HOME", "echo ${HOME-unset}", "unset\n"),
        ("a=(1 'two words'); a[5]=x", 'echo "${#a[@]} ${a[1]} ${!a[@]}"', "3 two words 0 1 5\n"),
        ("declare -A m=([k]=v ['a b']=c)", 'echo "${m[k]}${m["a b"]}"', "vc\n"),
        ("declare -i n=5", "n+=2; echo $n", "7\n"),
        ('f() { echo "f $1"; }', "f x", "f x\n"),
        ("export -f nothing 2>/dev/null; f() { echo f; }; export -f f", "bash -c f", "f\n"),
        ("shopt -s expand_aliases; alias greet='echo hi'", "greet you", "hi you\n"),
        ("alias greet=x", "alias", "alias greet='x'\n"),
        ("shopt -s nullglob", "echo /nothing*", "\n"),
        ("set -o pipefail", "false | true; echo $?", "1\n"),
        ("set -u", "echo ${x-} $-", "huBc\n"),
        ("set -f; export SHELLOPTS", "bash -c 'echo $-'", "fhBc\n"),
        ("shopt -s dotglob; export BASHOPTS", "bash -c 'shopt -q dotglob; echo $?'", "0\n"),
        ("export SHELLOPTS; export -n SHELLOPTS", "printenv SHELLOPTS", ""),
        ("umask 077", "umask", "0077\n"),
        ("set -e", "false; echo not here", ""),
        ("readonly R=1", "echo $R", "1\n"),
        ("x=$'a\\nb\"c\\'d'", 'printf %s "$x"', "a\nb\"c'd"),
        ("IFS=:", "x=a:b; set -- $x; echo $#", "2\n"),
        ("let x=5; ((x++))", "echo $x", "6\n"),
        ("read x <<< 'from a here-string'", "echo $x", "from a here-string\n"),
        ("source /dev/stdin <<< 'sourced=1'", "echo $sourced", "1\n"),
        ("x=1; (x=2); true", "echo $x", "1\n"),
        ("exit 3", "echo on", "on\n"),
        ("x=1; exit 3", "echo $x", "1\n"),
        ("set -e; x=1; false; x=2", "echo $x", "1\n"),
        ("x=1; return 3", "echo $x", "1\n"),
        ("x=1; (", "echo [$x]", "[]\n"),
        ("x=1; exec true", "echo [$x]", "[]\n"),
        ("x=1; kill -9 $$", "echo [$x]", "[]\n"),
        ("trap 'x=2' EXIT; x=1", "echo $x", "2\n"),
        ("trap 'echo bye' EXIT; x=1; exit 4", "echo $x", "1\n"),
        ("trap 'echo x' USR1", "trap", ""),
        ("sleep 300 & jobs >/dev/null", "jobs", ""),
        ("set -- a b c", "echo $#", "0\n"),
        ("set -C; x=1", "echo $x $-", "1 hBCc\n"),
        ("set -o posix; x=1", "echo $x; shopt -qo posix && echo posix", "1\nposix\n"),
        ("export POSIXLY_CORRECT=1; x=1", "echo $x; printenv POSIXLY_CORRECT", "1\n1\n"),
        ("exec 7>/dev/null; export BASH_XTRACEFD=7; x=1", "echo $x", "1\n"),
        ("set -x; export SHELLOPTS; x=1", "echo $x", "1\n"),
        ("declare() { echo no; }; x=1", "echo $x", "1\n"),
        ("builtin() { echo no; }; x=1", "echo [$x]", "[1]\n"),
        ("IFS=o; x=foo", 'echo "$x"', "foo\n"),
        ("shopt -s expand_aliases; alias echo='echo aliased'", "echo x", "aliased x\n"),
        ("ulimit -f 0; x=1", "echo [$x]", "[]\n"),
    ],
)
def test_next_command_continues_the_session(
    daemon: RawDaemon, before: str, after: str, shown: str
) -> None:
    daemon.bash(before)
    assert daemon.bash(after)["stdout"] == shown


def test_extdebug_leaves_the_next_command_silent(daemon: RawDaemon) -> None:
    daemon.bash("shopt -s extdebug; x=1")
    # A bash that starts with this option looks for its debugger and complains.
    assert out(daemon, "echo $x; shopt extdebug") == "1\nextdebug       \toff\n"


@pytest.mark.parametrize(
    ("command", "stdout", "stderr", "code"),
    [
        ("exit 3", "", "", 3),
        ("false", "", "", 1),
        ("x=1; false", "", "", 1),
        ("set -e; false; echo no", "", "", 1),
        ("trap 'echo bye' EXIT; x=1; exit 4", "bye\n", "", 4),
        ("trap 'echo bye; exit 5' EXIT; x=1", "bye\n", "", 5),
        ("trap 'echo $?' EXIT; x=1; exit 6", "6\n", "", 6),
        ("x=1; exec sh -c 'exit 7'", "", "", 7),
        ("x=1; nope", "", "bash: line 1: nope: command not found\n", 127),
        ("x=1\nnope", "", "bash: line 2: nope: command not found\n", 127),
        (
            "x=1; )",
            "",
            "bash: -c: line 1: syntax error near unexpected token `)'\n"
            "bash: -c: line 1: `x=1; )'\n",
            2,
        ),
        ("x=1; set -x; echo hi", "hi\n", "+ echo hi\n", 0),
        ("x=1; echo $? $- $0 $# $LINENO", "0 hBc bash 0 1\n", "", 0),
        (
            "x=1; trap; trap -p EXIT; jobs; history; alias; ls /proc/$$/fd",
            "0\n1\n2\n",
            "",
            0,
        ),
        ("x=1; echo $BASH_EXECUTION_STRING", "x=1; echo $BASH_EXECUTION_STRING\n", "", 0),
        ("x=1; declare -F", "", "", 0),
        ("x=1; echo ${BASH_ENV-none}; printenv BASH_ENV", "none\n", "", 1),
    ],
)
def test_state_keeping_never_shows_in_results(
    daemon: RawDaemon, command: str, stdout: str, stderr: str, code: int
) -> None:
    daemon.bash("earlier=1; cd /tmp")
    result = daemon.bash(command)
    assert (result["stdout"], result["stderr"], result["exitCode"]) == (stdout, stderr, code)
    daemon.bash("trap - EXIT; set +ex")
    assert out(daemon, "echo $earlier; pwd") == "1\n/tmp\n"


@pytest.mark.parametrize(
    "definition",
    [
        "f() { nope; }",
        "f() { nope; }; g() { cat <<X<NL>f () <NL>{ <NL>X<NL>}; h() { :; }",
        "f() { nope; }; export -f f; g() { f; }",
        "f() { nope; }; f-g.h() { :; }; shopt -s expand_aliases",
    ],
)
def test_error_in_kept_function_reports_environment_line(
    daemon: RawDaemon, definition: str
) -> None:
    daemon.bash(definition.replace("<NL>", "\n"))
    assert daemon.bash("f")["stderr"] == "environment: line 1: nope: command not found\n"
    assert out(daemon, "x=1; export -f -p | grep -c 'declare -fx g' || true") == "0\n"


@pytest.mark.parametrize(
    "definition",
    [
        "shopt -s extglob<NL>f() { case $1 in +(a|b)) echo f;; esac; }",
        "f() ( echo f )",
        "f() { echo f; }; readonly -f f",
        "f() { echo f; }; g() { cat <<X<NL>h () <NL>X<NL>}; h() { :; }",
        "f() { echo f; " + ": " + "x" * 70_000 + "; }",
        "f() { echo f; } 2>/dev/null",
        "set -o posix; f() { echo f; }",
    ],
)
def test_functions_of_every_kind_are_remembered(daemon: RawDaemon, definition: str) -> None:
    daemon.bash(definition.replace("<NL>", "\n"))
    daemon.bash("x=1")
    assert out(daemon, "f a; bash -c 'type f' 2>/dev/null || echo private") == "f\nprivate\n"


def test_a_virtual_environment_is_entered_and_left(daemon: RawDaemon, tmp_path: Path) -> None:
    bin_directory = tmp_path / "venv" / "bin"
    bin_directory.mkdir(parents=True)
    tool = bin_directory / "tool"
    tool.write_text("#!/bin/sh\necho the tool\n")
    tool.chmod(0o755)
    # This file is a short form of the scripts of venv and nvm.
    (bin_directory / "activate").write_text(
        f"""
deactivate () {{
    PATH="$_OLD_PATH"; export PATH; unset _OLD_PATH VIRTUAL_ENV
    hash -r 2> /dev/null
    if [ ! "${{1:-}}" = "nondestructive" ] ; then unset -f deactivate; fi
}}
deactivate nondestructive
VIRTUAL_ENV='{tmp_path}/venv'; export VIRTUAL_ENV
_OLD_PATH="$PATH"; PATH="$VIRTUAL_ENV/bin:$PATH"; export PATH
"""
    )
    daemon.bash("_OLD_PATH=$PATH")
    daemon.bash(f"source {bin_directory}/activate")
    assert out(daemon, "tool; echo $VIRTUAL_ENV") == f"the tool\n{tmp_path}/venv\n"
    daemon.bash("deactivate")
    gone = daemon.bash("tool; declare -F; echo [$VIRTUAL_ENV]")
    assert gone["stdout"] == "[]\n"
    assert "tool: command not found" in gone["stderr"]


def test_killed_or_timed_out_command_changes_nothing(daemon: RawDaemon) -> None:
    daemon.bash("x=before; cd /usr")
    daemon.fail("bash", {"command": "x=after; cd /tmp; sleep 300", "timeout": 1000})
    assert out(daemon, "echo $x; pwd") == "before\n/usr\n"
    request = daemon.request("bash", {"command": "x=after; cd /tmp; echo; sleep 300"})
    wait_for(lambda: daemon.call("list_shells")["shells"][-1]["unreadBytes"], "the command")
    daemon.notify("$/cancelRequest", {"id": request})
    assert daemon.answer(request)["error"]["code"] == -32800
    assert out(daemon, "echo $x; pwd") == "before\n/usr\n"


def test_background_shells_never_change_the_session(daemon: RawDaemon) -> None:
    daemon.bash("x=1; cd /usr; f() { echo f; }")
    bash_id = daemon.background("echo $x; pwd; f; x=2; cd /tmp")
    read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    assert read["stdout"] == "1\n/usr\nf\n"
    assert out(daemon, "echo $x; pwd") == "1\n/usr\n"


def test_command_moved_to_background_changes_nothing(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    moved = daemon.bash(f"x=1; {gate.wait}", timeout=1000, on_timeout="background")
    gate.open()
    daemon.call("bash_output", {"bash_id": moved["bash_id"], "wait": 60_000, "until": "exit"})
    assert out(daemon, "echo [$x]") == "[]\n"


def test_last_concurrent_command_to_end_wins(daemon: RawDaemon, tmp_path: Path) -> None:
    daemon.bash("a=0; b=0; c=0")
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    one = daemon.request("bash", {"command": f"a=1; {first.wait}; b=1"})
    two = daemon.request("bash", {"command": f"a=2; c=2; {second.wait}"})
    # Wait, because on a busy machine the second command could end before the first one starts.
    wait_for(lambda: count_running(daemon) == 2, "the start of both")
    second.open()
    daemon.answer(two)
    assert out(daemon, "echo $a$b$c") == "202\n"
    first.open()
    daemon.answer(one)
    assert out(daemon, "echo $a$b$c") == "110\n"


def test_sessions_are_independent_and_null_keeps_nothing(
    daemon: RawDaemon,
) -> None:
    daemon.bash("x=main; cd /usr")
    daemon.bash("x=other", session="other")
    daemon.bash("x=none; cd /tmp", session=None)
    here = os.getcwd()
    assert out(daemon, "echo $x; pwd") == "main\n/usr\n"
    assert out(daemon, "echo $x; pwd", session="other") == f"other\n{here}\n"
    assert out(daemon, "echo [$x]; pwd", session=None) == f"[]\n{here}\n"


def test_cwd_and_env_end_with_their_command(daemon: RawDaemon) -> None:
    daemon.bash("export KEPT=1 OVER=old; cd /usr")
    shown = out(
        daemon,
        "echo $GIVEN$OVER$HOME; pwd; x=1",
        cwd="/tmp",
        env={"GIVEN": "g", "OVER": "new", "HOME": None},
    )
    assert shown == "gnew\n/tmp\n"
    assert out(daemon, "echo [$GIVEN]$OVER$KEPT$x; pwd") == "[]old11\n/usr\n"
    assert out(daemon, "echo ${HOME:+home}") == "home\n"
    # The session keeps the changes that the command itself makes.
    daemon.bash("cd lib; export GIVEN=changed", cwd="/usr", env={"GIVEN": "g"})
    assert out(daemon, "echo $GIVEN; pwd") == "changed\n/usr/lib\n"
    assert out(daemon, "pwd", cwd="..") == "/usr\n"


def test_next_command_runs_after_directory_is_deleted(daemon: RawDaemon, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    daemon.bash(f"cd {tmp_path}/a/b; x=1")
    (tmp_path / "a" / "b").rmdir()
    (tmp_path / "a").rmdir()
    assert out(daemon, "echo $x; pwd") == f"1\n{tmp_path}\n"
    error = daemon.fail("bash", {"command": "pwd", "cwd": f"{tmp_path}/a"})
    assert error["data"]["errno"] == "ENOENT"


@pytest.mark.slow
@pytest.mark.parametrize("spares", ["0", "4"])
def test_remote_directory_is_not_accessed_by_daemon(tmp_path: Path, spares: str) -> None:
    # If the daemon accessed a remote directory whose server no longer answers, the event loop would
    # block.
    (tmp_path / "mountinfo").write_text(f"22 27 0:21 / {tmp_path}/remote rw - nfs server:/ rw\n")
    remote = tmp_path / "remote"
    remote.mkdir()
    command = altered_daemon({"shelld.sessions.mounts._LIST": str(tmp_path / "mountinfo")})
    with raw_daemon("--spare-shells", spares, command=command) as daemon:
        assert daemon.bash(f"cd {remote}")["sessionCwd"] == str(remote)
        for _ in range(3):
            assert out(daemon, "pwd") == f"{remote}\n"
        assert daemon.call("server_info")["counters"]["sparesUsed"] <= 1
        # The daemon does not access the directory, so it learns that the directory is gone only
        # when a command fails there.
        remote.rmdir()
        assert daemon.call("get_session")["cwd"] == str(remote)
        error = daemon.fail("bash", {"command": "pwd"})
        assert (error["code"], error["data"]["errno"]) == (1004, "ENOENT")
        assert out(daemon, "pwd") == f"{tmp_path}\n"
        # If the directory exists again, the session can use it.
        assert daemon.bash(f"mkdir {remote}; cd {remote}")["sessionCwd"] == str(remote)
        assert out(daemon, "pwd") == f"{remote}\n"


def test_next_command_runs_after_huge_environment(daemon: RawDaemon) -> None:
    daemon.bash("export BIG=$(head -c 300000 /dev/zero | tr '\\0' x)")
    daemon.bash(
        "for i in {1..300}; do printf -v V$i '%9000s' y; export V$i; done",
        session="many",
    )
    assert out(daemon, "echo ${#BIG}; BIG=; /bin/echo on") == "300000\non\n"
    assert out(daemon, "echo ${#V1} ${#V300}", session="many") == "9000 9000\n"


def test_state_over_the_size_limit_is_not_kept(daemon: RawDaemon) -> None:
    daemon.bash("x=before")
    daemon.bash("x=after; big=$(head -c 20000000 /dev/zero | tr '\\0' x)")
    assert out(daemon, "echo $x") == "before\n"


def test_get_session_reports_state_and_shells(daemon: RawDaemon) -> None:
    here = os.getcwd()
    empty: Json = {"session": "main", "cwd": here, "env": {}, "shells": []}
    assert daemon.call("get_session") == empty
    assert daemon.call("list_sessions") == {
        "sessions": [{"session": "main", "cwd": here, "shells": 0}]
    }
    daemon.bash("cd /usr; export A=1 B=$'\\xff'; unset HOME; hidden=1", session="mine")
    bash_id = daemon.background("sleep 300", session="mine")
    assert daemon.call("get_session", {"session": "mine"}) == {
        "session": "mine",
        "cwd": "/usr",
        "env": {"A": "1", "B": "\ufffd", "HOME": None},
        "shells": [bash_id],
    }
    listed = {entry["session"]: entry for entry in daemon.call("list_sessions")["sessions"]}
    assert listed["mine"] == {"session": "mine", "cwd": "/usr", "shells": 1}
    error = daemon.fail("get_session", {"session": "never"})
    assert (error["code"], error["data"]["kind"]) == (1007, "session_not_found")


def test_a_closed_session_starts_anew(daemon: RawDaemon) -> None:
    daemon.bash("x=1; cd /usr", session="mine")
    daemon.bash("x=1")
    assert daemon.call("close_session", {"session": "mine"})["killed"] == 0
    assert daemon.fail("get_session", {"session": "mine"})["code"] == 1007
    assert out(daemon, "echo [$x]; pwd", session="mine") == f"[]\n{os.getcwd()}\n"
    daemon.call("close_session", {"session": "main"})
    assert out(daemon, "echo [$x]") == "[]\n"


def test_waiting_start_is_refused_when_session_closes(daemon: RawDaemon) -> None:
    # The test sends more commands than the daemon starts at once, so some commands still wait when
    # the session closes.
    params = {"command": "sleep 300", "run_in_background": True, "session": "s"}
    ids = [daemon.request("bash", params) for _ in range(80)]
    closed = daemon.request("close_session", {"session": "s"})
    answers = [daemon.answer(request_id) for request_id in ids]
    refused = [answer["error"]["data"] for answer in answers if "error" in answer]
    assert refused
    assert all(data == {"kind": "spawn_failed", "errno": "ECANCELED"} for data in refused)
    # If a command was killed before it ran, the daemon refuses its request and also counts the
    # command as killed.
    assert len(ids) - len(refused) <= daemon.answer(closed)["result"]["killed"] < len(ids)
    assert not any(shell["isRunning"] for shell in daemon.call("list_shells")["shells"])
    assert [each["session"] for each in daemon.call("list_sessions")["sessions"]] == ["main"]


def test_state_left_after_close_is_dropped(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    command = f"trap '' TERM; {gate.wait}; x=1"
    request = daemon.request("bash", {"command": command, "session": "mine"})
    wait_for(lambda: daemon.call("list_shells")["shells"], "the command")
    daemon.call("close_session", {"session": "mine"})
    assert daemon.answer(request)["result"]["status"] == "killed"
    assert out(daemon, "echo [$x]", session="mine") == "[]\n"


@pytest.mark.slow
def test_new_session_starts_from_daemon_environment(tmp_path: Path) -> None:
    env_file = tmp_path / "env.sh"
    env_file.write_text("from_env=$((from_env + 1))\n")
    (tmp_path / ".bashrc").write_text("echo bashrc\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BASH_ENV": str(env_file)}
    with raw_daemon(env=environment) as daemon:
        assert out(daemon, "echo $from_env; x=1") == "1\n"
        assert out(daemon, "echo $x $BASH_ENV; bash -c 'echo $from_env'") == f"1 {env_file}\n1\n"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("$HOME/env.sh", "1"),
        ("${HOME}/env.sh", "1"),
        ("~/env.sh", "1"),
        ("$FILE", "1"),
        ('$(echo "$HOME")/env.sh', "1"),
        ("`echo env.sh`", "1"),
        (r"\$HOME/env.sh", ""),
        ("$NOTHING", ""),
    ],
)
def test_path_of_startup_file_is_expanded_as_bash_does(
    tmp_path: Path, value: str, told: str
) -> None:
    file = tmp_path / "env.sh"
    file.write_text("from_env=1\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FILE": str(file)}
    with raw_daemon(env=environment | {"BASH_ENV": value}, cwd=tmp_path) as daemon:
        for session in (None, "main", "main"):
            result = daemon.bash("echo $from_env; f() { :; }; unset from_env", session=session)
            assert (result["stdout"], result["stderr"]) == (f"{told}\n", "")


@pytest.mark.parametrize("value", ["sub", "./sub", "$PWD/sub"])
def test_startup_file_that_is_a_directory_is_refused_as_bash_does(
    tmp_path: Path, value: str
) -> None:
    (tmp_path / "sub").mkdir()
    with raw_daemon(env={"PATH": os.environ["PATH"], "BASH_ENV": value}, cwd=tmp_path) as daemon:
        plain = daemon.bash("echo out; x=1", session=None)
        assert "sub: is a directory" in plain["stderr"]
        for _ in range(2):
            result = daemon.bash("echo out; x=1")
            assert (result["stdout"], result["stderr"]) == (plain["stdout"], plain["stderr"])


def test_session_goes_on_after_an_invalid_path_of_a_startup_file() -> None:
    with raw_daemon(env={"PATH": os.environ["PATH"], "BASH_ENV": "${"}) as daemon:
        daemon.bash("x=1; f() { echo $x; }")
        assert daemon.bash("f")["stdout"] == "1\n"


def test_startup_file_may_set_options_and_readonly_variables(tmp_path: Path) -> None:
    file = tmp_path / "env.sh"
    file.write_text("readonly FIXED=1; readonly -a LIST=(1 $'2\\n3'); set -eup\n")
    environment = {"PATH": os.environ["PATH"], "BASH_ENV": str(file)}
    with raw_daemon(env=environment) as daemon:
        daemon.bash("x=1; f() { :; }")
        result = daemon.bash(
            'echo $FIXED $x "${LIST[1]}"; set -o | grep -c "errexit.*on"; set +eup'
        )
        assert (result["stdout"], result["stderr"]) == ("1 1 2\n3\n1\n", "")
        result = daemon.bash("false; echo $FIXED $nothing; f; set -o | grep -c 'privileged.*off'")
        assert (result["stdout"], result["stderr"]) == ("1\n1\n", "")


@pytest.mark.parametrize("options", [{}, {"env": {"A": "b"}}, {"tty": True}])
@pytest.mark.parametrize("end", ["exit 7", "set -u; $nothing", ": ${nothing:?}"])
def test_startup_file_that_ends_bash_changes_nothing(
    tmp_path: Path, options: Json, end: str
) -> None:
    file = tmp_path / "env.sh"
    file.write_text(f"[ ! -e {tmp_path}/flag ] || {{ {end}; }}\n")
    with raw_daemon(env={"PATH": os.environ["PATH"], "BASH_ENV": str(file)}) as daemon:
        daemon.bash("x=1; f() { echo $x; }; alias a=b; shopt -s dotglob; umask 077; cd /usr")
        (tmp_path / "flag").touch()
        result = daemon.bash("x=2", **options)
        assert (result["stateKept"], result["stateReason"]) == (False, "incomplete")
        (tmp_path / "flag").unlink()
        shown = out(daemon, "f; alias a; shopt dotglob; umask; pwd; echo ${A-none}")
        assert shown == "1\nalias a='b'\ndotglob        \ton\n0077\n/usr\nnone\n"


def test_call_may_set_its_own_startup_file(daemon: RawDaemon, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("given=a; define() { defined=$1; }\n")
    env = {"BASH_ENV": str(tmp_path / "a.sh")}
    assert out(daemon, "x=1; echo $given; printenv BASH_ENV", env=env) == f"a\n{tmp_path}/a.sh\n"
    assert out(daemon, "echo $x$given ${BASH_ENV-none}") == "1a none\n"
    # A startup file can give plain words another meaning.
    daemon.bash("define this", env=env, session="new")
    assert out(daemon, "echo $defined", session="new") == "this\n"


@pytest.mark.slow
def test_environment_entries_with_invalid_names_reach_commands() -> None:
    entries = {"my.setting": "1", "npm_config_//registry/:_x": "2", "svc-host": "a\nb"}
    show = "python3 -c 'import os; print(sorted((k, v) for k, v in os.environ.items()" + (
        " if not k.isidentifier()))'"
    )
    shown = f"{sorted(entries.items())}\n"
    with raw_daemon(env={"PATH": os.environ["PATH"], **entries}) as daemon:
        assert out(daemon, show) == shown
        assert out(daemon, f"x=1; cd /usr; {show}") == shown
        assert out(daemon, f"echo $x; {show}") == f"1\n{shown}"
        assert daemon.call("get_session")["env"] == {}
        # The variables of a call apply to its command only.
        changes = {"my.setting": "3", "svc-host": None, "x.y": "4"}
        assert out(daemon, f"x=2; {show}", env=changes) == (
            "[('my.setting', '3'), ('npm_config_//registry/:_x', '2'), ('x.y', '4')]\n"
        )
        assert out(daemon, f"echo $x; {show}") == f"2\n{shown}"


@pytest.mark.parametrize("name", ["UID", "PPID", "BASH", "SECONDS", "BASHPID", "LINENO"])
def test_a_variable_of_bash_stays_exported(daemon: RawDaemon, name: str) -> None:
    daemon.bash(f"export {name}")
    assert daemon.bash(f"x=1; printenv {name}")["exitCode"] == 0
    assert (
        daemon.bash(f"printenv {name} | grep -q . && [[ ${{{name}@a}} == *x* ]]")["exitCode"] == 0
    )
    daemon.bash(f"export -n {name}")
    assert daemon.bash(f"printenv {name}")["exitCode"] == 1


@pytest.mark.slow
def test_user_ids_of_the_daemons_environment_stay() -> None:
    # Many Docker Compose files set UID and EUID. If the environment contains UID and EUID, bash
    # does not make them readonly.
    with raw_daemon(env={"PATH": os.environ["PATH"], "UID": "1234", "EUID": "1235"}) as daemon:
        daemon.bash("x=1")
        assert out(daemon, "printenv UID EUID; UID=5; printenv UID") == "1234\n1235\n5\n"
        assert out(daemon, "echo $UID; unset UID") == "5\n"
        assert daemon.call("get_session")["env"] == {"UID": None}


def test_allexport_exports_only_user_variables(daemon: RawDaemon) -> None:
    daemon.bash("set -a; x=1")
    assert "__shelld" not in out(daemon, "y=1; env | cut -d= -f1; declare -p")


@pytest.mark.slow
def test_function_in_daemon_environment_may_change_session() -> None:
    # The `module` command, which selects programs on some systems, is such a function.
    environment = {"PATH": os.environ["PATH"], "BASH_FUNC_module%%": "() { export LOADED=$1; }"}
    with raw_daemon(env=environment) as daemon:
        daemon.bash("module compiler")
        assert out(daemon, "echo $LOADED") == "compiler\n"
        assert out(daemon, "module other; bash -c 'module third; echo $LOADED'") == "third\n"
        assert daemon.call("get_session")["env"] == {"LOADED": "other"}


@pytest.mark.slow
def test_sessions_remember_in_posix_mode_too() -> None:
    with raw_daemon(env={"PATH": os.environ["PATH"], "POSIXLY_CORRECT": "1"}) as daemon:
        daemon.bash("x=1; cd /usr")
        assert out(daemon, "echo $x; pwd; shopt -qo posix && echo posix") == "1\n/usr\nposix\n"
        assert daemon.call("get_session")["env"] == {}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("stack_kib", [256, 1024, 8192])
def test_large_states_fit_any_stack_limit(stack_kib: int) -> None:
    limited = ("bash", "-c", f'ulimit -Ss {stack_kib}; exec "$@"', "-")
    with raw_daemon(prefix=limited) as daemon:
        daemon.bash("for i in {1..60}; do export v$i=$(printf '%020000d' $i); done")
        daemon.bash("for i in {1..60}; do eval \"f$i() { : $(printf '%020000d' $i); }\"; done")
        daemon.bash("for i in {1..3000}; do export s$i=; done; f60; x=kept")
        assert out(daemon, "echo " + "x" * 130_990) == "x" * 130_990 + "\n"
        long = "#" * 100_000
        assert out(daemon, f"f1; f60; echo $x ${{#v1}} ${{#v60}} ${{s3000-unset}} {long}") == (
            "kept 20000 20000\n"
        )


@pytest.mark.slow
def test_short_dumps_do_not_evade_the_limit_of_a_state(daemon: RawDaemon) -> None:
    sizes = [daemon.bash(f"v{n}=$(seq 250000)").get("stateReason") for n in range(4)]
    # Each value has 1.6 MB, and a state may have 4 MiB.
    assert sizes == [None, None, "too_large", "too_large"]
    assert out(daemon, "echo ${v1:0:1} ${v2-unset}") == "1 unset\n"


def test_limit_on_file_size_forbids_no_command_under_ssh(tmp_path: Path) -> None:
    limited = ("bash", "-c", 'ulimit -f 0; exec "$@"', "-")
    # With SSH_CLIENT, bash may read the user's .bashrc, as it does under ssh.
    environment = {**os.environ, "SSH_CLIENT": "10.0.0.1 5000 22", "HOME": str(tmp_path)}
    with raw_daemon(prefix=limited, env=environment) as daemon:
        assert out(daemon, "echo hi") == "hi\n"
        assert out(daemon, "echo hi", session=None) == "hi\n"


@pytest.mark.slow
@pytest.mark.parametrize("spares", ["0", "4"])
@pytest.mark.parametrize("name", ["SSH_CLIENT", "SSH2_CLIENT", "POSIX_PEDANTIC"])
def test_sessions_work_as_under_ssh(tmp_path: Path, name: str, spares: str) -> None:
    # With SSH_CLIENT, and without SHLVL, Debian's bash reads this file instead of BASH_ENV.
    (tmp_path / ".bashrc").write_text("echo unwanted\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), name: "10.0.0.1 5000 22"}
    with raw_daemon("--spare-shells", spares, env=environment) as daemon:
        assert daemon.bash("test -o posix")["exitCode"] == 1
        assert out(daemon, "x=1; f() { echo $x; }") == ""
        assert out(daemon, f"f; echo ${name}; bash -c 'echo ${name}'") == (
            "1\n10.0.0.1 5000 22\n10.0.0.1 5000 22\n"
        )
        assert out(daemon, "echo alone; test -o posix || echo usual", session=None) == (
            "alone\nusual\n"
        )
        daemon.bash(f"unset {name}")
        assert out(daemon, f"f; echo ${{{name}-unset}}") == "1\nunset\n"


@pytest.mark.slow
@pytest.mark.parametrize("spares", ["0", "4"])
def test_underscore_variable_begins_as_in_the_environment(spares: str) -> None:
    environment = {**os.environ, "_": "/a 'word'"}
    with raw_daemon("--spare-shells", spares, env=environment) as daemon:
        for change in ("true", "x=1", "shopt -s extglob", "set -x -f", "set +x"):
            daemon.bash(change)
            # The second command could change its session, because it defines a function.
            for command in ('echo "$_"', 'echo "$_"; f() { :; }'):
                assert daemon.bash(command)["stdout"] == "/a 'word'\n"
                assert daemon.bash(command, env={"y": "1"})["stdout"] == "/a 'word'\n"
                assert daemon.bash(command, env={"_": "other"})["stdout"] == "other\n"
                assert daemon.bash(command, env={"_": None})["stdout"] == "bash\n"


def test_call_that_imitates_ssh_runs_no_startup_file(daemon: RawDaemon, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("echo unwanted\n")
    env = {"SSH_CLIENT": "10.0.0.1 5000 22", "SHLVL": None, "HOME": str(tmp_path)}
    assert out(daemon, "x=$SSH_CLIENT; echo $x", env=env) == "10.0.0.1 5000 22\n"
    assert out(daemon, "echo $x; echo $SSH_CLIENT") == "10.0.0.1 5000 22\n\n"


def test_cd_sets_an_unset_pwd(daemon: RawDaemon) -> None:
    daemon.bash("unset PWD")
    daemon.bash("cd /usr")
    assert out(daemon, "echo $PWD; printenv PWD") == "/usr\n"


@pytest.mark.parametrize("attributes", ["-x", "-rx"])
def test_loader_variables_affect_only_programs_of_commands(
    daemon: RawDaemon, attributes: str
) -> None:
    daemon.bash(f"declare {attributes} LD_DEBUG=help")
    assert out(daemon, "x=1; echo $x $LD_DEBUG") == "1 help\n"
    assert "Valid options" in out(daemon, "true; cat /dev/null")


def test_unexported_pwd_stays_unexported(daemon: RawDaemon) -> None:
    daemon.bash("export -n PWD")
    daemon.bash("cd /usr")
    assert out(daemon, "echo $PWD; printenv PWD") == "/usr\n"


def test_every_state_tells_the_options_to_later_commands(daemon: RawDaemon, tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    # This command only assigns, so the dump of its state lists no options.
    one = daemon.request("bash", {"command": f"x=1; cat {tmp_path}/first"})
    wait_for(lambda: count_running(daemon) == 1, "the first command")
    daemon.bash("shopt -s nullglob")
    two = daemon.request("bash", {"command": f"f() {{ echo f; }}; {second.wait}"})
    wait_for(lambda: count_running(daemon) == 2, "the second command")
    first.open()
    daemon.answer(one)
    second.open()
    assert "stateKept" not in daemon.answer(two)["result"]
    assert out(daemon, "f; shopt nullglob") == "f\nnullglob       \ton\n"


@pytest.mark.slow
def test_daemon_killed_while_saving_leaves_nothing(new_daemon: RawDaemon) -> None:
    new_daemon.request("bash", {"command": "x=$(head -c 50000000 /dev/zero | tr '\\0' x)"})
    wait_for(lambda: new_daemon.call("list_shells")["shells"], "the command")
    new_daemon.process.send_signal(signal.SIGKILL)
    new_daemon.wait()


def test_command_of_any_length_keeps_its_changes(daemon: RawDaemon) -> None:
    filler = "# " + "x" * 200_000
    result: Json = daemon.bash(f"x=1; echo $x\n{filler}\ny=2; ls /proc/$$/fd")
    assert (result["stdout"], result["stderr"]) == ("1\n0\n1\n2\n", "")
    assert out(daemon, f"echo $x$y\n{filler}") == "12\n"


def test_set_x_traces_only_the_given_command(daemon: RawDaemon) -> None:
    daemon.bash("set -x")
    assert daemon.bash("echo a # " + "x" * 200_000)["stderr"] == "++ echo a\n"
    result = daemon.bash("set +x; echo b # " + "x" * 200_000)
    assert (result["stdout"], result["stderr"]) == ("b\n", "++ set +x\n")
    assert daemon.bash("echo c")["stderr"] == ""


@pytest.mark.parametrize(
    "before",
    [
        "eval() { echo function; }; exec() { echo function; }",
        "shopt -s expand_aliases; alias eval='echo alias' exec='echo alias'",
    ],
)
def test_long_command_ignores_functions_named_like_builtins(daemon: RawDaemon, before: str) -> None:
    daemon.bash(before)
    assert out(daemon, "echo $((1 + 1)); x=1 # " + "x" * 200_000) == "2\n"
    assert out(daemon, "echo $x") == "1\n"
