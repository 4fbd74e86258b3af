"""The search finds the files that a process has open, and touches no file that may hang."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from shelld.inspection import files
from shelld.inspection.files import file_in
from shelld.terminals.pty import Pty, Size, open_pty
from shelld.terminals.source import mount_of


@pytest.fixture
def pty() -> Iterator[Pty]:
    pty = open_pty(Size(24, 80))
    yield pty
    for descriptor in pty:
        os.close(descriptor)


@pytest.fixture
def no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that reads the list of mounts."""

    def refuse(path: str) -> bytes:
        raise AssertionError(path)

    monkeypatch.setattr(files, "read_file", refuse)


@pytest.mark.usefixtures("no_list")
def test_terminal_on_a_known_mount_is_found_without_the_list_of_mounts(pty: Pty) -> None:
    known = mount_of("/proc/self", pty.slave)
    assert known is not None
    assert file_in("/proc/self", pty.slave, known) == (os.fstat(pty.slave).st_rdev,)


@pytest.mark.parametrize("known", [None, -1])
def test_terminal_on_another_mount_is_found_by_the_list_of_mounts(
    pty: Pty, known: int | None
) -> None:
    assert file_in("/proc/self", pty.slave, known) == (os.fstat(pty.slave).st_rdev,)


def test_file_without_a_path_needs_no_mount() -> None:
    read, write = os.pipe()
    try:
        about = os.fstat(read)
        assert file_in("/proc/self", read, None) == (about.st_dev, about.st_ino)
    finally:
        os.close(read)
        os.close(write)
