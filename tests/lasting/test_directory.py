"""`SocketDirectory` chooses the directory for the sockets of lasting daemons."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shelld.lasting.directory import SocketDirectory

NOBODY = 65534


def socket_path_as_nobody(runtime: str) -> str:
    """Return the path of the socket of a daemon that runs as the user `nobody`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.environ["XDG_RUNTIME_DIR"] = runtime
            directory = SocketDirectory.open(create=True)
            assert directory is not None
            path = directory.path_of("work")
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
            os.write(writing, path.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading) as answer:
        return answer.read()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_roots_directory_is_not_used_for_another_user(mode: int) -> None:
    # The user nobody cannot enter the directories above `tmp_path`.
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        os.chmod(runtime, mode)
        assert socket_path_as_nobody(runtime) == f"/tmp/shelld-{NOBODY}/work.sock"


def test_directory_can_be_used_after_it_was_made_with_a_strict_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = os.umask(0o777)
    try:
        opened = SocketDirectory.open(create=True)
    finally:
        os.umask(before)
    assert opened is not None
    directory = Path(opened.path_of("work")).parent
    opened.close()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("is_new", [False, True])
def test_directory_is_made_again_if_an_ending_daemon_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path, make = tmp_path / "shelld", os.mkdir
    if not is_new:
        path.mkdir(0o700)

    def make_and_lose(*args: Any) -> None:
        monkeypatch.setattr(os, "mkdir", make)
        try:
            make(*args)
        finally:
            path.rmdir()

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    opened = SocketDirectory.open(create=True)
    assert opened is not None
    assert not opened.is_removed
    opened.close()
