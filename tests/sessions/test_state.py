"""The state of one bash, dumped and restored in another."""

from __future__ import annotations

import subprocess
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shelld.sessions.calls import CallReport
from shelld.sessions.dump_parser import MAX_DIRECTORIES, parse_dump
from shelld.sessions.dumps import DumpFiles
from shelld.sessions.mounts import Mounts
from shelld.sessions.prelude import (
    last_lines,
    may_define_misprinted,
    may_trap,
    prelude,
    startable,
    waiting_prelude,
)
from shelld.sessions.quoting import quote, unquote
from shelld.sessions.session import LeftState, Session
from shelld.sessions.state import ShellState, first_state
from states import BASE, after, dump_of

EVERYTHING = r"""
cd /tmp; pushd /usr >/dev/null; pushd /etc >/dev/null
export A='x"y$z`\' EMPTY= INVALID=$'\xff\xfe'; export -n HIDDEN=1
B=$'new\nline'; C=(1 'two words' $'\x01\n)'); sparse=([3]=x [9]=y)
declare -A D=([k]="v)" ["a b"]=$'q\nz' [")"]="(" ["declare -- x"]=$'\ndeclare -- y="1"\n')
declare -i N=5; declare -r R=ro; declare -xr XR=7; declare -x UNSET; declare -l low=ABC
declare -n ref=B; declare -xa ARRAY=(1 2); declare -x LONG="$(printf 'x%.0s' {1..70000})"
shopt -s extglob nullglob; set -o pipefail; set -u; umask 077; OPTIND=3; IFS=:
f() { echo "f $1"; cat <<X
here 'doc'
X
}
export -f f; declare -rf f; g() { [[ $1 == +(a|b) ]]; }
alias ll='ls -l' quo="echo 'it'\''s'"
"""


def test_next_bash_has_the_whole_state() -> None:
    first = after(EVERYTHING)
    assert first.cwd == b"/etc"
    assert first.env[b"A"] == b'x"y$z`\\'
    assert first.env[b"INVALID"] == b"\xff\xfe"
    assert b"HIDDEN" not in first.env
    assert first.later == {b"LONG"}
    assert first.names == {b"f", b"g", b"ll", b"quo"}
    second = after(":", first)
    assert (second.cwd, second.env, second.later) == (first.cwd, first.env, first.later)
    assert second.script.splitlines() == first.script.splitlines()
    check = 'dirs -p; f 1; g a && echo "$N ${D["a b"]} ${sparse[9]} $low $ref ${#LONG}"; echo $-'
    shown = dump_of(check, first).partition(b"\0")[0].decode()
    assert shown == "/etc\n/usr\n/tmp\nf 1\nhere 'doc'\n5 q\nz y abc new\nline 70000\nhuBc\n"


def test_empty_command_leaves_fresh_state_unchanged() -> None:
    state = after(":")
    assert state.env == BASE.env
    again = after(":", state)
    assert again.script == state.script


def test_variables_readonly_in_bash_are_left_out() -> None:
    script = after("readonly mine=1").script
    assert b"mine=" in script
    for name in (b"BASHOPTS", b"BASH_VERSINFO", b"EUID", b"PPID", b"SHELLOPTS", b"UID"):
        assert name not in script


def test_env_of_call_leaves_newer_session_value() -> None:
    session = Session("main", BASE, DumpFiles(), Mounts())
    assert session.keep(LeftState(dump_of("export A=1"))) is None
    # The call gave the second command a variable A of its own.
    with_own = ShellState(b"/", {**BASE.env, b"A": b"2"})
    report = CallReport(b'declare -x A="2"\n', frozenset())
    assert session.keep(LeftState(dump_of("x=1", with_own), (), {"A": "2"}, report)) is None
    assert session.state.env[b"A"] == b"1"
    assert b"x=" in session.state.script


def test_newest_directory_stack_entries_are_kept() -> None:
    count = 4 * MAX_DIRECTORIES
    many = f"for i in {{1..{count}}}; do pushd -n /d$i; done >/dev/null"
    state = after(many)
    assert state.pushed.count(b"pushd") == MAX_DIRECTORIES
    assert b"'/d%d'" % count in state.pushed
    assert after(":", state).pushed == state.pushed


@pytest.mark.parametrize("cut", [0, 1, 100, -1, -3])
def test_incomplete_dump_has_no_state(cut: int) -> None:
    dump = dump_of("x=1")
    assert parse_dump(dump[:cut]) is None


def test_a_dump_that_cannot_be_read_is_none() -> None:
    assert parse_dump(dump_of("x=1").replace(b"declare -- x", b"declare x")) is None


@pytest.mark.slow
@settings(max_examples=40)
@given(st.binary(max_size=40).map(lambda value: value.replace(b"\0", b"")))
def test_values_are_kept_byte_for_byte(value: bytes) -> None:
    state = after("y=$x; unset x; export y", ShellState(b"/", {**BASE.env, b"x": value}))
    assert state.env[b"y"] == value
    unexported = after("export -n y; z=$y; unset y", state)
    assert after("export z", unexported).env[b"z"] == value


@pytest.mark.slow
@given(st.binary(max_size=40))
def test_quoted_word_stays_one_word(value: bytes) -> None:
    value = value.replace(b"\0", b"")
    script = b"printf %s " + quote(value)
    result = subprocess.run([b"bash", b"-c", script], capture_output=True, check=True)
    assert result.stdout == value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (rb'"a"', b"a"),
        (rb'"\$x \"y\" \\ \`"', b'$x "y" \\ `'),
        (rb"$'\n\t\'\\\001\377\x41\E'", b"\n\t'\\\x01\xff\x41\x1b"),
    ],
)
def test_quoting_of_bash_is_understood(word: bytes, value: bytes) -> None:
    assert unquote(word) == value


def test_environment_functions_are_known_at_start() -> None:
    state = first_state(b"/", {b"BASH_FUNC_module%%": b"() { :; }", b"PATH": b"/bin"})
    assert state.names == {b"module"}


def test_prelude_sets_withheld_variables() -> None:
    env, withheld = startable({b"A": b"1", b"BASH_ENV": b"x'y", b"POSIXLY_CORRECT": b"1"})
    assert (env, withheld) == ({b"A": b"1"}, {b"BASH_ENV": b"x'y", b"POSIXLY_CORRECT": b"1"})
    text = prelude(BASE, 3, withheld)
    script = text.decode() + "printenv BASH_ENV POSIXLY_CORRECT; shopt -qo posix && echo posix"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "x'y\n1\nposix\n"


def test_prelude_runs_no_line_of_the_last_word() -> None:
    text = prelude(
        replace(BASE, options=b"\\builtin set -o noglob\n"), 3, {}, last_word=b"a\necho b"
    )
    script = text.decode() + 'echo "$_" "$-"'
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "a fhBc\n"


@pytest.mark.parametrize("line", ["if (", "f() { echo @(a); }", "x='"])
def test_waiting_bash_with_broken_state_exits(line: str) -> None:
    state = replace(BASE, definitions=line.encode() + b"\n")
    with tempfile.NamedTemporaryFile() as file:
        file.write(waiting_prelude(state, 9, {}, b"bash"))
        file.flush()
        done = subprocess.run(
            ["bash", "-c", 'eval "$BASH_EXECUTION_STRING"'],
            env={**BASE.env, b"BASH_ENV": file.name.encode()},
            capture_output=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("start", ["f() {", "f ( ) {", "f(\\\n) {", "function f {", "f() ("])
def test_functions_that_bash_may_misprint_are_recognised(start: str) -> None:
    for text in (
        "cat <<X\nx\nX\n",
        "case $1 in ( esac) ;; esac;",
        "coproc cat;",
        "(\n!\n)",
        "(time -p #\n)",
    ):
        assert may_define_misprinted(f"{start} {text} }}".encode())
        assert not may_define_misprinted(text.encode())
    assert not may_define_misprinted(start.encode() + b" case x in y) ;; esac; }")


def test_a_long_line_is_searched_for_misprinted_functions_in_linear_time() -> None:
    # In quadratic time, this would take an hour.
    assert may_define_misprinted(b"f() { :; }; : '" + b"!#" * 1_000_000 + b"'")


def test_long_command_is_assumed_to_set_traps() -> None:
    state = ShellState(b"/", {}, names=frozenset({b"f"}), sets_traps=True)
    assert not may_trap(b"echo " + b"a " * 100, state)
    assert may_trap(b"echo " + b"a " * 100_000, state)
    assert not may_trap(b"echo " + b"a " * 100_000, BASE)


def test_dump_without_option_names_needs_earlier_names() -> None:
    listed = dump_of("shopt -s dotglob nullglob; set -f -o posix")
    short = dump_of("shopt -s dotglob nullglob; set -f -o posix", lists_options=False)
    assert len(short) < len(listed) - 1_000
    assert parse_dump(short) is None
    state = parse_dump(listed)
    assert state is not None
    assert b"nullglob" in state.option_names.of_shopt
    assert parse_dump(short, state.option_names) == state


def test_privileged_mode_is_not_switched_off_in_a_bash_without_it() -> None:
    # Bash would change its user and group, which some systems refuse.
    assert b"privileged" not in after("x=1").options
    privileged = after("set -p")
    assert b" -o privileged" in privileged.options
    assert b"privileged" not in after("set +p", privileged).options


def test_seconds_of_a_spare_shell_begin_again_unless_unset() -> None:
    def lines(command: str) -> list[bytes]:
        return last_lines(after(command), b":", 3, {}).splitlines()

    assert b"SECONDS=0" in lines("SECONDS=7")
    assert b"SECONDS=0" in lines("export SECONDS")
    assert b"SECONDS=0" not in lines("unset SECONDS")
