"""The `env` of a call applies to its command, not to the session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import RawDaemon, raw_daemon

pytestmark = pytest.mark.slow

Env = dict[str, str | None]
PATH = os.environ["PATH"]


@pytest.fixture(
    scope="module",
    params=[pytest.param(0, marks=pytest.mark.slow), 4],
    ids=["without spares", "with spares"],
)
def daemon(request: pytest.FixtureRequest) -> Iterator[RawDaemon]:
    environment = {"PATH": PATH, "HOME": "/", "TERM": "xterm", "BASE": "base"}
    with raw_daemon("--spare-shells", str(request.param), env=environment) as running:
        yield running


@pytest.fixture
def session(daemon: RawDaemon, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    yield name
    daemon.call("close_session", {"session": name})


BIG = "declare -x V=$(printf 'x%.0s' {1..140000})"


class Call(NamedTuple):
    """`names` are the variables that the call sets for its command."""

    before: str
    env: Env
    command: str
    shown: str
    names: str = "V"


CALLS = [
    Call("V=old", {"V": "new"}, "printenv V", "new"),
    Call("V=old", {"V": None}, "echo ${V-unset}", "unset"),
    Call("export V=old", {"V": "new"}, "printenv V", "new"),
    Call("export V=old", {"V": None}, "echo ${V-unset}", "unset"),
    Call("declare -ix V=5", {"V": "6"}, "printenv V", "6"),
    Call("declare -rx V=5", {"V": "6"}, "printenv V", "6"),
    Call("declare -ux V=a", {"V": "b"}, "printenv V", "b"),
    Call("declare -a V=(1 2)", {"V": "b"}, "printenv V; echo ${#V[@]}", "b\n1"),
    Call("declare -A V=([a]=1)", {"V": "b"}, "printenv V", "b"),
    Call("declare -n V=W; W=1", {"V": "b"}, "printenv V; echo $W", "b\n1"),
    Call("declare -x V", {"V": "b"}, "printenv V", "b"),
    Call(BIG, {"V": "b"}, "printenv V", "b"),
    Call(BIG, {"V": None}, "echo ${V-unset}", "unset"),
    Call("X=1", {"V": "new"}, "printenv V", "new"),
    Call("X=1", {"BASE": "new"}, "printenv BASE", "new", "BASE"),
    Call("unset BASE", {"BASE": "new"}, "printenv BASE", "new", "BASE"),
    Call("unset PATH", {"PATH": PATH}, "printenv PATH", PATH, "PATH"),
    Call("X=1", {"PATH": None}, "printenv PATH || echo none", "none", "PATH"),
    Call("X=1", {"TERM": None, "PATH": "/bin"}, "echo $TERM $PATH", "dumb /bin", "PATH TERM"),
    Call("IFS=:", {"IFS": "x"}, "printenv IFS | wc -c", "4", "IFS"),
    Call("X=1", {"IFS": "x"}, "printenv IFS | wc -c", "4", "IFS"),
    Call("export PS1=a", {"PS1": "b"}, "echo ${PS1-none}", "none", "PS1"),
    Call("export LC_ALL=C", {"LC_ALL": "C.UTF-8"}, "printenv LC_ALL", "C.UTF-8", "LC_ALL"),
    Call("export LC_ALL=C", {"LC_ALL": None}, "echo ${LC_ALL-unset}", "unset", "LC_ALL"),
    Call("export LC_ALL=nope 2>&-", {"LC_ALL": "C"}, "echo $LC_ALL", "C", "LC_ALL"),
    Call("X=1", {"OPTIND": "7", "SECONDS": "9"}, "printenv OPTIND SECONDS", "1\n9", "OPTIND"),
    Call("X=1", {"V": "new", "A-B": "c"}, "printenv V A-B", "new\nc"),
    Call("X=1", {"BASH_ENV": "/dev/null"}, "printenv BASH_ENV", "/dev/null", "BASH_ENV"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_env_of_call_ends_with_its_command(daemon: RawDaemon, session: str, call: Call) -> None:
    look = f"declare -p {call.names} 2>/dev/null; echo $X$Y"
    daemon.bash(call.before, session=session)
    first = daemon.bash(look, session=session)["stdout"]
    # Bash need not write a session state after the first command. After the second command, bash
    # writes the old state, and after the third, a changed state.
    for start, end in (("", ""), (":; ", "; :"), ("Y=; ", "")):
        result = daemon.bash(f"{start}{call.command}{end}", session=session, env=call.env)
        assert (result["stdout"], result["stderr"]) == (f"{call.shown}\n", "")
        assert "stateReason" not in result
        assert daemon.bash(look, session=session)["stdout"] == first


@pytest.mark.parametrize(
    "call",
    [
        Call("V=old", {"V": "new"}, "V=changed", 'declare -x V="changed"\n'),
        Call("V=old", {"V": "new"}, "V=old", 'declare -x V="old"\n'),
        Call("V=old", {"V": "new"}, "export -n V", 'declare -- V="new"\n'),
        Call("V=old", {"V": "new"}, "unset V", ""),
        Call("V=old", {"V": None}, "V=changed", 'declare -- V="changed"\n'),
        Call("declare -ix V=1", {"V": "2"}, "V=a", 'declare -x V="a"\n'),
        Call("declare -rx V=1", {"V": "2"}, "readonly V", 'declare -rx V="2"\n'),
        Call("V=1", {"V": "2"}, "V=(3 4)", 'declare -ax V=([0]="3" [1]="4")\n'),
    ],
    ids=repr,
)
def test_changes_that_a_command_makes_to_its_call_env_are_kept(
    daemon: RawDaemon, session: str, call: Call
) -> None:
    daemon.bash(call.before, session=session)
    daemon.bash(call.command, session=session, env=call.env)
    assert daemon.bash("declare -p V", session=session)["stdout"] == call.shown


@pytest.mark.parametrize("before", ["true", "X=1", "set -f +B; shopt -s nullglob", "set -o posix"])
def test_options_in_env_end_with_their_command(
    daemon: RawDaemon, session: str, before: str
) -> None:
    env: Env = {
        "SHELLOPTS": "nounset:noglob",
        "BASHOPTS": "dotglob:nullglob",
        "POSIXLY_CORRECT": "1",
    }
    look = "set +o; shopt -p; echo ${POSIXLY_CORRECT-unset}"
    daemon.bash(before, session=session)
    first = daemon.bash(look, session=session)["stdout"]
    for start in ("", "X=2; "):
        shown = daemon.bash(f"{start}{look}; printenv SHELLOPTS", session=session, env=env)
        for option in ("set -o nounset", "set -o noglob", "set -o posix", "shopt -s dotglob"):
            assert f"{option}\n" in shown["stdout"]
        assert "nounset" in shown["stdout"].splitlines()[-1]
        assert shown["stderr"] == ""
        assert daemon.bash(look, session=session)["stdout"] == first
    daemon.bash("set +o posix -C +u; shopt -s failglob", session=session, env=env)
    assert daemon.bash("echo $-", session=session)["stdout"].count("C") == 1
    assert daemon.bash("shopt failglob; shopt dotglob", session=session)["stdout"].split()[
        1::2
    ] == [
        "on",
        "off",
    ]


OPTION_VARIABLES: list[Env] = [
    {"SHELLOPTS": "noglob", "BASHOPTS": "dotglob"},
    {"SHELLOPTS": None, "BASHOPTS": None},
]


@pytest.mark.parametrize("env", OPTION_VARIABLES, ids=repr)
@pytest.mark.parametrize("before", ["X=1", "export SHELLOPTS", "export SHELLOPTS BASHOPTS; set -u"])
def test_exported_options_of_call_end_with_their_command(
    daemon: RawDaemon, session: str, before: str, env: Env
) -> None:
    look = "printenv SHELLOPTS; printenv BASHOPTS; declare -p SHELLOPTS BASHOPTS"
    daemon.bash(before, session=session)
    first = daemon.bash(look, session=session)["stdout"]
    for command in ("printenv SHELLOPTS", "X=2; printenv SHELLOPTS"):
        shown = daemon.bash(command, session=session, env=env)
        assert ("noglob" in shown["stdout"]) == bool(env["SHELLOPTS"])
        assert daemon.bash(look, session=session)["stdout"] == first


@pytest.mark.parametrize("before", ["true", "export POSIXLY_CORRECT=1", "set -o posix"])
@pytest.mark.parametrize("name", ["POSIXLY_CORRECT", "SHELLOPTS", "BASHOPTS"])
def test_mode_that_a_call_removes_comes_back(
    daemon: RawDaemon, session: str, before: str, name: str
) -> None:
    look = f"set +o; shopt -p; printenv {name}; declare -p {name} 2>&1"
    daemon.bash(before, session=session)
    first = daemon.bash(look, session=session)["stdout"]
    for command in (f"printenv {name}", f"X=2; printenv {name}"):
        removed = daemon.bash(command, session=session, env={name: None})
        assert (removed["stdout"], removed["stderr"]) == ("", "")
        assert daemon.bash(look, session=session)["stdout"] == first


def test_errexit_of_call_ends_only_its_command(daemon: RawDaemon, session: str) -> None:
    for before in ("true", "X=1"):
        daemon.bash(before, session=session)
        ended = daemon.bash("Y=1; false; echo no", session=session, env={"SHELLOPTS": "errexit"})
        assert (ended["stdout"], ended["exitCode"]) == ("", 1)
        assert daemon.bash("false; echo on $Y", session=session)["stdout"] == "on 1\n"


def test_the_guard_sees_the_environment_of_the_call() -> None:
    with raw_daemon() as daemon:
        daemon.bash("D=/tmp/nothing-there")
        params = {"command": "rm -rf $D", "env": {"D": "/"}}
        assert daemon.call("explain_command", params)["verdict"] == "block"
        assert daemon.call("explain_command", {"command": "rm -rf $D"})["verdict"] == "allow"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", [None, "() { echo new; }", "junk", "() { \n    echo old\n}"])
@pytest.mark.parametrize("name", ["f", "g", "h", "a b", ""])
@pytest.mark.parametrize("define", ["f() { echo old; }", "f() { echo old; }; export -f f"])
def test_functions_of_call_end_with_their_command(
    daemon: RawDaemon, session: str, define: str, name: str, value: str | None
) -> None:
    look = "declare -F; declare -f; echo $x"
    daemon.bash(f"{define}; h() {{ trap 'echo bye' EXIT; }}", session=session)
    before = daemon.bash(look, session=session)["stdout"]
    env = {f"BASH_FUNC_{name}%%": value}
    for command in ("true", "x=2", "x=3; exit 1", "x=4; unset -f f", "x=5; f() { echo mine; }"):
        daemon.bash("x=1", session=session)
        alone = daemon.bash(command, env=env, session=None)["stderr"]
        assert daemon.bash(command, env=env, session=session)["stderr"] == alone
        shown = daemon.bash(look, session=session)
        value_of_x = command[2] if command.startswith("x=") else "1"
        assert shown["stderr"] == ""
        if name == "f" or " f" not in command:
            # In all other cases, the command itself has changed one of the session's functions.
            assert shown["stdout"] == before.removesuffix("\n") + value_of_x + "\n"


@pytest.mark.parametrize(
    ("value", "stdout"), [(None, ""), ("() { echo new; cd /; x=2; }", "new\n")]
)
def test_command_runs_function_of_its_call(
    daemon: RawDaemon, session: str, value: str | None, stdout: str
) -> None:
    daemon.bash("cd /tmp; f() { echo old; }", session=session)
    result = daemon.bash("f", env={"BASH_FUNC_f%%": value}, session=session)
    assert result["stdout"] == stdout
    assert ("command not found" in result["stderr"]) is (value is None)
    assert result["sessionCwd"] == ("/tmp" if value is None else "/")
    assert daemon.bash("f", session=session)["stdout"] == "old\n"


@pytest.mark.parametrize("command", ["x=1", "trap 'echo bye' EXIT; x=1", "shopt -s extglob; x=1"])
@pytest.mark.parametrize("name", ["a-b", "f"])
def test_functions_come_back_in_posix_mode(
    daemon: RawDaemon, session: str, name: str, command: str
) -> None:
    daemon.bash(f"{name}() {{ echo old; }}", session=session)
    env = {f"BASH_FUNC_{name}%%": "() { echo new; }"}
    result = daemon.bash(f"{command}; set -o posix", env=env, session=session)
    assert (result["exitCode"], result["stderr"], result.get("stateKept")) == (0, "", None)
    shown = daemon.bash(f"{name}; echo $x; shopt -qo posix && echo posix", session=session)
    assert shown["stdout"] == "old\n1\nposix\n"


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("f() { echo old; }", "new"),
        ("f() { echo old; }; readonly -f f", "old"),
        ("f() { echo old; }; declare -ft f", "old"),
        ("f() { echo old; }; shopt -s extglob", "new"),
        ("shopt -s extglob\nf() { echo old; : @(a|b); }", "old"),
        ("f() { echo old; }; set -o posix", "old"),
        ("eval \"f() { echo old; : $(printf 'x%.0s' {1..70000}); }\"", "old"),
    ],
)
def test_session_function_survives_function_of_call(
    daemon: RawDaemon, session: str, before: str, shown: str
) -> None:
    daemon.bash(before, session=session)
    env = {"BASH_FUNC_f%%": "() { echo new; }"}
    assert daemon.bash("f", env=env, session=session)["stdout"] == f"{shown}\n"
    assert daemon.bash("f", session=session)["stdout"] == "old\n"


def test_function_that_a_command_makes_readonly_is_kept(daemon: RawDaemon, session: str) -> None:
    daemon.bash("f() { echo old; }", session=session)
    env = {"BASH_FUNC_f%%": "() { echo new; }"}
    daemon.bash("readonly -f f; x=1", env=env, session=session)
    assert daemon.bash("f; echo $x", session=session)["stdout"] == "new\n1\n"


def test_function_in_the_environment_works_without_session(daemon: RawDaemon) -> None:
    env = {"BASH_FUNC_f%%": "() { echo new; }"}
    shown = daemon.bash("f", env=env, session=None)
    assert (shown["stdout"], shown["stderr"]) == ("new\n", "")


def test_the_guard_sees_functions_of_the_environment() -> None:
    with raw_daemon() as daemon:
        params = {"command": "f", "env": {"BASH_FUNC_f%%": "() { rm -rf /; }"}, "session": None}
        assert daemon.call("explain_command", params)["verdict"] == "block"


HARMLESS = "() { echo harmless; }"


@pytest.mark.parametrize(
    ("before", "env", "kind"),
    [
        (None, {"BASH_FUNC_rm%%": HARMLESS}, "function"),
        (None, {"BASH_FUNC_rm%%": "() { case x in a) ;; esac; }"}, "function"),
        (None, {"BASH_FUNC_X": "/"}, "file"),
        (None, {"BASH_FUNC_rm": HARMLESS}, "file"),
        (None, {"BASH_FUNC_:; rm() { echo; }; x%%": HARMLESS}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { echo; }; ("}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { echo; }; echo"}, "file"),
        (None, {"BASH_FUNC_rm%%": "{ echo; }"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() {echo; }"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { }"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { # echo\n}"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { if echo; then fi; }"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { if echo; then echo; else fi; }"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { while echo; do done; }"}, "file"),
        (None, {"BASH_FUNC_rm%%": "() { done; }"}, "file"),
        ("true", {"BASH_FUNC_rm%%": HARMLESS}, "function"),
        ("rm() { echo harmless; }", {"X": "1"}, "function"),
        ("rm() { echo harmless; }", {"BASH_FUNC_rm%%": None}, "file"),
        ("rm() { echo harmless; }", {"BASH_FUNC_rm%%": "junk"}, "file"),
        ("rm() { echo harmless; }", {"BASH_FUNC_rm%%": "() { echo; }; ("}, "file"),
        ("rm() { !; echo harmless; }", {"X": "1"}, "function"),
        ("rm() { echo; }; readonly -f rm", {"BASH_FUNC_rm%%": "() { /bin/rm -r /; }"}, "function"),
    ],
)
def test_the_guard_knows_functions_as_bash_does(
    daemon: RawDaemon, session: str, before: str | None, env: Env, kind: str
) -> None:
    daemon.bash(before or "true", session=session)
    params = {"session": session if before is not None else None, "env": env}
    assert daemon.bash("type -t rm", **params)["stdout"] == f"{kind}\n"
    command = "rm -rf $BASH_FUNC_X" if "BASH_FUNC_X" in env else "rm -rf /"
    verdict = daemon.call("explain_command", {"command": command, **params})["verdict"]
    assert verdict == ("allow" if kind == "function" else "block")


def test_function_of_call_ends_despite_alias(
    daemon: RawDaemon,
) -> None:
    daemon.bash("alias B=x")
    daemon.bash("y=1", env={"BASH_FUNC_B%%": "() { echo env; }"})
    assert daemon.bash("declare -F B; alias B; echo $y")["stdout"] == "alias B='x'\n1\n"


@pytest.mark.parametrize("before", ["", "; BASH_XTRACEFD=2", "; export BASH_XTRACEFD"])
def test_trace_descriptor_of_call_is_not_kept(before: str) -> None:
    with raw_daemon("--spare-shells", "0") as daemon:
        shown = "x=1; declare -p BASH_XTRACEFD"
        daemon.bash(f"x=1{before}")
        expected = daemon.bash(shown)
        daemon.bash("y=1", env={"BASH_XTRACEFD": "5"})
        result = daemon.bash(shown)
        assert (result["stdout"], result["stderr"]) == (expected["stdout"], expected["stderr"])


@pytest.mark.parametrize("value", ["/tmp", "", None])
def test_pwd_of_call_leaves_the_directory_of_the_session(
    daemon: RawDaemon, session: str, tmp_path: Path, value: str | None
) -> None:
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    link = str(tmp_path / "link")
    daemon.bash(f"cd {link}", session=session)
    for command in ("y=1", "pwd -P", "cd below; cd ..", "x=1; cd below; cd -"):
        result = daemon.bash(command, session=session, env={"PWD": value})
        assert result["sessionCwd"] == link
        shown = daemon.bash('pwd; echo "$PWD"', session=session)["stdout"]
        assert shown == f"{link}\n{link}\n"
    moved = daemon.bash("cd below", session=session, env={"PWD": value})
    assert os.path.samefile(moved["sessionCwd"], tmp_path / "real" / "below")
