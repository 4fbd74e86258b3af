"""Commands that must behave as in ``bash -c``, one per line.

`NEWLINE` in a line stands for a line end within the command.
"""

from __future__ import annotations

from typing import Final

NEWLINE: Final = "<NL>"

_LINES: Final = r"""
true
false
:
exit
exit 0
exit 3
exit 256
exit -1
exit abc
exit 1 2
echo
echo hi
echo -n hi
echo -e 'a\tb\n'
echo "$0"
echo "$-"
echo "$#"
echo "$@" "$*"
echo "$?"
echo "$LINENO"
echo $LINENO<NL>echo $LINENO<NL><NL>echo $LINENO
echo "$BASH_SUBSHELL"
echo "${BASH_SOURCE[@]}" "${FUNCNAME[@]}" "${BASH_LINENO[@]}"
echo "$BASH_EXECUTION_STRING"
echo "$SHLVL"
echo "$PPID" | grep -c .
[ "$$" = "$BASHPID" ]; echo $?
( [ "$$" = "$BASHPID" ]; echo $? )
echo "$IFS" | od -c
echo "$PS4" "$OPTIND" "$OPTERR"
echo "${PIPESTATUS[@]}" | wc -l
false | true | false; echo "${PIPESTATUS[@]}"
nope
nope; echo $?
nope arg | cat
/nope
./nope
/
/etc/passwd
<NL><NL>nope
echo a<NL>nope<NL>echo b
f() { nope; }; f
f() {<NL>nope<NL>}<NL>f
f() { echo "${FUNCNAME[@]}" "${BASH_LINENO[@]}"; }; f
f() { return 3; }; f
f() { return 3; }; f; echo $?
f() { exit 4; }; f; echo no
f() { local x=1; echo $x; }; f; echo "[$x]"
f() { caller; caller 0; }; f
f() { g; }; g() { caller 1; }; f
return
return 3
return; echo on
break
continue
local x
shift
shift 2
getopts ab: x -a; echo $x
)
(
}
{
;
;;
&
&&
||
|
if
fi
then
do
done
esac
case
case x in
for
for x
while
echo (
echo )
echo a )
echo a; )
echo a<NL>)
echo a<NL>echo b<NL>)
echo 'unterminated
echo "unterminated
echo `unterminated
echo $(unterminated
echo ${unterminated
echo $((1+
echo ${x!}
echo ${}
${x}
echo a;; echo b
if true; then echo
while true; do
for i in 1 2; do echo $i
{ echo a
( echo a
cat <<X<NL>abc
cat <<X<NL>abc<NL>X
cat <<X<NL>$HOME `echo a` $(echo b)<NL>X
cat <<'X'<NL>$HOME<NL>X
cat <<-X<NL>		tabs<NL>	X
cat <<X; echo after<NL>in<NL>X
cat <<A <<B<NL>a<NL>A<NL>b<NL>B
cat <<< 'here string'
echo a \<NL>b
echo a\<NL>b
echo 'a<NL>b'
# a comment
echo a # a comment
echo a#b
set -x; echo hi
set -x; echo "a b" 'c'; x=1; [ a = b ]; [[ a == b ]]
set -x; f() { echo f; }; f
set -x; (echo sub)
set -x; echo $(echo sub)
set -x; eval 'echo evaluated'
set -x; for i in 1 2; do echo $i; done
set -x; x=1 y=2 env >/dev/null
set -x; : "${x:=1}"; ((x++)); let x++
set -x; PS4='+$LINENO '; echo hi
set -x; exit 3
set -x; nope
set -v; echo hi
set -v<NL>echo hi<NL>echo ho
set -e; false; echo no
set -e; false || true; echo yes
set -e; if false; then :; fi; echo yes
set -e; f() { false; echo on; }; f; echo no
set -e; (false); echo no
set -e; x=$(false); echo no
set -e; true | false; echo no
set -u; echo $x; echo no
set -u; echo ${x-}; echo yes
set -u; f() { echo $x; }; f; echo no
set -n; echo no
set -f; echo *
set -C; echo a > /dev/null
set -o pipefail; false | true
set -o posix; echo $-
set -o nope
set -Z
set -o | grep -c on
set +o | grep -c set
set -- a b; echo $# $1
set -- -x; echo $1
shopt -s nope
shopt -s extglob; echo a
shopt -s extglob<NL>case ab in +(a|b)) echo yes;; esac
case ab in +(a|b)) echo yes;; esac
shopt -s failglob; echo /nope*; echo no
shopt -p | md5sum
shopt -s lastpipe; echo a | read x; echo "[$x]"
shopt -s expand_aliases; alias a='echo aliased'; a
shopt -s expand_aliases; alias a='echo aliased'<NL>a
alias a=b; a
alias nope
unalias nope
trap 'echo bye' EXIT
trap 'echo bye' EXIT; exit 3
trap 'echo bye $?' EXIT; false
trap 'exit 5' EXIT; true
trap 'echo a' EXIT; trap 'echo b' EXIT
trap 'echo a' EXIT; trap - EXIT
trap 'echo a' EXIT; trap -p
trap 'echo a' EXIT; trap
trap; trap -p; trap -p EXIT
set -x; trap 'echo a' EXIT; echo b
set -x; trap 'echo a' EXIT; trap - EXIT; trap 'echo term' TERM; exit 2
set -e; trap 'echo a' EXIT; trap x NOPE; echo no
trap 'echo a' EXIT; exec 2>&1; nope
trap 'nope' EXIT
trap '(' EXIT
trap 'echo a<NL>echo b' EXIT; trap -p
trap -- '' EXIT
trap -p NOPE
<NL><NL>trap x NOPE WRONG INT<NL>trap -p
trap -Z
f() { trap x NOPE; }; f
trap 'echo a' EXIT; (exit 2)
trap 'echo a' EXIT; (trap 'echo sub' EXIT; :)
trap 'echo a' EXIT; x=$(trap -p EXIT); echo "$x"
trap 'echo term' TERM; kill -TERM $$; echo on
trap '' TERM; kill -TERM $$; echo on
trap 'echo usr' USR1; kill -USR1 $$; trap -p USR1
trap 'echo err' ERR; false; echo on
trap 'echo int' INT; kill -INT $$; echo on
trap 'echo hup' HUP; kill -HUP $$
trap 'echo bye' EXIT; kill -TERM $$
trap 'echo bye' EXIT; exec true
trap -l | wc -l
trap 'echo a' 0; trap -p 0
trap 'echo a' EXIT; trap -p | cat; trap | cat; echo b
trap 'echo a' EXIT; (trap -p EXIT; trap - EXIT; trap)
trap 'echo a' EXIT USR1; trap - USR1 EXIT; trap
trap '' EXIT; trap; trap -p EXIT; trap -- - EXIT; trap
trap 'echo dbg' DEBUG; echo x
trap 'echo dbg' DEBUG; trap -p DEBUG
trap 'echo dbg' DEBUG; x=1; trap - DEBUG; y=2; trap -p
trap 'echo "$BASH_COMMAND" >&2' DEBUG; cd /
trap 'echo "$BASH_COMMAND" >> log' DEBUG; x=1; cat log; rm log
trap 'echo $_ $?' DEBUG; echo hi there; (exit 3); :
trap 'echo e' EXIT; trap 'echo d' DEBUG; echo x; exit 3
set -T; trap 'echo dbg' DEBUG; echo x
f() { trap -p DEBUG; }; trap 'echo d' DEBUG; f
trap 'echo child' CHLD; /bin/true; trap; echo x
trap 'echo ret' RETURN; set -T; trap; f() { :; }; f
trap 'echo ret' RETURN; f() { :; }; f; set -T; f; trap -p
trap 'echo all' DEBUG RETURN EXIT; echo x; trap -p; f() { :; }; f
f() { trap 'echo bye f' RETURN; echo in f; }; f; g() { :; }; g; trap -p
trap 'echo err' ERR; false; trap -p; trap - ERR; false; trap -p; echo
trap 'echo e $?' ERR; trap foo; trap -; trap 'x' NOPE ERR; (exit 3); trap
set -E; trap 'echo e $LINENO' ERR; f() { false; }; f; trap -p
f() { trap 'echo cleaned' RETURN; echo work; }; (f); f | cat; x=$(f); echo $x; f & wait
f() { trap 'echo cleaned' RETURN; echo work; }; trap : EXIT; x=$(f; trap); echo $x
( trap 'echo R' RETURN; echo y; trap; trap -p RETURN )
( trap 'echo D' DEBUG; echo y )
( trap 'echo D' DEBUG; trap; trap - DEBUG; trap )
( trap 'echo all' DEBUG RETURN EXIT ERR USR1; false; kill -USR1 $BASHPID; trap - DEBUG; trap )
( trap - DEBUG RETURN EXIT; trap; trap 2; trap )
trap 'echo e' EXIT; trap 'echo u' USR1; ( trap -l >/dev/null; trap; trap - INT; trap )
set -T; trap 'echo R' RETURN; ( trap : USR1; f() { :; }; f; trap )
set -T; trap 'echo R' RETURN; ( trap 'echo S' RETURN; f() { :; }; f; trap - RETURN; f; trap )
set -E; trap 'echo e' ERR; ( trap : USR1; false; trap; trap - ERR; false; trap )
echo a<NL>( trap x NOPE; echo $?; trap x DEBUG WRONG; echo $?; trap x NOPE )
( f() {<NL>trap x NOPE; echo $?; }; f )
( trap -Z; trap x; trap -; echo $?; trap )
( ( trap 'echo R' RETURN; trap ); trap ); trap
trap 'echo "$BASH_COMMAND"' EXIT; false
set -e; trap 'echo failed: "$BASH_COMMAND"' EXIT; g() { false; }; g
set -eE; trap 'echo failed: "$BASH_COMMAND"' ERR; g() { false; }; g
trap 'echo "$BASH_COMMAND"' TERM; kill $$; echo "$BASH_COMMAND"
set -eu; trap 'echo e' EXIT ERR; false; echo a
set -e; trap ':' DEBUG; true
set -e; trap 'echo d' DEBUG; trap 'echo e' EXIT; exit 7
set -eET; trap ':' DEBUG; trap 'echo err' ERR; f() { :; }; f
trap ':' DEBUG; trap 'echo err' ERR; true
trap 'echo int' INT; trap 2; trap; trap -p 0
eval 'trap "echo e" EXIT'; cd /; echo a
. /dev/stdin <<< 'trap "echo e" EXIT'; echo a
. /dev/stdin <<< 'trap x NOPE'; echo a
set -r
set -r; trap 'echo a' EXIT; x=1; : > file
set -r; trap x INT NOPE; trap
trap "echo 'quo ted'" EXIT; trap -p
trap 'echo \' EXIT; trap -p
trap 'echo a \\' EXIT; trap -p
trap 'printf %s \\\' EXIT
trap '# \' EXIT; trap -p
trap "echo 'a" EXIT; trap -p
trap 'echo `' EXIT; trap -p
trap 'echo $((1' EXIT; trap -p
BASH_COMPAT=4.0; trap "echo 'quo & ted'" EXIT; trap; trap -p EXIT
BASH_COMPAT=31; trap "echo 'q\'" EXIT ERR; set -E; trap -p
kill -TERM $$; echo no
kill -KILL $$; echo no
kill -INT $$; echo on
kill -HUP $$; echo no
kill -USR1 $$; echo no
kill -PIPE $$; echo no
kill -ABRT $$; echo no
kill -0 $$; echo $?
kill -l 9
kill -NOPE $$
kill
kill nope
sh -c 'exit 3'
sh -c 'kill -TERM $$'
sh -c 'kill -SEGV $$'
sh -c 'kill -SEGV $$'; echo $?
sh -c 'kill -9 $$' | cat; echo "${PIPESTATUS[@]}"
(kill -9 $BASHPID); echo $?
(exit 3)
(exit 3); echo $?
exec true
exec nope; echo no
exec sh -c 'echo $0'
exec -a name sh -c 'exit 4'
exec > /dev/null; echo no
exec 2>&1; nope
exec 3>&1; echo a >&3
exec < /dev/null; read x; echo $?
sleep 0 & wait; echo $?
sleep 0 & wait $!; echo $?
false & wait $!; echo $?
sleep 300 & kill -9 $!; wait $!; echo $?
sleep 0 & jobs | wc -l
jobs
fg
bg
wait 99999999
wait nope
disown
disown %1
suspend
ls /proc/self/fd | wc -l
ls /proc/$$/fd
ls -l /proc/$$/fd/0 | grep -c null
ls /nonexistent
ls /nonexistent; echo $?
cat < /nonexistent
cat < /nonexistent; echo $?
echo a > /nonexistent/b
echo a > /; echo $?
echo a >&9
echo a <&9
echo a > ""
: > /dev/full
echo a > /dev/full
echo a > /dev/full; echo $?
echo a | tee /dev/stderr
echo err >&2
echo a; echo b >&2; echo c
{ echo a; echo b >&2; } 2>&1
( echo a; exit 4 ) | cat; echo "${PIPESTATUS[@]}"
cat /dev/stdin
read x; echo "$? [$x]"
read -t 0 x; echo $?
head -c 5 /dev/zero | od -c
printf '%s\n' a b c
printf '%d\n' nope
printf '%q\n' 'a b' $'\n' ''
printf -v x '%03d' 7; echo $x
printf '\xff\xfe' | od -c
printf 'no newline'
echo $'\x00a' | od -c
x=1; echo $x
x=1 y=2; echo $x$y
x=1; unset x; echo "[$x]"
x=(1 2 3); echo ${x[@]} ${#x[@]} ${!x[@]}
x=(1 2 3); unset x[1]; echo ${x[@]}
declare -A m=([a]=1 [b]=2); echo ${m[a]} ${#m[@]}
declare -i n=1+1; echo $n
declare -r r=1; r=2; echo $?
declare -r r=1; unset r; echo $?
readonly r=1; r=2
declare -n ref=x; x=5; echo $ref
declare -p nope
declare x=1; declare -p x
declare -l low=ABC; declare -u up=abc; echo $low$up
declare -F
declare -f nope
declare -Z
export x=1; printenv x
export -n HOME; printenv HOME; echo $?
export 'a b'
export -p | grep -c declare
unset nope; echo $?
unset -f nope; echo $?
typeset x=2; echo $x
let x=1+2; echo $x
let; echo $?
((0)); echo $?
((1/0)); echo $?
echo $((1/0)); echo no
echo $((2**10)) $((16#ff)) $((010))
echo $((x=5)) $x
echo $((
echo ${x:-default} ${x:=set} $x ${x:+alt}
echo ${x:?message}; echo no
x=hello; echo ${#x} ${x:1:2} ${x/l/L} ${x//l/L} ${x%lo} ${x#he} ${x^} ${x^^}
x=a.b.c; echo ${x%%.*} ${x##*.}
echo ${!BASH_VER*} | wc -w
echo {1..3} {a..c} x{1,2}y
echo ~ | grep -c /
echo ~root
echo /et[c] /nope*
echo "a  b"   c
echo 'a'"b"c
echo \$HOME
echo "\$HOME \\ \" \`"
[ 1 = 1 ]; echo $?
[ 1 = ]; echo $?
[ 1 -eq x ]; echo $?
[ ; echo $?
test -d /; echo $?
test -f /; echo $?
[[ a == a* ]]; echo $?
[[ a =~ (a) ]]; echo ${BASH_REMATCH[1]}
[[ a =~ ( ]]; echo $?
[[ -e / && ! -e /nope ]]; echo $?
[[ a
if false; then echo a; elif true; then echo b; else echo c; fi
for i in 1 2 3; do echo $i; done
for ((i=0; i<3; i++)); do echo $i; done
for i; do echo $i; done
while false; do :; done; echo $?
until true; do :; done; echo $?
i=0; while [ $i -lt 3 ]; do i=$((i+1)); [ $i = 2 ] && continue; echo $i; done
for i in 1 2 3; do [ $i = 2 ] && break; echo $i; done; echo $i
case abc in a*) echo yes;; *) echo no;; esac
case a in a) echo 1;& b) echo 2;; c) echo 3;; esac
select x in a b; do echo $x; break; done
{ echo a; }
! true; echo $?
! false
TIMEFORMAT=took; time true 2>/dev/null
true && echo yes || echo no
false && echo yes || echo no
true; false
cd /nope
cd /nope; echo $?
cd /tmp && pwd
cd /tmp; cd -
cd ''
cd a b
cd; pwd | grep -c /
pushd /tmp; popd
popd
dirs
pwd -P
umask
umask 077; umask
umask nope
ulimit -n | grep -c .
ulimit -c 0; ulimit -c
type true
type ls | grep -c ls
type nope
type -t if cd ls nope
command -v true
command nope
builtin nope
builtin echo hi
enable -n echo; type -t echo
hash
hash -r
help nope 2>&1 | grep -c nope
history
fc -l
eval 'echo a; nope'
eval 'echo a<NL>nope'
eval '('
eval 'echo "'
eval
source /nope
source /dev/null; echo $?
source
. /dev/stdin <<< 'echo sourced; return 3'; echo $?
mapfile -t a < <(printf '1\n2\n'); echo ${#a[@]}
echo <(true) | grep -c /dev/fd
cat <(echo a) <(echo b)
echo a > >(cat); wait
coproc cat; echo ${#COPROC[@]}; { kill -9 $COPROC_PID; wait; } 2>/dev/null
echo $(echo a; echo b) "$(echo c; echo d)"
echo `echo a \`echo b\``
x=$(exit 3); echo $?
echo $(nope)
echo $( ( echo deep ) )
env -i /bin/bash -c 'echo [$HOME]'
env -i true
bash -c 'echo $0 $SHLVL'
bash -c 'exit 9'
nohup true 2>/dev/null
timeout 5 true
timeout 0.05 sleep 300; echo $?
xargs -n1 echo < /dev/null
yes | head -3
yes 2>/dev/null | head -c 100000 | wc -c
seq 3 | while read n; do echo "n$n"; done
seq 3 | { read a; read b; echo $a$b; }
echo a b c | awk '{print $2}'
echo aXb | sed s/X/-/
printf 'b\na\n' | sort
python3 -c 'import sys; sys.exit(7)'
python3 -c 'import os; os.abort()' 2>/dev/null
python3 -c 'print("x" * 100000)' | wc -c
times | wc -l
logout
let 'x=' ; echo $?
echo ${x[}
x[=1
1x=2
a b=c
=x
"" ; echo $?
'' a
$(true); echo $?
$nope; echo $?
"$nope"; echo $?
exec 9<&-; echo $?
echo $_ | grep -c .
true a b; echo $_
"""

COMMANDS: Final = [line.replace(NEWLINE, "\n") for line in _LINES.strip("\n").splitlines()]

# In a session, bash also runs some of shelld's own code before and after a command. The output of
# these commands differs because of that code; docs/sessions.md explains how.
EXPECTED_DIFFERENCES: Final = frozenset(
    {
        "trap '(' EXIT",
        "set -v; echo hi",
        "set -v\necho hi\necho ho",
        """trap 'echo "$BASH_COMMAND"' EXIT; false""",
        """set -e; trap 'echo failed: "$BASH_COMMAND"' EXIT; g() { false; }; g""",
    }
)
