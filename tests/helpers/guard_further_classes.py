"""More classes of dangerous and harmless command lines, in the format of `guard_classes`. No test
runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "wrapper options": (
        r"""
sudo -kHn rm -rf /
env -- A=1 rm -rf /
eval -- 'rm -rf /'
builtin eval -- 'rm -rf /'
source -- /dev/stdin <<< 'rm -rf /'
echo 'rm -rf /' > x.sh; . -- x.sh
set -- x rm; shift -- 1; $1 -rf /
su root -- -c 'rm -rf /'
su --session-command='rm -rf /' root
runuser --session-command 'rm -rf /' root
setarch -R rm -rf /
setarch x86_64 -R rm -rf /
nix develop .#shell -c rm -rf /
nix shell nixpkgs#a nixpkgs#b --command rm -rf /
gcloud compute ssh host -- rm -rf /
vagrant ssh web -- rm -rf /
script -q log -- rm -rf /
set -- a /; shift 5; rm -rf $2
set -- /; shift -1; rm -rf $1
set -- a /; shift " +1"; rm -rf $1
mise exec node@20 -- rm -rf /
mise x -c 'rm -rf /'
nix --extra-experimental-features 'nix-command flakes' develop -c rm -rf /
x86_64 rm -rf /
setarch -v -R x86_64 rm -rf /
su root -- -ec 'rm -rf /'
su root -- -ce 'rm -rf /'
su root -- -Ec 'rm -rf /'
sudo -EHu root -- rm -rf /*
sudo -nSEp '' rm -rf /
sudo -Hnuroot chmod -R 777 /
sudo -u root -g root -E env -i PATH=/bin rm -rf /
doas -n rm -rf /
doas -nuroot rm -rf /
env -viu FOO rm -rf /
env -iS'rm -rf' /
env -0i rm -rf /
env -S 'A=1 rm -rf /'
env --split-string='rm -rf /'
env --ignore-environment rm -rf /
printf '/\0' | xargs -0n1 rm -rf
printf '/\0' | xargs -0P4n1 rm -rf
echo / | xargs -tn1 sudo rm -rf
echo / | xargs -rI% sudo rm -rf %
echo / | xargs -n1 -d '\n' rm -rf
nice -10 rm -rf /
nice -n10 ionice -c2n0 rm -rf /
timeout -vs9 5 rm -rf /
timeout -pk1 5 chown -R nobody /
stdbuf -i0oL rm -rf /
setsid -wf rm -rf /
time -p rm -rf /
/usr/bin/time -apo log rm -rf /
unshare -rmfp rm -rf /
su -c 'rm -rf /' -s /bin/sh root
su -- root -c 'rm -rf /'
su -lmc 'rm -rf /' root
script -aqc 'rm -rf /' log
flock -xn /tmp/l sudo rm -rf /
strace -qfo log -e trace=file mv / /tmp
command -p -- rm -rf /
exec -la rm2 rm -rf /
chrt -if 0 rm -rf /
taskset -c 0-3 sudo -nE rm -rf /
systemd-run -qtP rm -rf /
""",
        r"""
sudo -kHn rm -rf ./dist
sudo -knv
sudo -lU me rm -rf /
sudo -nSEp 'rm -rf /' ls
env -iS'ls -d' /
env -u 'rm -rf /' ls
xargs -0n1 ls -d <<< /
printf '/\0' | xargs -0n1 stat
echo / | xargs -tn1 du -sh
echo / | xargs -I% echo rm -rf %
timeout -vs9 5 ls /
timeout -pk1 5 chown -R nobody ./data
setsid -wf ls /
/usr/bin/time -apo log ls /
/usr/bin/time -f 'rm -rf /' true
su -c 'ls /' -s /bin/sh root
su -- root -c 'ls /'
script -aqc 'du -s /' log
strace -o 'rm -rf /' ls
systemd-run -qtP ls /
flock -xnc /tmp/l 'rm -rf build'
""",
    ),
    "wrapper directories": (
        r"""
sudo -nD/ rm -rf ./*
sudo -ED / chmod -R 777 ./
sudo -D / sh -c 'rm -rf .'
sudo --chdir=/home/.. rm -rf .
sudo -D /tmp/.. mv * /mnt
env -iC/ rm -rf ../
env -C / sudo rm -rf ./
env -C /tmp/.. bash -c 'rm -rf *'
env -uA -C / rm -rf -- .
systemd-run -d rm -rf /
systemd-run --wait -p WorkingDirectory=/ rm -rf /
unshare --wd=/ rm -rf .
env -C / find . -delete
env -C / find . -maxdepth 1 -exec rm -rf {} +
d=/; env -C "$d" rm -rf .
cd / && make clean; rm -rf *
git -C / clean -xfd --exec-path=/; git -C / -c alias.z='!rm -rf .' z
make -C / -f - <<< $'all:\n\trm -rf .'
tar -C / --to-command='rm -rf /' -xf a.tar
git -C / -c alias.z='!rm -rf /' z
make -C / --eval='all:;rm -rf *' all
pnpm -C / exec rm -rf .
npm --prefix / exec -- rm -rf /
uv run --directory / rm -rf .
docker exec -w / c rm -rf .
""",
        r"""
sudo -nD/tmp rm -rf ./*
sudo -D / sh -c 'ls .'
env -C /tmp/build bash -c 'rm -rf *'
env -C / sh -c 'cd /tmp && rm -rf *'
cd / && env -C "$OLDPWD" ls
git -C / rm -rf --cached .
make -C / -n
tar -C / -cf /tmp/x.tar etc
tar -C / --exclude=proc -czf /backup.tgz .
sudo -D /opt/app rm -rf ./*
git -C / -c alias.z='!ls' z
git -C /tmp/x -c alias.z='!rm -rf build' z
make -C /tmp/x -f - <<< $'all:\n\trm -rf .'
pnpm -C /srv/app exec rm -rf dist
uv run --directory /srv/app rm -rf .
""",
    ),
    "globs": (
        r"""
/bin/r? -rf /*
/usr/bin/[r]m -fr /
/bin/?m -rf /
/usr/*/rm -rf /
/[b]in/rm -rf /
/sbin/mkfs.e* /dev/sda1
/usr/sbin/mkfs* -t ext4 /dev/sda1
/bin/c?own -R nobody /
/bin/chm?d -R 777 /
/usr/bin/en? rm -rf /
/bin/ba?h -c 'rm -rf /'
/usr/bin/fin[d] / -delete
/bin/m? / /tmp
cd /bin; ./r? -rf /
cd /; bin/r? -rf /
cat x > /dev/sd[a]
cat x > /dev/nvme?n1
rm -rf /{bin,et*}
rm -rf /et*
rm -rf /et?/
rm -rf /u*r
rm -rf /{e,u}??
rm -rf /b?n /s*
mv /et[c] /tmp/x
chmod -R 777 /et*
chown -R me:me /et?
rm -fr /hom[e]
rm -rf /us*/lo*/../bin
chmod -R 000 /us[r]/b*
""",
        r"""
/bin/l? -la /*
/usr/bin/[l]s -fr /
/usr/bin/gi? rm -rf .
/bin/?s -R /
/usr/*/python3 -V
cd /bin; ls r? -d /
dd if=/dev/s?a of=disk.img
/bin/r? -rf ./tmp
cat /dev/sd? | head -c 16
rm -rf ./et*
rm -rf /tmp/et?
rm -rf /var/tmp/b?n
ls -la /et*
cp -r /et* /tmp/backup
tar czf b.tgz /et*
rm -f /et*
rm -rf /home/me/et*
rm -rf /mnt/backup/u*r
chown -R me:me /opt/et?
rm -rf /var/log/*.gz
rm -rf /usr/local/ap*
""",
    ),
    "continuations": (
        r"""
rm -rf \␤/\␤*
\␤rm -rf /
r\␤\␤m -r\␤f /
ch\␤own -R no\␤body /
"r"\␤m -rf /
$(ech\␤o rm) -rf /
x=\␤/; rm -rf $x
rm -rf "$\␤{UNSET_D}/"*
for d in /\␤; do rm -rf $d; done
m\␤v \␤/ /tmp
: | rm \␤ -rf /
bash -c 'r\␤m -rf /'
sudo ba\␤sh -c 'rm -rf /'
echo x >\␤/dev/sda
dd of=/dev\␤/sda if=x
mkfs\␤.ext4 /dev/sda1
r\␤m${IFS}-rf${IFS}/
:()\␤{ :|:& };:
""",
        r"""
rm -rf \␤./\␤*
echo "r\␤m -rf /"
r\␤m -r\␤f bu\␤ild
mv \␤a /tmp
cat <<'E'␤r\␤m -rf /␤E
git commit -m 'r\␤m -rf /'
echo x >\␤/dev/null
# r\␤m -rf /
grep "rm \␤-rf /" f
""",
    ),
    "unset IFS": (
        r"""
unset IFS; c='rm	-rf	/'; $c
unset IFS; set -- rm -rf /; $*
unset IFS; v='-rf /'; rm $v
unset IFS; c="chmod -R 777 /"; $c
unset IFS; read -r a b c <<< 'rm -rf /'; $a $b $c
unset IFS; rm$(echo ' -rf /')
unset IFS; x='a rm'; ${x#a } -rf /
IFS=/; unset IFS; c='dd if=/dev/zero of=/dev/sda'; $c
unset -v IFS; c='rm -rf /'; $c
f() { unset IFS; $1; }; f 'rm -rf /'
IFS=; unset IFS; a=(rm -rf /); ${a[*]}
""",
        r"""
unset IFS; c='ls -d /'; $c
unset IFS; v='-rf build'; rm $v
IFS=; c='rm -rf /'; $c
IFS=:; c='rm -rf /'; $c
unset IFS; echo 'rm -rf /'
unset IFS; c='echo rm -rf /'; $c
""",
    ),
    "function redirects": (
        r"""
w() { printf x; } >/dev/sda; w
w() { printf x; } &> /dev/sda; w
w() { printf x; } 2>&1 >> /dev/nvme0n1; w
w() { cat; } > /dev/sdb < image; w
w() ( cat image ) >| /dev/sda; w
w() { sh; } <<'E'␤rm -rf /␤E␤w
w() { bash -s; } <<< 'chmod -R 777 /'; w
w() { while read p; do rm -rf "$p"; done; } <<< '/'; w
w() { xargs rm -rf; } <<E␤/␤E␤w
w() { read x; rm -rf $x; } <<< /; w
w() for i in 1; do echo $i; done > /dev/sda; w
w() { echo; } 3>&1 > $1; w /dev/sda
function w() { echo; } > "${1:-/dev/sda}"; w
""",
        r"""
w() { printf x; } >/dev/stderr; w
w() { cat; } > out.img < /dev/sda; w
w() { cat; } <<'E'␤rm -rf /␤E␤w
w() { read x; echo $x; } <<< 'rm -rf /'; w
w() { echo; } > $1; w /tmp/sda
w() { while read p; do echo "$p"; done; } <<< '/'; w
w() { sh; } <<'E'␤ls /␤E␤w
""",
    ),
    "defaults": (
        r"""
rm -rf ${nope:-/}*
rm -rf "${nope-}"/*
rm -rf ${nope:-"/"}
rm -rf ${nope:-${nada:-/}*}
rm -rf ${nope:+x}/
rm -rf ${nope:-$(printf /)}
rm -rf ${nope:='/'}
: ${nope:=rm -rf /}; $nope
${nope:-rm -rf /}
${nope:-rm} ${nada:--rf} ${zip:-/}
c=${nope:-rm}; $c -rf /
d=${nope:-/}; rm -rf $d
d=${nope:-/}; rm -rf "$d"*
chown -R nobody ${d:-/}
chmod -R 777 "${d:-/}"
dd if=/dev/zero of=${d:-/dev/sda}
echo x > ${d:-/dev/sda}
mv ${s:-/} ${t:-/tmp}
bash -c "${nope:-rm -rf /}"
eval "${nope:-rm -rf /}"
nope=; ${nope:-rm} -rf /
unset HOME; rm -rf ${HOME:-/}
rm -rf ${nope%/x}/
rm -rf "/${nope#x}"
rm -rf "/${nope//a/b}"
rm -rf "${nope:0:3}/"
rm -rf "${nope^^}/"
""",
        r"""
rm -rf ${nope:-./}*
rm -rf ${nope:+/}
rm -rf "${nope:?}/"*
rm -rf "${nope:?not set}"/
rm -rf "${HOME:+$HOME/.cache}"
rm -rf ${nope:-/tmp}/x
rm -rf ${nope:-"build"}
nope=out; rm -rf ${nope:-/}
d=$(mktemp -d); rm -rf "${d:-/}"
chown -R nobody ${d:-.}
echo ${nope:-rm -rf /}
git commit -m "${nope:-rm -rf /}"
mv ${s:-a} ${t:-/}
cp ${s:-/dev/sda} ${t:-a.img}
""",
    ),
    "disk writers": (
        r"""
parted -s /dev/sda mkpart primary ext4 1MiB 100%
parted /dev/sda --script mklabel gpt
parted -s /dev/sda resizepart 1 100%
parted -s /dev/sda mkpartfs primary ext2 0 100
echo 'mkpart primary 1MiB 100%' | parted /dev/sda
sgdisk -n 1:0:0 /dev/sda
sgdisk --new=1:0:+1G /dev/sda
sgdisk --largest-new=1 /dev/sda
sfdisk /dev/sda <<< ';'
sfdisk --append /dev/sda <<< ',,'
ddrescue --force in.img /dev/sdb
dd_rescue -A in.img /dev/sda
sponge /dev/sda < x
truncate -cs0 /dev/sda
cat x | tee -p /dev/sda
cat x | sudo tee /dev/sda /dev/sdb >/dev/null
cp x -f /dev/sda
cp --target-directory=/dev x/sda
dd if=x | dd of=/dev/sda conv=notrunc
partclone.restore -s x.img -o /dev/sda1
partclone.dd -s x.img -O /dev/sda1
xfs_copy x.img /dev/sda1
e2image -ra x.img /dev/sda1
socat -u FILE:x.img OPEN:/dev/sda
socat - FILE:/dev/sda,wronly < x
busybox dd of=/dev/sda if=x
7z e -so x.7z > /dev/sda
xz -dc x.xz | sudo dd of=/dev/sda
flashcp -v x /dev/sda
wipe -kq /dev/sda
gunzip -c x.gz | sudo sponge /dev/sda
split --filter='dd of=/dev/sda' x
mbuffer -i x -o /dev/sda
openssl enc -d -aes-256-cbc -in x -out /dev/sda
gpg -o /dev/sda -d x.gpg
rsync --inplace --write-devices x /dev/sda
ssh h cat x > /dev/sda
nc -l 99 > /dev/sda
hdparm --trim-sector-ranges 1:100 /dev/sda
tune2fs -O ^has_journal /dev/null; mkfs /dev/sda
echo 1 > /dev/disk/by-id/ata-X
wipefs --all --force /dev/sda
blkdiscard -z /dev/sda
dmsetup wipe_table root; dd of=/dev/mapper/root if=/dev/zero
xxd -r x.hex /dev/sda
uniq x /dev/sda
""",
        r"""
parted -s /dev/sda unit MiB print
parted /dev/sda print free
parted -s x.img mkpart primary 1MiB 100%
parted --list
parted /dev/sda align-check opt 1
sgdisk -i 1 /dev/sda
sgdisk --verify /dev/sda
sgdisk -n 1:0:0 x.img
sfdisk -J /dev/sda
sfdisk --list-free /dev/sda
ddrescue -n /dev/sda x.img x.map
truncate -cs0 x.img
cat /dev/sda | tee x.img > /dev/null
mv /dev/shm/x /tmp
mkswap swap.img
mkswap /dev/sda2
pvcreate /dev/sdb1
vgcreate vg0 /dev/sdb1
btrfs device add /dev/sdb /mnt
parted -s /dev/sda set 1 boot on
sgdisk -t 1:8300 /dev/sda
mkswap --help
pvs /dev/sda
pvcreate --help
vgdisplay vg
mdadm --detail --scan
zpool status
btrfs device usage /mnt
xfs_info /dev/sda1
e2image -ra /dev/sda1 x.img
fsarchiver probe simple
socat -u OPEN:/dev/sda CREATE:x.img
zerofree -n /dev/sda1
sed -n 1p /dev/sda
xxd -l 64 /dev/sda
xxd /dev/sda out.hex
uniq /dev/sda x
mbuffer -i /dev/sda -o x
gpg -o x.gpg -e /dev/sda
split -b 1G /dev/sda part.
""",
    ),
    "commands in arguments": (
        r"""
vim -Es -c '%!rm -rf /' f
vim +'!sudo rm -rf /' f
vim -c 'terminal rm -rf /'
vim -c "let x = system('rm -rf /')"
vim -S <(echo ':!rm -rf /')
echo '!rm -rf /' > v.vim; vim -S v.vim
nvim -c 'lua os.execute("rm -rf /")'
nvim --headless +'lua vim.fn.system("rm -rf /")' +q
less '+!rm -rf /' f
PAGER='sh -c "rm -rf /"' man ls
GIT_EDITOR='sh -c "rm -rf /"' git rebase -i HEAD~1
GIT_SSH='rm -rf /' git fetch; GIT_SSH_COMMAND='rm -rf / #' git pull
git -c filter.x.clean='rm -rf /' add .
git -c merge.tool=x -c mergetool.x.cmd='rm -rf /' mergetool
git log --ext-diff; git -c diff.x.textconv='rm -rf /' diff
git fetch --upload-pack 'rm -rf /;' h
git ls-remote --upload-pack='rm -rf /' h
git clone -c core.sshCommand='rm -rf /' h:x
git -ccore.pager='rm -rf /' log
git --config-env=core.pager=P log; git -c core.pager='rm -rf /;' diff
git stash; git submodule --quiet foreach 'rm -rf /'
git rebase -x'rm -rf /' HEAD~2
git bisect run 'rm' -rf /
git worktree add x; git -C x bisect run rm -rf /
tar cf /dev/null x --checkpoint --checkpoint-action exec='rm -rf /'
tar --use-compress-program 'rm -rf / #' -xf x
tar -xf x --rsh-command='rm -rf /'
tar cvf a --index-file=x --info-script='rm -rf /' -M b
psql -c '\copy t from program '"'"'rm -rf /'"'"
psql -c "\\! sh -c 'rm -rf /'"
PSQL_EDITOR='rm -rf /;' psql -c '\e'
echo "COPY t FROM PROGRAM 'rm -rf /';" | psql
sqlite3 x ".system rm -rf /"
sqlite3 -batch x '.sh rm -rf /'
printf '.shell rm -rf /\n' | sqlite3
mysql -Be '\! rm -rf /'
echo 'system rm -rf /' | mysql -uroot
echo '\! rm -rf /' | mariadb x
npm x -c 'rm -rf /'
npm exec --package=x -c 'rm -rf /'
npx -p x -c 'rm -rf /'
npx -y -c 'sudo rm -rf /'
yarn dlx -c 'rm -rf /'; yarn exec 'rm -rf /'
pnpm dlx -c 'rm -rf /'
gdb --eval-command 'shell rm -rf /' --batch
gdb -batch -ex 'python import os; os.system("rm -rf /")'
gdb -ex 'pipe p 1 | rm -rf /'
gdb -x <(echo 'shell rm -rf /')
lldb -o 'script import os; os.system("rm -rf /")'
lldb --batch -o 'platform shell rm -rf /'
bash <<- E␤	rm -rf /␤E
sh -s -- / <<'E'␤rm -rf "$1"␤E
python3 - / <<'E'␤import os,sys␤os.system("rm -rf /")␤E
make -f- <<'E'␤all:␤	rm -rf /␤E
make -sf /dev/stdin <<'E'␤all: ; rm -rf /␤E
docker exec -i c sh <<< 'rm -rf /'
docker exec -e A=1 c sh -c 'rm -rf /'
docker compose run web rm -rf / --no-preserve-root; docker compose exec web rm -rf /
kubectl exec -i p -- sh -c 'rm -rf /'
kubectl exec -n ns p -c c -- /bin/rm -rf /
crictl exec -it c rm -rf /
podman exec -w / c rm -rf .
ctr task exec --exec-id x c rm -rf /
nsenter -t 1 -m -u -i -n -p -- rm -rf /
machinectl shell x /bin/rm -rf /
lxc-attach -n c -- rm -rf /
systemd-nspawn -D / rm -rf /
toolbox run rm -rf /
distrobox enter x -- rm -rf /
flatpak-spawn --host rm -rf /
find . -name x | socat - EXEC:'rm -rf /'
socat TCP-LISTEN:99 EXEC:'rm -rf /'
socat - SYSTEM:'rm -rf /'
printf 'rm -rf /\n' | socat - EXEC:sh
printf 'rm -rf /\n' | socat - EXEC:'bash -s',pty
ncat -l 99 -e 'rm -rf /'
ncat -l 99 -c 'rm -rf /'
nc -lp 99 -e 'rm -rf /'
ssh -o LocalCommand='rm -rf /' -o PermitLocalCommand=yes h
ssh h -oProxyCommand='rm -rf /'
sftp -o ProxyCommand='rm -rf /' h
rsync -ae 'rm -rf /;' a h:b
rsync --rsync-path='rm -rf /;rsync' a h:b
split -b1 --filter='rm -rf /' x
ed x <<< '!rm -rf /'
awk 'BEGIN { "rm -rf /" | getline x }'
gawk 'BEGIN{ print "rm -rf /" |& "sh" }'
sed 'e rm -rf /' x
sed '1e rm -rf /' x
sed -n '$e rm -rf /' x
tclsh <<< 'exec rm -rf /'
zip x.zip x -T --unzip-command='sh -c "rm -rf /"'
capsh -- -c 'rm -rf /'
run-parts --test /x; busybox sh -c 'rm -rf /'
start-stop-daemon --start --exec /bin/rm -- -rf /
xterm -e rm -rf /
xterm -e 'rm -rf /'
gnome-terminal -- rm -rf /
screen -dm sh -c 'rm -rf /'
tmux new-window 'rm -rf /'
tmux split-window -h 'rm -rf /'
tmux send-keys -t 0 'rm -rf /' C-m
tmux new -d -s x -c / 'rm -rf /'
at now <<< 'rm -rf /'
echo 'rm -rf /' | at now + 1 minute
echo '* * * * * rm -rf /' | crontab -
(crontab -l; echo '@reboot rm -rf /') | crontab -
pre-commit try-repo x; parallel -j1 'rm -rf {}' ::: /
parallel --pipe sh <<< 'rm -rf /'
""",
        r"""
vim -Es -c '%!sort' -c wq f
vim -c 'terminal ls /'
vim -S setup.vim
echo '!rm -rf /' > v.vim; cat v.vim
more +10 f
less '+/rm -rf /' f
GIT_EDITOR=: git rebase -i HEAD~1
GIT_SSH_COMMAND='ssh -p 99' git pull
git config alias.boom '!rm -rf build' && git boom
git config alias.boom '!rm -rf /'
git config --global core.pager 'less -R'; git log
git -c filter.x.clean='sed s/rm//' add .
git rebase -x'make check' HEAD~2
git log --grep='!rm -rf /' -c
git commit -m 'exec=rm -rf /'
tar cf /dev/null x --checkpoint --checkpoint-action=dot
tar -xf x --rsh-command=ssh
psql -c "select 'program ''rm -rf /'''"
psql -c '\copy t from x.csv'
echo "COPY t FROM '/x';" | psql
sqlite3 x ".schema"
sqlite3 x "insert into t values('.shell rm -rf /')"
mysql -Be 'show tables'
redis-cli get 'rm -rf /'
npx -p x -c 'x build'
npx -y rm-cli -rf /
npm run x -- -c 'rm -rf /'
yarn run clean
bun run build
gdb -batch -ex 'print "rm -rf /"'
gdb -ex 'info threads' -ex 'bt' -p 9
lldb --batch -o 'bt'
python3 -m pdb -c continue x.py
bash <<- E␤	ls /␤E
python3 - / <<'E'␤import sys␤print("rm -rf", sys.argv[1])␤E
make -f- <<'E'␤all:␤	rm -rf build␤E
docker exec -i c sh <<< 'ls /'
docker exec c rm -rf /app/cache
docker run --rm x rm -rf /
kubectl exec -i p -- ls /
kubectl get pods -o name | grep rm
socat - TCP:h:99
printf 'rm -rf /\n' | socat - TCP:h:99
socat TCP-LISTEN:99,fork EXEC:'cat'
printf 'ls\n' | socat - EXEC:sh
ncat -l 99 -e /bin/cat
nc -zv h 99
ssh h -oProxyCommand='nc %h %p'
rsync -ae 'ssh -p9' a h:b
split -b1 --filter='gzip > $FILE.gz' x
sort --compress-program=gzip x
sed 's/rm -rf /e/' x
sed -e '/rm -rf \//d' x
awk '/rm -rf/ { print | "sort" }' x
tmux send-keys -t 0 'ls' C-m
tmux set -g status-left 'rm -rf /'
at now <<< 'rm -rf build'
echo '* * * * * rm -rf /tmp/x' | crontab -
crontab -l | grep 'rm -rf /'
parallel echo rm -rf ::: /
xterm -e top
""",
    ),
    "files written then run": (
        r"""
echo 'rm -rf /' > x.sh; bash x.sh
echo 'rm -rf /' > x.sh && . ./x.sh
echo 'rm -rf /' > x.sh && source x.sh
printf 'rm -rf %s\n' / > x.sh; sh ./x.sh
printf '#!/bin/sh\nrm -rf /\n' > x.sh; chmod +x x.sh; ./x.sh
cat > x.sh <<'E'␤rm -rf /␤E␤bash x.sh
cat <<'E' > x.sh␤rm -rf /␤E␤sudo bash x.sh
tee x.sh <<< 'rm -rf /' > /dev/null; bash x.sh
echo 'rm -rf /' | tee x.sh; bash x.sh
echo 'rm -rf "$1"' > x.sh; bash x.sh /
echo rm > x.sh; echo -rf / >> y; echo 'rm -rf /' >> x.sh; bash x.sh
cat > x.sh <<E␤rm -rf ${nope}/␤E␤bash x.sh
echo 'rm -rf /' > /tmp/x.sh; cd /tmp; ./x.sh
echo 'rm -rf /' > a; cp a b; bash b
echo 'rm -rf /' > a; mv a b; bash b
echo 'rm -rf /' > a; cat a | bash
bash < <(echo 'rm -rf /')
echo 'rm -rf /' > a; bash < a
echo 'rm -rf /' > a; $(< a)
echo 'rm -rf /' > a; eval "$(cat a)"
echo 'rm -rf /' > a; ln -s a b; sh b
echo 'rm -rf /' > a; sudo install -m 755 a /usr/local/bin/z; z
echo 'ls' > x.sh; echo 'rm -rf /' > x.sh; bash x.sh
{ echo '#!/bin/bash'; echo 'rm -rf /'; } > x.sh; bash x.sh
(echo 'set -e'; echo 'rm -rf /') > x.sh; bash x.sh
dd of=x.sh <<< 'rm -rf /'; bash x.sh
echo '/' > list; xargs rm -rf < list
echo '/' > list; rm -rf $(cat list)
echo / > list; while read -r d; do rm -rf "$d"; done < list
BASH_ENV=<(echo 'rm -rf /') bash -c :
echo 'rm -rf /' > e; BASH_ENV=e bash -c :
echo 'f() { rm -rf /; }' > e; BASH_ENV=e bash -c f
echo 'X=/' > e; BASH_ENV=e bash -c 'rm -rf $X'
echo 'cd /' > e; BASH_ENV=e bash -c 'rm -rf *'
echo 'f() { rm -rf /; }' > e; echo f | bash --rcfile e -i
PROMPT_COMMAND='rm -rf /' bash
PS1='$(rm -rf /)' bash --norc
BASH_ENV='$(rm -rf /)' bash -c :
export BASH_ENV='`rm -rf /`'; bash -c :
ENV='$(rm -rf /)' sh
echo 'rm -rf /' > ~/e; BASH_ENV='$HOME/e' bash -c :
echo 'rm -rf /' | BASH_ENV=/dev/stdin bash -c :
bash --rcfile <(echo 'rm -rf /') -i
echo 'rm -rf /' > rc; bash --init-file rc
echo 'rm -rf /' > rc; ENV=$PWD/rc dash -i
printf 'all:\n\trm -rf /\n' > Makefile; make
printf 'all:\n\trm -rf /\n' > Makefile && make all
printf 'all:\n\trm -rf /\n' > makefile; make -s
printf 'all:\n\trm -rf /\n' > GNUmakefile; make
printf 'all:\n\trm -rf /\n' > sub/Makefile; make -C sub
printf 'all:\n\trm -rf /\n' > x.mk; make -f x.mk
cat > Makefile <<'E'␤clean:␤	rm -rf /␤E␤make clean
cat > x.py <<'E'␤import os␤os.system("rm -rf /")␤E␤python3 x.py
echo 'import shutil; shutil.rmtree("/")' > x.py; python x.py
echo 'system("rm -rf /")' > x.pl; perl x.pl
echo 'system "rm -rf /"' > x.rb; ruby x.rb
echo 'require("child_process").execSync("rm -rf /")' > x.js; node x.js
printf '#!/usr/bin/env python3\nimport os; os.system("rm -rf /")\n' > x; chmod +x x; ./x
printf 'BEGIN { system("rm -rf /") }\n' > x.awk; awk -f x.awk
echo '1e rm -rf /' > x.sed; sed -f x.sed f
echo '.shell rm -rf /' > x.sql; sqlite3 x.db < x.sql
echo '\! rm -rf /' > x.sql; psql -f x.sql
echo 'shell rm -rf /' > x.gdb; gdb -x x.gdb
echo '* * * * * rm -rf /' > cron; crontab cron
""",
        r"""
echo 'rm -rf /' > x.sh
echo 'rm -rf /' > x.sh; cat x.sh
echo 'rm -rf /' > x.sh; bash -n x.sh
echo 'rm -rf /' > rc; bash --rcfile rc -c 'echo hi'
echo 'f() { rm -rf /; }' > e; BASH_ENV=e bash -c g
PROMPT_COMMAND='history -a' PS1='$(git branch) ' bash
PROMPT_COMMAND='rm -rf /' bash -c :
BASH_ENV='$(date)' bash -c :
ENV='$(rm -rf /)' sh -c :
echo 'X=/tmp/x' > e; BASH_ENV=e bash -c 'rm -rf "$X"'
echo 'rm -rf build' > rc; bash --rcfile rc -i
echo 'rm -rf /' > x.sh; bash y.sh
echo 'rm -rf build' > x.sh; bash x.sh
echo 'rm -rf "$1"' > x.sh; bash x.sh build
echo 'rm -rf /' > x.sh; echo ls > x.sh; bash x.sh
echo 'rm -rf /' > x.sh; rm x.sh; cat x.sh
cat > README.md <<'E'␤rm -rf /␤E␤git add README.md
echo / > list; xargs ls < list
echo 'rm -rf /' > a; grep rm a
echo 'rm -rf /' > a; cp a b; wc b
printf 'all:\n\trm -rf /\n' > Makefile
printf 'all:\n\trm -rf build\n' > Makefile; make
printf 'all:\n\trm -rf /\n' > Makefile; cat Makefile
printf 'all:\n\trm -rf /\n' > sub/Makefile; make -C other
printf 'all:\n\trm -rf /\n' > x.mk; make -f y.mk
printf 'all:\n\trm -rf /\n' > Makefile; make -n
printf 'all:\n\techo rm -rf /\n' > Makefile; make
cat > x.py <<'E'␤print("rm -rf /")␤E␤python3 x.py
printf '{"scripts":{"x":"rm -rf build"}}' > package.json; npm run x
printf '{"scripts":{"x":"rm -rf /"}}' > package.json; npm install
echo '* * * * * rm -rf /tmp/x' > cron; crontab cron
echo 'shell ls' > x.gdb; gdb -x x.gdb
""",
    ),
    "parts of variables": (
        r"""
a=r; b=m; $a$b -rf /
a=r b=m; $a$b -rf /
a=r; b=m; "$a$b" -rf /
a=r; b=m; ${a}${b} -rf /
a=r; ${a}m -rf /
a=m; r$a -rf /
a=m; r"$a" -rf /
a=rm; b=-rf; c=/; $a $b $c
a=rm; b='-rf /'; $a $b
a=xrm; ${a:1} -rf /
a=rmx; ${a%x} -rf /
a=mr; ${a:1:1}${a:0:1} -rf /
a=rm; b=a; ${!b} -rf /
declare a=r b=m; $a$b -rf /
export a=r b=m; $a$b -rf /
local a=r 2>/dev/null; a=r; b=m; $a$b -rf /
a=(r m); ${a[0]}${a[1]} -rf /
a=(r m); IFS=; "${a[*]}" -rf /
declare -A a=([x]=r [y]=m); ${a[x]}${a[y]} -rf /
printf -v a %s%s r m; $a -rf /
a=r; a+=m; $a -rf /
a=$(echo r)$(echo m); $a -rf /
a=`echo rm`; $a -rf /
read -r a b <<< 'r m'; $a$b -rf /
for a in r; do for b in m; do $a$b -rf /; done; done
a=r; b=m; eval $a$b -rf /
a=r; b=m; c=$a$b; $c -rf /
a=r; b=m; sh -c "$a$b -rf /"
a=r; b=m; sudo $a$b -rf /
set -- r m; $1$2 -rf /
f() { $1$2 -rf $3; }; f r m /
a=r; b=m; command $a$b -rf /
a=RM; ${a,,} -rf /
a=rm; ${a@L} -rf /
declare -l a=RM; $a -rf /
declare -n q=a; a=rm; $q -rf /
x=rm; declare -n y=x; declare -n w=y; $w -rf /
a=/bin; $a/rm -rf /
a=r; alias z="$a"m; $a\m -rf /
a=ch; b=mod; $a$b -R 777 /
a=/dev/; b=sda; dd if=/dev/zero of=$a$b
a=/dev/; b=sda; echo x > $a$b
a=mk; b=fs; $a$b.ext4 /dev/sda1
a=r$'\x6d'; $a -rf /
let 'i=1'; a=(x rm); ${a[i]} -rf /
i=1; a=(x rm); ${a[$i]} -rf /
i=0; a=(x rm); ${a[i+1]} -rf /
a=(x rm); ${a[-1]} -rf /
a=("" rm); "${a[@]:1:1}" -rf /
mapfile -t a <<< $'rm\n-rf\n/'; "${a[@]}"
IFS=, read -ra a <<< 'rm,-rf,/'; "${a[@]}"
read -ra a <<< 'rm -rf /'; "${a[@]}"
while read -r a b c; do $a $b $c; done <<< 'rm -rf /'
a=r; b=m; case x in x) $a$b -rf /;; esac
a=r; b=m; c() { $a$b -rf /; }; c
(( i = 1 )); a=(x rm); ${a[i]} -rf /
a=r; : "${b:=m}"; $a$b -rf /
test -v 'a[y=7]'; rm -rf "${z}/"
x=/; [[ -n $x ]] && rm -rf $x
x='a/b'; rm -rf ${x//[a-z]/}
x=tmp; rm -rf /${x/tmp}
x=abc; rm -rf /${x##*}
""",
        r"""
a=r; b=m; echo $a$b -rf /
a=l; b=s; $a$b -rf /
a=r; b=m; $a$b -rf build
a=(r m); echo "${a[*]}" -rf /
a=ec; b=ho; $a$b rm -rf /
f() { $1$2 $3; }; f l s /
read -r a b <<< 'l s'; $a$b -R /
a=/tmp/; b=sda; echo x > $a$b
declare -l a=LS; $a -rf /
a=r; b=m; x="$a$b -rf /"
set -- l s; $1$2 /
mapfile -t a <<< $'ls\n-d\n/'; "${a[@]}"
x=tmp; rm -rf /${x/tmp/opt/x}
x=abc; rm -rf /tmp/${x##*}
""",
    ),
    "arithmetic side effects": (
        r"""
y=0; test -v 'a[y=1]'; d=(build /); rm -rf "${d[y]}"
y=0; [ -v 'a[y=1]' ]; d=(build /); rm -rf ${d[$y]}
y=0; [[ -v a[y=1] ]]; d=(build /); rm -rf ${d[y]}
y=0; : $((y=1)); d=(build /); rm -rf ${d[y]}
y=0; (( y=1 )); d=(build /); rm -rf ${d[y]}
y=0; let y=1; d=(build /); rm -rf ${d[y]}
y=0; let y++; d=(build /); rm -rf ${d[y]}
y=0; : ${a[y=1]}; d=(build /); rm -rf ${d[y]}
y=0; ((y++)); d=(build /); rm -rf ${d[y]}
y=0; : $[y=1]; d=(build /); rm -rf ${d[y]}
y=0; for ((y=1; y<2; y++)); do d=(build /); rm -rf ${d[y]}; done
""",
        r"""
y=1; (( y=0 )); d=(build /); rm -rf ${d[y]}
y=1; let y=0; d=(build /); rm -rf ${d[y]}
y=0; (( y==1 )); d=(build /); rm -rf ${d[y]}
y=0; test -v 'a[0]'; d=(build /); rm -rf ${d[y]}
for ((y=0; y<3; y++)); do rm -rf "build$y"; done
y=1; : $((y-1)); d=(/ build); rm -rf ${d[y]}
""",
    ),
    "set -u and help": (
        r"""
set -u; rm -rf "${nope-}"/*
set -u; rm -rf "${nope:-}"/*
set -u; set +u; rm -rf "$nope"/*
set -e; rm -rf "$nope"/*
set -u; nope=; rm -rf "$nope"/*
(set -u); rm -rf "$nope"/*
false && set -u; rm -rf "$nope"/*
if [ -f x ]; then set -u; fi; rm -rf "$nope"/*
set -u | true; rm -rf "$nope"/*
bash -c 'set -u'; rm -rf "$nope"/*
set -u; bash -c 'rm -rf "$nope"/*'
set -u; sh <<< 'rm -rf "$nope"/*'
set -u; rm -rf ${nope+x}/
set -- -u; rm -rf "$nope"/*
f() { set -u; }; rm -rf "$nope"/*
set -u & rm -rf "$nope"/*
trap 'set -u' EXIT; rm -rf "$nope"/*
set -euo pipefail; set +o nounset; rm -rf "$nope"/*
bash -uc ':'; rm -rf "$nope"/*
set -u; rm -rf "${@}"/
set -u; rm -rf "$*"/
set -u; rm -rf /
set -u; set $X; eval "$(cat x)"; rm -rf "$nope"/*
set -u; . ./env.sh; rm -rf "$nope"/*
trap 'set +u' DEBUG; set -u; rm -rf "$nope"/*
f() { return; set -u; }; f; rm -rf "$nope"/*
f() { set +u; }; set -u; f; rm -rf "$nope"/*
set -u; [ -f x ] && set +u; rm -rf "$nope"/*
[ -f x ] || set -u; rm -rf "$nope"/*
set -u > /nope/x; rm -rf "$nope"/*
set -uq; rm -rf "$nope"/*
set() { :; }; set -u; rm -rf "$nope"/*
set -u; rm -rf "/${BASH_COMMAND%%*}"
set -u; sudo sh -c 'rm -rf "$nope"/*'
set -u; xargs sh -c 'rm -rf "$nope"/*' < f
eval 'set -u'; rm -rf "$nope"/*
while read -r x; do set -u; done < f; rm -rf "$nope"/*
case $1 in a) set -u;; esac; rm -rf "$nope"/*
set -u; bash +u -c 'rm -rf "$nope"/*'
set -u; trap 'rm -rf "${nope-}"/*' EXIT
mkfs.ext4 -h /dev/sda1; mkfs.ext4 /dev/sda1
mkfs.vfat -h 0 /dev/sda1
mkfs.ntfs -H 255 /dev/sda1
mkfs.ext4 -L -h /dev/sda1
mkfs.fat -h 63 /dev/sdb1
mkfs.ext4 -E help=1 /dev/sda1
mkfs -t ext4 -L --help /dev/sda1
mkfs.ext4 -L --help /dev/sda1
mkfs.xfs -L -V /dev/sda1
mkfs.btrfs -L --help /dev/sda1
mkfs.btrfs -V -f /dev/sda1; mkfs.btrfs -f /dev/sda1
mkfs.fat -v /dev/sda1
mkfs.bfs -v /dev/sda1
mkfs.minix -3 /dev/sda1
""",
        r"""
set -u; rm -rf "$nope"/*
set -u; rm -rf "${nope}"/*
set -eu; rm -rf "$nope/"
set -euo pipefail; rm -rf "$nope"/*
set -o nounset; rm -rf $nope/
set -euxo pipefail␤rm -rf "$nope"/*
bash -uc 'rm -rf "$nope"/*'
bash -euo pipefail -c 'rm -rf "$nope"/*'
bash -c 'set -u; rm -rf "$nope"/*'
sh -eu <<'E'␤rm -rf "$nope"/*␤E
set -u; (rm -rf "$nope"/*)
set -u; f() { rm -rf "$nope"/*; }; f
set -u; rm -rf "${nope#x}"/*
set -u; rm -rf "/$1"
set -u; cd "$nope" && rm -rf /tmp/x
mkfs.ext4 -h
mkfs.ext4 --help
mkfs.ext4 -V
mkfs.vfat --help
mkfs.vfat -h
mkfs.xfs -V
mkfs.xfs -h
mkfs.btrfs -h
mkfs.btrfs --version
mkfs.btrfs -V
mkfs.ntfs -h
mkfs.ntfs --help
mkfs.f2fs -h
mkfs -h
mkfs --help
mkfs -V
mke2fs -V
mkfs.minix --help
mkfs.exfat -h
mkfs.exfat -V
mkfs.cramfs --help
sudo mkfs.ext4 --help | head
mkfs.ext4 -h 2>&1 | grep -i label
""",
    ),
    "find removers": (
        r"""
find / -exec unlink {} +
find / -type f -exec shred {} \;
find / -xdev -exec shred -uz {} +
find / -type f -ok rm {} \;
find / -exec rm -f -- {} \;
find / -exec /bin/rm -r {} \;
find / -exec sudo shred -u {} +
find / -exec sh -c 'shred -u "$0"' {} \;
find / -type f -exec dd if=/dev/zero of={} \;
find / -type f -exec tee {} \;
find / -type f -exec cp /dev/null {} ';'
find / -type f -exec sh -c ': > "$1"' _ {} \;
find / -type f -exec sh -c 'cat /dev/null > {}' \;
find / -exec mv -t /tmp {} +
find / -print0 | xargs -0 rm
find / -print0 | xargs -0 -I{} rm -f {}
find / -type f -print0 | parallel -0 rm
find / | while read -r f; do rm -f "$f"; done
find / -type f | xargs shred -n1
find / -print | cpio -pdm /dev/null; find / -delete
find / -mindepth 1 -maxdepth 1 -exec rm -rf {} +
find / -mindepth 1 -exec rm -rf {} +
find -H / -delete
find / /tmp -delete
find /. -delete
find "$nope/" -delete
cd / && find -delete
cd / && find -exec rm {} +
find /etc /usr -type f -exec shred -u {} +
find / -user root -delete
find / -not -name x -delete
find / \( -type f -o -type d \) -delete
find / -regex '.*' -delete
rsync -a --delete-before /var/empty/ /
rsync -ar --delete $(mktemp -d)/ /
rsync -a --remove-source-files / /mnt
fd -H . / -x rm
fd . / -X shred -u
fdfind . / --exec rm -rf
git clean -xfd /; cd / && git clean -xfdf; rm -rf /*
for f in /*; do unlink "$f"; done; rm -r /*
""",
        r"""
find . -exec unlink {} +
find /tmp/x -type f -exec shred {} \;
find / -name '*.pyc' -exec rm {} +
find / -name core -type f -exec unlink {} \;
find / -xdev -size +100M -exec ls -l {} \;
find / -type f -exec file {} +
find / -type f -exec sh -c 'wc -l < "$1"' _ {} \;
find / -print0 | xargs -0 file
find / -type f | wc -l
find . -type d -empty -exec rmdir {} +
find . -print0 | xargs -0 rm
find / -user nobody -print
rsync -a --delete a/ /srv/www/
rsync -a --delete a/ /home/me/backup/
rsync -an --delete empty/ /
rsync -a --delete --dry-run empty/ /
rsync -a / /mnt/backup --delete
fd -e pyc . / -x echo
find /var/cache -type f -mtime +30 -exec rm {} +
find / -type f -exec grep -l x {} + | head
find . -regex '.*\.o' -delete
""",
    ),
    "process bombs": (
        r"""
b(){ b|b& };b
forkit() { forkit & forkit & }; forkit
:() { : | : & } ; :
.(){ .|.& };.
bomb() { bomb | bomb & bomb; }; bomb
function x { x | x & }; x
a() { a & a; }; a
bash -c ':(){ :|:& };:'
eval ':(){ :|:& };:'
f() { f | f | f & }; f
f() { (f &) ; (f &); }; f
f() { f & f & wait; }; f
f() { { f | f; } & }; f
f() { bash -c f & f | f; }; export -f f; f
f(){ nohup f & f & };f
while true; do ./$0 & done
while :; do sh -c 'sleep 99' & done
while [ 1 ]; do sleep 99 & done
while ((1)); do sleep 99 & done
while [[ 1 ]]; do sleep 99 & done
for (( ; ; )); do sleep 99 & done
for ((;;)) { sleep 99 & }
until [ ]; do sleep 99 & done
while true; do { sleep 99; } & done
while true; do nohup sleep 99 > /dev/null 2>&1 & done
while true; do sleep 99 & sleep 98 & done
perl -e 'fork while fork'
perl -e 'fork until 0'
perl -e 'while(fork||1){}'
perl -e '{ fork; redo }'
python3 -c 'import os␤while os.fork() or 1: pass'
python3 -c 'import os; [os.fork() for i in iter(int, 1)]'
python3 -c 'import subprocess␤while True: subprocess.Popen(["sleep", "99"])'
python3 -c 'import multiprocessing as m␤while 1: m.Process(target=print).start()'
python3 -c 'import itertools, os␤for _ in itertools.count(): os.fork()'
python3 -c 'from os import fork␤while True: fork()'
python3 -c 'import os, sys␤while True: os.spawnl(os.P_NOWAIT, sys.executable, "x")'
ruby -e 'fork while 1'
ruby -e 'loop { fork { loop { fork } } }'
node -e 'for(;;) require("child_process").fork(__filename)'
node -e 'while(1) require("child_process").spawn("node", ["x"])'
php -r 'while(1) pcntl_fork();'
php -r 'for(;;) { pcntl_fork(); }'
xargs -P0 -I{} sh -c 'yes &' < /dev/zero; f(){ f|f& };f
bash -c 'while :; do $0 & done' bash
echo 'while true; do ./$0 & done' > x.sh; bash x.sh
""",
        r"""
f() { g | h & }; f
f() { sleep 1 & }; f; f
f() { echo f | cat & }; f
countdown() { [ "$1" -gt 0 ] && countdown $(($1 - 1)); }; countdown 5
echo ':(){ :|:& };:'
grep -F ':(){ :|:& };:' notes
f() { make & make -C x & wait; }; f
walk() { for d in "$1"/*; do [ -d "$d" ] && walk "$d"; done; }; walk .
while [ 1 ]; do sleep 1; done
while ((1)); do date; sleep 9; done
for ((;;)); do ./step || break; done
while true; do ./job & wait $!; done
while read -r l; do ./job $l & done < list; wait
for i in {1..8}; do ./worker $i & done; wait
perl -e 'fork and exit; print 1'
python3 -c 'import subprocess; subprocess.Popen(["sleep", "9"]).wait()'
python3 -c 'import time␤while True: time.sleep(1)'
python3 -c 'import subprocess␤for i in range(4): subprocess.Popen(["sleep", "9"])'
ruby -e '3.times { fork { sleep 1 } }; Process.waitall'
node -e 'require("child_process").fork("worker.js")'
node -e 'setInterval(() => console.log(1), 1000)'
php -r 'echo 1;'
yes | head -3
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
