"""The audit log when its files cannot be created."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest

from shelld.audit import AuditLog, AuditRecord
from shelld_protocol.encoding import encode


def record(command: str) -> AuditRecord:
    return AuditRecord(
        time="2026-01-01T00:00:00.000Z",
        session="main",
        bash_id=None,
        command=command,
        description=None,
        status="completed",
        exit_code=0,
        signal=None,
        duration_ms=0,
        stdout_bytes=0,
        stderr_bytes=0,
        guard="allow",
    )


def test_failing_rotation_keeps_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    # Each file holds one record.
    log = AuditLog(path, 1)
    for command in ("first", "second", "third"):
        log.write(record(command))

    def fail(*_arguments: Any) -> int:
        raise OSError(errno.EMFILE, "no descriptor")

    with monkeypatch.context() as short:
        short.setattr(os, "open", fail)
        for _ in range(5):
            log.write(record("lost"))
    log.write(record("fourth"))
    log.close()
    files = [path, *(path.with_name(f"log.{number}") for number in (1, 2, 3))]
    for file, command in zip(files, ("fourth", "third", "second", "first"), strict=True):
        assert f'"command":"{command}"' in file.read_text()


def test_a_log_that_cannot_be_rotated_grows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    (tmp_path / "log.3").mkdir()
    log = AuditLog(path, 1)
    commands = [f"command {number}" for number in range(6)]
    for command in commands:
        log.write(record(command))
    log.close()
    # The oldest records went to FILE.2 and FILE.1.
    assert commands_of(tmp_path / "log.2", tmp_path / "log.1", path) == commands
    assert [line.getMessage() for line in caplog.records] == [
        f"the audit log cannot be rotated (errno {errno.EISDIR})"
    ]


def test_directory_at_log_path_is_not_rotated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    log = AuditLog(path, 1)
    log.write(record("first"))
    path.rename(tmp_path / "moved")
    path.mkdir()
    for command in ("second", "third"):
        log.write(record(command))
    assert path.is_dir()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "moved"]
    assert [line.getMessage() for line in caplog.records] == [
        f"the audit log cannot be {verb} (errno {errno.EISDIR})"
        for verb in ("opened again", "rotated")
    ]
    path.rmdir()
    log.write(record("fourth"))
    log.close()
    assert commands_of(tmp_path / "moved", path) == ["first", "second", "third", "fourth"]


def test_fifo_in_place_of_the_log_gets_no_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    log = AuditLog(path, 10_000)
    path.rename(tmp_path / "moved")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for command in ("first", "second"):
        log.write(record(command))
    assert os.read(reader, 1) == b""
    os.close(reader)
    path.unlink()
    log.write(record("third"))
    log.close()
    assert commands_of(tmp_path / "moved", path) == ["first", "second", "third"]
    assert [line.getMessage() for line in caplog.records] == [
        f"the audit log cannot be opened again (errno {errno.EEXIST})"
    ]


def commands_of(*paths: Path) -> list[str]:
    return [json.loads(line)["command"] for path in paths for line in path.read_text().splitlines()]


def limit_file_size(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def test_a_line_after_a_short_write_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    log = AuditLog(path, 1 << 20)
    log.write(record("first"))
    limit_file_size(path.stat().st_size + 100)
    try:
        for command in ("cut", "lost", "lost as well"):
            log.write(record(command))
    finally:
        limit_file_size(resource.RLIM_INFINITY)
    log.write(record("second"))
    log.write(record("third"))
    log.close()
    first, cut, second, third = path.read_text().splitlines()
    assert len(cut) == 100
    assert [json.loads(line)["command"] for line in (first, second, third)] == [
        "first",
        "second",
        "third",
    ]
    assert [line.getMessage() for line in caplog.records] == [
        f"the audit log cannot be written (errno {errno.EFBIG})"
    ]


def test_reopened_log_continues_after_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"cut')
    for command in ("first", "second"):
        log = AuditLog(path, 1 << 20)
        log.write(record(command))
        log.close()
    cut, *lines = path.read_text().splitlines()
    assert cut == '{"cut'
    assert [json.loads(line)["command"] for line in lines] == ["first", "second"]


def test_a_fifo_is_neither_rotated_nor_changed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path, 0o644)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(path, 1)
    for command in ("first", "second"):
        log.write(record(command))
    log.close()
    lines = os.read(reader, 65_536).splitlines()
    os.close(reader)
    assert [json.loads(line)["command"] for line in lines] == ["first", "second"]
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_full_fifo_loses_lines_and_never_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(path, 1)
    long = "x" * 20_000
    for _ in range(20):
        log.write(record(long))
    read = os.read(reader, 1 << 20)
    log.write(record("after"))
    read += os.read(reader, 1 << 20)
    log.close()
    os.close(reader)
    *whole, cut, last = read.splitlines()
    assert {json.loads(line)["command"] for line in whole} == {long}
    assert cut.startswith(b'{"time"')
    assert json.loads(last)["command"] == "after"
    assert [line.getMessage() for line in caplog.records] == [
        f"the audit log cannot be written (errno {errno.EAGAIN})"
    ]


def test_shortage_of_memory_loses_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_record: AuditRecord) -> bytes:
        raise MemoryError

    log = AuditLog(tmp_path / "log", 1_000_000)
    with monkeypatch.context() as short:
        short.setattr("shelld.audit.encode", fail)
        log.write(record("lost"))
    log.write(record("kept"))
    log.close()
    assert caplog.messages == [f"the audit log cannot be written (errno {errno.ENOMEM})"]
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert '"kept"' in line


def commands_in(path: Path) -> set[str]:
    """Return the commands in a log and all its older files."""
    files = path.parent.glob(f"{path.name}*")
    return {json.loads(line)["command"] for file in files for line in file.read_text().splitlines()}


def test_two_logs_at_one_path_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    size = len(encode(record("first"))) + 1
    # Each file holds four records.
    ours, theirs = (AuditLog(path, 4 * size) for _ in range(2))
    for number in range(3):
        ours.write(record(f"our {number}"))
        ours.write(record(f"and {number}"))
    # The other log has written nothing yet, and our log has renamed the file.
    theirs.write(record("the 0"))
    ours.write(record("our 3"))
    assert path.read_text().count("\n") == 4
    for log in (ours, theirs):
        log.close()
    expected = {*(f"our {number}" for number in range(4)), *(f"and {n}" for n in range(3))}
    assert commands_in(path) == {*expected, "the 0"}


def test_log_is_rotated_once_by_two_daemons(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AuditLog(path, 1)
    log.write(record("first"))
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        log.write(record("second"))
    assert path.read_text().count("\n") == 2
    log.write(record("third"))
    log.close()
    assert path.read_text().count("\n") == 1


def test_deleted_log_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AuditLog(path, 10_000)
    log.write(record("first"))
    path.unlink()
    log.write(record("second"))
    log.close()
    assert commands_in(path) == {"second"}
