"""Command lines of tools for disks, trees, archives and streams, in the format of `guard_classes`.

No test runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "programs that move or change trees": (
        r"""
tar -C / --remove-files -cf x .
cd / && tar --remove-files -cf /tmp/x.tar .
tar cf x.tar --remove-file /etc
tar -cf x --remove-files -C / etc -C usr lib
zip -rm x.zip /
7z a x.7z /etc -sdel
gzip -r /
gzip -9r /etc
find / -type f -exec gzip {} +
find /etc -type f -print0 | xargs -0 xz
setfacl -R -m o:rwx /
setfacl --recursive --modify u:me:rwx /usr
chattr -R +i /
chattr -R -i /usr
chcon -R -t tmp_t /
trash /etc
gio trash /home
srm -r /
find /etc -type f -exec srm {} \;
grm -rf /
sudo gchown -R me /
""",
        r"""
tar -cf x.tar --remove-files build
tar -C / -cf x.tar etc
tar -C /tmp/x --remove-files -cf x .
zip -r x.zip /etc
zip -m x.zip notes.txt
7z a x.7z /etc
gzip -rk /etc
gzip -r logs
find / -type f -exec gzip -t {} +
find . -type f -exec gzip {} +
setfacl -R -m u:me:rx data
setfacl -m u:me:rx /etc
setfacl -R --test -m u:me:rx /etc
getfacl -R /
chattr +i /etc/resolv.conf
restorecon -R /
trash old
gio open /etc
""",
    ),
    "orders to unknown programs": (
        r"""
disktool wipe /dev/sda
disktool --format=ntfs --erase /dev/sda
disktool --mode=overwrite /dev/nvme0n1
sudo balena local flash x.img --drive /dev/sdb
sg_format --format /dev/sda
sg_sanitize --overwrite --zero /dev/sdb
fio --name=x --filename=/dev/sda --rw=write
cd /dev && ./disktool zero sda
cfdisk -z /dev/sdb
pvcreate -ff -y /dev/sdb
lvremove -f /dev/vg0/root
mkswap -f /dev/sda2
zpool create -f tank /dev/sdb
mdadm --create /dev/md0 --level=1 --raid-devices=2 /dev/sda /dev/sdb
""",
        r"""
disktool wipe x.img
disktool --wipe --dry-run /dev/sda
disktool info /dev/sda
disktool --format json /dev/sda
fio --name=x --filename=/dev/sda --rw=read
echo wipe /dev/sda
git log --grep wipe -- /dev/sda
logger erase /dev/sda
qemu-nbd --format raw -c /dev/nbd0 x.img
tail --restore /dev/null
zpool status tank
lvremove vg0/x
mkswap --force swap.img
""",
    ),
    "variables that are commands": (
        r"""
BROWSER='rm -rf /' xdg-open x
env OPENER='rm -rf /' ranger
FZF_DEFAULT_COMMAND='rm -rf /' fzf
GH_PAGER='rm -rf /' gh pr list
CMAKE_C_COMPILER_LAUNCHER='rm -rf /' cmake .
SUDO_EDITOR='rm -rf /' sudo -e /etc/hosts
VIMINIT=':!rm -rf /' vim x
LESS='-R +!rm -rf /' less x
TAR_OPTIONS='--to-command="rm -rf /"' tar xf a.tar
make CC='rm -rf / #' all
CC='rm -rf / #' make
SVN_SSH='rm -rf /' svn update
RUSTC_WRAPPER='rm -rf /' cargo build
BROWSER='rm -rf /' python3 -m webbrowser http://x
make -j4 SHELL='rm -rf /' all
""",
        r"""
PAGER='rm -rf /' ls
EDITOR='rm -rf /'; ls
EDITOR='code --wait' git commit
LESS=-R less x
MESSAGE='rm -rf /' ./notify
make MSG='never rm -rf /' all
BROWSER='rm -rf build' xdg-open x
TAR_OPTIONS='--exclude=" x' tar xf a.tar
""",
    ),
    "endless output": (
        r"""
yes 'sleep 100 &' | sh
yes 'sleep 100 &' | sudo bash
yes 'sleep 100 &' | tee x | sh
yes '(sleep 100 &)' | tr a-z a-z | bash -s
while :; do echo 'sleep 100 &'; done | sh
while true; do printf 'sleep 1 &\n'; done | bash
yes | xargs -P0 -I{} sleep 100
yes 1 | xargs --max-procs=0 -n1 sleep
yes / | xargs rm -rf
echo 'rm -rf /' | pee sh
cat x.img | pee 'cat > /dev/sda' md5sum
""",
        r"""
yes 'sleep 100 &' | head -5 | sh
yes 'sleep 100 & wait' | sh
yes 'echo hi' | sh
yes | apt-get install x
yes | head -3 | xargs -P 0 -n1 echo
yes | xargs -P4 -n1 echo
yes '' | make oldconfig
while :; do echo 'sleep 100 &'; sleep 1; done | sh
while read -r x; do echo "sleep 1 &"; done < list | sh
echo 'sleep 100 &' | sh
echo ls | pee sh cat
""",
    ),
    "loops that leave programs behind": (
        r"""
while :; do setsid -f sleep 100; done
while :; do screen -dmS x sleep 100; done
while :; do bash -c 'sleep 100 &'; done
while true; do eval 'sleep 100 &'; done
while true; do systemd-run --user sleep 100; done
until false; do docker run -d nginx; done
""",
        r"""
while :; do setsid sleep 100; done
while :; do bash -c 'sleep 100 & wait'; done
while true; do systemd-run --wait sleep 100; done
while read -r x; do docker run -d "$x"; done < list
while true; do docker run nginx; done
setsid -f sleep 100
""",
    ),
    "compressed scripts": (
        r"""
echo 'rm -rf /' | gzip | gunzip | sh
echo 'rm -rf /' | xz -9 | xz -d | bash
echo 'rm -rf /' | bzip2 -c | bzcat | bash
echo 'rm -rf /' | gzip | base64 | base64 -d | zcat | sh
echo H4sIAAAAAAAAAyvKVdAtSlPQ5wIAAOnmUAkAAAA= | base64 -d | gunzip | sh
base64 -d <<< H4sIAAAAAAAAAyvKVdAtSlPQ5wIAAOnmUAkAAAA= | zcat | tee x | sh
base64 -d <<< QlpoOTFBWSZTWbCvFw4AAARRgAAQQAKBAhAAIAAxDADTRmp1sQg8XckU4UJCwrxcOA== | bzcat | sh
""",
        r"""
echo ls | gzip | gunzip | sh
echo H4sIAAAAAAAAA8sp5gIAfShLWgMAAAA= | base64 -d | gunzip | sh
echo 'rm -rf /' | gzip | sh
echo 'rm -rf /' | gzip > x.gz
echo 'rm -rf /' | gunzip | sh
echo 'rm -rf /' | gzip | base64
echo "$(echo x | gzip)"
""",
    ),
    "filters of lines": (
        r"""
echo /etc | paste | xargs rm -rf
printf '/etc\n/usr\n' | paste -sd' ' | xargs rm -rf
printf '/etc\n/usr\n' | paste - - | xargs rm -rf
echo /etc | nl | xargs rm -rf
printf '/usr\n/etc\n' | shuf | xargs rm -rf
printf '/usr\n/etc\n/usr\n' | sort -ru | xargs rm -rf
find / -type f | sort | xargs rm -f
find / | sort -u | shuf | xargs rm -rf
ls / | sed 's|^|/|' | xargs rm -rf
ls / | grep -v home | sed 's|^|/|' | xargs rm -rf
""",
        r"""
find . -type f | sort | xargs rm -f
find / -name '*.o' | sort | xargs rm -f
find / -type f | grep -i '\.tmp$' | xargs rm -f
ls | sed 's|^|./|' | xargs rm -rf
ls / | sed 's|^|/tmp/|' | xargs rm -rf
echo /tmp/x | nl | xargs echo
printf 'a\nb\n' | paste -sd, | xargs rm -rf
""",
    ),
    "commands of unknown programs": (
        r"""
multipass exec vm -- rm -rf /
limactl shell default rm -rf /
heroku run 'rm -rf /'
fly ssh console -C 'rm -rf /'
salt '*' cmd.run 'rm -rf /'
aws ssm send-command --parameters commands='rm -rf /'
svn diff --diff-cmd 'rm -rf /'
tool --on-exit='rm -rf /'
tool --exec 'mkfs.ext4 /dev/sda'
tool run -- sudo rm -rf /
cat x.iso | buffer -o /dev/sdb
http --download --output /dev/sda http://h/x
tool of=/dev/sda
usbimager x.img /dev/sdb
imager --drive /dev/sdb x.iso.xz
kubectl debug node/x -it --image=alpine -- chroot /host rm -rf /
npm explore x -- rm -rf /
apptainer exec -B / x.sif rm -rf /
bun x rimraf /
pdsh -w host rm -rf /
parallel-ssh -H h 'rm -rf /'
""",
        r"""
multipass exec vm -- ls /
tool run pytest -k 'rm -rf /'
poetry run pytest -k 'rm -rf /'
tool --message 'rm -rf /'
tool --exec 'rm -rf build'
tool -- rm -rf build
tool exec --note='about rm -rf /' x
terraform run -- plan
lsblk -o NAME /dev/sda
tool -o out /dev/sda
sha256sum x.img /dev/sda
cmp x.img /dev/sda
tool /dev/sda x.img
npm run clean -- rm -rf /
cargo run -- rm -rf /
go test -run 'TestA|TestB' ./...
git log -- rm -rf /
""",
    ),
    "interpreters of other languages": (
        r"""
julia -e 'run(`rm -rf /`)'
julia -e 'rm("/", recursive=true)'
Rscript -e 'unlink("/", recursive=TRUE)'
R -e 'system("rm -rf /")'
groovy -e '"rm -rf /".execute()'
scala -e 'import sys.process._; "rm -rf /".!'
ghc -e 'System.Process.callCommand "rm -rf /"'
guile -c '(system "rm -rf /")'
sbcl --eval '(uiop:run-program "rm -rf /")' --quit
elixir -e 'File.rm_rf!("/")'
erl -noshell -eval 'os:cmd("rm -rf /"), halt().'
swift -e 'import Foundation; try FileManager.default.removeItem(atPath: "/")'
osascript -e 'do shell script "rm -rf /"'
mongosh --eval 'require("child_process").execSync("rm -rf /")'
redis-cli eval "os.execute('rm -rf /')" 0
deno eval 'Deno.removeSync("/", { recursive: true })'
pwsh -c 'Remove-Item -Recurse -Force /'
pwsh -NoProfile -Command 'rm -rf /'
nu -c 'rm -rf /'
xonsh -c 'rm -rf /'
tclsh <<< 'file delete -force /'
pdb -c '!import os; os.system("rm -rf /")' x.py
python3 -m pdb -c 'import os; os.system("rm -rf /")' x.py
python3 -c 'import shutil; shutil.copyfile("x.img", "/dev/sda")'
python3 -c 'import os; os.truncate("/dev/sda", 0)'
perl -e 'open(D, "+</dev/sda"); print D "x"'
ruby -e 'IO.write("/dev/sda", "x")'
perl -e 'open my $f, ">:raw", "/dev/sda"; print $f "x"'
vim '+call delete("/", "rf")' +q
""",
        r"""
julia -e 'println("rm -rf /")'
julia -e 'rm("build", recursive=true)'
Rscript -e 'unlink("build", recursive=TRUE)'
R -e 'cat("rm -rf /")'
groovy -e 'println "rm -rf /"'
elixir -e 'IO.puts("rm -rf /")'
elixir -e 'File.rm_rf!("_build")'
osascript -e 'display notification "rm -rf /"'
redis-cli set x 'rm -rf /'
mongosh --eval 'print("rm -rf /")'
pwsh -c 'Remove-Item -Recurse build'
nu -c 'ls /'
tclsh <<< 'file delete -force build'
python3 -c 'import shutil; shutil.copyfile("/dev/sda", "x.img")'
vim '+call delete("x")' +q
""",
    ),
    "commands in further languages": (
        r"""
hg --config 'alias.x=!rm -rf /' x
bsdtar --use-compress-program='rm -rf /' -xf x
rust-gdb -ex '!rm -rf /'
lldb -b -s <(echo 'platform shell rm -rf /')
kak -e 'nop %sh{rm -rf /}' x
bpftrace --unsafe -e 'BEGIN { system("rm -rf /"); }'
entr -s 'rm -rf /' <<< x
pgcli -e '\! rm -rf /'
git -c interactive.diffFilter='rm -rf /' add -p
rvim -c 'py3 import shutil; shutil.rmtree("/")'
nvim -es -c 'lua os.execute([[rm -rf /]])'
emacs --batch -l <(echo '(delete-directory "/" t)')
hg --config 'hooks.pre-status=rm -rf /' status
svn --config-option 'config:tunnels:ssh=rm -rf /' ls svn+ssh://x
duckdb -c '.shell rm -rf /'
sqlplus -s x <<< '!rm -rf /'
clickhouse-local -q "select * from executable('rm -rf /', TSV, 'x String')"
npm --script-shell 'rm -rf /' run build
npm pkg set scripts.x='rm -rf /' && npm run x
bunx rimraf /etc
cmake -E rm -rf /
cmake -E remove_directory /etc
cmake -E env A=1 rm -rf /
cmake -P <(echo 'execute_process(COMMAND rm -rf /)')
ninja -f <(printf 'rule r\n command = rm -rf /\nbuild x: r\n')
""",
        r"""
hg --config ui.merge=internal:merge pull
hg commit -m 'alias.x=!rm -rf /'
duckdb -c "select 'rm -rf /'"
sqlplus -s x <<< "select 'rm -rf /' from dual;"
npm pkg set description='rm -rf /home/me/x'
npm run check -- --command 'dd if=/dev/zero of=/dev/sda'
cmake -E remove_directory build
cmake -E echo rm -rf /
cmake -S . -B build
cmake -DX=y --build build
ninja -C build clean
""",
    ),
    "git clean and remote trees": (
        r"""
cd / && git clean -xfd
git -C / clean -fdx
git --work-tree=/ clean -fdx
git clean -dff /etc
rclone purge /
rclone delete /etc
""",
        r"""
git clean -fdx
git -C / clean -ndx
cd / && git clean -n
git clean -fd build
make clean
rclone copy /etc remote:etc
rclone purge remote:old
""",
    ),
    "disks by other ways": (
        r"""
sed -i 1d /dev/sda
ed /dev/sda <<< $'1d\nw'
btrfs device add -f /dev/sdb /mnt
btrfs replace start /dev/sda /dev/sdb /mnt
losetup /dev/loop0 /dev/sda; dd if=/dev/zero of=/dev/loop0
cryptsetup reencrypt --encrypt /dev/sda2
nvme write-zeroes /dev/nvme0n1 -s 0 -c 100
flash_erase /dev/mtd0 0 0
nandwrite -p /dev/mtd1 x.bin
fsarchiver restfs x.fsa id=0,dest=/dev/sda1
sg_write_same --num=0 /dev/sda
ventoy -I /dev/sdb
woeusb --device win.iso /dev/sdb
dump -0f /dev/sda /home
""",
        r"""
sed -n 1p /dev/sda
ed /dev/sda <<< q
btrfs device add /dev/sdb /mnt
btrfs restore /dev/sda1 out
losetup /dev/loop0 x.img; dd if=/dev/zero of=/dev/loop0
losetup -f /dev/sda
ventoy -l /dev/sdb
dump -0f x.dump /dev/sda1
""",
    ),
    "every file of a tree": (
        r"""
find / -type f -exec perl -e 'unlink @ARGV' {} +
find / -print0 | perl -0ne 'unlink'
find / -type f -exec ln -sf /dev/null {} \;
python3 -c 'import os, glob␤for f in glob.glob("/etc/*"): os.remove(f)'
python3 -c 'import os␤[os.unlink(e.path) for e in os.scandir("/etc")]'
perl -e 'unlink for </etc/*>'
find / -type f -exec ruby -e 'File.delete(*ARGV)' {} +
ruby -e 'require "pathname"; Pathname("/").rmtree'
docker run -v /:/x -w /x alpine rm -rf .
docker run -v /etc:/e alpine find /e -delete
find / -type f -exec python3 -c 'import os,sys; [os.remove(p) for p in sys.argv[1:]]' {} +
for f in $(find / -type f); do rm -f "$f"; done
for f in `find /etc`; do : > "$f"; done
""",
        r"""
find / -type f -exec perl -e 'print @ARGV' {} +
find / -print0 | perl -0ne 'print'
python3 -c 'import os, glob␤for f in glob.glob("/etc/*.bak"): os.remove(f)'
python3 -c 'import os␤[print(e.path) for e in os.scandir("/etc")]'
python3 -c 'import os␤for e in os.listdir("/"): print(e)'
perl -e 'unlink for <build/*>'
docker run -v /tmp:/x -w /x alpine rm -rf .
docker run -v /etc:/e:ro alpine find /e -name x
find . -type f -exec perl -e 'unlink @ARGV' {} +
find / -type f -exec perl -e 'unlink $ARGV[0] if -z $ARGV[0]' {} \;
for f in $(find . -type f); do rm -f "$f"; done
for f in $(find / -name '*.o'); do rm -f "$f"; done
for f in $(find / -type f); do echo "$f"; done
""",
    ),
    "bombs in code and in circles": (
        r"""
a() { a | b & }; b() { a | b & }; a
a() { b; b; }; b() { a & }; a
echo 'bash $0 & bash $0 &' > x; bash x
while :; do nohup sleep 999 >/dev/null 2>&1 & disown; done
while :; do echo more; sleep 999 & done
perl -e 'sub f { fork; f() } f()'
perl -e 'while(){fork()}'
perl -le 'until (0) { fork }'
python3 -c 'import os;[os.fork() for i in iter(lambda:0,1)]'
node -e 'setInterval(() => require("child_process").spawn("sleep", ["1e9"]), 0)'
lua -e 'while true do os.execute("sleep 100 &") end'
awk 'BEGIN { while (1) system("sleep 100 &") }'
node -e 'const cp = require("child_process"); for (;;) cp.exec("sleep 999")'
seq inf | xargs -P0 -I{} sleep 1000
yes | parallel -j0 sleep 1000
""",
        r"""
a() { b; }; b() { echo; a; }; type a
a() { b & }; b() { a; }; type a
while :; do echo more; sleep 9 & wait; done
while :; do sleep 9 & break; done
awk 'BEGIN { while (1) { system("sleep 100 &"); exit } }'
awk 'BEGIN { system("sleep 100 &") }'
lua -e 'os.execute("sleep 100 &")'
seq 5 | xargs -P0 -I{} sleep 1
yes | parallel -j2 echo
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
