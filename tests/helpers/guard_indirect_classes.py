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
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
