"""What a command can change in its session."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shelld.sessions.dump_parser import is_whole, parse_dump, parse_short_dump
from shelld.sessions.side_effects import NOTHING, changes_of
from shelld.sessions.state import ShellState
from states import BASE, after, dump_of

HARMLESS = r"""
true
ls -la /tmp
/bin/ls
ls | wc -l
make -j4 2>&1 | tail -5 > out.txt
echo $HOME "x $USER" 'a;b' $?
git commit -m "it's $X"
sleep 1 &
exit 3
python -c 'x = 1; print(x)'
ls >&2 && ls &>/dev/null || kill -9 $$
ls $X=1
test -n "$X"
test "$X" = "$HOME" && ls
test $? -eq 0
test -v X; ls "$X" 'a[y=7]'
""".strip().splitlines()
HARMFUL = r"""
cd x
ls; cd /
A=1
A=1 ls
x+=1
a[1]=2
export A
unset A
f() { :; }
( cd / )
{ cd /; }
! true
[[ a == b ]]
echo $(ls)
echo `ls`
echo ${X:=1}
echo $((x=1))
cat <<X
cat <(ls)
ls > >(cat)
source x
. x
eval ls
exec ls
read x
printf -v x y
set -e
shopt -s extglob
alias x=y
umask 077
command cd /
builtin cd /
\cd /
'cd' /
"cd" /
$X foo
mine
if true; then cd /; fi
for x in 1; do ls; done
wait
trap 'cd /' EXIT
test -v 'a[y=7]'
[ -v "a[y=7]" ]
test x = x -a -'v' 'a[y=7]'
true; test "$X" 'a[y=7]'
test "$X" "$Y"
test -v "$X"
test $X
test *
: x=1
true; : a "$X" x+=1
exit 0 x=1
times x=1
""".strip().splitlines()


@pytest.mark.parametrize("command", HARMLESS)
def test_starting_programs_changes_nothing(command: str) -> None:
    assert changes_of(command, BASE) == NOTHING


@pytest.mark.parametrize("command", HARMFUL)
def test_possible_changes_are_never_missed(command: str) -> None:
    mine = frozenset({b"mine"})
    assert changes_of(command, replace(BASE, names=mine, function_names=mine)) != NOTHING


@pytest.mark.parametrize("command", HARMLESS)
def test_command_changing_nothing_keeps_the_state(command: str) -> None:
    # Leave out commands that end bash or run for long.
    if not any(word in command for word in ("exit", "kill", "make", "git", "python", "sleep")):
        dump = dump_of(f"{{ {command}; }} >/dev/null 2>&1")
        assert parse_dump(dump) == after(":")


# The state of a session in which commands have run.
USED = after(
    "f() { :; }; umask 027; set -f; shopt -s nullglob; n=5; declare -i i=3; export e=8 s=abc;"
    " readonly r=1; declare -n ref=s; a=(1 2); declare -u up=X; cd /usr; pushd -n /tmp >/dev/null"
)

VARIABLES = r"""
x=1
x=
x+=1
x=1 y=2
x=1; y=$x
x='a b' && y="$x c"
x=$((x + 1))
x=$((n * 2 - e))
x=$((1)); y=$((x + 1)); x=7; y=$((x))
x="$((n + 1)) $HOME"
x=$(git rev-parse HEAD)
x="$(ls | wc -l)"
x=1 ls
x=$(ls) make -j4 > out.txt
cd
cd /usr
cd -P /usr && ls
cd "$HOME"; ls | wc -l
export x
export x=1 y="$HOME" s
export x=$((n + 1)) > out.txt && ls
ls; x=1
""".strip().splitlines()
ANYTHING = r"""
x=$((s))
x=$((HOSTTYPE))
x=$((i))
i=1
r=1
ref=1
a=1
up=x
IFS=,
LC_ALL=C
OPTIND=1
SECONDS=1
export RANDOM
PS4=x
OLDPWD=/
x=$((x=5))
x=$((n++))
x=$((n--))
x=$((++n))
x="$((1 - --n))"
x=$((_))
x=$((BASH_COMMAND))
x=abc; y=$((x))
false && s=5; y=$((s))
s=5 | x=$((s))
n+=1; y=$((n))
x=$(($n))
x=$((a[1]))
x=$(( (1) ))
x=$(echo $(ls))
x=$(f) y=`ls`
x=(1 2)
x[1]=2
x=${y:=1}
x="${y}"
x=<(ls)
BASH_ALIASES=x
BASH_COMPAT=42
BASH_ENV=/x
POSIXLY_CORRECT=1
export POSIXLY_CORRECT
GLOBIGNORE=a
export -f f
export -n e
export x=1 i=2 y
export i y
y=1 i=2
i=1 y=2
i=1 ls
export "$x"
export $x
export 'x=1'
export x[1]=2
f
x=1 f
x=1; alias a=b
cd / && unset x
cd / && . x
cd / && eval ls
cd / && exec ls
cd /; umask 077
cd / # home
pushd /
declare x=1
readonly x=1
unset x
read x
let x=1
""".strip().splitlines()


@pytest.mark.parametrize("command", VARIABLES)
@pytest.mark.parametrize("state", [BASE, USED], ids=["new", "used"])
def test_short_dump_gives_the_same_state_as_whole_dump(command: str, state: ShellState) -> None:
    changes = changes_of(command, state)
    assert changes
    quiet = f"{{ {command}; }} >/dev/null 2>&1"
    told = parse_short_dump(dump_of(quiet, state, only=changes), state, changes)
    whole = after(quiet, state)
    assert told is not None
    # The next bash cannot tell the two states apart.
    assert after(":", told) == after(":", whole)


@pytest.mark.parametrize("command", ANYTHING)
def test_command_that_changes_more_than_variables_gets_a_whole_dump(command: str) -> None:
    assert changes_of(command, USED) is None


def test_output_in_which_bash_may_show_its_traps_gets_a_whole_dump() -> None:
    state = after("f() { trap -p; }")
    assert changes_of("x=$(ls)", state) is not None
    for command in ("x=$(trap -p EXIT)", 'x="$(f)"', "x=$(. file)", "export x=$(ls | f)"):
        assert changes_of(command, state) is None


def test_only_known_variables_may_stand_in_an_arithmetic_expression() -> None:
    assert changes_of("x=$((HOSTTYPE))", BASE) is None
    assert changes_of("x=$((y))", BASE) is not None


@pytest.mark.parametrize("before", ["alias a=b", "set -o posix", "export POSIXLY_CORRECT=1"])
def test_assignment_is_not_trusted_if_aliases_or_posix_mode_may_change_it(before: str) -> None:
    state = after(before)
    assert changes_of("x=1", state) is None
    assert changes_of("ls", state) == NOTHING


NAMES = frozenset({b"x"})
WHOLE = b'\0declare -- x="1"\n\0/usr\n\0'


def test_short_dump_is_read() -> None:
    state = parse_short_dump(WHOLE, USED, NAMES)
    assert state == replace(
        USED,
        declarations={**USED.declarations, b"x": b'x="1"\n'},
        cwd=b"/usr",
        inherits_cwd=False,
    )


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_incomplete_short_dump_is_refused(cut: int) -> None:
    assert not is_whole(WHOLE[:cut], is_short=True)
    assert parse_short_dump(WHOLE[:cut], USED, NAMES) is None


@pytest.mark.parametrize(
    "dump",
    [
        b'\0declare -- x="1"\ndeclare -- y="1"\n\0/usr\n\0',
        b'\0declare -- x="1\n\0/usr\n\0',
        b'\0x="1"\n\0/usr\n\0',
        b'\0\0declare -- x="1"\n\0/usr\n\0',
    ],
)
def test_malformed_short_dump_is_refused(dump: bytes) -> None:
    assert parse_short_dump(dump, USED, NAMES) is None


def test_variables_that_the_environment_cannot_hold_are_set_later() -> None:
    state = BASE
    value = "x" * 50_000
    for number in range(30):
        name = b"v%d" % number
        dump = b'\0declare -x %s="%s"\n\0/\n\0' % (name, value.encode())
        state = parse_short_dump(dump, state, frozenset({name})) or pytest.fail("it was not read")
    assert sum(len(state.env[name]) for name in state.env if name not in state.later) < 1 << 20
    assert set(state.declarations) == state.later
    assert b"v29" in state.later
    assert b"v0" not in state.later


@pytest.mark.parametrize("command", ['echo "%s${x}"', "x=%s${x}", 'x="%s`ls`"', "ls >%s`ls`"])
def test_a_command_with_many_variables_is_read_in_linear_time(command: str) -> None:
    # In exponential time, this would never end.
    assert changes_of(command % ("$SOME_VARIABLE/" * 40), BASE) is None
