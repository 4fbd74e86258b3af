"""Command lines in which another program hides a command, in the format of `guard_classes`.

No test runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "sed": (
        r"""
echo x | sed 's/x/y/;e rm -rf /'
sed -e p -e 'e rm -rf /' file
sed --expression='1e rm -rf /' file
sed --expression 'e rm -rf /' file
sed -n '/x/{p;e rm -rf /␤}' file
sed '1!e rm -rf /' file
sed '2,5e rm -rf /' file
sed '$!{$!N};e rm -rf /' file
sed --expression='s/.*/rm -rf \//e' file
sed 's/a/b/;s/.*/rm -rf \//e' file
sed 's|.*|rm -rf /|ge' file
echo 'rm -rf /' | sed 's/x/x/e'
echo 'rm -rf /' | sed e
sed 'w /dev/sda' file
sed -n '1,5w /dev/sda' file
sed 's/a/b/w /dev/sda' file
sed -n '/x/w/dev/nvme0n1' file
sed -e p -e 'w /dev/sda' file
sed --expression='W /dev/sda' file
sed -f - file <<< 'e rm -rf /'
sed -ne 'p;e rm -rf /' file
""",
        r"""
sed 's/e rm -rf \//x/' file
sed -e 's/^/e /' file
sed -n 'p;w /dev/stdout' file
sed 's/a/b/w out.txt' file
sed 's/;e rm -rf / x' file
sed -i 's/rm -rf \///' script.sh
sed '/rm -rf/d' file
sed 'y/abc/xyz/;s/x/y/g' file
sed --expression='s/a/b/' file
sed 'a\␤rm -rf /' file
sed '1i e rm -rf /' file
sed 's,/dev/sda,/dev/vda,' fstab
sed -n '/^e rm/p' file
sed -E 's#(rm -rf) /#\1 ./#' a
""",
    ),
    "awk": (
        r"""
awk -v c='rm -rf /' 'BEGIN { system(c) }'
awk -vc='rm -rf /' 'BEGIN{system(c)}'
gawk --assign c='rm -rf /' 'BEGIN{system(c)}'
awk 'BEGIN { c = "rm -rf /"; system(c) }'
awk 'BEGIN { system("rm -rf " d) }' d=/
awk -v d=/ 'BEGIN { system("rm -rf " d) }'
awk -v d=/ 'BEGIN { c = "rm -rf " d; system(c) }'
echo 'rm -rf /' | awk '{ system($0) }'
echo rm -rf / | awk '{ print | "sh" }'
echo / | awk '{ system("rm -rf " $1) }'
echo 'x /' | awk '{ system("rm -rf " $2) }'
echo / | awk '{ print "rm -rf " $0 }' | sh
awk '{ system($0) }' <<< 'rm -rf /'
awk 'BEGIN { print "x" > "/dev/sda" }'
awk '{ print > "/dev/sda" }' file
awk '{ print $1 >> "/dev/nvme0n1" }' file
awk 'BEGIN { printf "%s", "x" > "/dev/sda" }'
awk -v f=/dev/sda '{ print > f }' file
awk 'BEGIN { "rm -rf /" | getline }'
awk 'BEGIN { c = "rm -rf /"; c | getline x }'
awk 'BEGIN { c = "sh"; print "rm -rf /" | c }'
awk 'BEGIN { print "rm -rf /" | "/bin/sh -s" }'
gawk '@load "x"; BEGIN { system("rm" " -rf" " /") }'
awk 'BEGIN { system(ENVIRON["c"]) }' c='rm -rf /'; c='rm -rf /' awk 'BEGIN { system(ENVIRON["c"]) }'
awk 'BEGIN { system(ARGV[1]) }' 'rm -rf /'
""",
        r"""
awk -v c='rm -rf /' 'BEGIN { print c }'
awk '{ print $1 > "out.txt" }' file
awk '{ print "rm -rf /" > "notes" }' file
awk '$1 > 5 { print "/dev/sda" }' file
awk '{ if ($1 > "/dev/sda") print }' file
echo 'rm -rf /' | awk '{ print $1 }'
awk -F: '{ print $1 }' /etc/passwd
awk -v d=/tmp/x 'BEGIN { system("rm -rf " d) }'
echo / | awk '{ system("ls " $1) }'
df | awk '/\/dev\/sda/ { print $5 }'
awk '{ print | "sort -u" }' file
awk 'BEGIN { print "rm -rf /" | "cat" }'
awk 'NR > 1 { s += $2 } END { print s }' data
awk '{ print > "/dev/stderr" }' file
""",
    ),
    "git": (
        r"""
git -c alias.x='!rm -rf /' x
git -c 'alias.x=!f() { rm -rf /; }; f' x
git config alias.x '!rm -rf /' && git x
git config alias.x '!rm -rf'; git x /
git config --global alias.x '!rm -rf /'; git x
git config --local --add alias.x '!rm -rf /'; git x
git config set alias.x '!rm -rf /'; git x
git config core.pager 'rm -rf /'; git log
git config core.fsmonitor 'rm -rf /'; git status
git config core.sshCommand 'rm -rf / #'; git fetch
git config filter.x.clean 'rm -rf /'; git add .
git config diff.external 'rm -rf /'; git diff
c='!rm -rf /' git --config-env=alias.x=c x
c='rm -rf /' git --config-env core.pager=c log
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!rm -rf /' git x
git clone "ext::rm -rf / %S" x
git -c protocol.ext.allow=always fetch 'ext::sh -c rm% -rf% / %S'
git remote add x 'ext::rm -rf /' && git fetch x
git ls-remote 'ext::rm -rf /'
git grep -O'rm -rf /' x
git grep --open-files-in-pager='rm -rf /' x
git clone -u 'rm -rf /; git-upload-pack' a b
git clone --upload-pack='rm -rf / #' a b
git ls-remote --upload-pack 'rm -rf /' a
git push --receive-pack='rm -rf /' a
git push --exec='rm -rf /' a
git fetch --upload-pack 'rm -rf / #' .
git rebase -x 'rm -rf /' HEAD~1
git rebase --exec='rm -rf /' HEAD~1
git bisect run rm -rf /
git bisect run sh -c 'rm -rf /'
git submodule foreach 'rm -rf /'
git submodule foreach --recursive rm -rf /
git difftool -x 'rm -rf /'
git difftool --extcmd='rm -rf /'
git -c core.editor='rm -rf /' commit
git -c sequence.editor='rm -rf /' rebase -i HEAD~2
git filter-branch --tree-filter 'rm -rf /' HEAD
git archive --exec='rm -rf /' --remote=. HEAD
git -c credential.helper='!rm -rf /' fetch
git send-email --sendmail-cmd='rm -rf /' x
git for-each-repo --config=x -- foo; git -c core.hooksPath=x -c alias.q='!rm -rf /' q
""",
        r"""
git -c alias.x='!ls /' x
git config alias.co checkout; git co main
git config alias.x '!rm -rf ./build'; git x
git commit -m 'alias.x=!rm -rf /'
git config user.name 'rm -rf /'
git config --get alias.x
git config core.editor vim
git config alias.x '!rm -rf /'; git y
git config alias.x '!rm -rf'; git x build
git log --grep='rm -rf /'
git grep -O -e 'rm -rf /'
git grep 'rm -rf /'
git clone -u git-upload-pack a b
git clone https://example.com/a.git /tmp/x
git push -u origin main
git rebase -x 'make test' HEAD~3
git bisect run make
git submodule foreach 'git clean -fd'
git clone ext::x y
git fetch -u origin
git push -u origin 'rm-rf'
git checkout -b 'fix/ext-rm'
git config --global credential.helper store
git diff -O order.txt
""",
    ),
    "editors": (
        r"""
vim -c 'r !rm -rf /' file
vim -es -c '0r !rm -rf /' -c q file
vim -c '%!rm -rf /' file
vim -c 'w !rm -rf /' file
vim +'r!rm -rf /' file
vim -c 'call system("rm -rf /")'
vim -c 'echo system("rm -rf /")' -c q
vim -c ':silent! !rm -rf /'
vim -c 'au VimEnter * !rm -rf /'
vim --cmd '!rm -rf /'
vim -c 'set nu | !rm -rf /'
vim -c 'w! /dev/sda' file
vim -c ':w /dev/sda' file
ex -s file <<< '!rm -rf /'
ex file <<< 'r !rm -rf /'
printf '%s\n' 'r !rm -rf /' w q | ed file
ed <<< '!rm -rf /'
ed file <<< '0r !rm -rf /'
ed -s file <<< $'1,$w /dev/sda'
ed <<< 'e !rm -rf /'
ed <<< 'w !rm -rf /'
ed -s <<EOF␤r !rm -rf /␤q␤EOF
nvim --headless +'!rm -rf /' +q
nvim -c 'lua os.execute("rm -rf /")'
nvim -es -c 'lua vim.fn.system("rm -rf /")'
vi -c '1,$!sudo rm -rf /' a
vimdiff -c '!rm -rf /' a b
emacs --batch --eval '(shell-command "rm -rf /")'
emacs --batch --eval '(delete-directory "/" t)'
""",
        r"""
vim -c 'set nu' file
vim -c 's/!rm -rf \///' file
vim +'r notes' file
vim -c '%s/rm -rf \///g' -c wq file
vim -es -c 'r !date' -c wq file
ed file <<< $'a\nrm -rf /\n.\nw\nq'
ed -s file <<< $'1,$w out'
ed -s file <<< $'a\n!rm -rf /\n.\nw'
ex -s file <<< $'a\n!rm -rf /\n.\nw'
vim -c 'w out.txt' file
emacs --batch --eval '(message "rm -rf /")'
vim +42 file
""",
    ),
    "launchers": (
        r"""
choom -n 0 -- rm -rf /
choom -n 500 rm -rf /
ssh-agent rm -rf /
ssh-agent -t 5 bash -c 'rm -rf /'
logsave log rm -rf /
logsave -a log rm -rf /
systemd-cat rm -rf /
systemd-cat -t x -p info rm -rf /
uclampset -m 0 rm -rf /
setcpulatency 5 rm -rf /
aa-exec -p x rm -rf /
runcon -t x rm -rf /
dbus-run-session -- rm -rf /
gpg-agent --daemon rm -rf /
xdg-terminal-exec rm -rf /
cpulimit -l 50 -- rm -rf /
trickle -d 5 rm -rf /
firejail --noprofile rm -rf /
bwrap --bind / / rm -rf /
bwrap --dev-bind / / -- sh -c 'rm -rf /'
script -c 'rm -rf /' /dev/null
sem -j1 rm -rf /
with-contenv rm -rf /
s6-setuidgid root rm -rf /
ionice -c 3 rm -rf /
setfattr x; setarch x86_64 rm -rf /
fakechroot rm -rf /
unshare -r rm -rf /
ltrace -f rm -rf /
gdb -batch -ex 'shell rm -rf /'
scriptlive -c 'rm -rf /' t
parallel -j1 ::: 'rm -rf /'
lsof +r 1 x; tsp rm -rf /
batch <<< 'rm -rf /'
dtach -n s rm -rf /
abduco -n s rm -rf /
faketime yesterday rm -rf /
proot -0 rm -rf /
runit x; runsv x; envdir /tmp rm -rf /
execlineb -c 'rm -rf /'
cgexec -g cpu:x rm -rf /
nsenter -t 1 -m rm -rf /
sshfs x; scriptreplay x; torify rm -rf /
expect -c 'spawn rm -rf /'
run-one rm -rf /
keep-one-running rm -rf /
inotifywait x; entr rm -rf / <<< x
authbind rm -rf /
perf stat rm -rf /
perf record -o x -- rm -rf /
heaptrack rm -rf /
gosu root rm -rf /
tini -- rm -rf /
catatonit rm -rf /
memusage rm -rf /
xargs -a - rm -rf <<< /
""",
        r"""
choom -p 123
choom -n 0 -- ls
eval "$(ssh-agent -s)"
ssh-agent -k
logsave log fsck -n
systemd-cat -t rm echo hi
runcon -t x ls
bwrap --ro-bind / / ls
bwrap --ro-bind / / rm -rf /tmp/x
gpg-agent --daemon
cpulimit -p 1 -l 50
firejail --version
faketime yesterday date
""",
    ),
    "disks": (
        r"""
dd if=/dev/zero of=/dev/vg0/root
cat x > /dev/vg0/root
cat x > /dev/block/8:0
dd if=x of=/dev/zvol/tank/vm
echo x > /dev/zvol/rpool/root
cat x > /dev/ubuntu-vg/ubuntu-lv
shred /dev/vg0/lv1
wipefs -a /dev/vg0/root
fallocate -z -l 1G /dev/sda
fallocate --zero-range -l 5 /dev/sda
fallocate -p -o 0 -l 5 /dev/nvme0n1
fallocate -l 5 -dz /dev/sda
strace -o /dev/sda ls
strace -fo /dev/sda ls
ltrace -o /dev/sda ls
curl -D /dev/sda x.org
curl --dump-header /dev/sda x.org
curl -c /dev/sda x.org
curl --trace /dev/sda x.org
wget -o /dev/sda x.org
wget -a /dev/sda x.org
wget --output-file=/dev/sda x.org
find . | cpio -o -O /dev/sda
cpio -oO /dev/sda < list
cpio -o -F /dev/sda < list
cpio -o --file=/dev/sda < list
time -o /dev/sda ls
/usr/bin/time -o /dev/sda ls
script /dev/sda
script -c ls /dev/sda
tcpdump -w /dev/sda
scp host:x /dev/sda
jq . x | sponge /dev/sda
zcat x.gz | dd of=/dev/disk/by-id/ata-x
pigz -c x > /dev/sda
unzip -p x.zip | tee /dev/sda > /dev/null
tune2fs -O x /dev/sda1; debugfs -w -R 'rm x' /dev/sda1; dd of=/dev/sda < x
ddrescue /dev/sr0 /dev/sda log
busybox dd of=/dev/sda if=x
blkdiscard -f /dev/nvme0n1
nvme format /dev/nvme0n1
cmp x y | tee -a /dev/sda
logger x; xz -dc x > /dev/mmcblk0
rm -rf /proc/$$/root
rm -rf /proc/$$/root/*
rm -rf /proc/$PPID/root
rm -rf /proc/self/task/1/root
rm -rf /proc/self/cwd/../../../../..
chmod -R 777 /proc/$$/root/
""",
        r"""
cat x > /dev/null; echo > /dev/tcp/localhost/80
dd if=/dev/zero of=/dev/null count=1
echo x > /dev/shm/file
cat x > /dev/pts/3
echo x > /dev/tty
dd if=/dev/zero of=/dev/shm/a/b
echo x > /dev/net/tun
echo x > /dev/hugepages/x
echo x > /dev/mqueue/q
echo x > /dev/input/event0
ls -l /dev/vg0/root
fallocate -l 1G file
fallocate -z -l 1G file
strace -o log ls /dev/sda
curl -D headers x.org
wget -o log x.org
find . | cpio -o -O backup.cpio
dd if=/dev/vg0/root of=backup.img
lvs /dev/vg0
cat /dev/block/8:0 | head -c 512
echo x > /dev/bus/usb/001/002
echo x > /dev/snd/seq
echo x > /dev/dri/card0
echo x > /dev/cpu/0/msr
echo x > /dev/fd/1
ls /proc/$$/root
strace -p 1 -o out
rm -rf /proc/self/cwd/build
cpio -i -F /dev/sda
curl -o /dev/null -D - x.org
""",
    ),
    "interpreters": (
        r'''
python3 -c 'import os; os.system("""rm -rf /""")'
python3 -c 'import os; os.system(r"rm -rf /")'
python3 -c 'import os; os.system("rm" " -rf /")'
python3 -c 'import os; os.system(f"rm -rf /")'
python3 -c 'import os; os.system(b"rm -rf /".decode())'
python3 -m timeit 'import os; os.system("rm -rf /")'
python3 -m timeit -n 1 -s 'import os' 'os.system("rm -rf /")'
python3 -m timeit -s 'import os; os.system("rm -rf /")' pass
python3 - <<< 'import os; os.system("rm -rf /")'
python3 -c 'import shutil; shutil.rmtree("/")'
python3 -c 'import shutil; d = "/"; shutil.rmtree(d)'
python3 -c 'import sys, os; os.system(sys.argv[1])' 'rm -rf /'
python3 -c 'import subprocess, sys; subprocess.run(sys.argv[1:])' rm -rf /
python3 -c 'open("/dev/sda", "wb").write(b"x")'
python3 -c 'import os; fd = os.open("/dev/sda", os.O_WRONLY)'
python3 -c 'import os; [os.system(c) for c in ["rm -rf /"]]'
python3 -c 'exec("import os; os.system(\"rm -rf /\")")'
python3 -c '__import__("os").system("rm -rf /")'
python3 -c 'from pathlib import Path; Path("/dev/sda").write_bytes(b"x")'
perl -e 'open(F, "|rm -rf /")'
perl -e 'open F, "rm -rf / |"'
perl -e 'open(my $f, "-|", "rm -rf /")'
perl -e 'open(my $f, "-|", "rm", "-rf", "/")'
perl -e 'system q(rm -rf /)'
perl -e 'system qq{rm -rf /}'
perl -e 'system(q/rm -rf \//)' x; perl -e 'exec q[rm -rf /]'
perl -e 'system qw(rm -rf /)'
perl -e 'print `rm -rf /`'
perl -e 'system $ARGV[0]' 'rm -rf /'
perl -e 'system @ARGV' rm -rf /
perl -MFile::Path -e 'rmtree "/"'
perl -MFile::Path=remove_tree -e 'remove_tree("/")'
perl -e 'open(F, ">/dev/sda")'
ruby -e 'system %q(rm -rf /)'
ruby -e 'exec "rm", "-rf", "/"'
ruby -e '`rm -rf /`'
ruby -e 'IO.popen("rm -rf /")'
ruby -e 'system *ARGV' rm -rf /
ruby -rfileutils -e 'FileUtils.rm_rf "/"'
node -e 'require("child_process").execSync(`rm -rf /`)'
node -e 'require("fs").rmSync("/", {recursive: true})'
php -r 'system("rm -rf /");'
php -r '`rm -rf /`;'
lua -e 'os.execute("rm -rf /")'
lua -e 'os.execute([[rm -rf /]])'
''',
        r"""
python3 -m timeit 'sum(range(10))'
python3 -m timeit -s 'x = "rm -rf /"' 'len(x)'
python3 -m pytest -k 'rm -rf /'
python3 -m http.server
perl -e 'open(F, "<", "file"); print <F>'
perl -e 'print q(rm -rf /)'
perl -pe 's/rm -rf \///' file
python3 -c 'import sys; print(sys.argv[1])' 'rm -rf /'
python3 -c 'import subprocess, sys; subprocess.run(sys.argv[1:])' ls /
perl -e 'print "@ARGV"' rm -rf /
perl -ne 'print if /rm -rf/' file
python3 -c 'open("/dev/sda", "rb").read(512)'
ruby -e 'puts %q(rm -rf /)'
lua -e 'print([[rm -rf /]])'
perl -e 'open(my $f, "-|", "ls", "/")'
""",
    ),
}

# These lines contain triple quotes, so they are not in the triple-quoted strings above.
TRIPLE = "interpreters"
DANGEROUS = [
    *((name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)),
    (TRIPLE, "python3 -c \"import os; os.system('''rm -rf /''')\""),
]
HARMLESS = [
    *((name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)),
    (TRIPLE, "python3 -c \"print('''rm -rf /''')\""),
]
