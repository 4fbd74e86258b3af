"""Many processes at once: a fork bomb, and the death of a daemon that has fifty shells."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracles import Cgroup, Witness
from shapes import SHAPES, command_of
from support import RawDaemon, raw_daemon, wait_for

PIDS = Path("/sys/fs/cgroup/pids")
MOST = 100
SHELLS = 50

# This program forks as fast as it can, but only inside a cgroup with a limit.
BOMB = f"""
echo $$ > {{cgroup}}/cgroup.procs || exit 1
exec {sys.executable} -S -c '
import os, sys
if "{{name}}" not in open("/proc/self/cgroup").read(): sys.exit("not limited")
while True:
    try: os.fork()
    except OSError: pass
'
"""


@pytest.fixture
def limited() -> Iterator[Path]:
    """A cgroup v1 that has room for `MOST` processes."""
    if not os.access(PIDS, os.W_OK) or not (PIDS / "cgroup.procs").exists():
        pytest.skip("needs a writable cgroup v1 with the pids controller")
    cgroup = PIDS / f"shelld-test-{os.getpid()}"
    cgroup.mkdir()
    (cgroup / "pids.max").write_text(str(MOST))
    assert (cgroup / "pids.max").read_text().strip() == str(MOST)
    yield cgroup
    # Allow no more forks, then kill the processes that a failed test left.
    (cgroup / "pids.max").write_text("0")
    for pid in (cgroup / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: not (cgroup / "cgroup.procs").read_text(), "an empty cgroup")
    cgroup.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["subreaper", "cgroup"])
@pytest.mark.parametrize("end", ["kill", "runner", "input"])
def test_a_fork_bomb_delays_nobody_and_is_killed(limited: Path, mechanism: str, end: str) -> None:
    def count() -> int:
        return int((limited / "pids.current").read_text())

    with raw_daemon("--containment", mechanism, "--guard", "off") as daemon:
        daemon.call("ping")
        bash_id = daemon.background(BOMB.format(cgroup=limited, name=limited.name))
        wait_for(lambda: count() == MOST, "a full cgroup")
        for _ in range(10):
            assert daemon.call("bash_output", {"bash_id": bash_id})["isRunning"] is True
        if end == "kill":
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})
            assert (result["status"], result["survivors"]) == ("killed", [])
        elif end == "runner":
            (shell,) = daemon.call("list_shells")["shells"]
            status = Path(f"/proc/{shell['pid']}/status").read_text()
            os.kill(int(status.partition("PPid:")[2].split()[0]), signal.SIGKILL)
            read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
            assert (read["status"], read["reason"]) == ("killed", "lost")
            # A process that was forked at the last moment may still be dying.
            wait_for(lambda: not (limited / "cgroup.procs").read_text(), "an empty cgroup")
        else:
            daemon.end_input()
            assert daemon.wait() == 0
        assert not (limited / "cgroup.procs").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["subreaper", "cgroup"])
def test_killed_daemon_ends_fifty_shells_of_all_shapes(tmp_path: Path, mechanism: str) -> None:
    if not Cgroup.is_possible():
        pytest.skip("needs a cgroup v2 directory, to see what is left")
    cgroup, witness = Cgroup(), Witness(tmp_path / "witness")
    os.mkfifo(tmp_path / "fifo")
    daemon = RawDaemon("--containment", mechanism, prefix=cgroup.prefix)
    try:
        # Leave out the shape that takes all processor time, because the matrix covers it.
        crowd = [shape for name, shape in SHAPES.items() if name != "sixteen comets"]
        crowd += [SHAPES["children"]] * (SHELLS - len(crowd))
        for shape in crowd:
            paths = {name: tmp_path / name for name in ("witness", "beat", "fifo")}
            daemon.background(command_of(shape, **paths))
        witness.wait_for_lines(sum(shape.ready for shape in crowd))
        assert len(cgroup.pids()) > 400
        daemon.process.kill()
        wait_for(cgroup.is_empty, "the end of everything that the daemon started")
        assert not witness.is_held()
    finally:
        daemon.close()
        witness.close()
        cgroup.close()
