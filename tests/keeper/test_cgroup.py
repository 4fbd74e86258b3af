"""The search for a cgroup in which the keeper and the runners may make their own cgroups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracles import Cgroup as Enclosure
from shelld.keeper.cgroup import Cgroup, is_usable, remove_stale, usable_directory
from shelld.keeper.own_cgroups import OwnCgroup, find
from support import RawDaemon, children, raw_daemon, wait_for

NAMESPACE = os.stat("/proc/self/ns/pid").st_ino

PLAIN = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 30 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    "33 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
PART = "30 25 0:26 /user.slice /sys/fs/cgroup rw - cgroup2 cgroup rw\n"


@pytest.mark.parametrize(
    ("memberships", "mounts", "expected"),
    [
        ("0::/\n", PLAIN, "/sys/fs/cgroup"),
        ("0::/a/b.scope\n", PLAIN, "/sys/fs/cgroup/a/b.scope"),
        ("4:memory:/x\n0::/a\n", HYBRID, "/sys/fs/cgroup/unified/a"),
        ("0::/user.slice/a\n", PART, "/sys/fs/cgroup/a"),
        ("0::/user.slice\n", PART, "/sys/fs/cgroup"),
        ("0::/user.slices/a\n", PART, None),
        ("0::/../outside\n", PART, None),
        ("4:memory:/x\n", HYBRID, None),
        ("0::/a\n", "31 30 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n", None),
        ("", "", None),
    ],
)
def test_the_own_cgroup_is_found(memberships: str, mounts: str, expected: str | None) -> None:
    found = [own.directory for own in find(memberships, mounts) if not own.controllers]
    assert found == ([] if expected is None else [expected])


def test_cgroups_of_both_versions_are_found_in_order() -> None:
    memberships = "5:cpu,cpuacct:/c\n4:memory:/m\n0::/a\n"
    assert list(find(memberships, HYBRID)) == [
        OwnCgroup("memory", "/sys/fs/cgroup/memory/m"),
        OwnCgroup("", "/sys/fs/cgroup/unified/a"),
    ]


@pytest.mark.parametrize(
    "line",
    ["1", "-", "1 2 3 4 5 -", "1 2 - 4 5 6", "1 2 3 4 5 6 7 -", "\udcff \x85 \r", "a b c d e f -"],
)
def test_malformed_mount_lines_are_skipped(line: str) -> None:
    found = list(find(f"0::/\n{line}\n", f"{line}\n{PLAIN}{line}\n"))
    assert found == [OwnCgroup("", "/sys/fs/cgroup")]


def test_unreadable_limit_counts_as_a_limit(
    directory: Path,
) -> None:
    (directory / "memory.max").mkdir()
    assert not is_usable(str(directory), under_systemd=False)


@pytest.mark.parametrize(
    "name",
    ["shelld-", "shelld-x", "shelld--1", "shelld-999999999-1", f"shelld-{10**30}-{NAMESPACE}-1"],
)
def test_removing_stale_cgroups_spares_odd_names(directory: Path, name: str) -> None:
    (directory / name).mkdir()
    (directory / name / "used").touch()
    remove_stale(str(directory))
    assert (directory / name).exists()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.procs").touch()
    return tmp_path


def test_a_writable_directory_without_limits_is_used(directory: Path) -> None:
    assert is_usable(str(directory), under_systemd=False)
    (directory / "memory.max").write_text("max\n")
    (directory / "cpu.max").write_text("max 100000\n")
    assert is_usable(str(directory), under_systemd=False)


@pytest.mark.parametrize(
    ("name", "limit"),
    [("memory.max", "1073741824"), ("memory.high", "4096"), ("cpu.max", "50000 100000")],
)
def test_cgroup_with_limits_is_not_divided(directory: Path, name: str, limit: str) -> None:
    (directory / name).write_text(f"{limit}\n")
    assert not is_usable(str(directory), under_systemd=False)


def test_systemd_cgroup_must_be_delegated(directory: Path) -> None:
    assert not is_usable(str(directory), under_systemd=True)
    try:
        os.setxattr(directory, "user.delegate", b"1")
    except OSError:
        pytest.skip("the file system of the temporary directory has no extended attributes")
    assert is_usable(str(directory), under_systemd=True)


def test_directory_outside_a_cgroup_mount_is_no_cgroup(tmp_path: Path) -> None:
    assert not is_usable(str(tmp_path), under_systemd=False)
    assert not is_usable(str(tmp_path / "missing"), under_systemd=False)


def test_plain_directory_cannot_be_divided(tmp_path: Path) -> None:
    assert Cgroup.create(str(tmp_path), 1) is None
    assert list(tmp_path.iterdir()) == []
    assert Cgroup.create(str(tmp_path / "missing"), 1) is None
    cgroup = Cgroup(str(tmp_path), str(tmp_path / "missing"))
    assert (cgroup.enter(), cgroup.leave(), cgroup.remove()) == (False, False, True)
    cgroup.kill()


@pytest.fixture
def parent() -> str:
    directory = usable_directory()
    if directory is None:
        pytest.skip("needs a cgroup v2 directory that can be divided")
    return directory


def test_cgroup_names_are_unique(parent: str) -> None:
    first = Cgroup.create(parent, 1)
    assert first is not None
    assert Cgroup.create(parent, 1) is None
    assert first.remove()


def test_unused_cgroups_of_killed_keepers_are_removed(parent: str) -> None:
    stale = Path(parent, f"shelld-999999999-{NAMESPACE}-1")
    foreign = Path(parent, f"shelld-999999999-{NAMESPACE + 1}-1")
    stale.mkdir()
    foreign.mkdir()
    mine = Cgroup.create(parent, 2)
    assert mine is not None
    remove_stale(parent)
    assert not stale.exists()
    # The owner may be alive in its own PID namespace.
    assert foreign.exists()
    foreign.rmdir()
    assert Path(parent, f"shelld-{os.getpid()}-{NAMESPACE}-2").exists()
    assert mine.remove()
    assert not Path(parent, f"shelld-{os.getpid()}-{NAMESPACE}-2").exists()


@pytest.fixture
def enclosed() -> Iterator[tuple[RawDaemon, Enclosure]]:
    if not Enclosure.is_possible():
        pytest.skip("needs a cgroup v2 directory that can be divided")
    cgroup = Enclosure()
    try:
        with raw_daemon("--spare-shells", "0", prefix=cgroup.prefix) as daemon:
            daemon.call("ping")
            yield daemon, cgroup
        # A runner whose keeper was killed removes its own cgroup.
        wait_for(lambda: not cgroup.divisions(), "the removal of all")
    finally:
        cgroup.close()


def test_cgroups_that_a_command_has_made_are_removed(tmp_path: Path) -> None:
    (tmp_path / "own" / "inner" / "innermost").mkdir(parents=True)
    (tmp_path / "own" / "other").mkdir()
    assert Cgroup(str(tmp_path), str(tmp_path / "own")).remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_runner_and_command_share_their_own_cgroup(
    enclosed: tuple[RawDaemon, Enclosure],
) -> None:
    daemon, cgroup = enclosed
    shown = daemon.bash("cat /proc/$PPID/cgroup; cat /proc/$$/cgroup")["stdout"]
    runner, command = (line for line in shown.splitlines() if line.startswith("0::"))
    assert runner == command
    assert runner.rpartition("/")[2] in cgroup.divisions()
    (keeper,) = children(daemon.pid)
    assert f"shelld-{keeper}-" in runner


@pytest.mark.slow
def test_runner_returns_to_its_cgroup_after_a_kill(
    enclosed: tuple[RawDaemon, Enclosure],
) -> None:
    daemon, cgroup = enclosed
    runners: set[str] = set()
    for _ in range(3):
        bash_id = daemon.background("setsid sleep 300 & sleep 300")
        daemon.call("kill_shell", {"shell_id": bash_id, "signal": "KILL"})
        shown = daemon.bash("echo $PPID; cat /proc/$$/cgroup")["stdout"].split()
        assert {line.rpartition("/")[2] for line in shown} & set(cgroup.divisions())
        runners.add(shown[0])
    assert len(runners) == 1


@pytest.mark.slow
def test_cgroups_of_killed_runners_are_removed(
    enclosed: tuple[RawDaemon, Enclosure],
) -> None:
    daemon, cgroup = enclosed
    stale = cgroup.path / f"shelld-999999999-{NAMESPACE}-1"
    stale.mkdir()
    for _ in range(3):
        keeper = daemon.bash("cut -d' ' -f4 /proc/$PPID/stat")["stdout"].strip()
        assert daemon.bash(f"kill -9 {keeper} $PPID; sleep 300")["reason"] == "lost"
    # The next keeper removes the stale cgroup at once.
    wait_for(lambda: not stale.exists(), "its removal")


def test_cgroups_can_be_switched_off() -> None:
    with raw_daemon("--containment", "subreaper") as daemon:
        expected = {"mechanism": "subreaper", "cgroupKill": False}
        assert daemon.call("server_info")["containment"] == expected
        assert "shelld-" not in daemon.bash("cat /proc/$$/cgroup")["stdout"]
