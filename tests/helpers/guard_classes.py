"""Dangerous and harmless command lines, grouped into classes. No test runs any of them.

A line is dangerous because of its effect, not because of its form. Each class lists the dangerous
lines first, then the harmless ones. ``␤`` is a line end, ``␉`` a tab.
"""

from __future__ import annotations

CLASSES: dict[str, tuple[str, str]] = {
    "options of wrappers": (
        r"""
sudo -nE rm -rf /
sudo -En -u root rm -rf /
sudo -uroot rm -rf /
sudo -Eu root rm -rf /
sudo -nH -- rm -rf /
doas -nu root rm -rf /
env -iS 'rm -rf /'
env -S'rm -rf /'
env -vS 'rm -rf /'
env -i0 rm -rf /
env -uHOME rm -rf /
env - rm -rf /
env -iu HOME A=1 rm -rf /
nice -n5 rm -rf /
nice -5 rm -rf /
nice --adjustment=5 rm -rf /
ionice -c2 -n7 rm -rf /
ionice -tc3 rm -rf /
timeout -k5 10 rm -rf /
timeout -sKILL 5 rm -rf /
timeout -vk5 10s rm -rf /
timeout --foreground -s9 5 rm -rf /
printf '/\0' | xargs -0rn1 rm -rf
echo / | xargs -rn1 rm -rf
echo / | xargs -P4 -n1 rm -rf
echo / | xargs -tI{} rm -rf {}
printf '/\0' | xargs -0rI% rm -rf %
echo / | xargs -rL1 rm -rf
echo / | xargs --max-args 1 rm -rf
echo / > f; xargs -a f rm -rf
echo / > f; xargs -n1 -af rm -rf
xargs -a <(echo /) rm -rf
xargs --arg-file=<(echo /) rm -rf
xargs -a /dev/stdin rm -rf <<< /
echo / > f; parallel -a f rm -rf
echo / > f; parallel --arg-file f rm -rf
echo / > f; parallel rm -rf :::: f
parallel rm -rf :::: /dev/stdin <<< /
/usr/bin/time -vo t.txt rm -rf /
strace -fo t rm -rf /
strace -ffe trace=file rm -rf /
setsid -fw rm -rf /
flock -nE0 /tmp/l rm -rf /
flock -n /tmp/l -c 'rm -rf /'
unshare -rm rm -rf /
su -lc 'rm -rf /'
su - root -c 'rm -rf /'
runuser -u me -- rm -rf /
script -qec 'rm -rf /' /dev/null
watch -tn1 'rm -rf /'
taskset -ac 0 rm -rf /
exec -ca x rm -rf /
command -p rm -rf /
bash -exc 'rm -rf /'
bash -eo pipefail -c 'rm -rf /'
nsenter -at1 rm -rf /
ssh -ttp22 host rm -rf /
chroot --userspec=me / rm -rf /
stdbuf -oL -eL dd if=/dev/zero of=/dev/sda
""",
        r"""
sudo -nE rm -rf /tmp/x
sudo -uroot rm -rf build
sudo -l rm -rf /
sudo -nv
env -iS 'ls -la /'
env -S'rm -rf build'
env -uHOME ls /
nice -n5 make -j4
nice -5 tar czf a.tgz src
ionice -c2 -n7 cp -a a b
timeout -k5 10 rm -rf build
timeout -sKILL 5 sleep 100
timeout --help
echo a | xargs -0rn1 rm -rf
echo / | xargs -0rn1 ls -d
echo / > f; xargs -a f ls -d
echo build > f; xargs -a f rm -rf
echo build > f; parallel -a f rm -rf
echo build > f; parallel rm -rf :::: f
echo / | xargs -rn1 echo rm -rf
printf '%s\n' a b | xargs -tI{} rm -rf build/{}
/usr/bin/time -vo t.txt make
strace -fo rm ls -rf /
strace -ffe trace=file ls /
flock -n /tmp/l -c 'rm -rf build'
su -lc 'rm -rf build' me
script -qec 'ls /' /dev/null
watch -tn1 'ls -la /'
command -pv rm -rf /
command -V rm
exec -ca x ls /
bash -exc 'echo rm -rf /'
ssh -ttp22 host ls /
taskset -ac 0 make
""",
    ),
    "directories of wrappers": (
        r"""
env -C / rm -rf etc
env -C/ rm -rf etc
env -iC / rm -rf usr
env --chdir=/ rm -rf ./etc
env --chdir / chmod -R 777 .
sudo -D / rm -rf etc
sudo -nD / rm -rf .
sudo -D/ rm -rf home
sudo --chdir=/ rm -rf .
sudo --chdir / rm -rf usr/lib
systemd-run --working-directory=/ rm -rf etc
run0 -D / rm -rf etc
nsenter -t 1 --wd=/ rm -rf etc
start-stop-daemon -S -d / -x /bin/rm -- -rf etc
parallel --wd / rm -rf ::: etc
find /e* -maxdepth 0 -exec rm -rf {} +
find / -maxdepth 1 -mindepth 1 -execdir rm -rf {} +
cd /tmp; env -C .. rm -rf .
env -C /dev dd if=/dev/zero of=sda
env -C / sh -c 'rm -rf etc'
""",
        r"""
env -C /tmp rm -rf etc
env -C / ls etc
cd / && env -C /tmp rm -rf .
cd / && env -C /work rm -rf ./build
sudo -D /srv rm -rf etc
sudo --chdir=/tmp rm -rf .
sudo -D / ls
env -C / rm -rf tmp/x
systemd-run --working-directory=/tmp rm -rf etc
parallel --wd /tmp rm -rf ::: etc
git -C / status
make -C / -n clean
tar -C / -tzf a.tgz
env -C /tmp sh -c 'rm -rf etc'
find /tmp -maxdepth 1 -mindepth 1 -execdir rm -rf {} +
""",
    ),
    "patterns": (
        r"""
rm -rf /e*
rm -rf /et?
rm -rf /e[t]c
rm -rf /[e]tc
rm -rf /e*/
rm -rf /[a-h]*
rm -rf /[!t]*
rm -rf /?oot
rm -rf /*tc
rm -rf /us?
rm -rf /us?/*
rm -rf /usr/bin
rm -rf /usr/lib
rm -rf /usr/sbin/
rm -rf /usr/lib64
rm -rf /usr/lib/*
rm -rf /usr/b*
rm -rf /usr/li[b]
rm -rf /home/m?
rm -r /ho*/*
cd / && rm -rf e*
cd / && rm -rf [a-z]*
cd /usr && rm -rf bin
find /e* -delete
mv /e* /tmp
chmod -R 777 /e*
chmod -R 777 /usr/l*
chown -R me /us?
chown -R me /usr/bin
/bin/r[m] -rf /
/bin/r? -rf /
/???/rm -rf /
/*/rm -rf /
/usr/bin/r[m] -rf /etc
/bin/[r]m -rf --no-preserve-root /
/bin/ch[m]od -R 777 /
/usr/bin/d[d] if=/dev/zero of=/dev/sda
/sbin/mkfs.ext[4] /dev/sda1
/sbin/mkf? -t ext4 /dev/sda1
/bin/b?sh -c 'rm -rf /'
/usr/bin/s?do rm -rf /
/lib64/ld-linux-x86-64.so.2 /bin/rm -rf /
/lib/ld-musl-x86_64.so.1 /bin/rm -rf /
/lib64/ld-linux-x86-64.so.2 --library-path /lib /bin/rm -rf /
/lib64/ld-l* /bin/rm -rf /
ld.so /bin/dd if=/dev/zero of=/dev/sda
""",
        r"""
rm -rf /tmp/e*
rm -rf /tmp*
rm -rf /etc.bak*
rm -rf /opt*
rm -rf '/e*'
rm -rf "/et?"
rm -rf /e\*
rm -rf /mnt/*
rm -rf /usr/local/lib/node_modules/*
rm -rf /usr/lib/node_modules/x
rm -rf /etc/nginx/sites-enabled/*
rm -rf /usr/share/doc/*
rm -rf /var/cache/*
rm -f /e*
ls -d /e*
chmod 644 /e*
rm -rf /srv/[a-z]*
rm -rf /data[0-9]*
rm -rf /v[0-9]*
rm -rf /home/*/.cache
rm -rf ~/*.log
rm -rf /etc/*.bak
rm -rf /*.log
rm -rf /core.*
rm -rf /lib/modules/5*
rm -rf /usr/lib/python3/dist-packages/foo*
rm -rf /boot/*-old
rm -rf e*
cd /tmp && rm -rf e*
mv /tmp/e* /srv
mv /opt/app* /srv
cp -a /e* /backup
chown -R me /us[0-9]*
chmod -R 755 /usr/local/bin
/bin/l[s] -la /
/usr/bin/python3.? setup.py build
node_modules/.bin/es* src
/opt/tool-*/bin/run --root /
ls /bin/r[m]
file /bin/r* /
/lib64/ld-linux-x86-64.so.2 --list /bin/rm
/lib64/ld-linux-x86-64.so.2 --verify /bin/rm -rf /
/lib64/ld-linux-x86-64.so.2 /bin/ls /
ldd /bin/rm
""",
    ),
    "continued lines": (
        r"""
r\␤m -rf /
rm -r\␤f /
rm -rf \␤/
rm \␤  -rf \␤  /
"r\␤m" -rf /
mk\␤fs.ext4 /dev/sda1
dd if=/dev/zero of=/dev/s\␤da
ch\␤mod -R 777 /
su\␤do rm -rf /
echo x > /dev/s\␤da
bash -c "rm -r\␤f /"
true &&\␤rm -rf /
eva\␤l 'rm -rf /'
""",
        r"""
rm -rf \␤  /tmp/x
rm -r\␤f build
echo r\␤m -rf /
'r\␤m' -rf /
docker build \␤  -t x \␤  .
git commit -m "never \␤rm -rf /"
echo a > /dev/nu\␤ll
dd if=a of=/dev/shm/\␤sda
rm -rf /\␤tmp/x
""",
    ),
    "splitting": (
        r"""
unset IFS; a='rm -rf /'; $a
unset IFS; rm${IFS- }-rf${IFS- }/
unset IFS; x='rm -rf'; $x /
unset IFS; ${IFS:-rm} -rf /
rm$IFS-rf$IFS/
rm$IFS$9-rf$IFS/
a='-rf /'; rm$IFS$a
IFS=_; c=rm_-rf_/; $c
IFS=x; $(echo rmx-rfx/)
IFS=:; set -- $(echo rm:-rf:/); "$@"
c=$'rm\t-rf\t/'; $c
f() { local IFS=,; $1; }; f rm,-rf,/
IFS=,; unset IFS; c='rm -rf /'; $c
""",
        r"""
IFS=; a='rm -rf /'; $a
IFS=,; a='rm -rf /'; $a
"rm -rf /"
a='rm -rf /'; "$a"
unset IFS; a='rm -rf build'; $a
unset IFS; rm${IFS}-rf${IFS}/
IFS=_; c=rm_-rf_build; $c
IFS=$'\n'; for f in $(ls); do echo "$f"; done
while IFS=: read -r a b; do echo "$a"; done < f
""",
    ),
    "functions with redirections": (
        r"""
f() { echo x; } > /dev/sda; f
f() { echo x; } >> /dev/sda; f
f() (echo x) > /dev/sda; f
f() { cat; } < a > /dev/sdb; f
function f { echo x; } > /dev/sda; f
f() { rm -rf "$1"; } 2>/dev/null; f /
f() { bash; } <<< 'rm -rf /'; f
f() { sh; } <<EOF␤rm -rf /␤EOF␤f
f() { xargs rm -rf; } <<< /; f
f() { rm -rf /; } > log; f
f() { echo x; } > "$1"; f /dev/sda
""",
        r"""
f() { echo x; } > /dev/sda
f() { echo x; } > /dev/null; f
f() { rm -rf "$1"; } 2>/dev/null; f build
log() { echo "$@"; } >&2; log "rm -rf /"
f() { cat; } <<< 'rm -rf /'; f
f() { cat; } <<EOF␤rm -rf /␤EOF␤f
f() { rm -rf /; } > log
f() (cd src && make) > log 2>&1; f
""",
    ),
    "defaults": (
        r"""
rm -rf ${UNSET_DIR:-/}
rm -rf "${UNSET_DIR:=/}"
rm -rf ${UNSET_DIR-/}
rm -rf ${UNSET_DIR=/}
${UNSET_CMD:-rm} -rf /
${x:=rm} -rf /
${x-rm} ${y--rf} ${z-/}
: ${D:=/}; rm -rf $D
: "${D=/}"; rm -rf "$D"
rm -rf ${A:-${B:-/}}
D=x; unset D; rm -rf ${D-/}
D=; rm -rf ${D:-/}
dd if=/dev/zero of=${DISK:-/dev/sda}
mkfs.${T:-ext4} ${D:-/dev/sda1}
chmod -R 777 ${R:-/}
f() { rm -rf ${1:-/}; }; f
rm -rf ${1:-/}
set --; rm -rf "${@:-/}"
rm -rf "${*:-/}"
rm -rf ${a[0]:-/}
a=(); rm -rf ${a[0]:-/}
rm -rf "${a[@]:-/}"
f() { local d; rm -rf ${d:-/}; }; f
declare d; rm -rf ${d:-/}
export D; rm -rf ${D:-/}
rm -rf ${REPLY:-/}
rm -rf ${FUNCNAME:-/}
read -r x <<< ""; rm -rf ${x:-/}
X=1; rm -rf ${X:+/}
rm -rf ${X:-$(echo /)}
""",
        r"""
rm -rf ${UNSET_DIR:-/tmp/x}
rm -rf "${UNSET_DIR:-build}"
D=/tmp/x; rm -rf ${D:-/}
D=/tmp/x; rm -rf ${D-/}
rm -rf "${HOME:-/}/.cache/x"
D=; rm -rf ${D-/}
rm -rf ${TMPDIR:-/}
rm -rf ${X:+/}
rm -rf "${X:?}"/
rm -rf ${X?}/
f() { rm -rf ${1:-/}; }; f build
f() { local d=build; rm -rf ${d:-/}; }; f
a=(build); rm -rf ${a[0]:-/}
set -- build; rm -rf "${@:-/}"
rm -rf ${a[0]:-build}
dd if=a of=${DISK:-disk.img}
D=$(cat list); rm -rf ${D:-/}
read -r x < list; rm -rf "${x:-/}"
echo ${X:-rm -rf /}
: ${D:=/tmp/x}; rm -rf $D
""",
    ),
    "mkfs": (
        r"""
mkfs -V -t ext4 /dev/sda1
mkfs -Vt ext4 /dev/sda1
mkfs /dev/sda1 -V
mkfs -t ext4 -V /dev/sda1
mkfs.ext4 -L -n /dev/sda1
mkfs.xfs -f /dev/sdb
mkfs.xfs -n size=8192 /dev/sdb
mkfs.vfat -n NAME /dev/sdb1
sudo mkfs -V -t xfs /dev/sdb
""",
        r"""
mkfs -V
mkfs --version
mkfs -V -V -t ext4 /dev/sda1
mkfs -VV -t ext4 /dev/sda1
mkfs.ext4 -V
mkfs.ext4 -n /dev/sda1
mkfs.ext4 -qn /dev/sda1
mkfs.xfs -N /dev/sda1
mkfs.btrfs --help
mkfs.xfs -V
""",
    ),
    "writers to disks": (
        r"""
echo ',,L' | sfdisk /dev/sda
sfdisk /dev/sda < table
sfdisk --delete /dev/sda
sfdisk --delete /dev/sda 1
sgdisk -Z /dev/sda
sgdisk --zap-all /dev/sdb
sgdisk -o /dev/sda
sgdisk -og /dev/sda
sgdisk --clear /dev/sda
parted -s /dev/sda mklabel gpt
parted --script /dev/sda mklabel gpt mkpart x 0% 100%
parted /dev/nvme0n1 rm 1
sudo parted -s -- /dev/sda mktable msdos
printf 'o\nw\n' | fdisk /dev/sda
echo -e 'd\nw' | sudo fdisk /dev/sda
fdisk /dev/sda <<< $'g\nw'
printf 'o\ny\nw\ny\n' | gdisk /dev/sda
fdisk /dev/sda <<EOF␤o␤n␤p␤1␤␤␤w␤EOF
wipefs -a /dev/sda
wipefs -af /dev/sda1
wipefs -o 0x438 /dev/sda
ddrescue -f in.img /dev/sda log
ddrescue --force /dev/sdb /dev/sda
dd_rescue a.img /dev/sda
dcfldd if=a.img of=/dev/sda
dc3dd wipe=/dev/sda
dc3dd if=a of=/dev/sda
ddpt if=a of=/dev/sda
pv -o /dev/sda a.img
pv a.img > /dev/sda
cat a.img > /dev/sda
zcat a.img.gz > /dev/sdb
cp --sparse=always a.img /dev/sda
nwipe --autonuke /dev/sda
shred -n1 /dev/sda
shred -vfz -n 3 /dev/sda
scrub -p dod /dev/sda
blkdiscard -f /dev/sda
badblocks -w /dev/sda
badblocks -svw /dev/sda
hdparm --user-master u --security-erase p /dev/sda
hdparm --security-erase-enhanced p /dev/sda
hdparm --yes-i-know-what-i-am-doing --write-sector 0 /dev/sda
nvme format /dev/nvme0n1
nvme format -f /dev/nvme0n1 --ses=1
nvme sanitize /dev/nvme0 -a 2
mdadm --zero-superblock /dev/sda1
cryptsetup luksFormat /dev/sda1
cryptsetup -q luksFormat --type luks2 /dev/sda1 key
cryptsetup luksErase /dev/sda1
truncate -s 0 /dev/sda
truncate --size=0 /dev/nvme0n1
cat a | sponge /dev/sda
echo x | tee -a /dev/sda > /dev/null
curl -o /dev/sda https://example.org/a.img
curl -sSLo /dev/sda https://example.org/a.img
wget -O /dev/sda https://example.org/a.img
wget -qO/dev/sda https://example.org/a.img
qemu-img convert -O raw a.qcow2 /dev/sda
qemu-img dd if=a of=/dev/sda
bmaptool copy a.img /dev/sda
tar -cf /dev/sda src
tar cf /dev/sda src
sort -o /dev/sda a
openssl rand -out /dev/sda 1000000
ntfsclone --overwrite /dev/sda1 a.img
partclone.ext4 -r -s a.img -o /dev/sda1
zpool labelclear -f /dev/sda
rsync --write-devices a.img /dev/sda
cd /dev && cp /tmp/a.img sda
""",
        r"""
sfdisk -l /dev/sda
sfdisk -d /dev/sda > table
sfdisk --dump /dev/sda
sfdisk -n /dev/sda < table
sfdisk --no-act /dev/sda < table
echo ',,L' | sfdisk disk.img
sgdisk -p /dev/sda
sgdisk --print /dev/sda
sgdisk -b backup.gpt /dev/sda
sgdisk -P -o /dev/sda
parted -l
parted /dev/sda print
parted -s disk.img mklabel gpt
fdisk -l
fdisk -l /dev/sda
fdisk /dev/sda
echo p | fdisk /dev/sda
printf 'o\nw\n' | fdisk disk.img
gdisk -l /dev/sda
wipefs /dev/sda
wipefs -n -a /dev/sda
wipefs -an /dev/sda
wipefs --all --no-act /dev/sda
wipefs -a disk.img
ddrescue /dev/sda out.img log
dcfldd if=/dev/sda of=out.img
dc3dd if=/dev/sda hof=out.img
pv /dev/sda > out.img
pv -o out.img /dev/sda
cp /dev/sda out.img
nwipe --version
shred -u secret.txt
scrub file.txt
badblocks /dev/sda
badblocks -n /dev/sda
badblocks -sv -o w /dev/sda
hdparm -I /dev/sda
hdparm -tT /dev/sda
nvme list
nvme smart-log /dev/nvme0n1
mdadm --detail /dev/md0
mdadm --examine /dev/sda1
cryptsetup luksOpen /dev/sda1 x
cryptsetup luksDump /dev/sda1
cryptsetup isLuks /dev/sda1
cryptsetup luksFormat disk.img
truncate -s 1G disk.img
sort f | sponge f
echo x | tee /dev/null
curl -o /dev/null https://example.org
wget -qO- https://example.org
qemu-img convert -O raw /dev/sda out.img
qemu-img info /dev/sda
tar -cf out.tar /dev/sda
tar xf /dev/sda
sort /dev/sda -o out
partclone.ext4 -c -s /dev/sda1 -o out.img
smartctl -a /dev/sda
lsblk /dev/sda
mount /dev/sda1 /mnt
fsck -n /dev/sda1
grep -c x /dev/sda
""",
    ),
    "editors and pagers": (
        r"""
vim -c ':!rm -rf /'
vim -c '!rm -rf /' -c q
vi +'!rm -rf /'
vim -es -c 'silent !rm -rf /' -c q
nvim --cmd '!rm -rf /'
vim -c 'call system("rm -rf /")'
vim -c ':execute "!rm -rf /"'
ex -sc '!rm -rf /' f
ex <<< '!rm -rf /'
ed <<< '!rm -rf /'
printf '!rm -rf /\nq\n' | ed -s f
emacs --batch --eval '(shell-command "rm -rf /")'
less +'!rm -rf /' f
LESSOPEN='|rm -rf / %s' less f
man -P 'rm -rf /;' ls
man --pager='rm -rf /;' ls
PAGER='rm -rf /;' man ls
MANPAGER='sh -c "rm -rf /"' man ls
PAGER='rm -rf /;' git log
EDITOR='rm -rf / #' git commit
VISUAL='rm -rf /;' crontab -e
EDITOR='rm -rf /;' visudo
export EDITOR='rm -rf /;'; git commit
""",
        r"""
vim -c ':%s/a/b/g' -c wq f
vim -c ':!ls /' f
vim +12 f
vim -c 'echo "rm -rf /"' -c q
vim -c '/rm -rf /' f
ed -s f <<< 'g/rm -rf \//d'
ex -sc '%s/x/rm -rf \//|x' f
emacs --batch --eval '(message "rm -rf /")'
less +/'rm -rf /' f
man -P cat ls
PAGER=cat git log
PAGER='less -R' man rm
EDITOR=true git commit --amend
VISUAL='code --wait' git commit
EDITOR='sed -i s/pick/squash/' git rebase -i HEAD~3
EDITOR='rm -rf / #'; echo "$EDITOR"
vim 'rm -rf /'
""",
    ),
    "git": (
        r"""
git -c alias.x='!rm -rf /' x
git -c alias.x='!f() { rm -rf "$1"; }; f' x /
git -C src -c alias.x='!rm -rf /' x
git -c core.pager='rm -rf /;' log
git -c core.editor='rm -rf / #' commit
git -c core.sshCommand='rm -rf /;' fetch
git -c core.fsmonitor='rm -rf /;' status
git -c diff.external='rm -rf /;' diff
git -c credential.helper='!rm -rf /' fetch
git -c sequence.editor='rm -rf /;' rebase -i HEAD~2
git -c pager.log='rm -rf /' log
GIT_PAGER='rm -rf /;' git log
GIT_EDITOR='rm -rf /;' git commit
GIT_SEQUENCE_EDITOR='rm -rf /;' git rebase -i HEAD~2
GIT_SSH_COMMAND='rm -rf /;' git fetch
GIT_EXTERNAL_DIFF='rm -rf /;' git diff
GIT_ASKPASS='rm -rf /' git fetch; sudo rm -rf /
git rebase -x 'rm -rf /' HEAD~1
git rebase --exec='rm -rf /' main
git rebase -i --exec 'rm -rf /' main
git bisect run rm -rf /
git bisect run sh -c 'rm -rf /'
git submodule foreach 'rm -rf /'
git submodule foreach --recursive rm -rf /
git filter-branch --tree-filter 'rm -rf /' HEAD
git filter-branch -f --index-filter 'rm -rf /' HEAD
git difftool -x 'rm -rf /' HEAD
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!rm -rf /' git x
""",
        r"""
git -c alias.x='!git status' x
git -c alias.x='log --grep="rm -rf /"' x
git -c user.name='rm -rf /' commit -m x
git -c core.pager=cat log
git -c core.editor=true commit
GIT_SSH_COMMAND='ssh -i key' git fetch
GIT_PAGER=cat git log
git rebase -x 'make test' main
git bisect run make test
git bisect run ./check.sh
git submodule foreach 'git clean -xfd'
git submodule foreach git pull
git filter-branch --tree-filter 'rm -rf vendor' HEAD
git filter-branch --index-filter 'git rm -r --cached --ignore-unmatch x' HEAD
git log -S 'rm -rf /'
git log --format='!rm -rf /'
git commit -m '!rm -rf /'
git config alias.cleanup '!rm -rf build'
git rm -rf .
git stash push -m 'rm -rf /'
""",
    ),
    "commands in options": (
        r"""
tar --checkpoint=1 --checkpoint-action=exec='rm -rf /' -cf x y
tar cf x y --checkpoint=1 '--checkpoint-action=exec=sh -c "rm -rf /"'
tar -I 'rm -rf /' -cf a b
tar --use-compress-program='rm -rf /' -cf a b
tar --to-command='rm -rf /' -xf a.tar
tar xf a.tar --to-command 'rm -rf /'
tar -cf a -M -F 'rm -rf /' b
zip -T -TT 'rm -rf / #' a.zip b
rsync -e 'rm -rf /;' a host:b
rsync --rsh='sh -c "rm -rf /"' a host:b
ssh -o ProxyCommand='rm -rf /' host
scp -oProxyCommand='rm -rf /' a host:
psql -c '\! rm -rf /'
psql -d x -c "copy t to program 'rm -rf /'"
psql <<< '\! rm -rf /'
echo '\! rm -rf /' | psql x
sqlite3 x.db '.shell rm -rf /'
sqlite3 :memory: '.system rm -rf /'
sqlite3 x.db <<< '.shell rm -rf /'
sqlite3 -cmd '.shell rm -rf /' x.db
mysql -e 'system rm -rf /'
mysql -e '\! rm -rf /' x
mysql x <<EOF␤\! rm -rf /␤EOF
npx -c 'rm -rf /'
npx --yes -c 'rm -rf /'
npm exec -c 'rm -rf /'
npm exec --call='rm -rf /'
npm exec -- rm -rf /
pnpm exec rm -rf /
yarn exec rm -rf /
bundle exec rm -rf /
poetry run rm -rf /
uv run rm -rf /
uv run -- rm -rf /
pipenv run rm -rf /
conda run -n base rm -rf /
direnv exec . rm -rf /
nix-shell -p hello --run 'rm -rf /'
nix develop -c rm -rf /
nodemon --exec 'rm -rf /'
gdb -ex 'shell rm -rf /'
gdb -batch -ex '!rm -rf /'
gdb <<< 'shell rm -rf /'
lldb -o 'platform shell rm -rf /'
expect -c 'spawn rm -rf /'
expect <<< 'spawn rm -rf /'
dbus-run-session -- rm -rf /
dpkg -i --pre-invoke='rm -rf /' a.deb
pssh -H host 'rm -rf /'
ansible all -m shell -a 'rm -rf /'
ansible all -a 'rm -rf /'
systemd-run --on-active=5 rm -rf /
inotifywait -m . | while read f; do rm -rf /; done
screen -dmS x rm -rf /
tmux new-session -d 'rm -rf /'
tmux send-keys -t x 'rm -rf /' Enter
vagrant ssh -c 'rm -rf /'
gcloud compute ssh vm --command='rm -rf /'
adb shell rm -rf /
wsl rm -rf /
""",
        r"""
tar --checkpoint=100 --checkpoint-action=dot -cf x y
tar --checkpoint=100 --checkpoint-action=echo='rm -rf /' -cf x y
tar -I zstd -cf a.tar.zst b
tar -I 'zstd -19' -cf a b
tar --use-compress-program=pigz -cf a b
tar --to-command=cat -xf a.tar
rsync -e 'ssh -p 2222' a host:b
rsync -a --exclude='rm -rf /' a b
ssh -o ProxyCommand='nc %h %p' host ls
psql -c "select 'rm -rf /'"
psql -c '\dt'
psql <<< "insert into t values ('! rm -rf /')"
sqlite3 x.db '.tables'
sqlite3 x.db "select 'rm -rf /'"
mysql -e "select 'system rm -rf /'"
npx -c 'echo rm -rf /'
npx prettier --write .
npx rimraf dist
npm exec -- eslint .
npm run clean -- rm -rf /
bundle exec rake
poetry run pytest -k 'rm -rf /'
uv run pytest
uv run -- rm -rf build
conda run -n base python x.py
nix-shell -p hello --run 'hello'
gdb -ex 'shell ls /' -ex q
gdb -batch -ex 'break rm' -ex run
gdb -p 1 -batch -ex bt
expect -c 'spawn ssh host; expect "rm -rf /"'
ansible all -m shell -a 'rm -rf /tmp/x'
tmux new-session -d 'npm start'
tmux rename-window 'rm -rf /'
vagrant ssh -c 'ls /'
adb shell ls /
adb shell pm list packages
""",
    ),
    "interpreters": (
        r"""
make -f - <<< $'all:\n\trm -rf /'
printf 'all:\n\trm -rf /\n' | make -f -
make -f - <<EOF␤all:␤	@rm -rf /␤EOF
printf 'x:\n\t-@rm -rf /\n' | make -f /dev/stdin x
make -f- <<< 'x := $(shell rm -rf /)'
make --eval='$(shell rm -rf /)'
make --eval='x:;rm -rf /' x
python3 <<EOF␤import os␤os.system("rm -rf /")␤EOF
python3 - <<'EOF'␤import subprocess␤subprocess.run(["rm", "-rf", "/"])␤EOF
python3 - <<'EOF'␤import shutil␤shutil.rmtree('/')␤EOF
echo 'import os; os.system("rm -rf /")' | python3
cat > x.py <<EOF␤import os␤os.system("rm -rf /")␤EOF␤python3 x.py
python3 -c 'import subprocess as s; s.check_call("rm -rf /", shell=True)'
python3 -c "import os; os.execvp('rm', ['rm', '-rf', '/'])"
python3 -c 'import os; os.popen("rm -rf /").read()'
python3 -c 'c = "rm -rf /"; import os; os.system(c)'
python3 -Bc 'import os; os.system("rm -rf /")'
python3 -c 'open("/dev/sda", "wb").write(b"x")'
python3 -c 'import shutil; shutil.rmtree("/etc")'
python3 -c 'import pty; pty.spawn(["rm", "-rf", "/"])'
perl -e 'system("rm", "-rf", "/")'
perl -e 'exec "rm -rf /"'
perl -e '`rm -rf /`'
perl -le 'system "rm -rf /"'
perl <<< 'system("rm -rf /");'
perl -e 'qx(rm -rf /)'
perl -MFile::Path -e 'rmtree("/")'
perl -e 'open(F, ">/dev/sda"); print F 1'
ruby -e 'system "rm -rf /"'
ruby -e '%x(rm -rf /)'
ruby -rfileutils -e 'FileUtils.rm_rf "/"'
ruby <<< 'system("rm -rf /")'
node -e 'require("child_process").execSync("rm -rf /")'
node -e 'require("fs").rmSync("/", {recursive: true})'
node <<< 'require("child_process").exec("rm -rf /")'
node --eval='require("child_process").execSync("rm -rf /")'
node -e 'require("child_process").spawnSync("rm", ["-rf", "/"])'
php -r 'system("rm -rf /");'
php <<< '<?php system("rm -rf /");'
lua -e 'os.execute("rm -rf /")'
Rscript -e 'system("rm -rf /")'
tclsh <<< 'exec rm -rf /'
awk 'BEGIN{system("rm -rf /")}'
awk 'BEGIN{"rm -rf /" | getline}'
awk '{print | "rm -rf /"}' f
awk 'BEGIN{print "rm -rf /" | "sh"}'
mawk 'BEGIN{system("rm -rf /")}'
sed '1s/.*/rm -rf \//e' f
sudo python3 -c "import os; os.system('chmod -R 777 /')"
""",
        r"""
make -f - <<< $'all:\n\tls /'
printf 'all:\n\techo rm -rf /\n' | make -f -
printf 'clean:\n\trm -rf build\n' | make -f -
make --eval='$(info rm -rf /)'
make -n clean
python3 <<EOF␤print("rm -rf /")␤EOF
python3 - <<'EOF'␤# os.system("rm -rf /")␤print(1)␤EOF
python3 -c 'import subprocess; subprocess.run(["echo", "rm -rf /"])'
python3 -c 'import os; os.system("ls"); print("rm -rf /")'
python3 -c 'import shutil; shutil.rmtree("/tmp/x")'
python3 -c 'import os; os.system("rm -rf build")'
python3 -c 'import os; os.popen("ls /").read()'
python3 -c 'open("/dev/sda", "rb").read(512)'
python3 -c 'bad = ["rm -rf /", "mkfs.ext4 /dev/sda"]; print(bad)'
python3 -c 'import re; re.search("rm -rf /", s) and exec("pass")'
echo 'import os; os.system("rm -rf /")' > x.py
python3 -m pytest -k 'rm -rf /'
perl -e 'print "rm -rf /"'
perl -ne 'print if /rm -rf/' f
perl -pe 's/rm -rf \///' f
perl -e 'system("echo", "rm -rf /")'
perl -e 'open(F, "</dev/sda"); read F, $b, 512'
ruby -e 'puts "rm -rf /"'
ruby -e 'system("ls")'
node -e 'console.log("rm -rf /")'
node -e 'require("child_process").execSync("ls /"); console.log("rm -rf /")'
node -e 'require("fs").rmSync("dist", {recursive: true})'
node <<< 'console.log("rm -rf /")'
php -r 'echo "rm -rf /";'
lua -e 'print("rm -rf /")'
awk '/rm -rf \//{print}' f
awk 'BEGIN{print "rm -rf /"}'
awk 'BEGIN{system("ls /")}'
awk '{print > "rm -rf"}' f
sed 's/rm -rf \//x/' f
python3 -c 'x = "system"; y = "rm -rf /"; print(x, y)'
""",
    ),
    "containers": (
        r"""
docker exec web rm -rf /
docker exec -it web sh -c 'rm -rf /'
docker exec -u root web bash -c 'rm -rf /*'
docker exec -w / web rm -rf etc
docker container exec web rm -rf /
docker compose exec web rm -rf /
docker-compose exec -T web sh -c 'rm -rf /'
docker compose -f x.yml exec web rm -rf /
podman exec web rm -rf /
kubectl exec pod -- rm -rf /
kubectl exec -it pod -c web -- sh -c 'rm -rf /'
kubectl -n x exec deploy/web -- rm -rf /
lxc exec c -- rm -rf /
nerdctl exec web rm -rf /
docker run --privileged -v /dev:/dev alpine dd if=/dev/zero of=/dev/sda
docker run -v /:/host alpine chroot /host rm -rf /
docker run --rm -v /:/host alpine sh -c 'rm -rf /host/*'
docker run --mount type=bind,source=/,target=/host alpine rm -rf /host
docker run -v /etc:/x alpine rm -rf /x
docker run --rm -it --volume=/:/mnt ubuntu rm -rf /mnt
docker run -v /etc/:/mnt alpine rm -rf /mnt
docker run -v/:/mnt alpine rm -rf /mnt
docker run -itv //:/mnt alpine rm -rf /mnt
docker run --mount=type=bind,src=/etc/../,dst=/m alpine rm -rf /m
""",
        r"""
docker exec web ls /
docker exec web sh -c 'rm -rf /tmp/x'
docker exec -it web bash
docker exec -w /app web rm -rf dist
docker compose exec web npm test
docker compose exec -T db psql -c 'select 1'
kubectl exec pod -- rm -rf /tmp/cache
kubectl exec -it pod -- sh
kubectl delete pod rm-rf
docker run --rm alpine sh -c 'rm -rf /'
docker run --rm -v "$PWD:/src" alpine rm -rf /src/build
docker run --rm -v "$PWD:/src" -w /src node:20 rm -rf node_modules
docker run -v /:/host:ro alpine rm -rf /host
docker run -v /:/host:ro alpine ls /host
docker run -v data:/data alpine rm -rf /data
docker rm -f web
docker build --build-arg CMD='rm -rf /' .
docker logs web
""",
    ),
    "find": (
        r"""
find / -exec shred -u {} +
find / -type f -exec unlink {} \;
find / -type f -exec truncate -s0 {} +
find / -type f -exec sh -c 'rm "$1"' _ {} \;
find / -exec sh -c 'rm -rf "$@"' _ {} +
find / -mindepth 1 -delete
find / -type f -print0 | xargs -0 shred -u
find / -type f | xargs -r unlink
find / -type f -exec mv {} /dev/null \;
find / -type f -exec cp /dev/null {} \;
find /etc -delete
find /etc -type f -exec shred -u {} \;
find / -xdev -type f -exec sudo rm {} +
find / -type f -exec busybox rm {} \;
find / -type f -exec env rm -f {} +
sudo find / -exec sudo rm -rf {} +
find / -type f -exec bash -c 'for f; do rm -f "$f"; done' _ {} +
fd . / -X rm -rf
fd . / -x rm -rf {}
""",
        r"""
find . -type f -exec shred -u {} +
find /tmp -exec unlink {} \;
find / -name '*.tmp' -exec shred -u {} +
find / -type f -exec md5sum {} +
find / -type f -exec cat {} +
find / -exec ls -ld {} \;
find /var/log -name '*.gz' -exec unlink {} \;
find / -type f -exec cp {} /backup \;
find build -type f -exec truncate -s 0 {} +
find / -type f -exec sh -c 'grep -l "rm -rf" "$1"' _ {} \;
find / -type f -print0 | xargs -0 ls
find . -type f -print0 | xargs -0 shred -u
find /etc -type f | xargs cp -t /backup
find / -type f -name '*.log' -exec mv -t /backup {} +
find / -size +1G -exec ls -lh {} +
fd -e pyc -X rm
fd . src -x wc -l
find / -type d -exec du -s {} +
""",
    ),
    "process bombs": (
        r"""
while true; do $0 & done
while :; do "$0" & done
until false; do $0 & done
for ((;;)); do $0 & done
while true; do bash $0 & done
while true; do sleep 1000 & done
while :; do ./job & done
while true; do (sleep 1000 &) done
perl -e 'fork while 1'
perl -e 'while(1){fork}'
perl -e 'for(;;){fork()}'
perl -e 'fork while fork'
python3 -c 'import os␤while True: os.fork()'
python3 -c 'import os␤while 1:␤    os.fork()'
python3 -c "import os; [os.fork() for _ in iter(int, 1)]"
python3 <<EOF␤import os␤while True:␤    os.fork()␤EOF
ruby -e 'loop { fork }'
ruby -e 'fork while true'
ruby -e 'loop do fork end'
echo 'perl -e "fork while 1"' | sh
bash -c 'while true; do $0 & done'
""",
        r"""
while true; do sleep 1; done
while read -r l; do ./job "$l" & done < f
while true; do ./poll & wait; done
while true; do date & sleep 1; done
for i in 1 2 3; do sleep 10 & done; wait
while true; do :; done
while ! nc -z localhost 80; do sleep 1 & wait; done
perl -e 'my $p = fork; exit unless $p'
perl -e 'for (1..3) { fork or exit }'
python3 -c 'import os; os.fork()'
python3 -c 'import os␤for i in range(3): os.fork()'
python3 -c 'while True: print(1)'
ruby -e 'fork { puts 1 }'
echo 'while true; do $0 & done'
grep -rn 'fork while 1' .
git commit -m 'perl -e "fork while fork"'
until curl -s localhost; do sleep 1; done
""",
    ),
    "ends of substitutions": (
        r"""
x=$(case "$x" in y) echo 1;; *) rm -rf / ;; esac)
echo "$(case $1 in a) echo;; *) rm -rf /;; esac)"
echo "$(case x in (x) mkfs.ext4 /dev/sda1␤;; esac␤)"
cat <(case x in x) rm -rf /;; esac)
tee >(case x in x) rm -rf /;; esac)
rm -rf $(case a in a) echo /;; esac)
x=$(case a in a) echo /;; esac); rm -rf $x
echo ${x:-$(case a in a) rm -rf /;; esac)}
x=$(if case a in a) true;; esac; then rm -rf /; fi)
x=$(case a in case) ;; @(a|b)) rm -rf / ;; esac)
eval "$(case x in x) echo rm -rf /␤;; esac␤)"
x=$(case a in a) case b in b) :;; esac; rm -rf / ;; esac)
x=$(cat <<E␤:)␤E␤rm -rf /␤)
echo "$(cat <<E␤1) one␤E␤rm -rf /)"
cat <(cat <<'E'␤)␤E␤rm -rf /)
echo $(cat <<-"E F"␤:)␤␉E F␤rm -rf /)
echo $(cat <<E␤:)␤E); rm -rf /
echo $(case a in␤# b)␤a) rm -rf /;; esac)
echo $(: # case a in␤); rm -rf /
echo $(echo case a in a); rm -rf /
echo $(x=(case a in a); rm -rf /)
echo $(((1 << 2)); cat <<E␤:)␤E␤rm -rf /)
bash -c 'x=$(case a in a) rm -rf / ;; esac)'
f() { local d=$(case $1 in x) echo /;; *) echo /tmp;; esac); rm -rf "$d"; }; f x
""",
        r"""
echo "$(case x in a) echo 1;; esac)"; ls
x=$(case a in a) echo rm -rf /;; esac)
x=$(case $1 in a) echo build;; *) echo dist;; esac); rm -rf "$x"
rm -rf "$(case a in a) echo build/;; esac)"
x=$(cat <<'EOF'␤1) run rm -rf / to wipe␤EOF␤); echo "$x"
x=$(cat <<E␤rm -rf / :)␤rm -rf /␤E␤)
git commit -m "$(cat <<'EOF'␤1) x␤2) y; rm -rf /␤EOF␤)"
git commit -m "$(cat <<'EOF'␤fix:␤1) never run␤rm -rf /␤EOF␤)"
git commit -m "$(cat <<'EOF'␤- a) x␤- b) y; rm -rf /␤EOF␤)"
echo $(echo case a in b) rm -rf /
echo $(: # case a in␤) rm -rf /
echo $(echo $((1<<2))␤) rm -rf /
echo $(((1 << 2))) rm -rf /
cat <(case x in x) ls /;; esac) rm -rf /
diff <(sort a) <(sort b) rm -rf /
x=$(a=(case in x) ; echo rm -rf /)
""",
    ),
    "arithmetic that is a script": (
        r"""
echo $((rm -rf /) )
echo "$((rm -rf /); true)"
x=$((rm -rf /); (true))
echo $((mkfs.ext4 /dev/sda1) )
echo $((rm -rf /)|cat)
echo $(( rm -rf /␤)␤)
$((echo rm -rf /)|cat)
rm -rf $((echo /) )
x='rm -rf /'; echo $(($x)|(cat))
: $((1<<n))␤echo $((rm -rf /) )
: $((1 <<␤n))␤echo $((rm -rf /) )␤n
((␤1 <<n))␤echo $((rm -rf /) )␤n
cat <<E␤$((rm -rf /) )␤E
echo ${x:-$((rm -rf /) )}
[[ -n $((rm -rf /); (true)) ]]
echo $((:); (rm -rf /))
echo $(( $(case a in a) echo rm -rf /;; esac) ))
""",
        r"""
echo $((1+2)) $(( (1)+(2) )) $((2*(3+4)))
x=$(( (1 + 2) * 3 )); rm -rf build/$x
rm -rf "/tmp/$((RANDOM % (10)))"
x=$((echo a); (echo b))
echo $((echo rm -rf /) )
echo $((cd /tmp; rm -rf x) )
echo $(( $(echo 3) + 1 )) rm -rf /
: $((1<<n)); cat <<n␤$((a) )␤rm -rf /␤n
x=$((rm -rf /))
echo $(( 1 << 2 )) rm -rf /
""",
    ),
    "items of case": (
        r"""
case x in x) d=/;; *) d=/tmp;; esac; rm -rf $d
case ab in b) d=/tmp;; a*) d=/;; *) d=/tmp;; esac; rm -rf $d
case a in [b-c]) d=/tmp;; [a-c]) d=/;; *) d=/tmp;; esac; rm -rf $d
case "a b" in 'a '?) d=/;; *) d=/tmp;; esac; rm -rf $d
case a in "*") d=/tmp;; a|b) d=/;; esac; rm -rf $d
case $HOME in ~) d=/;; *) d=/tmp;; esac; rm -rf $d
case $x in x) d=/;; esac; rm -rf $d
while a; do case $s in a) s=b;; b) d=/;; esac; done; rm -rf $d
s=a; while a; do case $s in a) s=b;; b) d=/;; esac; done; rm -rf $d
shopt -s nocasematch; case A in a) d=/;; esac; rm -rf $d
case A in a) cd /;; esac; rm -rf *
case $(cat f) in x) d=/;; esac; rm -rf $d
case a in [[:alpha:]]) d=/;; esac; rm -rf $d
case a in @(a|b)) d=/;; esac; rm -rf $d
case a in a) d=/;& b) :;; esac; rm -rf $d
case a in b) rm -rf /;; esac
case a in a) :;; b) cd /; rm -rf *;; esac
case $(rm -rf /) in a) ;; esac
case a in $(rm -rf /)) ;; esac
case $(cat f) in a) ;; $(rm -rf /)) ;; esac
case a in a) ;; $(rm -rf /)) ;; esac
case $x in a) ;; esac; > /dev/sda
rm -rf $(case x in x) echo /;; *) echo /tmp;; esac)
""",
        r"""
case y in x) d=/;; *) d=/tmp;; esac; rm -rf $d
case a in b|c) d=/;; *) d=/tmp;; esac; rm -rf $d
case a in a) rm -rf *;; b) cd /;; esac
case a in b) ls;; a) ls;; esac; rm -rf build
case a in a) d=x;; *) d=/; esac; rm -rf $d
case a in a) cd /tmp;; *) cd /;; esac; rm -rf *
case ab in a?) d=x;; a*) d=/;; esac; rm -rf $d
rm -rf "$(case x in y) echo /;; *) echo build;; esac)"
case $1 in start) ls;; stop) rm -rf build;; *) echo rm -rf /;; esac
""",
    ),
    "redirections after unset variables": (
        r"""
ls $x; > /dev/sda
ls $x; { ls; } > /dev/sda
for i in $x; do > /dev/sda; done
case $x in a) ;; esac; > /dev/sda
""",
        r"""
ls $x; > /dev/null
ls > $x/dev/sda
{ ls; } > $x/dev/sda
""",
    ),
    "input redirections in substitutions": (
        r"""
echo $(<f; rm -rf /)
echo $(< f␤rm -rf /)
echo "$(<f || rm -rf /)"
echo `<f rm -rf /`
echo $(< f > /dev/sda)
echo $(<<E␤E␤rm -rf /)
echo $(<<<a rm -rf /)
echo $(< $(rm -rf /))
echo / > f; rm -rf $(< f)
echo / > f; rm -rf $( <f )
rm -rf $(<f; echo /)
""",
        r"""
echo $(< f)
rm -rf "$(< "rm -rf /")"
x=$(␤  < 'f; rm -rf /' ␤); ls $x
x=$(<f); rm -rf build
""",
    ),
    "variables of shells, and hash": (
        r"""
PS4='$(rm -rf /)'; set -x; :
set -x; PS4='`rm -rf /` '; :
export PS4='+ $(rm -rf /)'; bash -xc :
PS4='$(rm -rf /)' bash -x f
PROMPT_COMMAND='rm -rf /' bash -i
env PROMPT_COMMAND='rm -rf /' bash --norc -i
PS1='$(rm -rf /)' bash -i
ENV='$(rm -rf /)' sh -i
hash -p /bin/rm x; x -rf /
hash -p /bin/rm -- x y; "y" -rf /
hash -p/sbin/mkfs.ext4 x; x /dev/sda1
hash -p /bin/bash x; x -c 'rm -rf /'
hash -p /bin/ls rm; hash -r; rm -rf /
""",
        r"""
PS4='+ $(date) '; set -x; ls
PS4='+ rm -rf / '; set -x; ls
PROMPT_COMMAND='rm -rf /' bash -c ls
PROMPT_COMMAND='history -a' bash -i
PS1='rm -rf / $ ' bash -i
ENV='$(rm -rf /)' sh -c ls
hash -p /bin/rm x; x -rf build
hash -r; hash rm
""",
    ),
    "syntax that the parser does not know": (
        r"""
a=()# ; rm -rf /
a=(1 2)#; rm -rf /
declare a=(1)# x; rm -rf /
a+=(1)#;rm -rf /
shopt -s extglob␤echo @(a)# ; rm -rf /
a=(1 2)# x␤rm -rf /
set -- /; for x do rm -rf $x; done
f() { for x do rm -rf "$x"; done; }; f /
set -- /; for x  do rm -rf $x; done
for x do rm -rf /; done
cat <<E# x; rm -rf /␤E#
cat <<E# ; rm -rf /␤x␤E#␤
cat <<E; rm -rf /␤$((1)) a
cat <<E; rm -rf /␤$((1)) done␤E␤
cat <<'E'; rm -rf /␤x␤E
cat <<E& rm -rf /␤x␤E
test -v 'a[$(rm -rf /)]'
read 'a[$(rm -rf /)]' <<< 1
""",
        r"""
a=(1) # ; rm -rf /
(ls)# ; rm -rf /
((1))# ; rm -rf /
f()# ; rm -rf /␤{ ls; }
case a in a)# ; rm -rf /␤ls;; esac
a=(1 # ; rm -rf /␤)
echo ')#' # ; rm -rf /
set -- build; for x do rm -rf $x; done
f() { for x do echo rm -rf "$x"; done; }; f /
echo for x do; ls /
for x in a do; do echo $x; done
cat <<E; ls␤rm -rf /␤E
cat <<E; ls␤rm -rf / $((1)) a␤E
cat <<E# ; ls␤rm -rf /␤E#
cat <<'E;'␤rm -rf /␤E;
cat <<E # ; rm -rf /␤a␤E
cat <<E& ls␤rm -rf /␤E
test -v 'a[$(ls /)]'
read 'a[$(ls /)]' <<< 1
test -n 'a[$(rm -rf /)]'
""",
    ),
    "coprocesses": (
        r"""
coproc ( rm -rf / )
coproc X (␤rm -rf /␤)
coproc { rm -rf /; }
coproc X { x=/; rm -rf $x; }
coproc { x=/␤rm -rf "$x"␤}
coproc { cd /; rm -rf *; }
coproc { for i in /; do rm -rf $i; done; }
coproc { { rm -rf /; } & }
coproc { ( x=/; rm -rf $x ); }
coproc { coproc { x=/; rm -rf $x; }; }
coproc { x=/; coproc { rm -rf $x; }; }
coproc for i in /; do rm -rf $i; done
coproc X case a in a) x=/; rm -rf $x;; esac
coproc if x=/; then rm -rf $x; fi
coproc while read x; do rm -rf $x; done <<< /
coproc [[ -n $(rm -rf /) ]]
true && coproc { x=/; rm -rf $x; } 2> f
if coproc { x=/; rm -rf $x; }; then :; fi
x=$(coproc { cd /; rm -rf *; })
f() { coproc { x=$1; rm -rf $x; }; }; f /
bash -c 'coproc { x=/; rm -rf $x; }'
cat <<E; coproc { x=/; rm -rf $x; }␤coproc { x=; }␤E
coproc { f() { f | f & }; f; }
""",
        r"""
coproc { x=/; ls $x; }
coproc { x=/; }; rm -rf $x
cd /tmp; coproc { cd /; ls; }; rm -rf *
coproc X { cd /tmp/x; rm -rf *; }
coproc ( rm -rf build )
coproc { echo rm -rf /; }
coproc { read line; rm -rf build/a; } 2> /dev/null
coproc for i in a b; do rm -rf $i; done
echo coproc { rm -rf /
echo coproc "{ x=/; rm -rf $x; }"
echo 'coproc { x=/; rm -rf $x; }'
cat <<'E'␤coproc { x=/; rm -rf $x; }␤E
git commit -m 'coproc { rm -rf /; }'
: # coproc { x=/; rm -rf $x; }
coproc cat; echo ${#COPROC[@]}
coproc tee log
""",
    ),
    "what does not run": (
        r"""
if ! false; then rm -rf /; fi
false || rm -rf /
if false; then :; else rm -rf /; fi
if false; then :; elif true; then rm -rf /; fi
false && rm -rf /tmp/x; rm -rf /
if true; then rm -rf /; fi
until false; do rm -rf /; done
false() { :; }; if false; then rm -rf /; fi
true && rm -rf /
if false; true; then rm -rf /; fi
if false || true; then rm -rf /; fi
! false && rm -rf /
if [ -d / ]; then rm -rf /; fi
false; rm -rf /
""",
        r"""
if false; then rm -rf /; fi
false && rm -rf /
true || rm -rf /
if true; then :; else rm -rf /; fi
while false; do rm -rf /; done
until true; do rm -rf /; done
if false; then␤  mkfs.ext4 /dev/sda1␤fi
: || rm -rf /
if ! true; then rm -rf /; fi
""",
    ),
}


def lines_of(text: str) -> list[str]:
    return [line.translate({ord("␤"): "\n", ord("␉"): "\t"}) for line in text.splitlines() if line]


DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
