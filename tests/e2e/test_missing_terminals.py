"""If the daemon cannot make a terminal for a command, it refuses the command.

It never uses a pipe instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mount_namespace import run_after
from shared_daemon import SharedDaemon
from support import Json, RawDaemon
from typing_session import Session

DEVPTS = "mount -t devpts -o newinstance,ptmxmode=666{} devpts /dev/pts"
TWO_PTYS = DEVPTS.format(",max=2")
# Here, terminals have no name, because /dev/ptmx and /dev/pts belong to different devpts file
# systems.
NAMELESS = f"{DEVPTS} && mount --bind /dev/pts/ptmx /dev/ptmx && {DEVPTS}".replace("{}", "")
# Here, terminals also have no name, but /dev/pts has another terminal with the same number.
# Descriptor 9 keeps that terminal open. Nobody can open that terminal while it is locked.
LOCKED = f"{NAMELESS} && exec 9<>/dev/pts/ptmx"
UNLOCK = "import fcntl, struct; fcntl.ioctl(9, 0x40045431, struct.pack('i', 0))"
FOREIGN = f'{LOCKED} && "$1" -c "{UNLOCK}"'


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Iterator[RawDaemon]:
    shared = SharedDaemon(prefix=run_after(request.param, sys.executable))
    yield shared.get()
    shared.close()


def ids(daemon: RawDaemon) -> list[str]:
    return [shell["bash_id"] for shell in daemon.call("list_shells")["shells"]]


def assert_refused(daemon: RawDaemon, code: int, data: Json, folder: Path) -> None:
    """Check that all commands with a terminal are refused in the same way, and that none of them
    runs.
    """
    shells = ids(daemon)
    for params in ({}, {"run_in_background": True}, {"stdin": "x"}, {"session": None}):
        ran = {"command": f"touch {folder}/ran", "tty": True, **params}
        error = daemon.fail("bash", ran)
        assert error["code"] == code
        assert data.items() <= error["data"].items()
    assert ids(daemon) == shells
    assert list(folder.iterdir()) == []
    assert daemon.bash("cat; tty", stdin="in ")["stdout"] == "in not a tty\n"


@pytest.mark.slow
@pytest.mark.parametrize("daemon", [TWO_PTYS], indirect=True)
def test_no_free_terminal_is_a_shortage(daemon: RawDaemon, tmp_path: Path) -> None:
    one, two = (Session(daemon, "tty; cat") for _ in range(2))
    assert {one.until("\n"), two.until("\n")} == {"/dev/pts/0\r\n", "/dev/pts/1\r\n"}
    assert_refused(daemon, 1005, {"limit": "ptys"}, tmp_path)
    one.write(eof=True)
    one.end()
    assert daemon.bash("tty", tty=True)["stdout"] == "/dev/pts/0\r\n"
    two.write("still here\n")
    two.until("still here\r\nstill here\r\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "daemon",
    ["mount -t tmpfs none /dev/pts", NAMELESS, LOCKED, FOREIGN],
    indirect=True,
    ids=["missing", "nameless", "locked", "foreign"],
)
def test_missing_terminals_are_unavailable(daemon: RawDaemon, tmp_path: Path) -> None:
    assert_refused(daemon, 1010, {"what": "tty", "missing": "/dev/pts"}, tmp_path)
