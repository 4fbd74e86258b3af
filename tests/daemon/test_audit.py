"""The audit log when its files cannot be made."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from shelld.audit import AuditLog, AuditRecord


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
    # One record in each file.
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


def test_a_fifo_that_is_full_loses_lines_and_never_waits(
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
