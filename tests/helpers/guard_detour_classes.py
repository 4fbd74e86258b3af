"""Command lines that do harm in a roundabout way, in the format of `guard_classes`.

No test runs any of them.
"""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
    "subscripts": (
        r"""
a=(x); unset 'a[$(rm -rf /)]'
a=(x); n='a[$(rm -rf /)]'; unset "$n"
a=(x); [ -v 'a[$(rm -rf /)]' ]
a=(x); [[ -v 'a[$(rm -rf /)]' ]]
n='a[$(rm -rf /)]'; [ -v "$n" ]
n='a[$(rm -rf /)]'; [[ -v $n ]]
sleep 1 & wait -n -p 'a[$(rm -rf /)]'
""",
        r"""
a=(1 2 3); unset 'a[1]'; unset "a[$i]"
unset "$name" x y
unset -f cleanup; unset -v HOME
[ -v HOME ] && [[ -v arr[0] ]]
[ -v 'a[$(date +%s)]' ]
sleep 1 & wait -n -p pid; wait "$pid"
""",
    ),
    "writers of disks": (
        r"""
gcc -O2 -o /dev/sda x.c
go build -o /dev/sda ./cmd
ffmpeg -y -i in.mp4 /dev/sdb
ffmpeg -i in.mp4 -f rawvideo /dev/sda
valgrind --log-file=/dev/sda ./a
rsync -a image.img /dev/sda
patch -o /dev/sda x y.patch
zstd -d image.zst -o /dev/sdb
genisoimage -R -o /dev/sdb files
mksquashfs root /dev/sdb1
pg_dump -f /dev/sda db
""",
        r"""
gcc -O2 -o hello hello.c
gcc -x c -o /dev/null - < x.c
go build -o bin/app ./...
ffmpeg -y -i in.mp4 -vf scale=640:-1 out.mp4
ffmpeg -i /dev/sda
ffmpeg -vaapi_device /dev/dri/renderD128 -i in.mp4 -f null /dev/null
valgrind --leak-check=full --log-file=v.log ./test
rsync -a /dev/sda backup/
rsync -avz --delete dist/ host:/var/www/
patch -p1 -o /dev/null x y.patch
zstd -d x.zst -o x
mksquashfs root root.sqfs -comp xz
""",
    ),
    "starters": (
        r"""
gdb -batch -ex run --args rm -rf /
gdb --args rm -rf / <<< run
emacs --batch --eval '(call-process "rm" nil nil nil "-rf" "/")'
emacs --batch --eval '(start-process "x" nil "rm" "-rf" "/")'
emacs -Q --batch --eval '(process-lines "sudo" "rm" "-rf" "/usr")'
ls / | xargs -I{} rm -rf /{}
for d in $(ls /); do sudo rm -rf "/$d"; done
cp /dev/stdin x.sh <<< 'rm -rf /'; bash x.sh
install -m 755 /dev/stdin x <<< 'rm -rf /'; ./x
screen -S build -X stuff 'rm -rf /'
podman unshare rm -rf /usr
compgen -A command -X '!rm' | xargs -I{} {} -rf /
""",
        r"""
gdb -batch -ex run -ex bt --args ./a.out -rf /
gdb -p 1234 -batch -ex 'thread apply all bt'
gdb -batch -ex bt ./a.out core
emacs --batch -l ert -l test.el -f ert-run-tests-batch-and-exit
emacs --batch --eval '(call-process "ls" nil t nil "/")'
emacs --batch --eval '(message "rm -rf /")'
ls / | xargs -I{} du -sh /{}
ls / /etc | head
for d in $(ls); do rm -rf "$d/build"; done
cp /dev/stdin x.sh <<< 'make'; bash x.sh
screen -S build -X stuff 'make test'
screen -dmS srv python3 -m http.server
podman unshare ls /
compgen -A function -X '_*'
compgen -A command -X '!git*' | sort
""",
    ),
    "values in code": (
        r"""
python3 -c "d='/'; import os; os.system(f'rm -rf {d}')"
python3 -c "d='/'; import os; os.system('rm -rf ' + d)"
python3 -c "d='/'; import os; os.system('rm -rf %s' % d)"
python3 -c "d='/'; import os; os.system('rm -rf {}'.format(d))"
python3 -c "import os; d='/'; cmd = 'rm -rf ' + d; os.system(cmd)"
python3 -c "import subprocess; t='/etc'; subprocess.run(f'sudo rm -rf {t}', shell=True)"
python3 -c 'import os, sys; os.system("rm -rf " + sys.argv[1])' /
python3 -c 'import subprocess; root = "/"; subprocess.run(["rm", "-rf", root])'
python3 -c 'import os; os.system("dd if=/dev/zero of=%s" % "/dev/sda")'
lua -e 'os.execute("rm -rf " .. "/")'
echo 'import os, sys; os.system("rm -rf " + sys.argv[1])' > x.py; python3 x.py /
echo 'require("child_process").execSync(`rm -rf ${process.argv[2]}`)' > x.js; node x.js /
python3 -c "import os, sys; os.system('rm -rf ' + sys.argv[1])" /usr
python3 -c "import os, sys; os.system(f'rm -rf {sys.argv[1]}')" /
python3 -c "import shutil, os; shutil.rmtree(os.path.expanduser('~'))"
python3 -c "import shutil; from pathlib import Path; shutil.rmtree(Path.home())"
python3 -c "import os, shutil; shutil.rmtree(os.environ['HOME'], ignore_errors=True)"
node -e 'const d="/"; require("child_process").execSync(`rm -rf ${d}`)'
node -e 'require("child_process").execSync(`rm -rf ${process.argv[1]}`)' /
node -e "require('child_process').execSync('rm -rf ' + process.argv[1])" /
node -e "require('fs').rmSync(require('os').homedir(), {recursive: true})"
perl -e 'my $d = "/"; system("rm -rf $d")'
perl -e 'my $d = "/"; system("rm -rf " . $d)'
echo 'rm -rf /' | perl -ne 'system $_'
echo / | perl -ne 'system "rm -rf $_"'
echo / | perl -lne 'system("rm", "-rf", $_)'
ruby -e 'd = "/"; system("rm -rf #{d}")'
php -r '$d = "/"; system("rm -rf $d");'
php -r 'system("rm -rf " . $argv[1]);' /
awk 'BEGIN { system(sprintf("rm -rf %s", "/")) }'
awk 'BEGIN { c = sprintf("%s -rf %s", "rm", "/"); system(c) }'
echo / | awk '{ printf "rm -rf %s\n", $1 }' | sh
echo / | awk '{ printf("rm -rf %s\n", $1) }' | bash
""",
        r"""
python3 -c "d='build'; import os; os.system(f'rm -rf {d}')"
python3 -c "d='/'; import os; os.system(f'ls {d}')"
python3 -c "d='/'; d='build'; import os; os.system('rm -rf ' + d)"
python3 -c "d='/'; print('rm -rf ' + d)"
python3 -c 'import os, shutil; base = "/"; shutil.rmtree(os.path.join(base, "tmp", "x"))'
python3 -c 'import subprocess; root = "/"; subprocess.run(["ls", root])'
python3 -c 'sep = "/"; import os; os.system(f"rm -rf build{sep}out")'
echo 'import os, sys; os.system("rm -rf " + sys.argv[1])' > x.py; python3 x.py build
python3 -c "d='/'; import os; os.system('rm -rf build' + d + 'x')"
python3 -c "import os, sys; os.system('rm -rf ' + sys.argv[1])" build
python3 -c "import os; root = '/'; os.system('ls %s' % root)"
python3 -c "import shutil, os; shutil.rmtree(os.path.join(os.path.expanduser('~'), '.cache', 'x'))"
python3 -c "import shutil; from pathlib import Path; shutil.rmtree(Path.home() / '.cache')"
node -e 'const d="dist"; require("fs").rmSync(`./${d}`, {recursive: true})'
node -e "require('child_process').execSync('ls ' + process.argv[1])" /
node -e "require('fs').rmSync(require('os').homedir() + '/.cache/x', {recursive: true})"
perl -ne 'system "ls $_"' <<< /
perl -ne 'print if /rm -rf/' <<< 'rm -rf /'
echo 'rm -rf /' | perl -pe 's/rm/ls/'
awk '{ s = sprintf("%s-%s", $1, $2); print s }' data.txt
awk 'BEGIN { system(sprintf("ls %s", "/")) }'
awk '{ printf "%s rm -rf %s\n", "#", "/" }' names | cat
echo / | awk '{ printf "ls %s\n", $1 }' | sh
""",
    ),
    "output of exec": (
        r"""
exec > >(bash); echo 'rm -rf /'
exec > >(sh); { echo rm -rf /; }
exec > >(sh); (echo rm -rf /)
exec > >(sh); echo / | sed 's/^/rm -rf /'
exec > >(sh); for d in /; do echo "rm -rf $d"; done
exec 3> >(bash); echo 'rm -rf /' >&3
f() { echo 'rm -rf /'; }; exec > >(bash); f
if true; then exec > >(bash); fi; echo 'rm -rf /'
""",
        r"""
exec > >(tee log); echo 'rm -rf /'
exec > log 2>&1; echo 'rm -rf /'; make
exec > >(bash); { echo 'rm -rf /'; } > notes
exec > >(bash); echo 'rm -rf /' > notes
exec > >(bash); x=$(echo 'rm -rf /')
exec > >(bash); echo 'rm -rf /' | grep -c rm
exec 3>&1 > >(bash); echo ls; exec >&3; echo 'rm -rf /'
exec 2> >(bash); echo 'rm -rf /'
exec 3> >(tee log); echo 'rm -rf /' >&3
exec > >(tee -a build.log) 2>&1; make
(exec > >(bash); echo ls); echo 'rm -rf /'
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
