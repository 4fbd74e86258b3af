"""The check that a new sandbox has the mounts of its view."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shelld.sandbox.mounts import Points, has_planned_mounts, mount_points, opens_nothing_else
from shelld.sandbox.policy import ResolvedPolicy
from shelld.sandbox.view import Identity, Mount


def line(point: str, options: str = "rw,relatime") -> bytes:
    text = f"36 35 98:0 /mnt1 {point} {options} master:1 - ext4 /dev/root rw,errors=continue\n"
    return text.encode()


@pytest.mark.parametrize(
    ("listed", "points"),
    [
        (line("/"), {"/": (True,)}),
        (line("/a", "ro,nosuid") + line("/b"), {"/a": (False,), "/b": (True,)}),
        (line("/a") + line("/a", "ro"), {"/a": (True, False)}),
        (line(r"/a\040b\011\012\134"), {"/a b\t\n\\": (True,)}),
        # The kernel does not escape a carriage return.
        (line("/a\rb") + line("/\r"), {"/a\rb": (True,), "/\r": (True,)}),
        (line("/a", "nosuid,root,errors=ro"), {"/a": (True,)}),
        (b"1 2 0:1 / /\xff rw - tmpfs tmpfs rw\n", {"/\udcff": (True,)}),
        (b"", {}),
    ],
)
def test_mount_points_are_read(listed: bytes, points: Points) -> None:
    assert mount_points(listed) == points


class Plan:
    """A root directory with a directory `work`, which stands for the root of a sandbox."""

    def __init__(self, root: Path) -> None:
        (root / "work").mkdir()
        self.root = os.open(root, os.O_PATH)
        found = (root / "work").stat()
        self.identity = found.st_dev, found.st_ino

    def holds(self, mount: Mount, points: dict[str, bool], identity: Identity | None) -> bool:
        identities = {} if identity is None else {mount.path: identity}
        mounts = {path: (is_writable,) for path, is_writable in points.items()}
        return has_planned_mounts([mount], identities, mounts, self.root)


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    found = Plan(tmp_path)
    yield found
    os.close(found.root)


OPEN, READ_ONLY = (Mount.bind("/work", "/work", is_writable=each) for each in (True, False))
HIDDEN = Mount.directory("/work", "0000", is_writable=False)
PRIVATE_DIRECTORY = Mount.directory("/work", "1777", is_writable=True)


@pytest.mark.parametrize("mount", [OPEN, READ_ONLY, HIDDEN, PRIVATE_DIRECTORY, Mount.null("/work")])
def test_a_mount_at_another_place_is_found(plan: Plan, mount: Mount) -> None:
    identity = plan.identity if mount.source else None
    assert plan.holds(mount, {"/work": False}, identity)
    assert not plan.holds(mount, {"/elsewhere": False}, identity)


@pytest.mark.parametrize(
    ("mount", "is_allowed"),
    [(OPEN, True), (READ_ONLY, False), (HIDDEN, False), (PRIVATE_DIRECTORY, True)],
)
def test_a_writable_mount_is_allowed_only_where_it_is_planned(
    plan: Plan, mount: Mount, is_allowed: bool
) -> None:
    identity = plan.identity if mount.source else None
    assert plan.holds(mount, {"/work": True}, identity) is is_allowed


def test_another_directory_than_the_planned_one_is_found(plan: Plan) -> None:
    device, inode = plan.identity
    assert not plan.holds(READ_ONLY, {"/work": False}, (device, inode + 1))
    assert not plan.holds(READ_ONLY, {"/work": False}, None)
    # What should be hidden is still there.
    assert not plan.holds(HIDDEN, {"/work": False}, plan.identity)
    assert plan.holds(HIDDEN, {"/work": False}, (device, inode + 1))


def test_a_path_that_is_gone_is_found(plan: Plan) -> None:
    os.rmdir("work", dir_fd=plan.root)
    assert not plan.holds(HIDDEN, {"/work": False}, None)


def test_an_empty_device_may_hide_an_empty_device() -> None:
    # Containers often have /dev/null at the path of a file that they hide.
    found = os.stat("/dev/null")
    identities = {"/dev/null": (found.st_dev, found.st_ino)}
    root = os.open("/", os.O_PATH)
    try:
        assert has_planned_mounts(
            [Mount.null("/dev/null")], identities, {"/dev/null": (False,)}, root
        )
    finally:
        os.close(root)


@pytest.mark.parametrize(
    ("point", "is_allowed"),
    [
        ("/work", True),
        ("/work/mount", True),
        ("/workshop", False),
        ("/etc", False),
        ("/dev/pts", True),
        ("/tmp", True),
        ("/run/shelld", True),
        # The daemon itself can write there.
        ("/other/mount", True),
        ("/other/read-only", False),
    ],
)
def test_no_mount_makes_more_writable_than_the_policy(point: str, is_allowed: bool) -> None:
    policy = ResolvedPolicy("/work", write=("/work",))
    outside = {"/other/mount": (True,), "/other/read-only": (False,)}
    assert opens_nothing_else(policy, {"/": (False,), point: (True,)}, outside) is is_allowed
    assert opens_nothing_else(policy, {"/": (False,), point: (False,)}, outside)
    # bubblewrap has put a writable mount there.
    is_own = is_allowed and not point.startswith("/other")
    assert opens_nothing_else(policy, {"/": (False,), point: (False, True)}, outside) is is_own


def test_a_link_out_of_the_sandbox_is_not_followed(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    mount = Mount.bind("/elsewhere/work", "/elsewhere/work", is_writable=True)
    assert not plan.holds(mount, {"/elsewhere/work": True}, plan.identity)
