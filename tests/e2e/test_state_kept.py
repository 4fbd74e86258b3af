"""A session keeps the state that a command leaves, or the answer reports that the state is lost."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Json, RawDaemon, raw_daemon


@pytest.fixture(
    scope="module",
    params=[pytest.param(0, marks=pytest.mark.slow), 4],
    ids=["without spares", "with spares"],
)
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RawDaemon]:
    home = tmp_path_factory.mktemp("home")
    (home / "env.sh").write_text("export FOO=bar; trap 'echo bye' EXIT; cd /usr\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    with raw_daemon("--spare-shells", str(request.param), env=environment, cwd=home) as running:
        yield running


@pytest.mark.parametrize("session", ["main", None])
def test_shell_options_in_the_environment_are_left_out(session: str | None) -> None:
    options = {"SHELLOPTS": "xtrace:verbose:errexit", "BASHOPTS": "dotglob"}
    with raw_daemon(env={**os.environ, **options}) as daemon:
        for _ in range(2):
            shown = daemon.bash("X=2; false; echo $X; printenv SHELLOPTS", session=session)
            assert (shown["stdout"], shown["stderr"]) == ("2\n", "")


@pytest.fixture
def session(daemon: RawDaemon, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    daemon.bash("true", session=name)
    yield name
    daemon.call("close_session", {"session": name})


def reason_of(result: Json) -> str | None:
    """Return why the state was not kept, or None.

    Check that `stateKept` and `stateReason` agree.
    """
    assert result.get("stateKept", True) == ("stateReason" not in result)
    return result.get("stateReason")


# Bash can parse this function only with extglob. The line before the function switches extglob on.
EXTENDED = "shopt -s extglob\nf() { echo @(a|b); }"

KEPT = [
    ("X=1; enable -n printf", "echo $X", "1\n"),
    ("cd /usr; cd /tmp; export -n OLDPWD", "declare -p OLDPWD", 'declare -- OLDPWD="/usr"\n'),
    ("X=1; enable -n declare set trap umask", "echo $X", "1\n"),
    ("X=1; builtin() { echo no; }", "echo $X", "1\n"),
    ("X=1; builtin() { echo no; }; unset() { echo no; }; set -o posix", "echo $X", "1\n"),
    ("X=1; command() { echo no; }; printf() { echo no; }", "echo $X; printf", "1\nno\n"),
    ("X=1; unset() { echo u; }; declare() { echo d; }", "echo $X; unset; declare", "1\nu\nd\n"),
    ("shopt -s expand_aliases; alias builtin=no unset=no printf=no; X=1", "echo $X", "1\n"),
    ("shopt -s expand_aliases; alias if=no; X=1", "echo $X", "1\n"),
    ("shopt -s expand_aliases; alias fi=no then=no; X=1", "echo $X", "1\n"),
    ("pushd -n $'/a\\nb' >/dev/null; pushd -n /c >/dev/null", "cd /; dirs -l -p", "/\n/c\n/a\nb\n"),
    ("pushd -n $'/a\\nb' >/dev/null", "cd /; popd -n +0 >/dev/null; dirs -l -p", "/\n"),
    ("unset DIRSTACK; DIRSTACK=(a b); pushd -n /c >/dev/null", "cd /; dirs -l -p", "/\n/c\n"),
    (
        "unset DIRSTACK; pushd -n /c >/dev/null",
        "cd /; dirs -l -p; echo ${DIRSTACK-no}",
        "/\n/c\nno\n",
    ),
    ("f() { exit; }; cd /usr; f", "echo $DIRSTACK", "/usr\n"),
    ("f() { unset DIRSTACK; exit; }; cd /usr; f", "echo ${DIRSTACK-no}", "no\n"),
    ("alias() { echo no; }; builtin alias b=c", "builtin alias; alias", "alias b='c'\nno\n"),
    ("shopt -s expand_aliases; alias alias='echo no' b=c", r"\alias b", "alias b='c'\n"),
    ("alias a=\\' b=\"it's\" c= d=\"''\"", "alias", None),
    ("alias -- -a=$'x\\nalias b=y' +c=z", "alias", None),
    ("X=1; set -o posix; alias a=b", "echo $X; alias a; shopt -qo posix; echo $?", None),
    ("shopt -s expand_aliases; shopt -u sourcepath interactive_comments; X=1", None, None),
    ("trap 'echo dbg' DEBUG; X=1", "echo $X", "1\n"),
    ("trap 'cat <<END' EXIT; X=1", "echo $X", "1\n"),
    ("builtin trap 'echo dbg' DEBUG; X=1", "echo $X", "1\n"),
    ("trap 'printf \"\\0\\0dbg\"' DEBUG; X=1", "echo $X", "1\n"),
    ("set -T; trap 'echo dbg' DEBUG RETURN; X=1", "echo $X", "1\n"),
    ("set -eE; trap 'echo err' ERR; X=1; false", "set +e; echo $X", "1\n"),
    ("trap 'echo child' CHLD; X=1; /bin/true", "echo $X", "1\n"),
    ("X=1; trap 'echo bye' EXIT; f() { local X=2; exit; }; f", "echo $X", "1\n"),
    ("X=1; trap 'echo c' CHLD; f() { local X=2; exit; }; f", "echo $X", "1\n"),
    ("X=1; trap exit USR1; f() { local X=2; kill -USR1 $$; }; f", "echo $X", "1\n"),
    ("X=1; f() { local - X=2; set -f; }; f", "echo $X $-", "1 hBc\n"),
    ("set -x; exec 7>/dev/null; BASH_XTRACEFD=7; X=1", "echo $X", "1\n"),
    ("exec 7>trace; BASH_XTRACEFD=7; set -x; X=1", "set +x; echo $X; cat trace", "1\n+ X=1\n"),
    ("exec 7>trace 2>&-; BASH_XTRACEFD=7; set -x; X=1", "set +x; cat trace", "+ X=1\n"),
    ("BASH_XTRACEFD=1; set -x; X=1", "set +x; echo $X", "1\n"),
    ("X=1; exec >&- 2>&-", "echo $X", "1\n"),
    ("X=1; exec <&-", "echo $X", "1\n"),
    ("X=1; set -Cfu; IFS=/", 'echo "$X"', "1\n"),
    ("X=1; ulimit -S -f 0", "echo $X", "1\n"),
    (". ./env.sh", "echo $FOO $PWD", "bar /usr\n"),
    ("source ./env.sh", "echo $FOO $PWD", "bar /usr\n"),
    ("eval 'trap \"echo bye\" EXIT'; X=1", "echo $X", "1\n"),
    ("X=$'\\n\\001\\n'; alias a=$'b\\n\\001\\nc'", "echo ${#X}; alias a | wc -l", "3\n3\n"),
    ("X=1; f() { cat <<E\n\001\n\001\nE\n}", "echo $X; f | wc -l", "1\n2\n"),
    ("eval $'function a\\rb { :; }'", "declare -F | od -An -c", None),
    ("eval 'function a=b { echo ab; }'", r"a\=b", "ab\n"),
    ("ns/f() { echo f; }; X=1", "ns/f; echo $X", "f\n1\n"),
    ("eval 'function beat*.sh { echo f; }'", r"beat\*.sh", "f\n"),
    ("eval 'function ~ { echo f; }'; readonly -f '~'", r"\~; readonly -f -p | tail -1", None),
    ("function if { echo f; }; X=1", r"\if; echo $X", "f\n1\n"),
    ("function é-ü { echo f; }", "é-ü", "f\n"),
    (f"{EXTENDED}; shopt -u extglob", "f; shopt extglob", "@(a|b)\nextglob        \toff\n"),
    (f"{EXTENDED}; readonly -f f; shopt -u extglob", "f; readonly -f -p | tail -1", None),
    (f"{EXTENDED}; declare -ft f; shopt -u extglob", "f; declare -F", "@(a|b)\ndeclare -ft f\n"),
    (f"{EXTENDED}; export -f f; shopt -u extglob", "f; declare -F", "@(a|b)\ndeclare -fx f\n"),
    (f"{EXTENDED}; shopt -u extglob; set -o posix", "f; shopt -o posix", None),
    (f"{EXTENDED}; shopt -u extglob; X=1; set -u", "f; echo $X $-", "@(a|b)\n1 huBc\n"),
    (f"{EXTENDED}; g() {{ echo g; }}; X=1", "f; g; shopt extglob", None),
    ("shopt -s extglob\ng() ( echo @(a) )\nshopt -u extglob", "g", "@(a)\n"),
    ("shopt -s extglob\ntest() { echo +(a); }\nshopt -u extglob", "test", "+(a)\n"),
    ("shopt -s extglob\nfunction a+b { echo ?(a); }\nshopt -u extglob", "a+b", "?(a)\n"),
    (f"shopt -s extglob\nf() {{ echo @(a) {'x' * 70_000}; }}\nshopt -u extglob", "f | wc -c", None),
    (f"{EXTENDED}; g() {{ cat <<E\nX\nE\n}}; shopt -u extglob", "f; g", "@(a|b)\nX\n"),
    ("f() { ! (false) && echo $((2*(3))); }; shopt -s extglob", "f", "6\n"),
    ("LC_ALL=de 2>/dev/null", "echo $LC_ALL", "de\n"),
    ("export LC_CTYPE=de; unset LC_ALL", "printenv LC_CTYPE", "de\n"),
    ("X=äö; export LC_ALL=nope 2>/dev/null", "echo ${#X}", "2\n"),
    ("BASH_COMPAT=99 2>/dev/null", "echo $BASH_COMPAT", "99\n"),
    ("export BASH_COMPAT=99 2>/dev/null", "printenv BASH_COMPAT", "99\n"),
    ("export BASH_COMPAT=4.4; set -u", "shopt -p compat44; bash -c 'shopt -p compat44'", None),
    ("unset LC_ALL; LANG=nope 2>/dev/null", "echo $LANG; printenv LANG || echo no", "nope\nno\n"),
]


@pytest.mark.parametrize(("before", "after", "shown"), KEPT)
def test_next_command_has_previous_state(
    daemon: RawDaemon, session: str, before: str, after: str | None, shown: str | None
) -> None:
    after = after or "shopt -p; set +o; umask"
    if shown is None:
        # Get the output of one bash that runs both commands.
        both = f"exec 3>&1 >/dev/null; {before}\nexec >&3 3>&-\n{after}"
        done = subprocess.run(["bash", "-c", both], capture_output=True, text=True, check=False)
        shown = done.stdout
        assert shown
    assert reason_of(daemon.bash(before, session=session)) is None
    result = daemon.bash(after, session=session)
    assert result["stdout"] == shown
    assert result["stderr"] == "" or "set -x" in before


@pytest.mark.parametrize("options", ["IFS=0", "IFS=12", "set +B", "set -k"])
def test_traps_work_under_all_options(daemon: RawDaemon, session: str, options: str) -> None:
    command = f"{options}; trap 'echo usr' USR1; echo $?; trap 'echo bye' EXIT; trap x NO; trap"
    # `trap` lists ignored signals, and the caller of the tests may ignore some. Reset them, as the
    # daemon does.
    bash = ["env", "--default-signal", "bash", "-c", command]
    plain = subprocess.run(bash, capture_output=True, text=True, check=False)
    result = daemon.bash(f"{command}; X=1", session=session)
    assert (result["stdout"], result["stderr"]) == (plain.stdout, plain.stderr)
    assert reason_of(result) is None
    assert daemon.bash("trap", session=session)["stdout"] == ""


def test_ps4_is_rarely_expanded_for_internal_code(
    daemon: RawDaemon, session: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    result = daemon.bash(f"PS4='$(echo >>{log})'; set -x; :; X=1", session=session)
    assert reason_of(result) is None
    assert result["stderr"] == ":\nX=1\n"
    assert len(log.read_text().splitlines()) <= 2 + 6


def test_alias_of_reserved_word_disturbs_no_trap(daemon: RawDaemon, session: str) -> None:
    daemon.bash(
        "shopt -s expand_aliases; alias for=no do=no case=no esac=no in=no", session=session
    )
    for number in range(3):
        result = daemon.bash(f"trap 'echo bye' EXIT; X={number}", session=session)
        assert (result["stdout"], result["stderr"]) == ("bye\n", "")
        assert reason_of(result) is None
        assert daemon.bash("echo $X", session=session)["stdout"] == f"{number}\n"


def test_a_remembered_function_may_set_a_trap(daemon: RawDaemon, session: str) -> None:
    daemon.bash("setup() { trap 'echo bye' EXIT; }; outer() { setup; }", session=session)
    result = daemon.bash("outer; cd /usr; A=1", session=session)
    assert result["stdout"] == "bye\n"
    assert reason_of(result) is None
    assert daemon.bash("echo $A; pwd", session=session)["stdout"] == "1\n/usr\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("X=1; exec true", "missing"),
        ("X=1; set -r", "missing"),
        ("X=1; set -n", "missing"),
        ("X=1; ulimit -f 0", "missing"),
        ("X=1; trap 'exit 3' EXIT", "missing"),
        ("X=1; set -o posix; trap 'echo bye' EXIT", "missing"),
        ("X=1; trap '(' EXIT", "missing"),
        ("X=1; builtin trap '' EXIT", "missing"),
        ("X=1; enable -n builtin", "missing"),
        ("shopt -s extdebug; trap false DEBUG; X=1", "missing"),
        ("X=1; readonly _", "missing"),
        ("X=1; shopt -s expand_aliases; alias '!'=no", "missing"),
        ("X=1; shopt -s expand_aliases; alias '{'=no", "missing"),
        ("X=1; f() { local -; set -f; g; }; g() { exit; }; f", "local_options"),
        ("X=1; ulimit -f 4; f() { : " + "x" * 5_000 + "; }", "incomplete"),
        ("X=$(head -c 5000000 /dev/zero | tr '\\0' x)", "too_large"),
        ("X=1; kill -KILL $$", "signal"),
        ("X=1; kill -TERM $$", "signal"),
    ],
)
def test_answer_reports_state_not_kept(
    daemon: RawDaemon, session: str, command: str, reason: str
) -> None:
    daemon.bash("X=before; cd /usr", session=session)
    result = daemon.bash(command, session=session)
    assert reason_of(result) == reason
    assert result["sessionCwd"] == "/usr"
    assert daemon.bash("echo $X; pwd", session=session)["stdout"] == "before\n/usr\n"


# Bash 5.2 prints this function in a form that it cannot parse.
UNPARSABLE = "f() {\n  true && cat <<X && echo b\ntext\nX\n}"

# When bash 5.2 prints this function, `then` moves into the here-document. The printed text
# defines a different function, and bash can parse this text.
CHANGING = "f() {\n  true && if cat <<X\ntext\nX\n  then\n  echo b\n  return\n  fi\n}"


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        (UNPARSABLE, "f"),
        (f"{UNPARSABLE}; readonly -f f", "f"),
        (f"{UNPARSABLE}; export -f f", "f"),
        (f"{UNPARSABLE}; set -o posix", "f"),
        (f"{UNPARSABLE}; set -eu; trap 'echo bye' EXIT", "f"),
        (f"{UNPARSABLE}; trap : DEBUG RETURN", "f"),
        (f"{UNPARSABLE}; shopt -s expand_aliases; alias cat=if", "f"),
        (f"last() {{ f; exit; }}; {UNPARSABLE}; cd /usr; last", "f"),
        (f"eval '{UNPARSABLE}'", "f"),
        (f"echo '{UNPARSABLE}' >f; . ./f", "f"),
        (f"function {UNPARSABLE[3:].replace('{', 'f-2 {', 1)}", "f-2"),
        ("f() (\n  true && cat <<X && echo b\ntext\nX\n)", "f"),
        ("f() {\nfalse || if cat <<X; then echo b; else :; fi\ntext\nX\n}", "f"),
        ("f() { case $1 in (esac) ;; *) echo text; echo b;; esac; }", "f"),
        ("f() { case $1 in ( \\\nesac | x) ;; *) echo text; echo b;; esac; }", "f"),
        ("f() { echo text; coproc echo; echo b; }", "f"),
        ("f() {\necho text; echo b\n(\n!\n)\n}", "f"),
        ("f() (\necho text; echo b\n! # nothing\n)", "f"),
        ("f() {\n(\n! true &&\n!\n)\necho text; echo b\n}; export -f f", "f"),
        (CHANGING, "f"),
        (f"{CHANGING}; readonly -f f", "f"),
        (f"{CHANGING}; readonly IFS", "f"),
        (f"{CHANGING}; function g=2 {{ :; }}; unset -f g=2", "f"),
        (f"{CHANGING}; trap : DEBUG; set -T", "f"),
        (f"eval '{CHANGING}'", "f"),
    ],
)
def test_session_loses_only_the_function_bash_cannot_read(
    daemon: RawDaemon, session: str, definition: str, name: str
) -> None:
    others = f"long() {{ : {'x' * 70_000}; }}\nhere() {{ cat <<E\nhere\nE\n}}; last() {{ :; }}"
    result = daemon.bash(f"X=1; {others}\n{definition}\n{name}; cd /usr", session=session)
    assert "text\nb\n" in result["stdout"]
    assert (result["stderr"], reason_of(result)) == ("", "functions")
    for number in range(3):
        command = f"Y={number}; here; echo $X; declare -F"
        result = daemon.bash(command, session=session)
        assert result["stdout"] == "here\n1\ndeclare -f here\ndeclare -f last\ndeclare -f long\n"
        assert (result["stderr"], result["cwd"], reason_of(result)) == ("", "/usr", None)


def test_checking_a_function_runs_nothing_of_its_text(
    daemon: RawDaemon, session: str, tmp_path: Path
) -> None:
    # Bash prints this function wrongly. In the printed text, the function already ends at the `}`
    # in its second here-document.
    inner = f"echo a\nfi\n}}\n(touch {tmp_path}/f)\ntouch {tmp_path}/f; false || {{\nif :; then\n"
    text = f"cat >/dev/null <<X\n{inner}X\n"
    command = f"f() {{\ntrue && if cat <<X\ntext\nX\nthen\n{text}fi\n}}"
    assert reason_of(daemon.bash(command, session=session)) == "functions"
    assert daemon.bash(f"f; ls {tmp_path}", session=session)["stdout"] == ""


def test_functions_with_here_documents_are_kept(daemon: RawDaemon, session: str) -> None:
    # This line looks like the beginning of a function as bash prints it.
    head = "f () "
    commands = [
        f"f() {{ cat <<X; }}\n{head}\n$1\nX\n",
        f"f() {{ cat; }} <<X\n{head}\n1\nX\n",
        "f() { if cat <<X; then echo; fi; }\nf () \n1\nX\nexport -f f; readonly -f f",
    ]
    for number, command in enumerate(commands):
        name = f"{session} {number}"
        assert reason_of(daemon.bash(f"{command}; y=1", session=name)) is None
        for _ in range(2):
            shown = daemon.bash("y=$((y + 1)); f 1; eval :", session=name)
            assert (shown["stdout"].rstrip(), shown["stderr"]) == (f"{head}\n1", "")
        daemon.call("close_session", {"session": name})


@pytest.mark.parametrize("option", list("abefhkmptuvxBCHPT"))
def test_option_does_not_disturb_the_check_of_functions(
    daemon: RawDaemon, session: str, option: str
) -> None:
    command = "f() { cat <<X; }\nhere\nX\ng() { :; }"
    result = daemon.bash(f"set -{option}\n{command}", session=session)
    assert reason_of(result) is None
    assert daemon.bash("f; declare -F g", session=session)["stdout"] == "here\ng\n"


@pytest.mark.parametrize(
    "command", ["true", "ls / >/dev/null", "kill -KILL $$", "sh -c 'kill -KILL $$'"]
)
def test_stateless_command_reports_no_reason(daemon: RawDaemon, session: str, command: str) -> None:
    assert reason_of(daemon.bash(command, session=session)) is None


def test_unfinished_or_sessionless_commands_omit_state_kept(
    daemon: RawDaemon, session: str
) -> None:
    assert "stateKept" not in daemon.bash("X=1; exec true", session=None)
    background = daemon.bash("X=1; exec true", session=session, run_in_background=True)
    assert "stateKept" not in background
    error = daemon.fail("bash", {"command": "X=1; sleep 300", "timeout": 1000, "session": session})
    assert "stateKept" not in error["data"]


def test_answer_names_next_directory(daemon: RawDaemon, session: str, tmp_path: Path) -> None:
    def after(command: str, **params: object) -> object:
        return daemon.bash(command, session=session, **params).get("sessionCwd")

    assert after("cd /usr") == "/usr"
    assert after("true", cwd="/tmp") == "/usr"
    assert after("x=1", cwd="/tmp") == "/usr"
    assert after("cd lib", cwd="/usr") == "/usr/lib"
    assert after(f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone") is not None
    assert after(f"cd {tmp_path}; mkdir gone; cd gone") == f"{tmp_path}/gone"
    (tmp_path / "gone").rmdir()
    assert after("x=1") == str(tmp_path)
    assert daemon.bash("pwd", session=session)["stdout"] == f"{tmp_path}\n"
    error = daemon.fail("bash", {"command": "sleep 300", "timeout": 1000, "session": session})
    assert error["data"]["sessionCwd"] == str(tmp_path)
    assert "sessionCwd" not in daemon.bash("cd /usr", session=None)


@pytest.mark.parametrize("command", ["rmdir {0}", "mv {0} {0}2", "ln -sfn /usr {1}"])
def test_cwd_of_call_never_becomes_session_directory(
    daemon: RawDaemon, tmp_path: Path, command: str
) -> None:
    home, place, link = tmp_path / "home", tmp_path / "place", tmp_path / "link"
    home.mkdir()
    place.mkdir()
    link.symlink_to(place)
    daemon.bash(f"cd {home}")
    for cwd in (link, place):
        result = daemon.bash(command.format(place, link) + "; x=1", cwd=str(cwd))
        assert result["sessionCwd"] == str(home)
        place.mkdir(exist_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("spares", ["0", "4"])
def test_session_follows_cd_into_replaced_directory(tmp_path: Path, spares: str) -> None:
    start, renamed = tmp_path / "start", tmp_path / "renamed"
    start.mkdir()
    with raw_daemon("--spare-shells", spares, cwd=start) as daemon:
        daemon.bash("x=1")
        if spares != "0":
            daemon.wait_for_spare()
        # Without `cd`, a session stays in its directory, even after a rename.
        daemon.bash(f"mv {start} {renamed}; mkdir {start}; x=2")
        assert daemon.bash("touch stays; x=3")["cwd"] == str(start)
        daemon.bash(f"cd {start}")
        if spares != "0":
            daemon.wait_for_spare()
        result = daemon.bash("/bin/pwd; touch follows; x=4")
        assert (result["stdout"], result["cwd"]) == (f"{start}\n", str(start))
        assert daemon.bash("/bin/pwd")["stdout"] == f"{start}\n"
    assert [path.name for path in renamed.iterdir()] == ["stays"]
    assert [path.name for path in start.iterdir()] == ["follows"]


def test_directory_with_invalid_utf8_is_reported(
    daemon: RawDaemon, session: str, tmp_path: Path
) -> None:
    place = f"{tmp_path}/\ufffd"
    made = daemon.bash(f"cd {tmp_path}; mkdir $'\\xff'; cd $'\\xff'", session=session)
    assert made["sessionCwd"] == place
    result = daemon.bash("echo hi; x=1", session=session)
    assert (result["stdout"], result["cwd"], result["sessionCwd"]) == ("hi\n", place, place)
    shells = daemon.call("list_shells", {"session": session})["shells"]
    assert shells[-1]["cwd"] == place
    error = daemon.fail("bash", {"command": "sleep 300", "timeout": 1000, "session": session})
    assert error["data"]["cwd"] == place
    assert daemon.bash("cd /", session=session)["sessionCwd"] == "/"


UNSET = (
    "HOSTNAME HOSTTYPE IFS MACHTYPE OLDPWD OPTERR OPTIND OSTYPE PATH PS4 PWD RANDOM SECONDS SHELL"
    " GROUPS SHLVL SRANDOM TERM LINENO HISTCMD EPOCHSECONDS EPOCHREALTIME COMP_WORDBREAKS"
    " DIRSTACK BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_LOADABLES_PATH BASH_SUBSHELL BASHPID"
)


def test_option_physical_keeps_the_logical_directory(
    daemon: RawDaemon, session: str, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there")
    daemon.bash(f"cd {link}", session=session)
    assert daemon.bash("set -P", session=session)["sessionCwd"] == str(link)
    shown = daemon.bash("echo $PWD; cd .; pwd", session=session)["stdout"]
    assert shown == f"{link}\n{tmp_path}/there\n"


def test_unset_bash_variables_stay_unset(daemon: RawDaemon, session: str) -> None:
    daemon.bash(f"unset {UNSET}", session=session)
    command = f"for name in {UNSET}; do declare -p $name; done 2>/dev/null"
    assert daemon.bash(command, session=session)["stdout"] == ""
    # Bash can report its state without these variables.
    assert daemon.bash("echo ${PATH+set}; X=1", session=session)["stdout"] == "\n"
    assert daemon.bash("echo $X", session=session)["stdout"] == "1\n"


@pytest.mark.slow
def test_a_daemon_outlives_its_own_directory(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for spares in ("0", "4"):
        with raw_daemon("--spare-shells", spares, cwd=place) as daemon:
            shutil.rmtree(place)
            daemon.bash("X=1")
            assert daemon.bash("echo $X")["stdout"] == "1\n"
            daemon.bash("Y=2; cd .")
            assert daemon.bash("echo $X$Y")["stdout"] == "12\n"
            assert daemon.call("ping") == {}
            place.mkdir()


@pytest.mark.slow
def test_cwd_of_call_is_the_recreated_directory(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with raw_daemon(cwd=place) as daemon:
        daemon.bash("true")
        daemon.wait_for_spare()
        place.rename(tmp_path / "elsewhere")
        place.mkdir()
        assert daemon.bash("touch made", cwd=str(place))["exitCode"] == 0
    assert (place / "made").exists()


@pytest.mark.slow
def test_requests_are_utf_8_in_every_locale(tmp_path: Path) -> None:
    (tmp_path / "é").mkdir()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    with raw_daemon(env={**environment, "PYTHONUTF8": "0"}, cwd=tmp_path) as daemon:
        for _ in range(2):
            result = daemon.bash("printenv é; pwd", cwd="é", env={"é": "ü"})
            assert result["stdout"].split() == ["ü", f"{tmp_path}/é"]
            assert result["cwd"] == f"{tmp_path}/é"
        assert daemon.bash("cd é; ü=1")["sessionCwd"] == f"{tmp_path}/é"
        assert daemon.bash("pwd")["stdout"] == f"{tmp_path}/é\n"
        assert daemon.call("list_shells")["shells"][0]["cwd"] == f"{tmp_path}/é"


def test_commands_run_under_file_size_limit_zero() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    with raw_daemon(preexec_fn=limit) as daemon:
        result = daemon.bash("X=1; echo $X")
        assert (result["stdout"], reason_of(result)) == ("1\n", "unavailable")
        assert daemon.bash("echo [$X]")["stdout"] == "[]\n"


def test_thousands_of_functions_are_remembered(daemon: RawDaemon, session: str) -> None:
    define = 'for ((i=0;i<5000;i++)); do eval "f$i() { echo $i; }"; done; f7=1; unset i'
    assert reason_of(daemon.bash(define, session=session)) is None
    assert daemon.bash("x=1; f4999", session=session)["stdout"] == "4999\n"
    assert daemon.bash("f0; echo $x", session=session)["stdout"] == "0\n1\n"


def test_open_here_document_in_trap_shows_no_internal_code(daemon: RawDaemon) -> None:
    result = daemon.bash("trap $'cat <<END; echo $LINENO\\nbye\\n' EXIT; X=1", session="trap")
    assert result["stdout"] == "bye\n1\n"
    assert "__shelld" not in result["stderr"]
    shown = daemon.bash("trap 'echo $((1 << 3)); exit 4' EXIT; trap -p EXIT", session="trap")
    assert shown["stdout"] == "trap -- 'echo $((1 << 3)); exit 4' EXIT\n8\n"
    assert (shown["exitCode"], daemon.bash("echo $X", session="trap")["stdout"]) == (4, "1\n")


def test_open_quote_in_trap_shows_no_internal_code(daemon: RawDaemon) -> None:
    daemon.bash('f() { echo "it\'s"; }', session="quote")
    env = {"BASH_FUNC_f%%": "() { echo; }", "SECRET": "value"}
    for quote, status in ((r"\'", "missing"), ('"', "missing"), ("", None)):
        result = daemon.bash(f"trap $'echo {quote}' EXIT; X=1", session="quote", env=env)
        shown = result["stdout"] + result["stderr"]
        assert "__shelld" not in shown
        assert "value" not in shown
        assert reason_of(result) == status
    assert daemon.bash("f; echo $X", session="quote")["stdout"] == "it's\n1\n"


@pytest.mark.parametrize("signal_name", ["TERM", "HUP", "INT"])
@pytest.mark.parametrize("own_trap", ["", "trap : EXIT; ", "trap : USR1; ", "trap : DEBUG; "])
def test_job_killed_at_once_writes_no_state(
    daemon: RawDaemon, session: str, own_trap: str, signal_name: str
) -> None:
    # If a child gets a signal before it calls exec, it runs its parent's trap.
    for number in range(15):
        command = f"{own_trap}(sleep 100; echo late) & V={number}; kill -{signal_name} $!"
        result = daemon.bash(command, session=session)
        assert reason_of(result) is None
        assert daemon.bash("echo $V", session=session)["stdout"] == f"{number}\n"


def test_a_variable_can_keep_the_traps_of_its_command(daemon: RawDaemon) -> None:
    for command in ("saved=$(trap -p EXIT)", "show() { trap; }", "saved=$saved$(show)"):
        assert "stateKept" not in daemon.bash(command, session="saved trap")
    assert daemon.bash('echo "<$saved>"', session="saved trap")["stdout"] == "<>\n"
