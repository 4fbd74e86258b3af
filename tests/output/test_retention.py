"""The amount of output that each shell keeps, alone and beside other shells."""

from __future__ import annotations

import errno
import math
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.output.retention import Retention, ShellOutput
from shelld.output.spool import BLOCK_BYTES
from shelld.output.store import MemoryBlocks

MANY = 1 << 30


@pytest.fixture
def spool_directory(tmp_path: Path) -> str:
    return str(tmp_path)


def retention_of(directory: str, *, shell: int = MANY, total: int = MANY) -> Retention:
    return Retention(shell, total, directory)


def fill(output: ShellOutput, blocks: int) -> None:
    for _ in range(blocks):
        output.append(output.stdout, bytes(BLOCK_BYTES))


writes = st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=40)


@pytest.mark.slow
@given(writes, st.integers(8, 100))
def test_both_streams_of_a_shell_share_its_room(
    written: list[tuple[bool, int]], limit: int
) -> None:
    output = ShellOutput(limit)
    stores = output.stdout.store, output.stderr.store
    for to_stdout, size in written:
        output.append(output.stdout if to_stdout else output.stderr, b"x" * size)
        kept = [store.kept for store in stores]
        total = sum(store.written for store in stores)
        # Together, the streams use all the room, and not a byte more.
        assert sum(kept) == min(total, limit)
        for store in stores:
            # Neither stream loses its fair share.
            assert store.kept >= min(store.written, limit // 4)


def test_read_that_finds_nothing_does_not_count_as_output() -> None:
    output = ShellOutput()
    output.append(output.stdout, b"out")
    before = output.stdout.written_at
    output.append(output.stderr, b"")
    assert output.stderr.written_at == -math.inf
    output.append(output.stdout, b"")
    assert output.stdout.written_at == before


def test_quiet_stream_keeps_all_beside_loud_one() -> None:
    output = ShellOutput(100_000)
    output.append(output.stderr, b"important")
    for _ in range(100):
        output.append(output.stdout, bytes(10_000))
    output.append(output.stderr, b"last words")
    assert output.stderr.store.read(0, 100).data == b"importantlast words"
    assert output.stdout.store.kept == 100_000 - 19


def test_replaced_stream_has_only_the_new_text() -> None:
    blocks = MemoryBlocks()
    output = ShellOutput(4 * BLOCK_BYTES + 2, blocks)
    fill(output, 3)
    output.append(output.stderr, bytes(BLOCK_BYTES))
    output.replace(output.stdout, b"new")
    store = output.stdout.store
    assert (store.written, store.dropped, store.read(0, 100).data) == (3, 0, b"new")
    assert output.stored_blocks == 1
    # The stream shares the room as before, and again keeps a quarter of the room for its head.
    output.append(output.stdout, bytes(5 * BLOCK_BYTES))
    assert store.kept + output.stderr.store.kept == 4 * BLOCK_BYTES + 2
    assert store.read(0, MANY).data == b"new" + bytes(BLOCK_BYTES - 3)
    assert len(blocks._content) == output.stored_blocks  # pyright: ignore[reportPrivateUsage]
    output.replace(output.stderr, b"")
    assert (output.stderr.store.written, output.stdout.store) == (0, store)


def test_longer_stream_gives_up_room_first() -> None:
    def output() -> ShellOutput:
        output = ShellOutput(MANY, MemoryBlocks())
        fill(output, 2)
        output.append(output.stderr, bytes(3 * BLOCK_BYTES))
        return output

    def left(output: ShellOutput) -> tuple[int, int]:
        return output.stdout.store.stored_blocks, output.stderr.store.stored_blocks

    few, enough, more = output(), output(), output()
    few.give_up(1, "ENOSPC")
    enough.give_up(3, "ENOSPC")
    more.give_up(4, "ENOSPC")
    assert [left(each) for each in (few, enough, more)] == [(2, 2), (2, 0), (1, 0)]
    assert [each.stdout.store.error for each in (few, enough, more)] == [None, None, "ENOSPC"]
    assert {each.stderr.store.error for each in (few, enough, more)} == {"ENOSPC"}


def test_oldest_ended_shell_gives_up_room_first(
    spool_directory: str,
) -> None:
    retention = retention_of(spool_directory, total=10 * BLOCK_BYTES)
    running, first, second = (retention.open() for _ in range(3))
    fill(second, 3)
    fill(first, 3)
    retention.finish(first)
    retention.finish(second)
    fill(running, 4)
    assert [output.stored_blocks for output in (first, second, running)] == [3, 3, 4]
    fill(running, 1)
    assert [output.stored_blocks for output in (first, second, running)] == [0, 3, 5]
    assert first.stdout.store.dropped == 3 * BLOCK_BYTES
    assert first.error is None
    fill(running, 3)
    assert [output.stored_blocks for output in (first, second, running)] == [0, 0, 8]
    retention.close()


def test_ended_shell_being_read_gives_up_room_late(spool_directory: str) -> None:
    retention = retention_of(spool_directory, total=10 * BLOCK_BYTES)
    running, first, second = (retention.open() for _ in range(3))
    fill(first, 3)
    fill(second, 3)
    first.pin()
    retention.finish(first)
    retention.finish(second)
    fill(running, 5)
    assert [output.stored_blocks for output in (first, second, running)] == [3, 0, 5]
    fill(running, 3)
    assert [output.stored_blocks for output in (first, second, running)] == [0, 0, 8]
    retention.close()


def test_spooled_output_is_read_back(spool_directory: str) -> None:
    retention = retention_of(spool_directory)
    first, second = retention.open(), retention.open()
    for number in range(3):
        for output, name in ((first, b"a"), (second, b"b")):
            output.append(output.stdout, b"%b%07d" % (name, number) * (BLOCK_BYTES // 8))
    retention.finish(second)
    for output, name in ((first, b"a"), (second, b"b")):
        store = output.stdout.store
        assert store.stored_blocks == 3
        assert store.read(0, 8).data == b"%b0000000" % name
        assert store.read(2 * BLOCK_BYTES - 8, 16).data == b"%b0000001%b0000002" % (name, name)
    retention.close()


def test_last_shell_keeps_the_end_of_its_output_in_memory(
    spool_directory: str,
) -> None:
    retention = retention_of(spool_directory, total=BLOCK_BYTES)
    output = retention.open()
    fill(output, 1)
    output.append(output.stdout, bytes(10_000))
    retention.finish(output)
    assert (output.stored_blocks, output.stdout.store.kept) == (1, BLOCK_BYTES + 10_000)
    retention.close()


def test_shell_at_its_limit_takes_no_room_from_others(spool_directory: str) -> None:
    retention = retention_of(spool_directory, shell=8 * BLOCK_BYTES, total=13 * BLOCK_BYTES)
    ended, running = retention.open(), retention.open()
    fill(ended, 5)
    retention.finish(ended)
    fill(running, 100)
    assert (ended.stored_blocks, running.stored_blocks) == (5, 8)
    assert running.stdout.store.dropped == 92 * BLOCK_BYTES
    retention.close()


def test_ended_shell_gives_up_both_streams(spool_directory: str) -> None:
    retention = retention_of(spool_directory, total=6 * BLOCK_BYTES)
    ended, running = retention.open(), retention.open()
    fill(ended, 2)
    ended.append(ended.stderr, bytes(BLOCK_BYTES + 10_000))
    retention.finish(ended)
    # The incomplete last block of stderr also goes to the disk, because it is not small.
    assert (ended.stdout.store.stored_blocks, ended.stderr.store.stored_blocks) == (2, 2)
    fill(running, 3)
    assert ended.stored_blocks == 0
    assert ended.stdout.store.dropped == 2 * BLOCK_BYTES
    assert ended.stderr.store.dropped == BLOCK_BYTES + 10_000
    retention.close()


def test_largest_running_shell_gives_up_room_next(spool_directory: str) -> None:
    retention = retention_of(spool_directory, total=32 * BLOCK_BYTES)
    large, small = retention.open(), retention.open()
    fill(large, 24)
    fill(small, 8)
    fill(small, 1)
    # The large shell gives up an eighth of its blocks.
    assert [output.stored_blocks for output in (large, small)] == [21, 9]
    fill(small, 100)
    assert large.stored_blocks + small.stored_blocks <= 32
    assert abs(large.stored_blocks - small.stored_blocks) <= 4
    assert retention.spool_bytes == 32 * BLOCK_BYTES
    retention.close()


def test_forgotten_output_frees_disk_space(
    spool_directory: str,
) -> None:
    retention = retention_of(spool_directory, total=10 * BLOCK_BYTES)
    first, second = retention.open(), retention.open()
    fill(first, 5)
    fill(second, 5)
    retention.finish(second)
    retention.forget(second)
    assert retention.spool_bytes == 5 * BLOCK_BYTES
    retention.forget(first)
    assert retention.spool_bytes == 0
    forgotten = weakref.ref(first), weakref.ref(second)
    del first, second
    assert [reference() for reference in forgotten] == [None, None]
    other = retention.open()
    fill(other, 11)
    # Forgotten shells take no room, so the new shell can fill the whole spool.
    assert (other.stored_blocks, other.stdout.store.kept) == (10, 10 * BLOCK_BYTES)
    retention.close()


def test_full_disk_takes_room_of_ended_shells(
    spool_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = retention_of(spool_directory)
    ended, running = retention.open(), retention.open()
    fill(ended, 4)
    retention.finish(ended)
    fill(running, 4)
    real = retention._spool.put  # pyright: ignore[reportPrivateUsage]

    def no_new_block(data: bytes) -> int | None:
        if retention._spool._free:  # pyright: ignore[reportPrivateUsage]
            return real(data)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(retention._spool, "put", no_new_block)  # pyright: ignore[reportPrivateUsage]
    fill(running, 4)
    assert (ended.error, ended.stdout.store.dropped) == ("ENOSPC", 4 * BLOCK_BYTES)
    assert (running.error, running.stdout.store.dropped) == (None, 0)
    fill(running, 1)
    assert (running.error, running.stdout.store.dropped) == ("ENOSPC", BLOCK_BYTES)
    retention.close()


def test_a_broken_disk_takes_nothing_from_others(
    spool_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = retention_of(spool_directory)
    ended, running = retention.open(), retention.open()
    fill(ended, 4)
    retention.finish(ended)

    def broken(data: bytes) -> int | None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(retention._spool, "put", broken)  # pyright: ignore[reportPrivateUsage]
    fill(running, 100)
    assert (ended.error, ended.stdout.store.dropped) == (None, 0)
    assert running.error == "EIO"
    # The store reads the beginning and the end from memory.
    store = running.stdout.store
    assert store.kept == 4 * BLOCK_BYTES
    assert store.read(0, 1 << 30).data == bytes(BLOCK_BYTES)
    retention.close()


def test_output_without_room_is_counted(spool_directory: str) -> None:
    retention = retention_of(spool_directory, total=4096)
    output = retention.open()
    fill(output, 50)
    assert output.stdout.store.kept == 4 * BLOCK_BYTES
    assert output.error is None
    retention.close()
