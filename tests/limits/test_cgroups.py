"""The daemon chooses a parent cgroup, makes cgroups with limits in it, and reads which limits have
been met. In some tests, plain folders stand for cgroups.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shelld.keeper.own_cgroups import OwnCgroup
from shelld.limits import cgroups as cgroups_module
from shelld.limits.cgroups import Cgroups, Kind, ParentCgroup, SessionCgroups, find_parents
from support import wait_for

MIB = 1024 * 1024


def folder(parent: Path, name: str, **files: str) -> Path:
    """Make a folder that looks like a cgroup. Two underscores stand for a dot."""
    path = parent / name
    path.mkdir(parents=True, exist_ok=True)
    for file, content in {"cgroup__procs": "", **files}.items():
        (path / file.replace("__", ".")).write_text(content)
    return path


def found(*own: OwnCgroup, under_systemd: bool = False) -> dict[Kind, ParentCgroup]:
    return find_parents(list(own), under_systemd=under_systemd)


def test_each_controller_of_cgroup_v1_has_its_parent(tmp_path: Path) -> None:
    memory, pids = folder(tmp_path, "memory"), folder(tmp_path, "pids")
    own = [OwnCgroup("cpu,pids", str(pids)), OwnCgroup("memory", str(memory))]
    expected = {"memory": ParentCgroup(str(memory), False), "pids": ParentCgroup(str(pids), False)}
    assert found(*own) == expected
    # Cgroups v1 need not be delegated, so systemd makes no difference.
    assert found(*own, under_systemd=True) == expected
    (memory / "cgroup.procs").unlink()
    assert found(*own) == {"pids": ParentCgroup(str(pids), False)}
    assert found(OwnCgroup("name=systemd", str(pids))) == {}


@pytest.mark.parametrize("is_empty", [False, True])
def test_cgroup_v2_must_hand_down_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    written: list[tuple[str, bytes]] = []

    def write(path: str, content: bytes) -> bool:
        written.append((path, content))
        return is_empty

    monkeypatch.setattr(cgroups_module, "write", write)
    own = folder(tmp_path, "own", cgroup__subtree_control="cpu memory\n")
    # The kernel enables a controller only if no process is in the cgroup.
    expected = {"memory", "pids"} if is_empty else {"memory"}
    assert found(OwnCgroup("", str(own))).keys() == expected
    assert written[0] == (f"{own}/cgroup.subtree_control", b"+pids")


def test_parent_beside_the_own_cgroup_is_found(tmp_path: Path) -> None:
    own = folder(tmp_path, "unit/daemon")
    unit = folder(tmp_path, "unit", cgroup__subtree_control="memory pids\n")
    # The limits of the daemon's own cgroup do not apply to a cgroup beside it. So the daemon may
    # make such a cgroup only if the parent is delegated.
    assert found(OwnCgroup("", str(own))) == {}
    try:
        os.setxattr(unit, "user.delegate", b"1")
    except OSError:
        pytest.skip("the file system of the temporary directory has no extended attributes")
    parent = ParentCgroup(str(unit), True)
    assert found(OwnCgroup("", str(own))) == {"memory": parent, "pids": parent}


def test_systemd_must_have_delegated_the_parent(tmp_path: Path) -> None:
    own = folder(tmp_path, "own", cgroup__subtree_control="memory pids\n")
    assert found(OwnCgroup("", str(own)), under_systemd=True) == {}
    try:
        os.setxattr(own, "user.delegate", b"1")
    except OSError:
        pytest.skip("the file system of the temporary directory has no extended attributes")
    assert found(OwnCgroup("", str(own)), under_systemd=True).keys() == {"memory", "pids"}


def test_no_cgroup_is_made_without_a_usable_parent(tmp_path: Path) -> None:
    missing = ParentCgroup(str(tmp_path / "missing"), False)
    limits: dict[Kind, int] = {"memory": MIB, "pids": 10}
    session = SessionCgroups("new", {"memory": missing, "pids": missing}, limits)
    assert session.paths == {}
    command = session.open()
    assert (command.kinds, command.directories) == (set(), ())
    assert (command.has_met("memory"), command.has_met("pids")) == (False, False)
    assert command.give_back()
    assert session.remove()


def test_folder_without_the_files_of_a_cgroup_is_not_kept(tmp_path: Path) -> None:
    session = SessionCgroups("new", {"pids": ParentCgroup(str(tmp_path), False)}, {"pids": 10})
    assert session.paths == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("can_apply_below", [True, False])
def test_limit_must_apply_to_the_cgroups_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_apply_below: bool
) -> None:
    written: dict[str, bytes] = {}

    def write(path: str, content: bytes) -> bool:
        folder(Path(path).parent, ".", memory__use_hierarchy="0\n")
        written[Path(path).name] = content
        return can_apply_below or not path.endswith("use_hierarchy")

    monkeypatch.setattr(cgroups_module, "write", write)
    parent = ParentCgroup(str(folder(tmp_path, "memory")), False)
    session = SessionCgroups("new", {"memory": parent}, {"memory": 64 * MIB})
    assert session.paths.keys() == ({"memory"} if can_apply_below else set())
    assert written == {
        "memory.limit_in_bytes": b"%d" % (64 * MIB),
        "memory.memsw.limit_in_bytes": b"%d" % (64 * MIB),
        "memory.use_hierarchy": b"1",
    }


@pytest.fixture
def parents() -> dict[Kind, ParentCgroup]:
    found = Cgroups().parents
    if len(found) < 2:
        pytest.skip("needs a writable cgroup with the controllers for memory and processes")
    return found


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    cgroups = Cgroups()
    yield cgroups
    cgroups.close()


def entered(directories: tuple[str, ...], program: str) -> list[str]:
    """Return a command line that runs a Python program in cgroups."""
    enter = 'for place; do echo $$ > "$place/cgroup.procs"; done; exec "$PROGRAM" -S -c "$CODE"'
    return [
        "env",
        f"PROGRAM={sys.executable}",
        f"CODE={program}",
        "bash",
        "-c",
        enter,
        "-",
        *directories,
    ]


def test_kernel_enforces_the_cgroup_limits_and_counts_events(
    parents: dict[Kind, ParentCgroup], cgroups: Cgroups
) -> None:
    session = cgroups.open({"memory": 64 * MIB, "pids": 5})
    first, second = session.open(), session.open()
    assert first.kinds == {"memory", "pids"}
    hog = entered(first.directories, "bytearray(300 << 20)")
    assert subprocess.run(hog, check=False).returncode == -9
    assert (first.has_met("memory"), second.has_met("memory")) == (True, False)
    forks = "import os; [os.fork() or os._exit(0) for _ in range(9)]"
    ended = subprocess.run(
        entered(second.directories, forks), stderr=subprocess.DEVNULL, check=False
    )
    assert ended.returncode == 1
    assert second.has_met("pids")
    # A later command gets the same cgroup. The earlier events do not count for this command.
    for command in (first, second):
        wait_for(command.give_back, "the end of all processes")
        assert session.open() is command
        assert command.kinds == {"memory", "pids"}
        assert not any(map(command.has_met, command.kinds))
    assert session.open() not in (first, second)
    assert session.remove()


def test_oom_kill_counts_only_if_the_session_met_its_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_path: str, _content: bytes) -> bool:
        return True

    monkeypatch.setattr(cgroups_module, "write", write)
    parent = ParentCgroup(str(folder(tmp_path, "own", cgroup__subtree_control="memory\n")), True)
    folder(tmp_path, "own/new/command-1", memory__events="oom_kill 4\n")
    session = SessionCgroups("new", {"memory": parent}, {})
    session.paths["memory"] = f"{parent.directory}/new"
    command = session.open()
    assert command.kinds == {"memory"}
    folder(tmp_path, "own/new/command-1", memory__events="oom_kill 5\n")
    # The whole machine was short of memory, and not only the session.
    assert not command.has_met("memory")
    folder(tmp_path, "own/new", memory__events="low 9\noom 1\noom_kill 9\n")
    assert command.has_met("memory")
    command.count_from_now()
    assert not command.has_met("memory")


def test_room_for_spare_shells_raises_the_limit_of_the_cgroup(
    parents: dict[Kind, ParentCgroup], cgroups: Cgroups
) -> None:
    session = cgroups.open({"pids": 5})
    limit = Path(session.paths["pids"], "pids.max")
    session.make_room(2)
    assert limit.read_text() == "7\n"
    session.make_room(0)
    assert limit.read_text() == "5\n"
    cgroups.open({"memory": 64 * MIB}).make_room(1)


def test_used_cgroup_is_removed_later(parents: dict[Kind, ParentCgroup], cgroups: Cgroups) -> None:
    session = cgroups.open({"pids": 5})
    command = session.open()
    with subprocess.Popen(["sleep", "300"]) as process:
        Path(command.directories[0], "cgroup.procs").write_text(str(process.pid))
        assert not command.give_back()
        cgroups.end_command(command)
        cgroups.end_session(session)
        assert Path(session.paths["pids"]).exists()
        process.kill()

    def is_removed() -> bool:
        cgroups.trim()
        return not Path(session.paths["pids"]).exists()

    wait_for(is_removed, "the removal")


def test_two_managers_have_different_cgroups(
    parents: dict[Kind, ParentCgroup], cgroups: Cgroups
) -> None:
    others = Cgroups()
    paths = [each.open({"pids": 5}).paths["pids"] for each in (cgroups, others)]
    assert paths[0] != paths[1]
    others.close()
    assert [Path(path).exists() for path in paths] == [True, False]


def test_command_uses_its_other_cgroup_if_one_refuses_it(
    parents: dict[Kind, ParentCgroup], cgroups: Cgroups
) -> None:
    command = cgroups.open({"memory": 64 * MIB, "pids": 5}).open()
    memory, pids = command.directories
    command.refused(memory)
    assert (command.kinds, command.directories) == ({"pids"}, (pids,))


def test_parents_are_looked_for_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> dict[Kind, ParentCgroup]:
        raise AssertionError

    monkeypatch.setattr(cgroups_module, "find_parents", fail)
    cgroups = Cgroups()
    session = cgroups.open({})
    assert session.open().directories == ()
    cgroups.close()
