"""The rules that decide, without a shell, which arguments of a program are dangerous."""

from __future__ import annotations

import pytest

from shelld.guard.markers import ANY, ONE, SET, UNKNOWN
from shelld.guard.paths import is_disk, is_everything, may_be_everything, normalized
from shelld.guard.rules import Arguments, Place, check, parse_arguments

PLACE = Place("/work", "/data/me")

REMOVED = "it removes the whole file system"
SYSTEM = "it removes a system directory or a home as a whole"
UNKNOWN_REMOVED = "what it removes is not known before it runs"
MODES = "it changes the mode of every file"
OWNERS = "it changes who owns every file"
UNKNOWN_CHANGED = "what it changes is not known before it runs"
MOVED = "it moves the whole file system"
SYSTEM_MOVED = "it moves a system directory or a home"
DISK = "it overwrites a disk"
MADE = "it makes a new file system, and what was there is lost"
SYNCED = "it removes everything that its source does not contain from the whole file system"


@pytest.mark.parametrize(
    ("command", "rule", "reason"),
    [
        *[(f"rm {flags} /", "rm-root", REMOVED) for flags in ("-r", "-R", "-fr", "--recursive")],
        ("rm --rec /", "rm-root", REMOVED),
        ("rm --r /", "rm-root", REMOVED),
        ("rm / -r", "rm-root", REMOVED),
        ("rm -r a /", "rm-root", REMOVED),
        (f"rm -r /{ANY}", "rm-root", REMOVED),
        ("rm -r ..", "rm-root", REMOVED),
        ("rm -r /etc", "rm-system", SYSTEM),
        (f"rm -r /usr/{ANY}", "rm-system", SYSTEM),
        ("rm -r /data/me", "rm-system", SYSTEM),
        (f"rm -r /data/me/{ANY}", "rm-system", SYSTEM),
        ("chmod -R 777 /", "chmod-root", MODES),
        ("chmod --recursive 777 /", "chmod-root", MODES),
        ("chmod -R -x /", "chmod-root", MODES),
        ("chmod -R --reference=a /", "chmod-root", MODES),
        ("chmod -R 777 a /", "chmod-root", MODES),
        ("chmod -R 777 /etc", "chmod-system", f"{MODES} of a system directory"),
        ("chown -R me /", "chown-root", OWNERS),
        ("chown -R --reference=a /", "chown-root", OWNERS),
        ("chown -R --from me you /", "chown-root", OWNERS),
        ("chown --recursive me a /", "chown-root", OWNERS),
        ("chgrp -R us /", "chown-root", OWNERS),
        (f"chown -R me /lib/{ANY}", "chown-system", f"{OWNERS} of a system directory"),
        ("mv / a", "mv-root", MOVED),
        ("mv a / b", "mv-root", MOVED),
        ("mv -t a /", "mv-root", MOVED),
        ("mv -ta /", "mv-root", MOVED),
        ("mv --target-directory a /", "mv-root", MOVED),
        ("mv --target-directory=a /", "mv-root", MOVED),
        ("mv -X / a", "mv-root", MOVED),
        ("mv -S .old / a", "mv-root", MOVED),
        ("mv --suffix .old / a", "mv-root", MOVED),
        ("mv /var a", "mv-system", SYSTEM_MOVED),
        ("mv /data/me a", "mv-system", SYSTEM_MOVED),
        ("dd of=/dev/sda", "dd-disk", DISK),
        ("dd if=a bs=1 of=/dev/sda", "dd-disk", DISK),
        ("dd of=../dev/sda", "dd-disk", DISK),
        ("dd of=/dev/sda=1", "dd-disk", DISK),
        ("mkfs /dev/sda", "mkfs", MADE),
        ("mkfs.xfs -n /dev/sda", "mkfs", MADE),
        ("mkfs.ext2 /dev/a", "mkfs", MADE),
        ("mke2fs /dev/a", "mkfs", MADE),
        ("mkfs -V -t ext4 /dev/sda", "mkfs", MADE),
        ("mkfs.ext4 a.img", "mkfs", MADE),
        ("mkfs -t xfs a.img", "mkfs", MADE),
        *[(f"{name} a /dev/sda", "redirect-disk", DISK) for name in ("tee", "shred", "cp")],
        *[(f"{name} /dev/sda", "redirect-disk", DISK) for name in ("tee", "blkdiscard")],
        ("tee -a /dev/sda b", "redirect-disk", DISK),
        ("install -m 600 a /dev/sda", "redirect-disk", DISK),
        *[(f"{name} a -X /dev/sda", "redirect-disk", DISK) for name in ("cp", "install")],
        ("wipefs -a /dev/sda", "redirect-disk", DISK),
        ("wipefs --all /dev/sda", "redirect-disk", DISK),
        ("rsync --delete a b /", "rm-root", SYNCED),
        ("rsync --delete a -X /", "rm-root", SYNCED),
        *[
            (f"rsync {flags} a/ /", "rm-root", SYNCED)
            for flags in (
                *(
                    "--delete",
                    "-a --del",
                    "--delete-after",
                    "--delete -e ssh",
                    "--delete -fx",
                    "--delete -X",
                ),
                *("--delete --exclude b", "--delete --include b", "--delete --rsh ssh"),
            )
        ],
    ],
)
def test_dangerous_arguments_are_found(command: str, rule: str, reason: str) -> None:
    program, *arguments = command.split()
    finding = check(program, arguments, PLACE)
    assert finding is not None
    assert finding[:3] == (rule, reason, True)


@pytest.mark.parametrize(
    ("command", "rule", "reason"),
    [
        (f"rm -r {UNKNOWN}", "rm-root", UNKNOWN_REMOVED),
        (f"rm -r /{UNKNOWN}/{ANY}", "rm-root", UNKNOWN_REMOVED),
        (f"chmod -R 777 {UNKNOWN}", "chmod-root", UNKNOWN_CHANGED),
        (f"chown -R me {UNKNOWN}", "chown-root", UNKNOWN_CHANGED),
    ],
)
def test_possible_root_is_uncertain(command: str, rule: str, reason: str) -> None:
    program, *arguments = command.split()
    finding = check(program, arguments, PLACE)
    assert finding is not None
    assert finding[:3] == (rule, reason, False)


@pytest.mark.parametrize("command", ["rm -r", "chmod -R 777", "chown -R me"])
def test_unknown_operand_hides_no_known_one(command: str) -> None:
    program, *arguments = command.split()
    for operands in ([UNKNOWN, "/"], ["/", UNKNOWN], [UNKNOWN, "/etc"]):
        finding = check(program, [*arguments, *operands], PLACE)
        assert finding is not None
        assert finding.is_certain


@pytest.mark.parametrize(
    "command",
    [
        *(
            "rm /",
            "rm -f /",
            "rm --force /",
            "rm -- -r /",
            "rm -r",
            "rm --",
            "rm -r a /etc/a",
            "rm -X /",
        ),
        *(f"rm -r /tmp/{UNKNOWN}", f"rm -r a{UNKNOWN}", "rm -r /data", "rm -r /opt"),
        *("chmod 777 /", "chmod -r /", "chmod -R / a", "chmod -R 777 a", "chmod -R 777 /home"),
        *("chown -R --from me / a", "chown -R --reference / a", "chmod -vX 777 /", "chown -X me /"),
        *(
            "cp a -S /dev/sda",
            "chmod -R 777 /data/me",
            "chmod -- -R /",
            "chown me /",
            "chown -R / a",
            "chown -r me /",
        ),
        *("chown -R me /var", "chown -R --from / me a", f"chown -R me /tmp/{UNKNOWN}"),
        *("mv a /", "mv a b /etc", "mv -t / a", "mv --target-directory / a", "mv -S / a b", "mv"),
        *(f"mv {UNKNOWN} a", "mv a", "mv --suffix / a b"),
        *("dd if=/dev/sda", "dd of=a", "dd", "dd of", "dd if=/dev/sda of=b"),
        *("mkfs --version", "mkfs -V", "mkfs.xfs --help", "mke2fs -n a"),
        *("mkfs.ext2 -n a", "mkfs.ext3 -n a", "mkfs.ext4 -n a"),
        *("tee a", "tee", "shred a", "cp /dev/sda a", "cp /dev/sda", "cp -t a /dev/sda", "cp"),
        *("install -t a /dev/sda", "wipefs /dev/sda", "wipefs -a a", "wipefs --nothing /dev/sda"),
        *("rsync -a a/ /", "rsync --delete a/ b/", "rsync --delete", "rsync --delete / b"),
        *(
            "rsync --delete a/ b/ -f /",
            "rsync --delete a b --include /",
            "rsync --delete a b --rsh /",
        ),
        *("rsync --delete a/ b/ -e /", "rsync --delete a b --exclude /", "rsync a b --delete=/"),
        *("ls /", "mkfsx /dev/sda", "cat /dev/sda"),
    ],
)
def test_harmless_arguments_pass(command: str) -> None:
    program, *arguments = command.split()
    assert check(program, arguments, PLACE) is None


@pytest.mark.parametrize(
    "command",
    [
        *("rm -r .", "chmod -R 777 .", "chown -R me .", "mv ./ a", "dd of=dev/sda", "tee dev/sda"),
        *("cp a dev/sda", "wipefs -a dev/sda", "rsync --delete a/ ."),
    ],
)
def test_working_directory_affects_the_finding(command: str) -> None:
    program, *arguments = command.split()
    assert check(program, arguments, Place("/", None)) is not None
    assert check(program, arguments, PLACE) is None


def test_unknown_home_is_not_protected() -> None:
    assert check("rm", ["-r", "/data/me"], Place("/work", None)) is None
    assert check("rm", ["-r", ""], Place("/work", None)) is None
    assert check("rm", ["-r", "/me"], Place("/work", "me")) is not None
    assert check("rm", ["-r", "a"], Place("/work", "/")) is None


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("", ""),
        *(
            ("a", "/work/a"),
            (".", "/work"),
            ("..", "/"),
            ("../../..", "/"),
            ("./a//b/", "/work/a/b"),
        ),
        *(("/", "/"), ("//", "/"), ("/a/../b", "/b"), ("/a/./b", "/a/b"), ("/..", "/")),
        *((UNKNOWN, UNKNOWN), (f"{UNKNOWN}/..", f"{UNKNOWN}/..")),
        *((f"/{UNKNOWN}/..", f"/{UNKNOWN}"), (f"/{UNKNOWN}/../a", f"/{UNKNOWN}/a")),
        (f"/a{UNKNOWN}/..", "/"),
    ],
)
def test_paths_become_absolute_and_normalized(field: str, path: str) -> None:
    assert normalized(field, "/work") == path


@pytest.mark.parametrize(
    ("path", "certain", "possible"),
    [
        ("/", True, False),
        (f"/{ANY}", True, True),
        (f"/{ONE}{ANY}", True, True),
        (f"/.{ANY}", True, True),
        (f"/{ANY}.{ANY}", True, True),
        (f"/{SET}a-z]{ANY}", True, True),
        (f"/{SET}!.]{ANY}", True, True),
        (f"/{ANY}/{ANY}", True, True),
        (f"/{UNKNOWN}", False, True),
        (f"/{UNKNOWN}{UNKNOWN}", False, True),
        (UNKNOWN, False, True),
        (f"/{UNKNOWN}/{ANY}", False, True),
        ("/a", False, False),
        ("/.", False, False),
        (f"/a{ANY}", False, False),
        (f"/X{ANY}", False, False),
        (f"/{ANY}a", False, False),
        (f"/{ANY}/a", False, False),
        (f"/a/{ANY}", False, False),
        (f"/a{UNKNOWN}", False, False),
        (f"/{UNKNOWN}/a", False, False),
        (ANY, False, True),
        ("", False, False),
    ],
)
def test_certain_root_differs_from_possible_root(path: str, certain: bool, possible: bool) -> None:
    assert (is_everything(path), may_be_everything(path)) == (certain, possible)


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/sda", "/dev/sda1", "/dev/hdb", "/dev/vda", "/dev/xvdb2", "/dev/nvme0n1"),
        *("/dev/mmcblk0", "/dev/disk0", "/dev/rdisk2", "/dev/mapper/root", "/dev/dm-0", "/dev/md0"),
        *("/dev/nbd1", "/dev/pmem0", "/dev/disk/by-id/x", f"/dev/sd{ANY}", f"/dev/{ANY}"),
        *(f"/dev/nvme{ONE}", f"/dev/sd{UNKNOWN}", f"/dev/{ONE}da", f"/dev/mmcblk{SET}01]"),
    ],
)
def test_disk_devices_are_recognised(path: str) -> None:
    assert is_disk(path)
    assert not is_disk(f"/tmp{path}")


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/null", "/dev/tty", "/dev/stdout", "/dev/fd/3", "/dev/shm/a", "/dev/sd", "/dev/md"),
        *("/dev/mapper/", "/dev/disk/", "/dev/nvme", "dev/sda", f"/dev/{UNKNOWN}", "/dev/random"),
    ],
)
def test_other_devices_are_no_disks(path: str) -> None:
    assert not is_disk(path)


@pytest.mark.parametrize(
    ("words", "flags", "operands", "values"),
    [
        ("", "", "", {}),
        ("a b", "", "a b", {}),
        ("-ab c", "a b", "c", {}),
        ("-", "", "-", {}),
        ("a -b c", "b", "a c", {}),
        ("-a -- -b --c", "a", "-b --c", {}),
        ("a -- -b", "", "a -b", {}),
        ("--long a", "long", "a", {}),
        ("--long=x a", "long", "a", {"long": "x"}),
        ("--long= a", "long", "a", {"long": ""}),
        ("--long=x=y", "long", "", {"long": "x=y"}),
        ("--value x a", "value", "a", {"value": "x"}),
        ("--value", "value", "", {}),
        ("-v x a", "v", "a", {"v": "x"}),
        ("-vx a", "v", "a", {"v": "x"}),
        ("-avx b", "a v", "b", {"v": "x"}),
        ("-v", "v", "", {"v": ""}),
        ("-w -v a", "w", "a", {"w": "-v"}),
    ],
)
def test_arguments_are_taken_apart_as_programs_do(
    words: str, flags: str, operands: str, values: dict[str, str]
) -> None:
    expected = Arguments(frozenset(flags.split()), operands.split(), values)
    given = words.split()
    assert parse_arguments(given, "vw", ("value",)) == expected
    assert given == words.split()
