"""Lines of further classes, in the form of `guard_classes`. None is run."""

from __future__ import annotations

from guard_classes import lines_of

CLASSES: dict[str, tuple[str, str]] = {
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
