"""Several commands of a session leave the same state as one bash that runs them all."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from support import RawDaemon, raw_daemon

# Each of these commands changes only state that a session remembers.
CHANGES = [
    "x=1",
    "x='two  words'",
    "x=$'line\\nend\\r\\001\\377'",
    "export x=exported y",
    "declare -i x=5; x+=2",
    "x=$((y++)); z=$((--y))",
    "declare -ax x=([3]=a [9]='b c')",
    "declare -A y=([']']=$'\\n v')",
    "x='a b'; declare -i x",
    "x=010; declare -ir x; export y='two  words'; declare -i y",
    "x='a[$(echo ran >>made)0]'; declare -i x",
    "x=(1 abc 'a b'); declare -i x; declare -A y=([k]='p q' [l]=L); declare -iu y",
    "x=abc; declare -u x; y=ABC; declare -lx y; z=(aBc 'dEf g'); declare -c z; readonly z",
    "x='a b'; declare -n z=x; declare -in z",
    "declare -i PATH HOME; declare -u LC_ALL=c; LC_CTYPE=C.UTF-8; declare -u LC_CTYPE",
    "declare -n z=x",
    "declare -l y=ABC; declare -u x=def",
    "readonly z=fixed",
    "declare -x y=$'\"$`\\\\'",
    "unset x y HOME GLOBIGNORE",
    "unset IFS PS4 OPTIND TERM",
    "unset PATH",
    "unset PWD",
    "IFS=:x",
    "OPTIND=4",
    "export IFS=:",
    "set -a; IFS=,",
    "export PS1=a PS2=b PS4='c '",
    "PS1=a PS2=b PS4='c '",
    "export OPTERR=0 IGNOREEOF=3",
    "OPTERR=0 IGNOREEOF=3",
    "set -o ignoreeof",
    "OLDPWD=/nowhere x=1",
    "x='declare -- y=\"1\"'; y=$'\\ndeclare -- x=\"1\"\\n'",
    "GLOBIGNORE=x",
    "export GLOBIGNORE=x; shopt -s nullglob",
    "GLOBIGNORE=x; shopt -u dotglob",
    "shopt -s dotglob; GLOBIGNORE=x; unset GLOBIGNORE",
    "shopt -s extglob nullglob",
    "shopt -s dotglob; shopt -u progcomp cmdhist",
    "shopt -s failglob nocasematch xpg_echo",
    "set -fCu",
    "set -a",
    "set +B; set -o pipefail; set +h",
    "set -o posix",
    "set +o posix",
    "set -b -k",
    "umask 027",
    "umask u=rwx,g=,o=",
    "cd /usr",
    "cd /tmp; cd -",
    "pushd -n /tmp",
    "pushd /usr/lib; pushd /etc; popd",
    "alias a=b 'c=echo \"x\"' x=$'two\\nlines'",
    "unalias -a",
    'f() { echo "$1"; }',
    "f() { cat <<E\ng () \nE\n}; g() { :; }",
    "g() ( cd / ); export -f g",
    "h() { local x=1; } 2>/dev/null; readonly -f h",
    "unset -f f g",
    "eval 'function a=b { :; }; function c/d { :; }; function ~ { :; }'",
    "set -a; function a=b { :; }; readonly -f a=b; function x=y { :; }; set +a",
    "function f-g.h { :; }; declare -ft f-g.h",
    'cd() { builtin cd "$@"; }; declare() { builtin declare "$@"; }',
    "enable -n printf; enable printf",
    "BASH_COMPAT=4.4",
    "LC_ALL=C; LC_CTYPE=C.UTF-8",
    "LC_ALL=(C 'x y'); export LC_CTYPE=(C.UTF-8)",
    "POSIXLY_CORRECT=y",
    "true",
]
# Each command exits within a function. END stands for `exit` in the session, and for `return` in
# the single bash.
EXITS = [
    "export x=global; f() { local x=inner IFS=, y=1; END; }; f",
    "x=global; f() { local x=outer y; local -r z=1; g; }; g() { local -r x=inner; y=set; END; }; f",
    "f() { END; }; x=1 y=2 f",
    "f() { g; }; g() { z=new; END; }; export x=0; x=1 y=2 f",
    "declare -ix x=5; declare -ax y=(1 'two  words' $'\\n'); f() { local x=a y=b z; END; }; f",
    "declare -A y=([']']=$'\\n v' [a]='b c'); f() { local -a y=(1 2); END; }; f",
    "declare -n z=x; x=1; f() { local -n z=y; local y=2 x; END; }; f",
    "x='a b'; declare -ix x; y=(1 'a b'); declare -iu y; f() { local x=2 y=3; END; }; f",
    "x='a[$(echo ran >>made)0]'; declare -i x; f() { local x=1; END; }; f",
    "x=aBc; declare -u x; declare -A y=([k]='P q'); declare -lr y; f() { local x=1; END; }; f",
    "x=aBc; declare -ur x; declare -A y=([k]=P); declare -l y; f() { local x y=2; END; }; f",
    "x=010; declare -i x; declare -Ai y; declare -l z; f() { local x=1 y=2 z=3; END; }; f",
    "declare -lA x=(['\\\\']=a ['b\\\\']=c); declare -iA y=(['\\\\']=4 [']']=5); f() { END; }; f",
    "declare -lx x=ABC; declare -t y=1; f() { local x y=2; unset x; END; }; y=3 f",
    "declare -a x; declare -A y=(); declare -x z; f() { local x=1 y=2 z=3; END; }; f",
    "readonly x=1; declare -ar y=(1 2); f() { local z=$x; END; }; f",
    "x=\"\\$x 'it' \\`y\\` \\\\ é\" y=$'declare -- z=\"1\"\\n'; f() { local x y=$x; END; }; f",
    "readonly IFS; x=1; f() { local x=2; END; }; f",
    "IFS=:; readonly IFS; x=1; f() { local x=2; END; }; f",
    "IFS=$'\\n\\t'; readonly IFS; x='a b'; f() { END; }; f",
    "unset PATH IFS OPTIND; f() { local PATH=/x IFS=y OPTIND=7; END; }; f",
    "set -fCua; f() { local x=1 y; END; }; f",
    "set -o posix; x=1; f() { local x=2; END; }; f",
    "export POSIXLY_CORRECT=1; x=1; f() { local x=2; END; }; f",
    "alias local=no for=no if=no; local() { no; }; f() { builtin local x=1; END; }; f",
    "shopt -s expand_aliases; alias local=no for=no if=no eval=no; f() { declare x=1; END; }; f",
    "shopt -s localvar_inherit localvar_unset; x=1; f() { local x; x=2; END; }; f",
    "enable -n eval local; f() { declare x=1; END; }; f; enable eval local",
    "cd /usr; f() { local PWD=/x OLDPWD=/y; x=1; END; }; f",
]
# Use only builtins, because PATH may be unset.
PROBE = """
\\builtin echo MARK
\\builtin alias
\\builtin shopt -p
\\builtin set +o
\\builtin umask
\\builtin dirs -l -p
\\builtin pwd
\\builtin declare -F
\\builtin declare -f
\\builtin export -p
for name in x y z IFS PATH HOME PS1 PS2 PS4 TERM OPTIND OPTERR OLDPWD IGNOREEOF \\
  BASH_COMPAT LC_ALL LC_CTYPE POSIXLY_CORRECT
do \\builtin declare -p $name; done 2>/dev/null
"""
sessions = itertools.count()


class Place(NamedTuple):
    daemon: RawDaemon
    environment: dict[str, str]
    home: Path


@pytest.fixture(scope="module", params=[0, 4], ids=["without spares", "with spares"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("home")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "SHLVL": "1", "PWD": str(home)}
    spares = str(request.param)
    with raw_daemon("--spare-shells", spares, env=environment, cwd=home) as daemon:
        yield Place(daemon, environment, home)


def one_bash(place: Place, changes: list[str]) -> str:
    """Make all changes in one bash; return the probe's output, or "" if a change ended bash."""
    done = subprocess.run(
        ["bash", "-c", "\n".join([*changes, PROBE])],
        executable="/bin/bash",
        env=place.environment,
        cwd=place.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout.partition("MARK\n")[2]


def check(place: Place, changes: list[str], expected: str) -> None:
    session = str(next(sessions))
    directory = ""
    for change in changes:
        result = place.daemon.bash(change, session=session)
        assert result.get("stateKept", True)
        directory = result["sessionCwd"]
    shown = place.daemon.bash(PROBE, session=session, strip_ansi=False)
    place.daemon.call("close_session", {"session": session})
    assert shown["stdout"].partition("MARK\n")[2] == expected
    assert shown["cwd"] == directory


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_by_the_next_command(place: Place, change: str) -> None:
    expected = one_bash(place, [change])
    assert "shopt" in expected
    check(place, [change], expected)


@pytest.mark.parametrize("command", EXITS)
def test_exit_in_function_leaves_no_local_variable(place: Place, command: str) -> None:
    expected = one_bash(place, [command.replace("END", "return")])
    assert "shopt" in expected
    # The probe also lists the functions. The functions contain `return` in the single bash, and
    # `exit` in the session.
    expected = expected.replace(" return", " exit")
    check(place, [command.replace("END", "exit")], expected)


# This test tries the same examples each time. The long test tries other examples.
@pytest.mark.slow
@settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(changes=["set -o posix", "set +o posix"])
@example(changes=["POSIXLY_CORRECT=y", "set -a"])
@example(changes=["unset IFS PS4 OPTIND TERM", "OPTIND=4"])
@example(changes=["unset PATH", "declare -i PATH"])
@example(changes=["GLOBIGNORE=x", "unset x y HOME GLOBIGNORE"])
@given(changes=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=4))
def test_changes_accumulate_as_in_one_bash(place: Place, changes: list[str]) -> None:
    expected = one_bash(place, changes)
    # In posix mode, some errors end bash.
    assume("shopt" in expected)
    check(place, changes, expected)


@pytest.mark.long
@pytest.mark.parametrize("first", CHANGES)
def test_any_two_changes_accumulate(place: Place, first: str) -> None:
    for second in CHANGES:
        expected = one_bash(place, [first, second])
        # A here-document that looks like a function hides the attributes of a function named a=b.
        is_hidden = "g () \nE" in first + second and "-f a=b" in first + second
        if "shopt" in expected and not is_hidden:
            check(place, [first, second], expected)
