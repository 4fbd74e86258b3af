"""Command lines of tools for disks, trees, archives and streams, in the format of `guard_classes`.

None of them is run.
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
}

DANGEROUS = [
    (name, line) for name, (dangerous, _) in CLASSES.items() for line in lines_of(dangerous)
]
HARMLESS = [(name, line) for name, (_, harmless) in CLASSES.items() for line in lines_of(harmless)]
