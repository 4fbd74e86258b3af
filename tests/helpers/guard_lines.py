"""Command lines for the tests of the guard. No test runs any of these lines.

For each rule of the guard, `BLOCKED` has lines that the rule blocks. The lines in `ALLOWED` only
resemble such lines.
"""

from __future__ import annotations

from shelld.guard import StartState

ENV = {"HOME": "/home/me", "USER": "me", "PATH": "/usr/bin", "TMPDIR": "/tmp"}
HERE = StartState("/work/project", ENV)

BLOCKED = {
    "rm-root": r"""
rm -rf /
rm -rf /*
rm -r -f /
rm --recursive --force /
rm / -rf
rm -rf -- /
rm -rf //
rm -rf /tmp/..
rm -rf /{*,.*}
rm -rf {/,/tmp}
rm -rf ""/*
rm -rf /?*
rm -rf /[a-z]*
rm -rf /.[!.]*
r"m" -rf /
'r'm -rf /
\rm -rf /
/bin/rm -rf /
{rm,-rf,/}
{r,R}{m,M} -rf /
$'\162\155' -rf /
$(command -v rm) -rf /
$(echo r)m -rf /
c=rm; $c -rf /
c=RM; ${c,,} -rf /
c=rn; ${c/n/m} -rf /
a="rm -rf /"; $a
a=(rm -rf /); "${a[@]}"
set -- rm -rf /; "$@"
IFS=,; a=rm,-rf,/; $a
rm${IFS}-rf${IFS}/
x=""; rm -rf "$x/"
rm -rf "$UNSET_VARIABLE"/*
rm -rf ${x:-/}
rm -rf ${x:=/}
p=/tmp; rm -rf ${p%tmp}
d=xx/; rm -rf ${d:2}
d=/; e=d; rm -rf ${!e}
readonly d=/; rm -rf $d
printf -v d /; rm -rf $d
rm -rf $(realpath /tmp/..)
rm -rf $(dirname /tmp)
rm -rf $(ls -d /*)
x="`rm -rf /`"
cat <(rm -rf /)
echo ${a[$(rm -rf /)]}
[ -z "$(rm -rf /)" ]
[ -d / ] && rm -rf /
if true; then rm -rf /; fi
for d in /*; do rm -rf "$d"; done
while read d; do rm -rf "$d"; done <<< /
f() { rm -rf "$1"; }; f /
f(){ rm "$@"; }; f -rf /
alias x="rm -rf /"; x
trap "rm -rf /" EXIT
cd / && rm -rf *
cd / && rm -rf .
(cd /tmp/..; rm -rf ./*)
env -C / rm -rf .
find / -delete
find / -type f -delete
find / -name "*" -exec rm -rf {} \;
find . -exec rm -rf / ;
find / -print0 | xargs -0 rm -rf
echo / | xargs -I{} rm -rf {}
parallel rm -rf ::: /
yes "rm -rf /*" | head -1 | sh
echo "/ fr- mr" | rev | sh
bash -c '"$@"' _ rm -rf /
sh -c 'rm -rf $1' -- /
C='rm -rf /' bash -c '$C'
echo 'rm -rf /' > x.sh; bash x.sh
python3 -c "import os; os.system('rm -rf /')"
python3 -c 'import shutil; shutil.rmtree("/")'
docker run -v /:/host alpine rm -rf /host
rsync -a --delete empty/ /
rm -rf / ; if
rm -rf / )
""",
    "rm-system": r"""
rm -rf /etc
rm -rf /usr/
rm -rf /home/*
rm -rf ~
rm -rf $HOME/*
rm -r ~/.
rm -r ~/.[!.]*
""",
    "mkfs": r"""
mkfs.ext4 /dev/sda1
mkfs -t ext4 /dev/sda1
mkfs.ext4 disk.img
mkfs.${FS:-ext4} /dev/sda1
mkfs.$FSTYPE "$DEV"
/sbin/mkfs.xfs /dev/sdc
find /dev -name 'sd*' -exec mkfs.ext4 {} \;
mke2fs /dev/sda1
""",
    "dd-disk": r"""
dd if=/dev/zero of=/dev/sda
dd of=/dev/sdb bs=4M
dd if=a.img of=/dev//sda
dd if=x "of=/dev/sda"
d=/dev/sda; dd if=/dev/zero of=$d
for d in /dev/sd?; do dd if=/dev/zero of=$d; done
dd if=a.img of=/dev/nvme0n1
""",
    "redirect-disk": r"""
echo x > /dev/sda
cat x >> /dev/sda
cat x >| /dev/sda
: &> /dev/sda
> /dev/sda
exec 3> /dev/sda
[[ 1 ]] > /dev/sda
{ echo x; } > /dev/sda
for i in 1; do echo x; done > /dev/sda
echo x | sudo tee /dev/sda
cp a.img /dev/sda
coproc cat a > /dev/sda
""",
    "chmod-root": r"""
chmod -R 777 /
chmod 777 -R /
chmod --recursive a+rwx /
chmod -R 777 /*
chmod -R -x /
cd / && chmod -R 777 .
echo / | xargs chmod -R 777
find / -exec chmod 777 {} \;
""",
    "chown-root": r"""
chown -R * /
chown -R nobody /
chown -R 1000:1000 /
chown -R user /usr/..
chgrp -R me /
for d in / ; do chown -R me $d; done
""",
    "mv-root": "mv / *\nmv / /dev/null\nmv /* /x\nmv -t /tmp /\nmv // /x\ncd / && mv * /tmp",
    "chmod-system": r"""
chmod -R 777 /etc
sudo chmod -R o+w /usr/*
""",
    "chown-system": r"""
chown -R me /etc
sudo chown -R "$USER" /usr
""",
    "mv-system": r"""
mv /etc /tmp
mv -t /tmp ~
""",
    "fork-bomb": r"""
:(){ :|:& };:
bomb() { bomb | bomb & }; bomb
function f() { f | f & }; f
f(){ f & f & }; f
f(){ for i in 1 2; do f & done; };f
f(){ (f|f)& };f
a(){ b|b& }; b(){ a|a& }; a
perl -e 'fork while fork'
""",
}
BLOCKED_LINES = [
    (rule, line) for rule, lines in BLOCKED.items() for line in lines.splitlines() if line
]

ALLOWED = r"""
rm -rf node_modules
rm -rf ./*
rm -rf /tmp/*
rm -rf "/tmp/$USER"
rm -rf /var/lib/apt/lists/*
rm -rf ~/.cache/pip
rm -rf "${BUILD_DIR:?must be set}/"
rm -r "/*"
rm -f /
d=/; d=/tmp/x; rm -rf "$d"
cd /tmp && rm -rf *
find . -delete
find / -name core -print
find / -name foo -exec rm {} \;
find / -type f -perm -4000 2>/dev/null
git rm -rf docs/
git commit -m "docs: never run chmod -R 777 /"
grep -rn 'rm -rf /*' .
rg -n ':(){ :|:& };:' src
echo rm -rf /
echo "rm -rf /" | sed s/rm/ls/
echo "a > /dev/sda"
ls # rm -rf /*
printf "rm -rf /\n"
[[ "$cmd" == 'mkfs.ext4 /dev/sda1' ]] && echo bad
bash -c "echo rm -rf /"
bash -n <<< "rm -rf /"
bash -nc 'rm -rf /'
docker run --rm alpine rm -rf /
python3 -c 'print("rm -rf /")'
sed -i 's#rm -rf /#X#' script.txt
cat <<< "rm -rf /"
mkfs.ext4 --help
mkfs.ext4 -n /dev/sda1
man mkfs
git add mkfs.go
ls -l /sbin/mkfs*
dd if=/dev/sda of=backup.img
dd if=a of=/dev/tty
cat file > /dev/null
cat a > dev/sda
sudo wipefs /dev/sdX
chmod 755 /
chmod -R 777 //tmp/x
chown user /
chown -R $USER:$(id -gn $USER) ~/.config
mv /tmp/a /
mv * ../
cp -a dist/. /
tar -C / -xzf x.tgz
rsync -a / /backup
f(){ f2; }; f2(){ ls; }; f
fact() { [ $1 -le 1 ] && echo 1 || echo $(($1 * $(fact $(($1-1))))); }; fact 5
worker() { ./job "$1" & }; worker 1; worker 2
for i in 1 2 3; do ./job $i & done; wait
curl -fsSL https://example.org/x | sh
"""
ALLOWED_LINES = [line for line in ALLOWED.splitlines() if line]


PLAIN_LINES = [
    *("rm -rf /", "rm -rf /*", "mkfs.ext4 /dev/sda1", "dd if=/dev/zero of=/dev/sda"),
    *("chmod -R 777 /", "chown -R nobody /", "mv / /dev/null"),
]
