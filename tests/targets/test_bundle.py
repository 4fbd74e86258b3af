"""Where a bundle is written to."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from shelld.targets.bundle import write_file


def test_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.write_text("earlier")
    write_file(path, b"data", 0o755)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"data", 0o755)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("is_linked", [False, True])
def test_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path, is_linked: bool) -> None:
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    if is_linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(path, b"data", 0o755)
    reader.join(20)
    assert found == [b"data"]
    assert pipe.is_fifo()
    assert path.is_symlink() == is_linked
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o600
