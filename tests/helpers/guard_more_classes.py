"""More command lines for the classes of `guard_classes`, worded differently. No test runs any of
them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "options of wrappers": (
        r"""
sudo -Hnu root -- rm -rf /
sudo -kSE chmod -R 777 /
sudo --preserve-env=PATH -n rm -rf /
env -i PATH=/bin -S 'rm -rf /'
env -u A -u B -i rm -rf /
nice -n -5 dd if=/dev/zero of=/dev/sda
timeout -s KILL -k 2 1m rm -rf /
printf '/' | xargs -r -n 1 -P 2 rm -rf
printf / | xargs -P0 -L1 -t chown -R me
stdbuf -oL -e0 -i0 mkfs.ext4 /dev/sdb
strace -qqfy -o /dev/null rm -rf /
ionice -c3 nice -n19 chrt -b 0 rm -rf /
setsid -c -w sh -c 'rm -rf /'
flock -xw5 /run/l rm -rf /
su -s /bin/sh -c 'rm -rf /' www-data
ssh -o BatchMode=yes -p22 -A root@h 'rm -rf /'
unshare --mount --fork chmod -R 777 /
""",
        r"""
sudo -Hnu root -- rm -rf ./build
sudo -ln rm -rf /
env -i PATH=/bin -S 'ls -l'
timeout -s KILL -k 2 1m make test
printf 'a b' | xargs -r -n 1 -P 2 rm -rf
nice -n -5 dd if=/dev/zero of=zero.img
flock -xw5 /run/l rm -rf cache
su -s /bin/sh -c 'rm -rf cache' www-data
""",
    ),
    "directories of wrappers": (
        r"""
sudo -u root --chdir / rm -rf var
env --chdir=/usr rm -rf bin
env -C /home/me/.. rm -rf me
sudo -D /dev tee sda < a
find / -maxdepth 1 -exec chmod -R 777 {} \;
env -C/ find . -delete
systemd-run --user --working-directory=/ -- rm -rf boot
""",
        r"""
env --chdir=/usr ls bin
env -C /home/me/project rm -rf dist
sudo --chdir /opt/app rm -rf var
env -C/tmp find . -delete
""",
    ),
    "patterns": (
        r"""
rm -rf /{e,u}*
rm -rf /b[io]*
rm -Rf /[uU]sr
rm -rf /va?
rm -rf //etc*
rm -rf /./e?c
rm -rf /tmp/../us*
rm -r /li*
chmod -R a+w /[e]tc
mv /us[r] /mnt
find /[eu]* -delete
/usr/bin/[rR]m -rf /
/b*n/rm -rf /
/usr/bin/fin? / -delete
/usr/bin/?udo rm -rf /
/bin/mk[f]s -t ext4 /dev/sda
""",
        r"""
rm -rf /tmp/b[io]*
rm -rf /var/tmp/va?
rm -rf /opt/e*
rm -rf build/[uU]sr
rm -rf /mnt/*/e?c
rm -rf /srv*
find /tmp/[eu]* -delete
/usr/bin/gre? -r 'rm -rf /' .
/usr/bin/pytho[n]3 -c 'print(1)'
ls /b*n/rm
""",
    ),
    "continued lines": (
        r"""
sudo \␤  rm \␤  -rf \␤  /
rm -r\␤f \␤/et\␤c
echo x |\␤tee /dev/sd\␤a
m\␤v / /tmp
find / -del\␤ete
""",
        r"""
sudo \␤  rm \␤  -rf \␤  ./x
printf '%s\n' "rm -rf \␤/"
rm -rf /home/\␤me/x
# rm \␤true
""",
    ),
    "splitting": (
        r"""
IFS=@; cmd=rm@-rf@/; $cmd
IFS='|'; read -r a b c <<< 'rm|-rf|/'; $a $b $c
unset IFS; set -- $(echo rm -rf /); $@
x='rm	-rf	/'; $x
""",
        r"""
IFS=@; cmd='rm -rf /'; $cmd
IFS='|'; read -r a b c <<< 'rm|-rf|build'; $a $b $c
unset IFS; set -- $(echo rm -rf x); $@
""",
    ),
    "functions with redirections": (
        r"""
wipe() { cat image; } > /dev/nvme0n1; wipe
run() { sudo bash -s; } <<'END'␤rm -rf /␤END␤run
g() { while read -r d; do rm -rf "$d"; done; } <<< /; g
h() if true; then echo x; fi > /dev/sda; h
""",
        r"""
wipe() { cat image; } > /dev/nvme0n1; echo wipe
g() { while read -r d; do echo "$d"; done; } <<< /; g
note() { cat; } >> notes.txt; note <<< 'rm -rf /'
""",
    ),
    "defaults": (
        r"""
rm -rf "${ROOT_DIR:-}/"
rm -rf ${PREFIX-}/*
rm -rf -- "${TARGET:=/}"
"${REMOVER:-rm}" "${FLAGS:--rf}" "${WHERE:-/}"
wipe() { local d=${1-/}; rm -rf "$d"; }; wipe
chown -R me "${A:-${B:-${C:-/}}}"
unset HOME; rm -rf "${HOME:-/}"
set -- ""; rm -rf "${1:-/}"
""",
        r"""
rm -rf "${ROOT_DIR:-.}/build"
rm -rf "${HOME-}/.cache/pip"
"${REMOVER:-echo}" -rf /
wipe() { local d=${1-/}; rm -rf "$d"; }; wipe tmp
rm -rf "${A:-${B:-./out}}"
set -- dist; rm -rf "${1:-/}"
""",
    ),
    "mkfs": (
        r"""
mkfs -t vfat -V /dev/sdc1
sudo mkfs.btrfs -f /dev/sdb
mkfs.ext4 -F -E lazy_itable_init=1 /dev/vda
""",
        r"""
mkfs.ext3 -nv /dev/sda1
man mkfs.xfs; mkfs.xfs --help
mkfs.vfat --help
""",
    ),
    "writers to disks": (
        r"""
gzip -dc a.gz | dd of=/dev/sdb bs=1M
xzcat a.xz > /dev/mmcblk0
sudo sh -c 'cat a.iso > /dev/sdb'
sudo sgdisk --zap-all --clear /dev/sda
sgdisk -g -o -n 1::+1M /dev/sda
sudo parted -s -a optimal /dev/sdb mklabel msdos mkpart primary 0% 100%
(echo g; echo n; echo w) | sudo fisk /dev/sda; printf 'g\nw\n' | sudo fdisk /dev/sda
sudo sfdisk --force /dev/sda <<< 'label: gpt'
sudo ddrescue -d -f -r3 /dev/sdb /dev/sda map
sudo cryptsetup --batch-mode luksFormat /dev/nvme0n1p2 -
sudo hdparm --user-master u --security-erase-enhanced NULL /dev/sdb
sudo nvme format /dev/nvme0n1 --force
mdadm --zero-superblock --force /dev/sdb1
sudo shred --verbose --iterations=1 /dev/sdb
sudo badblocks -wsv -b 4096 /dev/sdb
sudo dc3dd wipe=/dev/sdb verb=on
sudo pv --output /dev/sdb a.img
sudo qemu-img convert -f qcow2 -O raw a.qcow2 /dev/sdb
wget https://x.org/a.img --output-document=/dev/sdb
sudo wipefs --all --backup /dev/sdb
sudo wipefs --force -a /dev/nvme0n1
dd if=/dev/urandom bs=1M | sudo tee /dev/sdb > /dev/null
sudo truncate --size 0 /dev/sdb
sudo cp a.iso /dev/sdb && sync
bmaptool copy --nobmap a.img /dev/sdb
perl -e 'print "x" x 512' > /dev/sda
sudo gdisk /dev/sda <<< $'o\ny\nw\ny'
install -m 600 a.img /dev/sdb
tar -C src -cf /dev/sdb .
sudo blkdiscard --secure /dev/sdb
""",
        r"""
sudo sfdisk --dump /dev/sda > parts.txt
sudo sfdisk --list
sudo sgdisk --backup=table.bin /dev/sda
sudo sgdisk -v /dev/sda
sudo parted -sm /dev/sda unit s print free
(echo p; echo q) | sudo fdisk /dev/sda
sudo ddrescue -d -r3 /dev/sda disk.img map
sudo cryptsetup status root
sudo cryptsetup luksHeaderBackup /dev/sda2 --header-backup-file h.img
sudo hdparm -C /dev/sda
sudo nvme id-ctrl /dev/nvme0
sudo mdadm --stop /dev/md0
shred --remove secrets.env
sudo badblocks -sv /dev/sdb
sudo wipefs --no-act --all /dev/sdb
sudo wipefs --list /dev/sdb
dd if=/dev/sda bs=512 count=1 | xxd
sudo pv /dev/sda | gzip > sda.gz
wget https://x.org/a.img --output-document=/tmp/a.img
sudo tune2fs -l /dev/sda1
cp /dev/null log.txt
tee /dev/stderr < a
sudo dd if=/dev/sda | ssh host 'cat > sda.img'
""",
    ),
    "editors and pagers": (
        r"""
vim -u NONE -es +'!rm -rf /' +q
nvim --headless -c '!rm -rf /' -c 'qa!'
vim -c 'silent! !rm -rf /' +qa
view -c ':!chmod -R 777 /' f
printf '%s\n' '!rm -rf /' q | ed f
GIT_PAGER='sh -c "rm -rf /"' git -p status
env EDITOR='sh -c "rm -rf /"' git commit --amend
export PAGER='rm -rf / ||'; git diff
MANPAGER='rm -rf /;' man bash
""",
        r"""
vim -u NONE -es +'%s/rm -rf \//x/' +wq f
nvim --headless +PlugInstall +qa
vim -c 'silent! !make' +qa
GIT_PAGER=less git -p status
env EDITOR=nano git commit --amend
MANPAGER='nvim +Man!' man bash
ed -s f <<< ',p'
""",
    ),
    "git": (
        r"""
git -c alias.oops='!sh -c "rm -rf /"' oops
git -c core.sshcommand='sh -c "rm -rf /"' pull
git -c pager.diff='rm -rf /;' diff
git rebase --interactive --exec 'chmod -R 777 /' HEAD~3
git -C repo submodule foreach --quiet 'rm -rf /'
GIT_SSH_COMMAND='sh -c "rm -rf / #"' git clone git@h:x
git filter-branch --prune-empty --tree-filter 'rm -rf /' -- --all
git bisect run bash -c 'rm -rf /; exit 1'
""",
        r"""
git -c alias.st='status -sb' st
git -c core.sshcommand='ssh -v' pull
git -c color.ui=always -c pager.diff=false diff
git rebase --interactive --exec 'cargo test' HEAD~3
git -C repo submodule foreach --quiet 'echo $name'
git bisect run bash -c 'make && ./test'
git grep -n 'rm -rf /' -- '*.sh'
git commit -c HEAD -m 'drop: rm -rf /'
""",
    ),
    "commands in options": (
        r"""
tar -xf a.tar --to-command='sh -c "rm -rf /"'
tar --checkpoint-action 'exec=rm -rf /' --checkpoint -cf a b
tar -cf a.tar --use-compress-program 'sh -c "rm -rf /"' b
rsync -av --rsh 'sh -c "rm -rf /"' a h:
ssh -o 'ProxyCommand rm -rf /' h
psql -U me -d db -c '\! rm -rf /'
psql -f - <<< '\! rm -rf /'
sqlite3 db <<EOF␤.shell rm -rf /␤EOF
mysql -u root --execute='system rm -rf /'
mariadb -e '\! chmod -R 777 /'
npx --call 'rm -rf /'
npm exec --yes -- chmod -R 777 /
poetry run -- rm -rf /
uv run --no-sync rm -rf /
pnpm -C app exec rm -rf /
bundle exec sh -c 'rm -rf /'
gdb --batch --eval-command='shell rm -rf /'
gdb -q -ex '!rm -rf /' ./a.out
nix-shell --run 'rm -rf /' shell.nix
watch --interval 5 'rm -rf /'
entr -r rm -rf / < files
ansible web -b -m command -a 'rm -rf /'
kubectl exec -n prod deploy/api -c api -- bash -c 'rm -rf /'
tmux new -d -s x 'rm -rf /'
expect -c 'spawn sh -c "rm -rf /"; interact'
""",
        r"""
tar -xf a.tar --to-command='wc -c'
tar --checkpoint-action=dot --checkpoint=10 -cf a b
rsync -av --rsh 'ssh -i k' a h:
psql -U me -d db -c 'drop table t'
psql -f schema.sql
sqlite3 db <<EOF␤select 'rm -rf /';␤EOF
mysql -u root --execute='show tables'
npx --call 'tsc -p .'
poetry run -- rm -rf dist
pnpm -C app exec rimraf dist
gdb --batch --eval-command=bt ./a.out core
nix-shell --run 'make' shell.nix
ansible web -m ping
uv run python -c 'print("rm -rf /")'
""",
    ),
    "interpreters": (
        r"""
make -f /dev/stdin <<< $'go:\n\trm -rf /'
printf '.PHONY: x\nx:\n\tsudo rm -rf /\n' | make --file=- x
python3.11 -c "__import__('os').system('rm -rf /')"
python -c "from subprocess import call; call(['rm', '-rf', '/'])"
python3 - <<PY␤import subprocess␤subprocess.run("rm -rf /", shell=True, check=True)␤PY
python3 -c 'import os, sys; os.execlp("rm", "rm", "-rf", "/")'
python3 -c 'import subprocess; subprocess.Popen(["sudo", "rm", "-rf", "/"]).wait()'
python3 -c "from shutil import rmtree as r, rmtree; rmtree('/', ignore_errors=True)"
perl -we 'system(qw(rm -rf /))'
perl -e "unlink; system 'rm -rf /';"
ruby -e '`rm -rf /`'
ruby -e 'require "fileutils"; FileUtils.rm_r("/")'
node -e "require('child_process').spawn('rm', ['-rf', '/'])"
node -e "const fs = require('fs'); fs.rmSync('/', {recursive: true, force: true})"
node - <<'EOF'␤const {execSync} = require('child_process')␤execSync('rm -rf /')␤EOF
php -r 'shell_exec("rm -rf /");'
echo 'os.execute("rm -rf /")' | lua
gawk 'BEGIN { system("rm -rf " "/") }'
python3 -c "open('/dev/nvme0n1', 'wb').write(bytes(512))"
""",
        r"""
make -f /dev/stdin <<< $'go:\n\techo "rm -rf /"'
python3.11 -c "__import__('os').system('ls /')"
python3 -c "import subprocess; subprocess.run(['git', 'commit', '-m', 'rm -rf /'])"
python3 - <<PY␤text = "rm -rf /"␤assert "rm" in text␤PY
python3 -c "from shutil import rmtree; rmtree('build')"
perl -we 'print qw(rm -rf /)'
ruby -e 'puts `ls`'
ruby -e 'require "fileutils"; FileUtils.rm_r("tmp/cache")'
node -e "const fs = require('fs'); fs.rmSync('dist', {recursive: true, force: true})"
node -e "console.log(JSON.stringify({exec: 'rm -rf /'}))"
php -r 'echo shell_exec("ls");'
gawk '/mkfs.ext4/ { print $2 }' log
python3 -c "print(open('/dev/sda', 'rb').read(4))"
""",
    ),
    "containers": (
        r"""
docker exec --user root -it db bash -lc 'rm -rf /'
docker exec -d web rm -rf / --no-preserve-root
podman exec -ti c1 chmod -R 777 /
docker compose exec -u root web rm -rf /etc
kubectl exec pod/x -- find / -delete
docker run --rm -v /:/mnt:rw busybox rm -rf /mnt/etc
docker run --privileged --device /dev/sda alpine mkfs.ext4 /dev/sda
""",
        r"""
docker exec --user root -it db bash -lc 'rm -rf /var/cache/apt'
podman exec -ti c1 chmod -R 755 /app
docker compose exec -u root web rm -rf /app/tmp
kubectl exec pod/x -- find /tmp -delete
docker run --rm -v "$HOME/src:/src" busybox rm -rf /src/out
docker run --rm busybox rm -rf /
""",
    ),
    "find": (
        r"""
find / -type f -exec shred -n 1 {} \;
find / ! -path '/proc/*' -delete
find / -mount -type f -exec rm -- {} +
find / -depth -print0 | xargs -0 -n 50 unlink
find /usr /etc -exec rm -rf {} +
find / -execdir sh -c 'rm -rf -- "$0"' {} \;
""",
        r"""
find / -type f -newer x -exec ls {} \;
find /tmp/x -depth -print0 | xargs -0 rm
find . -type d -name node_modules -exec rm -rf {} +
find /usr /etc -type f -exec grep -l 'rm -rf /' {} +
find / -maxdepth 2 -name '*.swp' -delete
""",
    ),
    "process bombs": (
        r"""
while :; do sleep 9999 & done
while true; do bash -c 'sleep 60' & done
python3 -c "import os␤while True:␤  os.fork()"
perl -e 'while (1) { fork() }'
ruby -e 'loop { fork { sleep } }'
bash -c 'b() { b & b; }; b'
until false; do yes > /dev/null & done
""",
        r"""
while :; do ./poll.sh; sleep 60 & wait; done
for h in a b c; do ssh "$h" uptime & done; wait
python3 -c "import os␤pid = os.fork()␤print(pid)"
b() { echo b & }; b
until false; do date; sleep 60; done
""",
    ),
    "what does not run": (
        r"""
if true; then chmod -R 777 /; fi
false || { rm -rf /; }
if false; then :; fi; rm -rf /
true && false; rm -rf /
until true; do :; done; rm -rf /
""",
        r"""
if false; then rm -rf /; else echo ok; fi
true || { rm -rf /; }
while false; do mkfs.ext4 /dev/sda; done
false && { chmod -R 777 /; }
if ! :; then rm -rf /; fi
""",
    ),
    "timed commands": (
        r"""
time (rm -rf /)
time (mkfs.ext4 /dev/sda1)
time(rm -rf /)
time␉(cd /; rm -rf *)
(time (rm -rf /)) 2>&1 | tail -3
time -p (rm -rf /)
time -- (rm -rf /)
time -p -- { cd /; rm -rf *; }
time { rm -rf /; }
time LC_ALL=C rm -rf /
time > log rm -rf /
time cd / ; rm -rf *
time eval 'cd /'; rm -rf *
time x=(/); rm -rf ${x[0]}
time f() { rm -rf /; }; f
time for x in /; do rm -rf $x; done
time if true; then cd /; fi; rm -rf *
time while :; do rm -rf /; break; done
if time (rm -rf /); then :; fi
true && time { rm -rf /; }
true | time (rm -rf /)
x=$(time (rm -rf /))
coproc X { time (rm -rf /); }
case $x in time) time (rm -rf /);; esac
bash -c 'time (rm -rf /)'
time time (rm -rf /)
! time (rm -rf /)
time ! { x=/; rm -rf $x; }
time bash <<X␤rm -rf /␤X
time cat <<X | bash␤rm -rf /␤X
:(){ time :|: & };:
while true; do time sleep 9 & done
time false || rm -rf /
\time -f %e rm -rf /
sudo time rm -rf /
sh -c 'time -o log rm -rf /'
""",
        r"""
time
time; ls
time make
time -p make -j4; time -- make
time (sleep 1)
time (cd build; rm -rf *)
time { cd build; rm -rf *; }
{ time make; } 2> log
time LC_ALL=C sort f
time for d in a b; do rm -rf $d; done
time cat <<X␤rm -rf /␤X
if time false; then rm -rf /; fi
for time in a b; do rm -rf $time; done
case rm in time) ls;; esac
echo time '(rm -rf /)'
git commit -m 'time (rm -rf /)'
date +time; x=time; ls $x
""",
    ),
    "shells that wrappers start": (
        r"""
vagrant ssh -- rm -rf /
script -- rm -rf /
sudo -i <<X␤rm -rf /␤X
echo 'rm -rf /' | sudo -s
echo 'rm -rf /' | sudo -iu root
echo 'rm -rf /' | sudo -E --login A=1
sudo --shell <<< 'cd /; rm -rf *'
echo 'rm -rf /' | doas -s
echo 'rm -rf /' | su
sudo su - <<X␤rm -rf /␤X
su - root <<X␤rm -rf /␤X
echo 'rm -rf /' | su -l root -s /bin/sh
echo 'rm -rf /' > x.sh; su - root ./x.sh
echo 'rm -rf /' > x.sh; sudo -i < x.sh
echo 'rm -rf /' | runuser - root
echo 'rm -rf /' | runuser -l root
ssh host <<X␤rm -rf /␤X
ssh -T -p 22 root@host <<'X'␤cd /␤rm -rf *␤X
ssh host -o BatchMode=yes <<< 'mkfs.ext4 /dev/sda1'
echo 'rm -rf /' | sshpass -p x ssh host
sshpass -f key ssh host rm -rf /
cat <<X | ssh host␤rm -rf /␤X
echo 'rm -rf /' | chroot /
chroot --userspec=me /mnt <<X␤mkfs.ext4 /dev/sda1␤X
echo 'rm -rf /' | unshare -r
echo 'rm -rf /' | nsenter -t 1 -a
echo 'rm -rf /' | newgrp docker
echo 'rm -rf /' | newgrp - docker
echo 'rm -rf /' | sg root
sg root -c 'rm -rf /'
sg root 'rm -rf /'
echo 'rm -rf /' | setarch x86_64 -R
echo 'rm -rf /' | linux32
echo 'rm -rf /' | fakeroot
echo 'rm -rf /' | firejail --quiet
echo 'rm -rf /' | capsh --
echo 'rm -rf /' | pkexec
echo 'rm -rf /' | run0
echo 'rm -rf /' | systemd-run -tS
systemd-run -t rm -rf /
echo 'rm -rf /' | script -q log
echo 'rm -rf /' | nix-shell -p git
echo 'rm -rf /' | nix develop
echo 'rm -rf /' | machinectl shell web
echo 'rm -rf /' | lxc-attach -n web
echo 'rm -rf /' | systemd-nspawn -D /mnt
echo 'rm -rf /' | distrobox enter web
echo 'rm -rf /' | oc rsh web
echo 'rm -rf /' | vagrant ssh web
echo 'rm -rf /' | gcloud compute ssh web
echo 'rm -rf /' | adb shell
echo 'rm -rf /' | wsl
""",
        r"""
sudo -i
echo y | sudo -i
echo y | sudo -i apt install x
echo secret | sudo -S -i
sudo -i <<X␤apt update␤rm -rf /var/cache/apt/*␤X
sudo tee motd <<X␤rm -rf /␤X
echo 'rm -rf /' | sudo -u me cat
echo 'rm -rf /' | sudo -k
echo 'rm -rf /' | sudo -i cat
su - me <<X␤cd build && rm -rf *␤X
su - root -c ls <<< 'rm -rf /'
echo secret | su me -c 'make install'
echo 'rm -rf /' | runuser -u me cat
ssh host
ssh host < script.sh
ssh host < /dev/null
cat script.sh | ssh host
ssh host <<X␤cd app && rm -rf dist␤X
ssh host <<X␤echo 'rm -rf /'␤X
echo 'rm -rf /' | ssh host cat
echo 'rm -rf /' | ssh -N host
ssh -fNL 80:h:80 host <<< 'rm -rf /'
chroot /mnt <<X␤apt-get update␤X
echo 'rm -rf /' | chroot /mnt tee x
echo 'rm -rf /' | unshare -r cat
unshare -r <<X␤mount -t tmpfs none x␤X
newgrp docker <<X␤docker ps␤X
sg docker -c 'docker ps'
sg docker 'rm -rf build'
sg -p 'rm -rf /' -l bash
sg run --pattern 'rm -rf /'
fakeroot make deb <<< 'rm -rf /'
script -q -c ls log <<< 'rm -rf /'
script -q log <<X␤ls␤X
systemd-run -t make
adb devices; echo 'rm -rf /' | adb logcat
""",
    ),
    "negated commands": (
        r"""
! (rm -rf /)
!(rm -rf /)
! { rm -rf /; }
! { cd /; }; rm -rf *
! { x=/; rm -rf $x; }
! { x=/␤rm -rf $x␤}
if ! { cd /; }; then :; fi; rm -rf *
while ! { x=/; rm -rf $x; }; do :; done
true && ! { cd /; rm -rf *; }
true | ! { x=/; rm -rf $x; }
f() { ! { x=$1; rm -rf "$x"; }; }; f /
! ! cd /; rm -rf *
! ! ! cd /; rm -rf *
! ! { cd /; }; rm -rf *
! for x in /; do rm -rf $x; done
! case x in *) cd /;; esac; rm -rf *
! if true; then cd /; fi; rm -rf *
! f() { rm -rf /; }; f
! function f { rm -rf /; }; f
! > log rm -rf /
! true || rm -rf /
! ((1)) || rm -rf /
! time ((1)) || rm -rf /
! ! true && rm -rf /
""",
        r"""
! { grep -q x f; } && rm -rf build
! { cd build; rm -rf *; }
! grep 'rm -rf /' f
if ! { true; }; then ls; fi
if ! (cd build); then rm -rf build; fi
! ((1)) && rm -rf /
! ! true || rm -rf /
if ! true; then rm -rf /; fi
[ ! -d x ] && rm -rf x
[[ ! -d / ]] && rm -rf x
find . ! -name x -delete
echo ! { rm -rf /
case x in !) ls;; esac
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
