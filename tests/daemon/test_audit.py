"""The interaction log when its files cannot be made."""

from __future__ import annotations

import errno
import os
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
