"""Tell whether any process of a command is left, without trusting the code under test.

* `Cgroup`, where a cgroup v2 can be made: the kernel's own list of every process born in it.
* `Witness`: a FIFO that every process inherits. It reaches end of file when the last of these
  processes is dead.
* `Heartbeat`: a file that grows as long as a process lives, even one that has closed all that it
  inherited.

`Freezer` makes a process unkillable for a while, and `start_tracer` makes a runner hang.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from shelld.keeper.cgroup import usable_directory
from support import RawDaemon, descendants, is_alive, parent_of, wait_for

# This time is longer than one beat takes on a busy machine.
SILENCE_S = 0.2

TRACER = Path(__file__).parents[1] / "peers" / "tracer.py"

_numbers = itertools.count(1)


class Cgroup:
    """A throw-away cgroup.

    `prefix` is the first part of a command line. If the caller appends a command, the command line
    runs this command inside the cgroup.
    """

    @staticmethod
    def is_possible() -> bool:
        return usable_directory() is not None

    def __init__(self) -> None:
        parent = usable_directory()
        assert parent is not None
        self.path = Path(parent) / f"test-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        self.prefix = ["/bin/sh", "-c", enter, str(self.path)]

    def pids(self) -> set[int]:
        """Return the pids in the cgroup and below it, without zombies."""
        found: set[int] = set()
        # Sub-cgroups come and go during the walk, and `os.walk` tolerates this.
        for directory, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                found.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
        return found

    def is_empty(self) -> bool:
        return "populated 0" in (self.path / "cgroup.events").read_text()

    def divisions(self) -> list[str]:
        return [entry.name for entry in self.path.iterdir() if entry.is_dir()]

    def close(self) -> None:
        """Kill the processes that a failed test may have left, then remove the directory."""
        (self.path / "cgroup.kill").write_text("1")
        wait_for(self.is_empty, "the end of everything in the cgroup")
        for directory, _, _ in os.walk(self.path, topdown=False):
            Path(directory).rmdir()


class Witness:
    """A FIFO that a command opens for writing before it starts processes: ``exec 9> path``."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._lines = 0

    def wait_for_lines(self, count: int) -> None:
        """Wait until the processes under observation have written `count` lines."""

        def all_are_there() -> bool:
            self._read()
            return self._lines >= count

        wait_for(all_are_there, f"{count} lines")

    def take_lines(self) -> int:
        """Return how many lines were written so far, and count again from zero."""
        self._read()
        count, self._lines = self._lines, 0
        return count

    def is_held(self) -> bool:
        """Return whether any process has the FIFO open."""
        return self._read()

    def _read(self) -> bool:
        try:
            while data := os.read(self._descriptor, 4096):
                self._lines += data.count(b"\n")
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        os.close(self._descriptor)


class Heartbeat:
    """A file that a process may be appending to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_beating(self) -> bool:
        """Return whether the file grows within `SILENCE_S`. A missing file does not grow."""
        if not self.path.exists():
            return False
        before = self.path.stat().st_size
        deadline = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline:
            if self.path.stat().st_size != before:
                return True
            select.select([], [], [], 0.005)
        return False


class Freezer:
    """A throw-away cgroup v1 freezer.

    A process inside it neither runs nor dies, like one in an uninterruptible system call.
    """

    _ROOT = Path("/sys/fs/cgroup/freezer")

    @classmethod
    def is_possible(cls) -> bool:
        return os.access(cls._ROOT, os.W_OK)

    def __init__(self) -> None:
        self._path = self._ROOT / f"shelld-test-{os.getpid()}-{next(_numbers)}"
        self._path.mkdir()

    @contextlib.contextmanager
    def holding(self, pid: int) -> Generator[None]:
        """Freeze a process while the `with` block runs. The block must make the process end as soon
        as it is thawed.
        """
        with self.frozen(pid):
            yield
        wait_for(lambda: not is_alive(pid), "the end of what was held")

    @contextlib.contextmanager
    def frozen(self, pid: int) -> Generator[None]:
        """Freeze a process while the `with` block runs."""
        (self._path / "cgroup.procs").write_text(str(pid))
        (self._path / "freezer.state").write_text("FROZEN")
        wait_for(lambda: self._state() == "FROZEN", "the freeze")
        try:
            yield
        finally:
            (self._path / "freezer.state").write_text("THAWED")

    @contextlib.contextmanager
    def freezing_all(self) -> Generator[Path]:
        """While the `with` block runs, freeze each process that writes its pid to the file."""
        (self._path / "freezer.state").write_text("FROZEN")
        try:
            yield self._path / "cgroup.procs"
        finally:
            (self._path / "freezer.state").write_text("THAWED")

    def pids(self) -> list[int]:
        """Return the pids of the processes in the freezer."""
        return [int(line) for line in (self._path / "cgroup.procs").read_text().split()]

    def _state(self) -> str:
        return (self._path / "freezer.state").read_text().strip()

    def close(self) -> None:
        wait_for(lambda: not (self._path / "cgroup.procs").read_text(), "an empty freezer")
        self._path.rmdir()


def start_tracer(daemon: RawDaemon) -> tuple[str, list[int]]:
    """Run a command that stops its runner as a debugger does; return the shell id, and the pids of
    the runner, of bash and of bash's descendants.
    """
    bash_id = daemon.background(f"sleep 300 & setsid {sys.executable} {TRACER} $PPID; true")
    told = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})["stdout"]
    if told != "stopped":
        daemon.call("kill_shell", {"shell_id": bash_id})
        pytest.skip(f"no debugger may be attached: {told}")
    (bash,) = [shell["pid"] for shell in daemon.call("list_shells")["shells"]]
    return bash_id, [parent_of(bash), bash, *descendants(bash)]
