"""Lines of further classes, in the form of `guard_classes`. None is run."""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
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
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
