"""Command lines that hide a command. They use features that only bash has.

The format is that of `guard_classes`.

No test runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "read": (
        r"""
read -d '' x <<< 'rm -rf /'; eval "$x"
read -rd '' x <<EOF␤rm -rf /␤EOF␤eval "$x"
read -n 8 x <<< 'rm -rf /home/me/x'; eval "$x"
read -N8 x <<< 'rm -rf /home/me/x'; eval "$x"
read -d % x <<< 'rm -rf /%tmp/x'; eval "$x"
IFS= read -r -d '' x < <(printf 'ls\nrm -rf /\n'); eval "$x"
read -d ';' x <<< '/; ls'; rm -rf $x
read -ra a -d '' <<< $'rm -rf\n/'; "${a[@]}"
{ read a; read b; } <<< $'ls\nrm -rf /'; eval "$b"
while read -d, x; do rm -rf $x; done <<< 'tmp,/,'
while read x; do rm -rf $x; done <<< $'tmp\n/'
printf 'a\n/\n' | while read -r x; do rm -rf "$x"; done
printf 'a\0/\0' | while IFS= read -r -d '' x; do rm -rf "$x"; done
while read -r a b; do $a $b; done <<< $'ls x\nrm -rf /'
read -n 1 x <<< /tmp; rm -rf $x
""",
        r"""
read -d '' x <<< 'rm -rf /'; echo "$x"
read -rd '' text <<EOF␤never run rm -rf /␤EOF␤git commit -m "$text"
read -n 1 answer; [ "$answer" = y ] && ls
read -N8 x <<< 'rm -rf /home/me/x'; echo "$x"
while read x; do rm -rf build/$x; done <<< $'tmp\n/'
while IFS= read -r -d '' x; do rm -rf "$x"; done < <(find build -print0)
while read -r a b; do echo $a $b; done <<< $'ls x\nrm -rf /'
find . -name '*.pyc' -print0 | while IFS= read -r -d '' f; do rm -f "$f"; done
while IFS=, read -r a b; do echo "$a"; done < data.csv
read -r first _ < VERSION; echo $first
""",
    ),
    "mapfile": (
        r"""
mapfile -d % a <<< 'rm -rf /%'; eval "${a[0]%?}"
mapfile -td % a <<< 'rm -rf /%'; eval "${a[0]}"
mapfile -s 1 -t a <<< $'ls\nrm -rf /'; eval "${a[0]}"
mapfile -s1 -n1 -t a <<< $'ls\nrm -rf /\nls'; eval "${a[0]}"
mapfile -C 'rm -rf / #' -c 1 a <<< x
mapfile -c 1 -C 'eval rm -rf /' a < file
readarray -t -C 'rm -rf / ;:' -c1 a < <(ls)
mapfile -t -O 2 a <<< 'rm -rf /'; eval "${a[2]}"
mapfile -t < <(echo 'rm -rf /'); eval "${MAPFILE[0]}"
mapfile -t -u 0 b <<< 'rm -rf /'; ${b[0]}
""",
        r"""
mapfile -t a < <(ls); echo "${a[@]}"
mapfile -s 1 -t a <<< $'rm -rf /\nls'; echo "${a[0]}"
mapfile -s 1 -t a <<< $'rm -rf /\nls'; eval "${a[0]}"
readarray -d '' files < <(find build -print0); rm -f "${files[@]}"
mapfile -n 1 -t a <<< $'ls\nrm -rf /'; eval "${a[0]}"
mapfile -C 'echo line' -c 1 a < file
""",
    ),
    "compgen": (
        r"""
compgen -C 'rm -rf /'
compgen -C 'rm -rf / #' x
compgen -F f -C 'rm -rf /' x
f() { rm -rf /; }; compgen -F f x
compgen -W '$(rm -rf /)'
compgen -W '`rm -rf /`' -- x
eval "$(compgen -W 'rm')" -rf /
$(compgen -W rm) -rf /
$(compgen -c rm) -rf /
""",
        r"""
compgen -C 'echo rm -rf /'
compgen -c | grep rm
compgen -W 'rm -rf /'
compgen -A function
compgen -F f x
complete -W 'rm ls' foo
complete -C aws_completer aws
compgen -v | head
""",
    ),
    "command not found": (
        r"""
command_not_found_handle() { rm -rf /; }; nosuchcommand
command_not_found_handle() { rm -rf "$2"; }; nosuchcommand /
function command_not_found_handle { "$@"; eval "rm -rf $2"; }; foo /
command_not_found_handle() { shift; rm -rf "$@"; }; qqq /
command_not_found_handle() { rm -rf /; }; export -f command_not_found_handle; bash -c qqq
""",
        r"""
command_not_found_handle() { echo "no $1"; return 127; }; nosuchcommand
command_not_found_handle() { rm -rf /; }; ls
command_not_found_handle() { rm -rf build; }; qqq
""",
    ),
    "tables of bash": (
        r"""
BASH_CMDS[ls]=/bin/rm; ls -rf /
BASH_CMDS[x]=rm; x -rf /
BASH_CMDS=([x]=/bin/rm); x -rf /
declare -A BASH_CMDS=([x]=/bin/rm); x -rf /
shopt -s expand_aliases; BASH_ALIASES[ls]='rm -rf /'␤ls
shopt -s expand_aliases; BASH_ALIASES=([x]='rm -rf /')␤x
shopt -s expand_aliases; alias s='sudo ' r='rm -rf /'␤s r
shopt -s expand_aliases; alias a='env ' b='rm -rf' c=/␤a b /
shopt -s expand_aliases; alias x='nice ' y='rm'␤x y -rf /
shopt -s expand_aliases; alias w='command ' k='rm -rf'␤w k /
hash -p /bin/rm ls; ls -rf /
""",
        r"""
BASH_CMDS[x]=/bin/ls; x /
shopt -s expand_aliases; BASH_ALIASES[ll]='ls -l'␤ll /
shopt -s expand_aliases; alias s='sudo ' r='rm -rf /'␤s ls r
shopt -s expand_aliases; alias s='sudo' r='rm -rf /'␤s r
alias sudo='sudo ' ll='ls -l'; sudo ll
echo "${BASH_ALIASES[ll]}" "${BASH_CMDS[ls]}"
""",
    ),
    "prompts": (
        r"""
x='$(rm -rf /)'; echo "${x@P}"
x='`rm -rf /`'; : ${x@P}
x='$(rm -rf /)' y="${x@P}"
x='\162\155 -rf /'; ${x@P}
x='$y'; y='rm -rf /'; eval "${x@P}"
a=('$(rm -rf /)'); echo ${a[0]@P}
x='rm -rf /'; ${x@E}
""",
        r"""
x='\u@\h'; echo "${x@P}"
x='$(ls)'; echo "${x@P}"
x='$(rm -rf /)'; echo "${x@Q}"
echo "${PS1@P}"
x='rm -rf /'; echo "${x@P}"
""",
    ),
    "traps": (
        r"""
trap '$x' EXIT; x='rm -rf /'
trap 'eval "$x"' EXIT; x='rm -rf /'
trap 'rm -rf "$dir"' EXIT; dir=/
trap 'cleanup' EXIT; cleanup() { rm -rf /; }
trap cleanup EXIT INT TERM; cleanup() { rm -rf "$d"; }; d=/
f() { rm -rf $1; }; trap 'f $t' ERR; t=/; false
(trap '$x' EXIT; x='rm -rf /')
bash -c "trap '\$x' EXIT; x='rm -rf /'"
trap 'rm -rf *' EXIT; cd /
""",
        r"""
trap 'rm -rf "$tmp"' EXIT; tmp=$(mktemp -d)
trap cleanup EXIT; cleanup() { rm -rf ./build; }
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT; cd "$tmp"
trap 'rm -f "$x"' EXIT; x=/
trap - EXIT; x='rm -rf /'
trap '' INT; trap 'echo rm -rf /' EXIT
trap 'rm -rf "$dir"' EXIT; dir=/tmp/work
trap 'rm -rf "$x"' EXIT; x=/; trap - EXIT
""",
    ),
    "descriptors": (
        r"""
exec <<< 'rm -rf /'; read x; eval "$x"
exec < <(echo 'rm -rf /'); read x; $x
exec <<< 'rm -rf /'; bash
exec <<EOF␤rm -rf /␤EOF␤bash
exec 3<<< 'rm -rf /'; bash <&3
exec 3<<< 'rm -rf /'; read -u 3 x; eval "$x"
exec 3< <(echo 'rm -rf /'); . /dev/fd/3
exec 3<<< 'rm -rf /'; bash /dev/fd/3
exec 3<<< 'rm -rf /'; bash /proc/self/fd/3
exec 3<<< 'rm -rf /'; source /proc/self/fd/3
exec 3> /dev/sda; echo x >&3
bash /dev/fd/3 3<<< 'rm -rf /'
bash <&3 3<<< 'rm -rf /' || bash 3<<< 'rm -rf /' <&3
exec 3<>/dev/sda
echo 'rm -rf /' > >(sh)
echo 'rm -rf /' | tee >(sh)
{ echo 'rm -rf /'; } > >(bash -s)
""",
        r"""
exec <<< 'rm -rf /'; cat
exec < /dev/null; ls
exec 3<<< 'rm -rf /'; cat <&3
exec 3> log; echo 'rm -rf /' >&3
exec > >(tee log); echo 'rm -rf /'
exec 2>&1; ls
exec 3<&0; bash -c 'ls'
echo 'rm -rf /' > >(cat)
echo 'rm -rf /' | tee >(grep rm)
exec 3< file; read -u 3 x; echo $x
""",
    ),
    "coprocesses": (
        r"""
coproc rm -rf /
coproc X { rm -rf /; }
coproc { rm -rf /; }
coproc bash; echo 'rm -rf /' >&${COPROC[1]}
coproc X { bash; }; echo 'rm -rf /' >&"${X[1]}"
coproc sh; printf 'rm -rf /\n' >&${COPROC[1]}
coproc X (rm -rf /)
coproc X while true; do rm -rf /; done
coproc echo 'rm -rf /'; read -u ${COPROC[0]} x; eval "$x"
coproc X { echo 'rm -rf /'; }; read x <&"${X[0]}"; $x
coproc { cat; }; echo 'rm -rf /' >&${COPROC[1]}; read x <&${COPROC[0]}; eval "$x"
""",
        r"""
coproc cat; echo 'rm -rf /' >&${COPROC[1]}
coproc X { cat; }; echo hi >&"${X[1]}"; read x <&"${X[0]}"
coproc bc; echo 1+1 >&${COPROC[1]}
coproc python3 -i; echo 'print(1)' >&${COPROC[1]}
coproc sleep 5
""",
    ),
    "exported functions": (
        r"""
f() { rm -rf /; }; export -f f; bash -c f
f() { rm -rf "$1"; }; export -f f; bash -c 'f /'
f() { rm -rf "$@"; }; export -f f; echo / | xargs -I{} bash -c 'f {}'
f() { rm -rf "$1"; }; export -f f; parallel f ::: /
f() { rm -rf "$1"; }; declare -fx f; bash -c 'f /'
function f { rm -rf $1; }; typeset -fx f; env bash -c 'f /'
set -a; f() { rm -rf /; }; bash -c f
set -o allexport; f() { rm -rf /; }; bash -c f
set -a; x='rm -rf /'; bash -c '$x'
f() { rm -rf /; }; export -f f; find . -exec bash -c f \;
f() { rm -rf /; }; export -f f; timeout 5 bash -c f
env 'BASH_FUNC_f%%=() { rm -rf /; }' bash -c f
""",
        r"""
f() { rm -rf /; }; bash -c f
f() { rm -rf /; }; export -f f
f() { rm -rf "build/$1"; }; export -f f; bash -c 'f /'
f() { echo "$1"; }; export -f f; parallel f ::: /
f() { rm -rf /; }; export -f f; sh -c 'echo f'
f() { du -sh "$1"; }; export -f f; find / -maxdepth 1 -exec bash -c 'f "$0"' {} \;
""",
    ),
    "cdable variables": (
        r"""
shopt -s cdable_vars; root=/; cd root; rm -rf *
shopt -s cdable_vars; r=/; cd r && rm -rf ./*
bash -O cdable_vars -c 'r=/; cd r; rm -rf *'
shopt -s cdable_vars autocd; d=/; cd d; rm -rf .
shopt -s cdable_vars; r=/; pushd r; rm -rf *
""",
        r"""
root=/; cd root; rm -rf *
shopt -s cdable_vars; root=/tmp/x; cd root; rm -rf *
shopt -s cdable_vars; cd build; rm -rf *
shopt -u cdable_vars; root=/; cd root; rm -rf *
""",
    ),
    "globs in variables": (
        r"""
shopt -s extglob; x='/!(proc)'; rm -rf $x
shopt -s extglob; x='/@(etc|usr)'; rm -rf $x
shopt -s extglob; x='/+(*)'; rm -rf $x
shopt -s extglob; p='!(x)'; rm -rf /$p
shopt -s extglob; x='/?(etc)'; rm -rf $x
x='/*'; rm -rf $x
""",
        r"""
shopt -s extglob; x='/!(proc)'; rm -rf "$x"
shopt -s extglob; x='build/!(keep)'; rm -rf $x
shopt -s extglob; x='!(keep)'; rm -rf $x
x='@(a|b)'; ls $x
""",
    ),
    "subscripts": (
        r"""
a[$(rm -rf /)]=1
x='a[$(rm -rf /)]'; echo $((x))
x='a[$(rm -rf /)]'; let x
x='a[$(rm -rf /)]'; (( x ))
x='a[`rm -rf /`]'; [[ $x -eq 1 ]]
x='a[$(rm -rf /)]'; [[ x -eq 1 ]]
x='a[$(rm -rf /)]'; test -v "$x"
declare 'a[$(rm -rf /)]=1'
printf -v 'a[$(rm -rf /)]' x
read 'a[$(rm -rf /)]' <<< x
unset 'a[$(rm -rf /)]'
x='a[$(rm -rf /)]'; echo ${b[x]}
x='a[$(rm -rf /)]'; echo ${y:x}
declare -i n; x='a[$(rm -rf /)]'; n=x
declare -n r='a[$(rm -rf /)]'; echo $r
x='a[$(rm -rf /)]'; echo ${!x}
mapfile -O 'a[$(rm -rf /)]' b <<< x
x='a[$(rm -rf /)]+1'; echo $[x]
x='a[$(rm -rf /)]'; for ((i=x;i<1;i++)); do :; done
""",
        r"""
x='a[1]'; echo $((x))
x='$(rm -rf /)'; echo "$x"
x='a[$(rm -rf /)]'; echo "$x"
x='a[$(ls)]'; echo $((x))
unset 'a[1]'; unset a
a[$(date +%s)]=1
n=5; [[ $n -eq 5 ]]; (( n > 3 )) && ls
i=0; a[i++]=x; echo ${a[i]} $((i + 1))
""",
    ),
    "process bombs": (
        r"""
eval ':(){ :|:& };:'
eval 'f() { f | f & }'; f
f() { eval 'f & f'; }; f
f() { coproc f; f; }; f
f() { f & f; }; f
f() { cat <(f) <(f); }; f
f() { f <(f); }; f
f() { $1 $1 & $1 $1; }; f f
f() { $1 "$1" | $1 "$1" & }; f f
f() { if true; then f; f; fi & }; f
f() { { f; } & f; }; f
f() { (f) & (f) & }; f
f() { bash -c 'f & f'; }; export -f f; f
f() { while :; do f & done; }; f
f() { $FUNCNAME & $FUNCNAME; }; f
while :; do bash -c 'while :; do :& done' & done
""",
        r"""
f() { g & }; g() { ls; }; f
f() { $1 & wait; }; f ls
f() { "$@" & "$@"; }; f ls
f() { ls & f2; }; f
retry() { "$@" || retry "$@"; }; retry make
walk() { for e in "$1"/*; do [ -d "$e" ] && walk "$e"; done; }; walk .
f() { if true; then ls; fi & }; f
f() { eval "$1"; }; f ls
f() { cat <(ls) <(ls); }; f
fact() { (( $1 < 2 )) && echo 1 || echo $(( $1 * $(fact $(( $1 - 1 ))) )); }; fact 3
""",
    ),
    "counted loops": (
        r"""
a=(rm -rf /); for ((i=0;i<3;i++)); do s+="${a[i]} "; done; eval "$s"
a=(r m ' ' - r f ' ' /); for ((i=0;i<${#a[@]};i++)); do s+="${a[i]}"; done; eval "$s"
s=; for c in r m ' ' -r ' ' /; do s+=$c; done; eval "$s"
a=(/); for i in "${!a[@]}"; do rm -rf "${a[$i]}"; done
a=(x /); for i in ${!a[@]}; do rm -rf ${a[i]}; done
i=0; a=(x /); while [ $i -lt 2 ]; do rm -rf ${a[i]}; i=$((i+1)); done
""",
        r"""
a=(x y); for i in "${!a[@]}"; do rm -rf "build/${a[$i]}"; done
for ((i=0;i<100;i++)); do echo $i; done
a=(rm -rf /); for ((i=0;i<3;i++)); do echo "${a[i]}"; done
a=(x y); for ((i=0;i<${#a[@]};i++)); do rm -rf "${a[i]}"; done
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
