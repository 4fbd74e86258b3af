"""Command lines that use less known syntax of bash, in the format of `guard_classes`.

No test runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "redirections behind lists": (
        r"""
D=/dev/sda && echo x > $D
cd /dev && cat img > sda
cd /dev && pwd && cat img > sda
cd /dev || exit; cat img > sda
true && D=/dev/sda && echo x >| "$D"
false || D=/dev/sda && cat img >> $D
x='rm -rf /' && bash <<< "$x"
cd / && ! cat x > dev/sda
D=/dev/sda && cat img | cat > $D
D=/dev/sda && { cat img; } > $D
D=/dev/sda && ( cat img ) > $D
D=/dev/sda && while read x; do echo $x; done > $D
if D=/dev/sda && echo x > $D; then ls; fi
f() { D=/dev/sda && echo x > $D; }; f
mkdir b && echo 'rm -rf /' > b/y.sh && bash b/y.sh
mkdir b && printf 'rm -rf /\n' >> b/y.sh; sh b/y.sh
ls && echo 'rm -rf /' > x.sh; bash x.sh
echo ls > x.sh; false && echo pwd > x.sh; echo 'rm -rf /' >> x.sh; bash x.sh
echo 'rm -rf /' > x.sh; false && echo ls > x.sh; bash x.sh
echo 'rm -rf /' > x.sh; ls || echo ls > x.sh; bash x.sh
ls && f() { rm -rf /; } > /dev/null; f
echo / | xargs rm -rf > log
ls && echo / | xargs rm -rf > log 2>&1
echo 'rm -rf /' | tee a | bash > log
cd /dev && cp img sda 2> /tmp/err
D=/dev/sda && > $D
echo 'rm -rf /' 2> err | bash
echo 'rm -rf /' > x.sh 2> err; bash x.sh
echo 'rm -rf /' 2>&1 > x.sh; bash x.sh
{ echo 'rm -rf /' >&2; } 2> x.sh; bash x.sh
echo 'rm -rf /' 3> x.sh >&3; bash x.sh
bash -c 'echo "rm -rf /" >&2' 2> x.sh; bash x.sh
ls | { D=/; rm -rf $D; } > log
D=/; ls | D=x > log; rm -rf $D
<f >o rm -rf / 2>&1
{fd}>o rm -rf /
{fd}<f rm -rf /
true && {fd}>o rm -rf /
>a >b rm -rf / 2>&1
<f >o sudo rm -rf / 2>&1
for x in a b /; { rm -rf $x; }
echo "'/'" | xargs rm -rf
echo '"/"' | xargs rm -rf
echo '\/' | xargs -I% rm -rf %
find -O3 / -delete
find -D tree / -delete
find -- / -delete
find / -writable -delete
python3 -W ignore -c 'import os; os.system("rm -rf /")'
python3 -X dev -c 'import os; os.system("rm -rf /")'
""",
        r"""
cd /dev && cd /tmp && cat img > sda
D=/dev/sda && D=x && echo x > $D
cd build && cat img > sda
false && echo x > /dev/sda
true || echo x > /dev/sda
echo 'rm -rf /' > x.sh; echo ls > x.sh; bash x.sh
cd /tmp && echo hi > sda
mkdir b && echo ls > b/y.sh && bash b/y.sh
ls | cat > out && cat out
D=/dev/sda | echo x > $D.img
! grep x file > /dev/null
cd /etc && cat hosts > /tmp/hosts
cat < /dev/sda > disk.img
ls && ls > log || ls >> log
x=a; ls | x=/ > log; rm -rf $x/b
echo a | D=/dev/sda && echo x > $D
echo 'rm -rf /' 2> x.sh; bash x.sh
""",
    ),
    "file systems and disks": (
        r"""
mkdosfs -F 32 /dev/sdb1
mkfatfs /dev/sdb1
mkntfs -Q /dev/sdb1
mkexfatfs -n X /dev/sdb1
bcachefs format /dev/sdb
dd if=x of=/dev/md/root
dd if=x of=/dev/zd0
cat img > /dev/dasda
cat img > /dev/rbd0
rm -rf /proc/self/root
rm -rf /proc/1/root/etc
rm -rf /proc/self/root/proc/self/root/*
proot -r / rm -rf /
tcsh -c 'rm -rf /'
csh -fc 'rm -rf /'
while :; do { sleep 1 & }; done
while true; do { { sleep 9 & }; }; done
""",
        r"""
mdadm --detail /dev/md0
mdadm --assemble /dev/md0 /dev/sdb /dev/sdc
zpool status tank
zpool list -v
bcachefs show-super /dev/sdb
cat /dev/md/root > disk.img
dd of=/dev/null if=x
cat /proc/self/root/etc/hosts
rm -rf /proc/self/root/tmp/x
while :; do { sleep 1; }; done
while :; do { sleep 1 & wait; }; done
""",
    ),
    "extended globs": (
        r"""
rm -rf /!(proc)
rm -rf /!(proc|sys|dev)
rm -rf "/"!(proc)
sudo rm -rf -- /!(home)
rm -rf /@(etc|usr)
rm -rf /@(etc)
rm -rf /?(etc)
rm -rf /+([a-z])
rm -rf /*([a-z])
rm -rf /*(.)
rm -rf /home/!(bob)
rm -rf /usr/!(local)
cd / && rm -rf !(proc)
cd / && rm -rf -- !(proc|sys) x
shopt -s extglob; rm -rf /!($(echo proc))
rm -rf /!($KEEP)
rm -rf /!(@(a|b)|c)
if true; then rm -rf /!(x); fi
x=/!(a); rm -rf $x
chmod -R 777 /!(tmp)
bash -O extglob -c 'rm -rf /!(proc)'
rm -rf /!(*.log)
rm -rf ~/../!(x)/../../etc
echo !(a) $(rm -rf /)
echo !($(rm -rf /))
mv /@(etc|var) /tmp
cat x > /dev/@(sda)
f+( ) { rm -rf /; }; f+
f@(	) { rm -rf /; }; f@
rm -rf /+(e|t|c)
rm -rf /*(e|t|c)
cat img > /dev/+(s|d|a)
rm -rf /@([e|x]tc)
x=/!($(echo proc)); rm -rf $x
x=/@(etc|usr); rm -rf $x
rm -rf /tmp/!($(echo a))/../../etc
rm -rf /!(`echo proc`)
rm -rf /!("$(echo proc)")
a=(/!(proc)); rm -rf "${a[@]}"
a=(x /@(etc|usr)); rm -rf ${a[@]}
rm -rf /@("etc"|tmp)
rm -rf /@('etc')
rm -rf /?(etc)/..
cat x > /dev/drbd0
cat x > /dev/bcache0
cat x > /dev/mtdblock0
cat x > /dev/ubi0
rm -rf /proc/thread-self/root/etc
""",
        r"""
rm -rf !(keep)
rm -rf ./!(*.log)
rm -rf build/@(obj|lib)
rm -f *.+(o|a)
rm -f /tmp/app+([0-9]).log
rm -rf node_modules/!(.cache)
ls /!(proc)
for f in !(a|b); do echo "$f"; done
case $x in @(a|b)) ls;; !(c)) pwd;; esac
[[ $x == !(a|b) ]] && ls
[[ $x =~ ^(a|b)+(c)$ ]] && ls
echo "${x##+([0-9])}"
f() { ls; }; a+=(b c); a=(x @(y|z))
! (ls)
echo rm -rf '/!(proc)'
if ! (true); then ls; fi
let x=3*(2+1); echo $((3*(2+1)))
rm -rf ~/@("old things"|tmp)
rm -rf "$HOME"/@('x y')
rm -rf x/@(a|b)
rm -rf /proc/self/rootkit
rm -f +(*.o|*.a)
f+() { ls; }; f+
a=(!(x)) && echo "${a[@]}"
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
