"""A bash that gets only the changes to its state has the same state as a new bash that gets all of
the state.
"""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shelld.sessions.differences import lines_between
from shelld.sessions.dump_parser import parse_dump
from shelld.sessions.state import ShellState, with_late_settings
from states import BASE, after, dump_of

FIRST = "x=1 y='two words'; export E=1; declare -a list=(1 2); IFS=,; cd /usr; umask 027; alias a=b"
FRESH = ":"


def state_if_told(before: ShellState, now: ShellState) -> ShellState | None:
    """Return the state of a bash. First this bash restores the state `before`. Then it runs the
    lines that change this state into `now`.
    """
    lines = lines_between(before, now)
    if lines is None:
        return None
    return parse_dump(dump_of(":", replace(before, options=now.options), told=lines))


@pytest.mark.parametrize(
    "command",
    [
        "x=2",
        "x=$'new\\nline' y=\"it's\"",
        "unset x y list",
        "export x; E=2",
        "export -n E; declare -x F=1",
        "declare -x G",
        "declare -i x; x=3+4",
        "declare -l y=ABC; declare -u Z=abc",
        "unset x; declare -A x=([a]=1 ['b c']=$'\\n')",
        "list+=(3); list[7]=x",
        "readonly x; declare -r new=1",
        "declare -n ref=x",
        "IFS=:; PS4='+++ '; OPTERR=0",
        "unset IFS OPTERR HOSTNAME",
        "PATH=/usr/bin",
        "export TZ=UTC HOME=/; unset TERM",
        "SHELLOPTS_=1; set -u -o pipefail; set +B",
        "cd /tmp",
        "cd /tmp; cd /usr; x=5",
        "cd '/proc/self/../../tmp'; OLDPWD=/nowhere",
        "unset OLDPWD; cd /",
        "export -n OLDPWD",
        "GLOBIGNORE=a; unset GLOBIGNORE",
        "SECONDS=100; RANDOM=5; unset SRANDOM; export HISTCMD",
    ],
)
@pytest.mark.parametrize("first", [FIRST, FRESH])
def test_bash_that_gets_the_changes_has_the_same_state(first: str, command: str) -> None:
    before = after(first)
    now = after(command, before)
    told = state_if_told(before, now)
    assert told is not None
    assert told == after(":", now)


@pytest.mark.parametrize(
    "command",
    [
        "f() { :; }",
        "f() { :; }; export -f f",
        "alias b=c",
        "umask 077",
        "shopt -s nullglob",
        "pushd /tmp",
        "export LC_ALL=C",
        "OPTIND=3",
        "GLOBIGNORE=a",
        "GLOBIGNORE=a; shopt -u dotglob",
        "export BASH_ENV=/nowhere",
        "export POSIXLY_CORRECT=1",
        "big=$(printf '%20000s')",
        "BASH_COMPAT=44",
        "declare -xi POSIXLY_CORRECT=1",
    ],
)
def test_some_changes_of_state_need_a_new_bash(command: str) -> None:
    before = after(FIRST)
    assert lines_between(before, after(command, before)) is None


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("readonly v=1", "v=2"),
        ("declare -ir v=1", "v=2"),
        ("declare -ru v=a", "v=b"),
        ("x=1; declare -n v=x", "v=y"),
        ("unset HOSTNAME; readonly HOSTNAME", "HOSTNAME=2"),
    ],
)
def test_removing_a_permanent_variable_needs_a_new_bash(first: str, command: str) -> None:
    before = after(first)
    assert lines_between(before, after(command)) is None
    # Other variables can change.
    now = after("other=6", before)
    assert state_if_told(before, now) == after(":", now)


@pytest.mark.parametrize(
    "first",
    [
        "cd /usr; readonly OLDPWD",
        "cd /usr; declare -n OLDPWD=foo",
        "cd /usr; declare -i OLDPWD",
        "cd /usr; export -n OLDPWD",
        "unset PWD",
    ],
)
def test_nothing_but_oldpwd_changes_with_the_directory(first: str) -> None:
    before = after(first)
    assert lines_between(before, after("cd /tmp")) is None


@pytest.mark.parametrize("command", ["cd /tmp; cd /usr; readonly OLDPWD", "cd /usr; unset OLDPWD"])
def test_spare_shell_of_a_new_session_accepts_an_unusual_oldpwd(command: str) -> None:
    now = after(command)
    assert state_if_told(BASE, now) == after(":", now)


def test_daemons_own_directory_is_not_passed_by_its_path() -> None:
    own = replace(BASE, inherits_cwd=True)
    elsewhere = after("cd /usr")
    assert lines_between(own, elsewhere)
    assert lines_between(elsewhere, own) is None
    assert lines_between(BASE, own) is None
    # The path can be the same if the daemon's directory was renamed.
    assert b"cd -- '/'" in (lines_between(own, after("cd /usr; cd /")) or b"")


def test_bash_that_cannot_change_its_directory_runs_nothing() -> None:
    gone = replace(after("cd /usr"), cwd=b"/gone")
    lines = lines_between(BASE, gone)
    assert lines is not None
    result = subprocess.run([b"bash", b"-c", lines + b"echo ran"], capture_output=True, check=False)
    assert (result.stdout, result.returncode) == (b"", 1)


def test_large_states_are_not_compared() -> None:
    many = {b"v%d" % number: b"declare -- v=1\n" for number in range(3_000)}
    large = replace(BASE, declarations=many)
    assert lines_between(large, replace(large, env={**BASE.env, b"A": b"1"})) is None


@pytest.mark.parametrize("name", ["declare", "unset"])
def test_state_with_shadowed_builtins_cannot_be_told(name: str) -> None:
    before = after(f"{name}() {{ :; }}")
    assert lines_between(before, after("x=1", before)) is None


def test_new_session_can_be_told_a_whole_state() -> None:
    script = "alias a=b; shopt -s nullglob; umask 077; cd /usr; x=1; export E=2; set -f; f[3]=4"
    now = after(script)
    assert state_if_told(BASE, now) == after(":", now)


def test_a_changed_locale_is_passed_to_bash_once() -> None:
    locale = with_late_settings(after("export LANG=C.UTF-8"), BASE.env)
    assert state_if_told(after(":"), locale) == after(":", locale)
    other = with_late_settings(after("export LANG=POSIX", locale), BASE.env)
    assert lines_between(locale, other) is None


def test_new_functions_cannot_be_told() -> None:
    assert lines_between(BASE, after("f() { :; }")) is None
    assert lines_between(after("f() { :; }"), after(":")) is None
    with_functions = replace(
        BASE, env={**BASE.env, b"BASH_FUNC_f%%": b"() { :; }"}, function_names=frozenset({b"f"})
    )
    assert lines_between(with_functions, after("unset -f f", with_functions)) is None


def test_only_a_new_session_gets_functions_outside_the_environment() -> None:
    # A function with an extended pattern is not passed in the environment.
    now = after("shopt -s extglob; f() { [[ $1 == @(a|b) ]]; }; shopt -u extglob")
    assert now.definitions
    assert state_if_told(BASE, now) == after(":", now)
    assert lines_between(after("x=1"), now) is None


STATEMENTS = st.lists(
    st.sampled_from(
        (
            *("x=1", "x=2", "export x", "export -n x", "unset x", "declare -i x=7", "x+=1"),
            *("y=$'\\n'", "declare -a y=(1 2)", "unset y", "declare -A y=([k]=v)", "declare -x y"),
            *("cd /", "cd /usr", "cd /tmp", "cd -", "IFS=:", "unset IFS", "set -u", "set +u -f"),
            *(
                "unset OLDPWD",
                "unset PWD",
                "export Z=1",
                "PATH=/bin:$PATH",
                "readonly r=1",
                "declare -ir r=2",
                "declare -n n=x",
            ),
            *("readonly OLDPWD", "declare -l y=A", "export -n OLDPWD", "alias a=b", "set -a"),
        )
    ),
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(STATEMENTS, STATEMENTS, STATEMENTS)
def test_bash_that_gets_any_two_changes_has_the_same_state(
    first: list[str], second: list[str], third: list[str]
) -> None:
    def run(statements: list[str], state: ShellState) -> ShellState:
        quiet = "; ".join(f"{{ {each}; }} 2>/dev/null >&2" for each in (*statements, ":"))
        return after(quiet, state)

    before = run(first, BASE)
    now = run(third, run(second, before))
    for start in (BASE, before):
        told = state_if_told(start, now)
        assert told is None or told == after(":", now)
