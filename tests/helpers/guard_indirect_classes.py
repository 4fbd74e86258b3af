"""Command lines that do harm through another name or file, in the format of `guard_classes`.

No test runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "descriptors in variables": (
        r"""
exec {fd}<<<'rm -rf /'; bash <&$fd
exec {fd}<<<'rm -rf /'; bash /dev/fd/$fd
exec {fd}<<<'rm -rf /'; read -r -u $fd x; $x
exec {a}<<<'ls' {b}<<<'rm -rf /'; . /dev/fd/$b
exec {in}< <(echo rm -rf /); bash <&"$in"
exec {out}> >(sh); echo 'rm -rf /' >&$out
exec {disk}>/dev/sda; echo x >&$disk
if <x rm -rf /
""",
        r"""
exec {fd}<<<'rm -rf /'; cat <&$fd
exec {fd}<<<'ls'; bash <&$fd
exec {a}<<<'ls' {b}<<<'rm -rf /'; . /dev/fd/$a
exec {lock}>/tmp/x.lock; flock $lock; rm -rf build
exec {log}>log; echo 'rm -rf /'; cat | bash
exec {fd}<<<mkfs.ext4; cat <&$fd
exec 9<<<mkfs.ext4; cat <&9
exec {fd}>&-; ls
""",
    ),
    "other names of files": (
        r"""
ln -s / r; rm -rf r/
ln -s / /tmp/r && rm -rf /tmp/r/*
ln -s / r; cd r && rm -rf *
ln -s / a; ln -s a b; rm -rf b/*
ln -s / r; chmod -R 777 r
ln -sf /dev/sda x; cat img > x
ln -s /dev/sda d && dd if=img of=d
ln -st /tmp /dev/sda; tee /tmp/sda < img
ln -s /dev disks; echo x > disks/sda
cp -a /dev/sda ./d; dd if=img of=d
cp -s /dev/sda d; dd if=img of=d
mknod x b 8 0; dd if=img of=x
mount --bind / m; rm -rf m/*
mount -o rw,bind / m; rm -rf m/*
mount --bind / m; rm -rf m
mount --bind /home m/home; rm -rf m
mount --rbind /etc a/b/etc && chmod -R 777 a
mount -B /usr a/usr; chown -R me a/
mount --bind / m; find m -delete
ln -s x.sh y.sh; echo 'rm -rf /' > x.sh; sh y.sh
exec 3>x.sh; echo 'rm -rf /' >&3; sh x.sh
exec {fd}>x.sh; echo 'rm -rf /' >&$fd; sh x.sh
""",
        r"""
ln -s / r; rm -rf r
ln -s / r; unlink r; rm -rf r/x
ln -s /dev/sda d && rm d && dd if=img of=d
ln -st /tmp /; rm -rf /tmp/*
ln -s /dev/null x; echo hi > x
ln -sfn releases/7 current; rm -rf current/cache
ln -s ../shared/log log; rm -rf log/*
cp /dev/sda copy; dd if=img of=copy
mknod x b 7 0; dd if=img of=x
mknod x c 1 3; dd if=img of=x
mount --bind / m; umount m; rm -rf m/*
mount -o bind src m; rm -rf m/*
mount --bind / m/root; rm -rf m/cache
mount --bind /home m/home; umount m/home; rm -rf m
mount --bind /home m/home; rm -rf mm
ln -s /home m/home; rm -rf m
mount /dev/sdb1 m; rm -rf m/x
exec 3>x.sh; echo ls >&3; sh x.sh
exec 3>&1 >log; echo 'rm -rf /' >&3
make 2>err; cat err >&2
""",
    ),
    "named pipes": (
        r"""
mkfifo p; sh p & echo 'rm -rf /' > p
mkfifo p; sh < p & echo 'rm -rf /' > p
mkfifo -m 600 p; cat p | sh & echo 'rm -rf /' > p
mkfifo p; echo 'rm -rf /' > p & bash < p
mkfifo p; (read -r x < p; $x) & echo 'rm -rf /' > p
mknod p p; sh < p & echo 'rm -rf /' | tee p
mkfifo p; exec 3<>p; echo 'rm -rf /' >&3; sh <&3
mkfifo p; sh <>p & echo 'rm -rf /' > p
mkfifo p; echo 'rm -rf /' >p & cat <>p | sh
mkfifo p; while read -r x; do $x; done <>p & echo 'rm -rf /' > p
mkfifo a b; cat a > b & sh b & echo 'rm -rf /' > a
""",
        r"""
mkfifo p; cat p & echo 'rm -rf /' > p
mkfifo p; sh p & echo ls > p
mkfifo p; sh <>p & echo ls > p
mkfifo p; cat <>p & echo 'rm -rf /' > p
mkfifo p; grep -c rm < p & echo 'rm -rf /' > p
mkfifo log; tee out < log & make > log 2>&1
""",
    ),
    "loops over paths in code": (
        r"""
python3 -c "import shutil␤for p in ['/tmp/x', '/']: shutil.rmtree(p)"
python3 - <<'X'␤paths = [␤  '/tmp/x',␤  '/',␤]␤for p in paths:␤  shutil.rmtree(p)␤X
python3 -c "import shutil␤for p in ('build', '/usr'):␤  shutil.rmtree(p)"
python3 -c "import shutil; [shutil.rmtree(p) for p in ['a','/']]"
perl -MFile::Path -e 'for my $p ("/tmp/x", "/") { rmtree($p) }'
perl -MFile::Path -e 'rmtree($_) for ("/tmp", "/etc")'
perl -MFile::Path=remove_tree -e 'foreach $p (qw(/x /)) { remove_tree($p) }'
ruby -rfileutils -e '%w[/tmp/x /].each { |p| FileUtils.rm_rf(p) }'
ruby -rfileutils -e '["/tmp/x","/"].each do |p| FileUtils.rm_rf(p) end'
node -e "for (const p of ['a','/']) require('fs').rmSync(p,{recursive:true})"
node -e "['a','/'].forEach(p => fs.rmSync(p,{recursive:true}))"
node -e "['a','/'].forEach(function (p) { fs.rmSync(p,{recursive:true}) })"
python3 -c "import glob, shutil␤for p in glob.glob('/*'): shutil.rmtree(p)"
python3 -c "import os␤for c in ['ls', 'rm -rf /']: os.system(c)"
python3 -c "import shutil␤for p in ['build']: print(p)␤for p in ['/']: shutil.rmtree(p)"
""",
        r"""
python3 -c "import shutil␤for p in ['build', 'dist']: shutil.rmtree(p)"
python3 -c "import os␤for p in ['/', '/etc']: print(os.listdir(p))"
python3 -c "import shutil␤for p in ['/']: print(p)␤for p in ['build']: shutil.rmtree(p)"
python3 -c "import shutil, os␤for p in ['/', '/etc']: print(p)␤shutil.rmtree('/tmp/x')"
perl -e 'for my $p ("a", "b") { unlink $p }'
node -e "['a','b'].forEach(p => fs.rmSync(p,{recursive:true}))"
python3 -c "import os␤for root in ['/']:␤  p=os.path.join(root,'tmp','x'); shutil.rmtree(p)"
python3 -c "import shutil␤[print(p) for p in ['/']]␤[shutil.rmtree(p) for p in ['build']]"
python3 -c "import shutil␤p='/'␤print(p)␤p='build'␤shutil.rmtree(p)"
""",
    ),
    "trees in code": (
        r"""
python3 -c "import glob, shutil␤for p in glob.glob('/*'): shutil.rmtree(p)"
python3 -c "import os␤for r,d,f in os.walk('/'):␤  for n in f: os.chmod(os.path.join(r,n),0o777)"
python3 -c "import os␤for r,d,f in os.walk('/'):␤  for n in f: os.remove(os.path.join(r,n))"
python3 -c "from pathlib import Path␤for p in Path('/').rglob('*'):␤  p.unlink()"
python3 -c "import glob, os␤for p in glob.glob('/**', recursive=True): os.unlink(p)"
python3 -c "import os␤for r,d,f in os.walk('/etc'):␤  os.chown(r, 0, 0)"
perl -MFile::Find -e 'find(sub { unlink $_ }, "/")'
ruby -rfind -e 'Find.find("/") { |p| File.delete(p) }'
perl -e 'unlink glob "/*"'
perl -e 'unlink glob("/etc/*")'
perl -e 'unlink </*>'
""",
        r"""
python3 -c "import os␤for r,d,f in os.walk('/'):␤  print(r)␤os.remove('/tmp/x')"
python3 -c "import os␤for r,d,f in os.walk('/tmp/x'):␤  for n in f: os.remove(os.path.join(r,n))"
python3 -c "from pathlib import Path␤for p in Path('.').rglob('*.pyc'): p.unlink()"
python3 -c "from pathlib import Path␤for p in Path('/').rglob('*.pyc'): print(p)"
python3 -c "import os␤for r,d,f in os.walk('/'):␤  d.remove('proc')␤  print(r)"
perl -MFile::Find -e 'find(sub { print $_ }, "/")'
perl -e 'unlink glob "*.o"'
python3 -c "import glob, shutil␤for p in glob.glob('build/*'): shutil.rmtree(p)"
python3 -c "from pathlib import Path␤for p in Path('/').rglob('*.pyc'): p.unlink()"
python3 -c "import os␤for r,d,f in os.walk('/'):␤  for x in d: d.remove(x)␤  print(r)"
python3 -c "import os␤for r,d,f in os.walk('/'):␤  for n in f:␤    if n in x: os.remove(r + n)"
perl -MFile::Find -e 'find(sub { unlink if /\.o$/ }, "/")'
python3 -c "import glob, os␤for p in glob.glob('/**/*.o', recursive=True): os.unlink(p)"
""",
    ),
    "renamed functions in code": (
        r"""
python -c "from shutil import rmtree as r; r('/')"
python3 -c "import shutil␤r = shutil.rmtree␤r('/')"
python3 -c "from os import system as s; s('rm -rf /')"
node -e "const {execSync: x} = require('child_process'); x('rm -rf /')"
node -e "const x = require('child_process').execSync; x('rm -rf /')"
node -e "const fs = require('fs'); const del = fs.rmSync; del('/', {recursive: true})"
perl -e 'system shift' 'rm -rf /'
perl -e 'system(shift)' 'rm -rf /'
perl -e 'my $c = shift; system $c' 'rm -rf /'
perl -e 'exec shift(@ARGV)' 'rm -rf /'
perl -MFile::Path -e 'rmtree(shift)' /
ruby -e 'system ARGV.shift' 'rm -rf /'
""",
        r"""
perl -e 'print shift' 'rm -rf /'
perl -e 'sub f { my $x = shift; system $x } f("ls")' 'rm -rf /'
python3 -c "from shutil import rmtree as r; r('/tmp/x')"
python3 -c "from shutil import rmtree as r; print('r(/)')"
node -e "const {execSync: x} = require('child_process'); x('ls /')"
python3 -c "run = {'call': f}; f('rm -rf /')"
""",
    ),
    "output of jq and perl": (
        r"""
perl -pe 's/x/rm -rf \//' <<< x | sh
echo 'ls -rf /' | perl -pe 's/ls/rm/' | bash
echo '-rf /' | perl -lpe 's/^/rm /' | bash
echo 'xx -xf /' | perl -pe 's/xx/rm/; s/x/r/' | bash
echo 'rn -rf /' | sed -E 's/(n)/m/' | sh
jq -rn '"rm -rf /"' | sh
jq -nr --arg d / '"rm -rf \($d)"' | sh
jq -r .run <<< '{"run": "rm -rf /"}' | sh
jq -r '.steps[].run' <<< '{"steps": [{"run": "ls"}, {"run": "rm -rf /"}]}' | bash
jq -r '.cmd + " " + .dir' <<< '{"cmd": "rm -rf", "dir": "/"}' | bash
echo '{"a":["rm","-rf","/"]}' > x.json; jq -r '.a | join(" ")' x.json | sh
eval "$(jq -r .c <<< '{"c":"rm -rf /"}')"
rm -rf "$(jq -r .dir <<< '{"dir":"/"}')"
""",
        r"""
echo 'rm -rf /' | perl -pe 's/rm/ls/' | sh
perl -pe 's/foo/bar/' x | sort
perl -pi -e 's/x/rm -rf \//' x.txt
jq -rn '"rm -rf /"'
jq -r .run <<< '{"run": "rm -rf /"}'
jq -r .name <<< '{"run": "rm -rf /", "name": "ls"}' | sh
jq -r '.scripts | keys[]' package.json | sh
rm -rf "$(jq -r .dir <<< '{"dir":"build"}')"
jq . <<< '{"a": 1}'
""",
    ),
    "scripts of packages": (
        r"""
echo '{"scripts":{"x":"rm -rf /"}}' > package.json && npm run x
echo '{"scripts":{"x":"rm -rf /"}}' > package.json && npm run-script x --silent
echo '{"scripts":{"test":"rm -rf /"}}' > package.json; npm test
echo '{"scripts":{"pretest":"rm -rf /","test":"ls"}}' > package.json; npm t
echo '{"scripts":{"postinstall":"rm -rf /"}}' > package.json; npm install
echo '{"scripts":{"x":"rm -rf"}}' > package.json; npm run x -- /
echo '{"scripts":{"x":"rm -rf /"}}' > package.json; yarn x
echo '{"scripts":{"x":"rm -rf /"}}' > package.json; pnpm run x
echo '{"scripts":{"x":"rm -rf /"}}' > package.json; bun run x
mkdir a; echo '{"scripts":{"x":"rm -rf /"}}' > a/package.json; npm --prefix a run x
cat > package.json <<'X'␤{"scripts": {"build": "cd / && rm -rf *"}}␤X␤npm run build
echo '{"scripts":{"x":["ls", "rm -rf /"]}}' > composer.json; composer run x
echo '{"tasks":{"x":"rm -rf /"}}' > deno.json; deno task x
printf 'x:\n  rm -rf /\n' > justfile; just x
printf 'task :x do\n  sh "rm -rf /"\nend\n' > Rakefile; rake x
printf 'tasks:\n  x:\n    cmds:\n      - rm -rf /\n' > Taskfile.yml; task x
""",
        r"""
echo '{"scripts":{"build":"rm -rf dist && tsc"}}' > package.json && npm run build
echo '{"scripts":{"x":"rm -rf /","build":"ls"}}' > package.json && npm run build
echo '{"scripts":{"x":"rm -rf /"}}' > package.json; cat package.json
echo '{"description":"rm -rf /"}' > package.json; npm install
npm run x; echo '{"scripts":{"x":"rm -rf /"}}' > package.json
npm ci && npm test
printf 'x:\n  echo rm -rf /\n' > justfile; just x
echo '[1, 2' > package.json; npm run x
""",
    ),
    "files that start themselves": (
        r"""
echo '$0 & $0 &' > b.sh; chmod +x b.sh; ./b.sh
echo '"$0" | "$0" &' > b.sh; sh ./b.sh
echo 'while :; do $0 & done' > b.sh; bash ./b.sh
printf '#!/bin/sh\n./b.sh & ./b.sh\n' > b.sh; ./b.sh
cat > b <<'X'␤#!/bin/bash␤exec $0 & exec $0 &␤X␤chmod +x b; ./b
""",
        r"""
echo 'echo $0 & echo $0 &' > b.sh; ./b.sh
echo 'ls | wc -l & cat $0' > b.sh; ./b.sh
echo 'exec sudo "$0" "$@"' > b.sh; ./b.sh
echo '[ -n "$X" ] || X=1 exec "$0" | tee log' > b.sh; ./b.sh
echo './a.sh & ./a.sh & wait' > b.sh; ./b.sh
""",
    ),
    "loops that start programs": (
        r"""
python3 -c "import subprocess␤for p in ['/tmp/x', '/']: subprocess.run(['rm','-rf',p])"
python3 -c "import os␤for p in ['/tmp/x', '/']:␤  os.system(f'rm -rf {p}')"
python3 -c "import os␤for p in ['/tmp/x', '/']:␤  os.system('rm -rf ' + p)"
perl -e 'for (glob "/*") { system "rm", "-rf", $_ }'
perl -e 'for my $p ("/x", "/") { system "rm -rf $p" }'
ruby -e '["/x","/"].each { |p| system("rm -rf #{p}") }'
node -e "for (const p of ['/x','/']) execSync(\`rm -rf \${p}\`)"
python3 -c "import subprocess␤for p in ['/dev/sda', '/dev/sdb']: subprocess.run(['mkfs.ext4', p])"
perl -e 'open(my $p, "|sh"); print $p "rm -rf /"'
perl -e 'open(my $p, "|-", "bash"); print $p "rm -rf /"'
python3 -c "import subprocess; subprocess.run(['bash'], input='rm -rf /', text=True)"
python3 -c "import subprocess; subprocess.Popen('sh', stdin=-1).communicate(b'rm -rf /')"
node -e "require('child_process').spawn('sh').stdin.end('rm -rf /')"
node --eval "require('node:fs/promises').rm('/', {recursive:true})"
node -e "await fs.rm('/', { recursive: true, force: true })"
bun -e "await Bun.\$\`rm -rf /\`"
php -r 'array_map("unlink", glob("/*"));'
perl -e 'open(F, "+<", "/dev/sda"); print F "x"'
rm -rf "${NOT_SET_HERE}/"{bin,etc,usr,*}
""",
        r"""
python3 -c "import subprocess␤for p in ['build', 'dist']: subprocess.run(['rm','-rf',p])"
python3 -c "for p in ['/']: print(p)␤for p in ['build']: subprocess.run(['rm','-rf',p])"
python3 -c "import subprocess␤for p in ['/', '/etc']: subprocess.run(['ls', p])"
perl -e 'for (glob "/*") { system "ls", "-d", $_ }'
python3 -c "import subprocess; subprocess.run(['bash'], input='ls', text=True)"
python3 -c "import subprocess; subprocess.run(['cat'], input='rm -rf /', text=True)"
perl -e 'open(my $p, "|cat"); print $p "rm -rf /"'
node -e "fs.rm('/tmp/x', { recursive: true })"
node -e "rm('/', x)"
""",
    ),
    "files that something else runs": (
        r"""
printf '#!/bin/sh\nrm -rf /\n' > .git/hooks/pre-commit; git commit -m x
cat > .git/hooks/post-merge <<'X'␤#!/usr/bin/env python3␤import shutil␤shutil.rmtree('/')␤X
echo 'rm -rf /' > hook; cp hook .git/hooks/pre-push
echo 'rm -rf /' > /etc/cron.hourly/x
echo '@reboot root rm -rf /' > /etc/cron.d/x
echo '0 3 * * * root rm -rf /' | sudo tee -a /etc/crontab
echo '0 3 * * * rm -rf /' >> /var/spool/cron/crontabs/me
echo 'rm -rf /' >> ~/.bashrc
echo 'rm -rf /' >> ~/.bash_aliases
echo 'rm -rf /' > ~/.config/fish/conf.d/x.fish
echo 'rm -rf /' > ~/.xprofile
echo 'rm -rf /' > .envrc
printf 'set -g d /\nrm -rf $d\n' > ~/.config/fish/config.fish
printf 'setenv D /\nrm -rf $D/*\n' > ~/.tcshrc
printf 'rm -rf $HOME\n' > ~/.cshrc
printf '[Service]\nExecStart=/bin/rm -rf /\n' > /etc/systemd/system/x.service
printf '[Desktop Entry]\nExec=rm -rf /\n' > ~/.config/autostart/x.desktop
echo 'cd / && rm -rf *' > .husky/pre-commit
""",
        r"""
printf '#!/bin/sh\nmake lint\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
printf '#!/bin/sh\necho rm -rf /\n' > .git/hooks/pre-commit
echo '0 3 * * * root rm -rf /var/tmp/x' | sudo tee -a /etc/crontab
echo '# rm -rf /' >> ~/.bashrc
echo 'rm -rf /tmp/x' > ~/.config/fish/config.fish
printf 'set -gx D /tmp/x $PATH\nrm -rf $D/*\n' > ~/.config/fish/config.fish
printf 'set -l d (mktemp -d)\nrm -rf $d/*\n' > ~/.config/fish/conf.d/x.fish
printf 'function clean -a d\n  rm -rf $d/*\nend\n' > ~/.config/fish/conf.d/x.fish
printf 'set d = /tmp/x\nrm -rf $d/*\n' > ~/.cshrc
echo "alias nuke='rm -rf /tmp/nuke'" >> ~/.bashrc
echo 'eval "$(pyenv init -)"' >> ~/.bashrc
printf '[Service]\nExecStart=/usr/bin/app --clean\n' > /etc/systemd/system/x.service
printf '[Desktop Entry]\nName=rm -rf /\nExec=app %%U\n' > ~/.config/autostart/x.desktop
echo 'rm -rf /' > docs/hooks/pre-commit.md
""",
    ),
    "variables of make and filters": (
        r"""
printf 'x:\n\trm -rf $(DESTDIR)/*\n' > Makefile; make x
printf 'D=/\nx:\n\trm -rf $(D)\n' > Makefile; make x
printf 'E = /\nD := $(E)\nx:\n\trm -rf ${D}\n' > Makefile; make x
printf 'x:\n\td=/; rm -rf $$d\n' > Makefile; make x
grep rm <<< 'rm -rf /' | sh
echo 'rm -rf /' | grep -v foo | bash
echo 'rm -rf /' | fold -w 80 | sh
echo 'rm -rf /' | pv -q | sh
echo 'rm -rf /' | iconv -t utf-8 | sh
ruby -e 'FileUtils.remove_dir("/", true)' -r fileutils
""",
        r"""
printf 'x:\n\trm -rf $@/*\n' > Makefile; make x
printf 'x: a\n\trm -rf $</* $(@D)/y\n' > Makefile; make x
printf 'D=build\nx:\n\trm -rf $(D)/*\n' > Makefile; make x
printf 'x:\n\td=build; rm -rf $$d/*\n' > Makefile; make x
printf 'x:\n\trm -rf $(DESTDIR)/usr/share/x\n' > Makefile; make x
grep rm <<< 'rm -rf /'
echo 'rm -rf /' | grep -v rm | bash
printf 'ls\nrm -rf /\n' | grep '^ls' | bash
echo 'rm -rf /' | pv -q > x
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
