"""The spool's file has no name, so nobody can find it. Tests of its contents and size."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shelld.output.spool import BLOCK_BYTES, Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(8 * BLOCK_BYTES, str(tmp_path))
    yield spool
    spool.close()


def put(spool: Spool, data: bytes) -> int:
    block = spool.put(data)
    assert block is not None
    return block


def disk_bytes(spool: Spool) -> int:
    descriptor = spool._descriptor  # pyright: ignore[reportPrivateUsage]
    return 0 if descriptor is None else os.fstat(descriptor).st_size


def test_blocks_come_back_as_they_were_put(spool: Spool) -> None:
    contents = [bytes([number]) * (BLOCK_BYTES - number) for number in range(8)]
    blocks = [put(spool, content) for content in contents]
    for block, content in zip(blocks, contents, strict=True):
        assert spool.get(block, 0, len(content)) == content
        assert spool.get(block, 1000, 10) == content[1000:1010]


def test_full_spool_waits_for_freed_space(spool: Spool) -> None:
    blocks = [put(spool, b"x") for _ in range(8)]
    assert spool.put(b"y") is None
    assert spool.size == 8 * BLOCK_BYTES
    spool.free(blocks[3])
    assert put(spool, b"y") == blocks[3]
    assert spool.put(b"z") is None


def test_free_space_at_end_is_truncated(spool: Spool) -> None:
    blocks = [put(spool, b"x" * BLOCK_BYTES) for _ in range(8)]
    for block in blocks[2:]:
        spool.free(block)
    assert disk_bytes(spool) == 8 * BLOCK_BYTES
    spool.shrink()
    assert disk_bytes(spool) == spool.size == 2 * BLOCK_BYTES
    # The spool reuses freed blocks, and gives out each of them only once.
    again = [put(spool, b"y" * BLOCK_BYTES) for _ in range(6)]
    assert sorted([*blocks[:2], *again]) == list(range(8))
    assert spool.put(b"z") is None
    for block in [*blocks[:2], *again]:
        spool.free(block)
    spool.shrink()
    assert disk_bytes(spool) == spool.size == 0


def test_spool_file_is_made_on_first_use(tmp_path: Path) -> None:
    spool = Spool(BLOCK_BYTES, str(tmp_path / "missing"))
    spool.shrink()
    spool.close()


def test_missing_directory_is_an_error_each_time(tmp_path: Path) -> None:
    spool = Spool(BLOCK_BYTES, str(tmp_path / "later"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            spool.put(b"x")
    (tmp_path / "later").mkdir()
    assert spool.get(put(spool, b"x"), 0, 1) == b"x"
    spool.close()


def test_foreign_truncation_is_an_error(spool: Spool) -> None:
    block = put(spool, b"x" * 100)
    descriptor = spool._descriptor  # pyright: ignore[reportPrivateUsage]
    assert descriptor is not None
    os.ftruncate(descriptor, 50)
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        spool.get(block, 0, 100)
    assert caught.value.errno == errno.EIO


def test_short_write_is_finished_or_an_error(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    sizes: list[int] = []

    def partial(descriptor: int, data: bytes, position: int) -> int:
        sizes.append(len(data))
        return real(descriptor, bytes(data)[:3000], position)

    monkeypatch.setattr("os.pwrite", partial)
    content = os.urandom(7000)
    block = put(spool, content)
    assert (spool.get(block, 0, 7000), sizes) == (content, [7000, 4000, 1000])
    spool.free(block)

    def nothing(descriptor: int, data: bytes, position: int) -> int:
        return 0

    monkeypatch.setattr("os.pwrite", nothing)
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        spool.put(content)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    # The block is still free.
    assert put(spool, content) == block


@pytest.mark.parametrize("unnamed_from_birth", [True, False])
def test_spool_file_is_nameless_and_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed_from_birth: bool
) -> None:
    if not unnamed_from_birth:
        monkeypatch.delattr("os.O_TMPFILE", raising=False)
    spool = Spool(BLOCK_BYTES, str(tmp_path))
    put(spool, b"x")
    assert list(tmp_path.iterdir()) == []
    descriptor = spool._descriptor  # pyright: ignore[reportPrivateUsage]
    assert descriptor is not None
    status = os.fstat(descriptor)
    assert (status.st_nlink, stat.S_IMODE(status.st_mode)) == (0, 0o600)
    assert not os.get_inheritable(descriptor)
    assert status.st_dev == tmp_path.stat().st_dev
    spool.close()


def test_named_spool_file_is_created_in_private_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.O_TMPFILE", raising=False)
    seen: list[int] = []
    real = os.unlink

    def unlink(path: str) -> None:
        seen.append(stat.S_IMODE(Path(path).parent.stat().st_mode))
        real(path)

    monkeypatch.setattr("os.unlink", unlink)
    spool = Spool(BLOCK_BYTES, str(tmp_path))
    put(spool, b"x")
    assert seen == [0o700]
    spool.close()


def test_temporary_files_follow_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    spool = Spool(BLOCK_BYTES)
    put(spool, b"x")
    descriptor = spool._descriptor  # pyright: ignore[reportPrivateUsage]
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/tmp/")
    spool.close()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    spool = Spool(BLOCK_BYTES)
    put(spool, b"x")
    descriptor = spool._descriptor  # pyright: ignore[reportPrivateUsage]
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(tmp_path))
    spool.close()
