"""The statements that set names. The tests compare the values with the values in bash itself.

No dangerous command runs.
"""

from __future__ import annotations

import subprocess

import pytest

from guard_lines import HERE
from shelld.guard import StartState
from shelld.guard.judgement import judge

ENV = {"HOME": "/home/me", "PATH": "/usr/bin:/bin"}
# The guard takes `probe` for a program. In bash it is a function.
PROBE = 'probe() { local IFS=" "; printf "probe %s\\n" "$*"; }; export -f probe\n'

SCRIPTS = r"""
x=1; probe "$x"
x=1 y=2; probe "$x$y"
x=a; x+=b; probe "$x"
x=; probe "<$x>"
x="a b"; y=$x; probe "$y"
x=~; probe "$x"
x=a:~; probe "$x"
x=~:~/b:c~; probe "$x"
x=a:~:~root; probe "$x"
x="a":~; probe "$x"
x=a\:~; probe "$x"
x=a; x+=:~/b; probe "$x"
export x=a:~; probe "$x"
probe x=a:~ a:~ "x"=~ 'x=a':~
probe "${x:-a:~}"
a=(x 'y z'); probe "${a[1]}" "${#a[@]}"
a=(x); a+=(y z); probe "${a[@]}"
a=(x y); a[1]=q; probe "${a[1]}"
a=(x); a[2]=z; probe "${a[2]}"
a=([1]=x [0]=y); probe "${a[1]}" "${a[0]}"
declare -A m=([k]=v [l]=w); probe "${m[k]}" "${m[l]}"
declare -A m; m[k]=v; probe "${m[k]}"
declare x=1 y=2; probe "$x" "$y"
declare "x=1 2"; probe "$x"
n=x; declare $n=5; probe "$x"
declare -i x=2+3; probe "$x"
declare -i x; x=2*4; probe "$x"
declare -i x=1; x+=4; probe "$x"
declare -l x=ABC; probe "$x"
declare -u x=abc; probe "$x"
declare -l x; x=ABC; probe "$x"
declare -u x; x=abc; probe "$x"
x=v; declare -n r=x; probe "$r"
declare -n r=x; x=v; probe "$r"
declare -n r=x; r=v; probe "$x"
declare -n r='a[1]'; a=(p q); probe "$r"
declare -r x=1; probe "$x"
readonly x=1; probe "$x"
readonly -a a=(p q); probe "${a[1]}"
typeset x=1; probe "$x"
export x=1; probe "$x"
export x; x=1; bash -c 'probe "$x"'
x=1; export x; bash -c 'probe "$x"'
x=1; bash -c 'probe "<$x>"'
declare -x x=1; bash -c 'probe "$x"'
export -n x=1; bash -c 'probe "<$x>"'
f() { local x=1; probe "$x"; }; f
x=out; f() { local x=in; }; f; probe "$x"
x=out; f() { x=in; }; f; probe "$x"
x=out; f() { declare x=in; }; f; probe "$x"
f() { declare -g x=in; }; f; probe "$x"
f() { local a=(p q); probe "${a[1]}"; }; f
x=1; unset x; probe "<$x>"
x=1; unset -v x; probe "<$x>"
f() { probe one; }; unset -f f; f() { probe two; }; f
n=x; x=1; unset "$n"; probe "<$x>"
a=(p q r); unset 'a[1]'; probe "${a[@]}" "${#a[@]}"
a=(p q r); unset 'a[1]'; probe "<${a[1]}>" "${a[2]}"
a=(p q); unset 'a[0]'; probe "<$a>" "${a[1]-x}" "${a[0]-x}"
a=(p q r); unset 'a[-1]'; probe "${a[@]}"
a=(p q); unset 'a[@]'; probe "<${a[*]}>"
i=1; a=(p q r); unset "a[$i]"; probe "${a[*]}"
declare -A m=([k]=v [l]=w); unset 'm[k]'; probe "<${m[k]}>" "${m[l]}"
x=a; readonly x; probe "$x"
declare x; probe "<$x>"
declare -a a; a+=(p); probe "${a[0]}"
printf -v x '%s-' a b; probe "$x"
x=1; x=2 true; probe "$x"
x=$(echo a); probe "$x"
let x=2+3; probe "$x"
((x=4)); probe "$x"
[[ 1 -eq 1 ]]; probe ok
x=5; [[ x -eq 5 ]] && probe "$x"
declare -i i=1; i=i+1; probe "$i"
declare -p x >/dev/null 2>&1; probe ok
x=abc; declare -n r=x; unset -n r; probe "$x"
a=(p q); b=("${a[@]}" r); probe "${b[2]}"
a=(p q); x=${a[*]}; probe "$x"
IFS=,; a=(p q); x="${a[*]}"; probe "$x"
x='a b'; a=($x); probe "${a[1]}"
x='a b'; a=("$x"); probe "${#a[@]}"
x=1; f() { local x=$x$x; probe "$x"; }; f
x=1; f() { local x; probe "<$x>"; }; f
x=1; f() { local x=2; g; }; g() { probe "$x"; }; f
x=1; f() { local x=2; unset x; }; f; probe "$x"
x=1; f() { local x=2; local x=3; }; f; probe "$x"
x=1; f() { local x=2; f2; }; f2() { local x=4; }; f; probe "$x"
x=1; f() { typeset x=2; }; f; probe "$x"
a=(p); f() { local a=(q); }; f; probe "${a[0]}"
a=(p); f() { local -a a; a+=(q); }; f; probe "${a[@]}"
v=1; f() { local -n r=v; r=2; }; f; probe "$v"
r=1; v=2; f() { local -n r=v; }; f; probe "$r"
x=1; f() { local x=2; bash -c 'probe "<$x>"'; }; f
export x=1; f() { local x=2; bash -c 'probe "$x"'; }; f
declare -ix n=2; n+=3; probe "$n"
"""


@pytest.mark.parametrize("script", SCRIPTS.split("\n")[1:-1])
def test_values_are_those_of_bash(script: str) -> None:
    shown = subprocess.run(
        ["/bin/bash", "--norc", "-c", PROBE + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENV,
        check=True,
        text=True,
    ).stdout.splitlines()
    trace = judge(script, StartState("/work", ENV), traces=True).trace
    probed = [line for line in trace if line.startswith("probe")]
    assert probed[-1:] == shown[-1:]


@pytest.mark.parametrize(
    "script",
    [
        'x=/; f() { local x=build; }; f; rm -rf "$x"',
        'x=build; f() { local x=/; rm -rf "$x"; }; f',
        'x=build; f() { local x=/; g; }; g() { rm -rf "$x"; }; f',
        'f() { local x; x=/; rm -rf "$x"; }; f',
        'a=(/); f() { local a=(build); }; f; rm -rf "${a[@]}"',
        "declare -l c; c='RM -RF /'; $c",
        "declare -u d=etc; d=/; rm -rf $d",
        "declare -n r='a[1]'; a=(ls /); rm -rf \"$r\"",
        "declare -i i='x[$(rm -rf /)]'",
        "declare -A m=([k]=/); rm -rf ${m[k]}",
        "readonly d=/; rm -rf $d",
        'declare "d=/"; rm -rf $d',
        "n=d; declare $n=/; rm -rf $d",
        "export d=/; bash -c 'rm -rf $d'",
        "unset 'a[$(rm -rf /)]'",
        "[[ -v 'a[$(rm -rf /)]' ]]",
        "[[ 'a[$(rm -rf /)]' -eq 1 ]]",
        "[[ -n $(rm -rf /) ]]",
    ],
)
def test_declared_values_are_judged(script: str) -> None:
    assert judge(script, HERE).verdict == "block"


@pytest.mark.parametrize(
    "script",
    [
        'x=build; f() { local x=/; }; f; rm -rf "$x"',
        'x=/; f() { local x=build; rm -rf "$x"; }; f',
        'f() { local tmp; tmp=$(mktemp -d); rm -rf "$tmp"; }; f',
        'a=(build); f() { local a=(/); }; f; rm -rf "${a[@]}"',
        "declare -l d=BUILD; rm -rf $d",
        "d=/; unset d; d=build; rm -rf $d",
        "export -n d=/; bash -c 'rm -rf ./$d'",
    ],
)
def test_hidden_values_are_not_judged(script: str) -> None:
    assert judge(script, HERE).verdict == "allow"
