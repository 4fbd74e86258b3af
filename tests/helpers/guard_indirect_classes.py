"""Command lines that do harm through another name or file, in the format of `guard_classes`.

None of them is run.
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
mkfifo a b; cat a > b & sh b & echo 'rm -rf /' > a
""",
        r"""
mkfifo p; cat p & echo 'rm -rf /' > p
mkfifo p; sh p & echo ls > p
mkfifo p; grep -c rm < p & echo 'rm -rf /' > p
mkfifo log; tee out < log & make > log 2>&1
""",
    ),
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
