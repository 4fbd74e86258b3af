"""The actions that still work after a process has restricted itself with Landlock."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shelld.keeper import landlock

_NO_NEW_PRIVILEGES = 38

# This program restricts itself to the directory in its first argument. The other arguments are
# expressions. The program prints the expressions that raise no OSError.
_PROGRAM = f"""
import ctypes, os, sys
from shelld.keeper.landlock import restrict
ctypes.CDLL(None).prctl({_NO_NEW_PRIVILEGES}, 1, 0, 0, 0)
pipe = os.pipe()[1]
restrict((sys.argv[1], "/absent"), closes_sockets=False)
for word in sys.argv[2:]:
    try:
        eval(word)
    except OSError:
        continue
    print(word)
"""


def test_only_files_below_some_directories_can_be_changed(tmp_path: Path) -> None:
    version = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)
    if version < 2:
        pytest.skip("needs Landlock")
    for name in ("inside/one", "inside/two", "outside"):
        (tmp_path / name).mkdir(parents=True)
        os.mkfifo(tmp_path / name / "fifo")
        (tmp_path / name / "file").write_text("")
    works = [
        "os.open('inside/one/fifo', os.O_RDWR)",
        "os.open('inside/one/new', os.O_WRONLY | os.O_CREAT)",
        "os.rename('inside/one/new', 'inside/two/new')",
        "os.link('inside/two/new', 'inside/one/linked')",
        "os.mkdir('inside/one/directory')",
        "os.symlink('new', 'inside/one/link')",
        "os.remove('inside/one/link')",
        "os.rmdir('inside/one/directory')",
        "os.truncate('inside/one/file', 1)",
        "os.open('outside/fifo', os.O_RDONLY | os.O_NONBLOCK)",
        "os.open('outside/file', os.O_RDONLY)",
        "os.open(f'/proc/self/fd/{pipe}', os.O_WRONLY)",
    ]
    fails = [
        "os.open('outside/fifo', os.O_RDWR)",
        "os.open('outside/file', os.O_WRONLY)",
        "os.open('/dev/null', os.O_WRONLY)",
        "os.rename('inside/one/linked', 'outside/linked')",
        "os.link('inside/one/linked', 'outside/linked')",
        "os.mkdir('outside/directory')",
        "os.symlink('new', 'outside/link')",
        "os.remove('outside/file')",
    ]
    if version >= 3:
        fails.append("os.truncate('outside/file', 0)")
    command = [sys.executable, "-c", _PROGRAM, "inside", *works, *fails]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == works


def test_without_landlock_only_the_sockets_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # No system call has this number.
    monkeypatch.setattr(landlock, "_CREATE_RULESET", 100_000)
    assert not landlock.can_close_abstract_sockets()
    landlock.restrict(("/tmp",), closes_sockets=False)
    with pytest.raises(OSError, match="not implemented"):
        landlock.restrict(("/tmp",), closes_sockets=True)
