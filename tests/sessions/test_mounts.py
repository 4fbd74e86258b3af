"""The path of a directory tells whether the directory is on a server, which may never answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shelld.sessions import mounts
from shelld.sessions.mounts import Mounts, remote_mounts

LIST = b"""\
22 27 0:21 / / rw,relatime - ext4 /dev/vda rw
23 22 0:22 / /home rw,relatime shared:1 - nfs4 server:/home rw
24 22 0:23 / /mnt/with\\040space rw - fuse.sshfs host: rw
25 22 0:24 / /disk rw - fuseblk /dev/vdb rw
26 22 0:25 / /hidden rw - cifs //server/share rw
27 22 0:26 / /hidden rw - tmpfs tmpfs rw
28 22 0:27 / /net rw master:2 shared:3 - autofs systemd-1 rw
"""


def test_remote_file_systems_are_found() -> None:
    assert remote_mounts(LIST) == {b"/home", b"/mnt/with space", b"/net"}


@pytest.mark.parametrize(
    "text", [b"", b"\n", b" - nfs", b"1 2 3 / /x - ", b"1 2 - nfs a b", b"\xff"]
)
def test_malformed_mount_list_names_none(text: bytes) -> None:
    assert remote_mounts(text) == frozenset()


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that counts as remote."""
    listing = tmp_path / "mountinfo"
    listing.write_text(f"22 27 0:21 / {tmp_path}/remote rw - nfs server:/ rw\n")
    monkeypatch.setattr(mounts, "_LIST", str(listing))
    (tmp_path / "remote").mkdir()
    return tmp_path / "remote"


def test_path_is_followed_up_to_remote_mount(remote: Path, tmp_path: Path) -> None:
    looked_at = Mounts()
    (tmp_path / "absolute").symlink_to(remote / "below")
    (tmp_path / "relative").symlink_to("./x/../remote")
    (tmp_path / "local").symlink_to("/")
    (tmp_path / "loop").symlink_to("loop")
    for path in ("remote", "remote/a/b", "absolute", "relative/c", "local/../absolute"):
        expected = path != "local/../absolute"
        assert looked_at.may_hang(os.fsencode(tmp_path / path)) is expected, path
    for path in (".", "local", "remotely", "loop", "missing/remote", "remote/.."):
        expected = path == "remote/.."
        assert looked_at.may_hang(os.fsencode(f"{tmp_path}/{path}")) is expected, path
    looked_at.close()


def test_remote_directories_are_compared_by_name(remote: Path, tmp_path: Path) -> None:
    looked_at = Mounts()
    here, other = os.fsencode(remote), os.fsencode(tmp_path / "link")
    (tmp_path / "link").symlink_to(remote)
    assert looked_at.is_same(here, here + b"/.")
    assert not looked_at.is_same(here, other)
    assert looked_at.is_same(os.fsencode(tmp_path), os.fsencode(tmp_path) + b"/.")
    looked_at.close()


def test_without_a_list_nothing_is_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_LIST", "/nowhere")
    assert not Mounts().may_hang(b"/")
