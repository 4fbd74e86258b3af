"""Targets in a container that podman runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import DAEMON_COMMAND, RawDaemon, descendants, raw_daemon, wait_for

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "targets.md").read_text()
(LEAD,) = re.findall(r"`(podman exec [^`]+ box) shelld`", PAGE)
BARE = os.path.realpath(sys.executable)

# Podman keeps everything in a directory of the test. The limits are no higher than those of the
# user who runs the tests, because only a user with privileges may raise limits.
STORAGE = """[storage]
driver = "vfs"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
ENGINE = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
"""

# The first process of the container. It is a bash, because bash reaps every process whose parent
# has ended.
INIT = ("bash", "-c", "while :; do sleep 0.1; done")


# The commands of these tests sleep for this number of seconds.
MARK = "4321"
COMMAND = f"sleep {MARK} & setsid sleep {MARK}"


class Box:
    """A container named `box`.

    The container sees this machine's files, but only its own processes.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder / "root"
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))
        (folder / "containers.conf").write_text(ENGINE)
        self.env = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def start(self) -> None:
        for name in ("usr", "etc", "tmp", "proc", "dev", "sys", "root", "run", "opt"):
            (self._root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self._root / name).symlink_to(f"usr/{name}")
        shelld = self._root / "opt" / "shelld"
        shelld.write_text(f'#!/bin/sh\nexec {shlex.join(DAEMON_COMMAND)} "$@"\n')
        shelld.chmod(0o755)
        shared = {"/usr", sys.base_prefix, sys.prefix, str(PROJECT)}
        options = [f"--volume={path}:{path}:ro" for path in shared]
        options += ["--network=none", "--name=box", "--env=PATH=/opt:/usr/bin:/bin"]
        started = self._podman("run", "--detach", *options, "--rootfs", str(self._root), *INIT)
        if started.returncode != 0:
            pytest.skip(f"podman cannot run a container here: {started.stderr.strip()[-200:]}")

    def remove(self) -> None:
        self._podman("rm", "--force", "--time=0", "box")

    def processes(self) -> list[str]:
        """Return the command lines of shelld's processes and of the commands of these tests."""
        script = "for each in /proc/[0-9]*; do tr '\\0' ' ' < $each/cmdline && echo; done"
        listed = self._podman("exec", "box", "sh", "-c", script).stdout.splitlines()
        return [line.strip() for line in listed if "shelld" in line or MARK in line]

    def wait_until_empty(self) -> None:
        """Wait until neither shelld nor a command of these tests runs in the container."""
        try:
            wait_for(lambda: not self.processes(), "an empty container")
        except AssertionError as error:
            error.add_note(f"still running: {self.processes()}")
            raise

    def _podman(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["podman", *words], env=self.env, capture_output=True, text=True, check=False
        )


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    missing = [name for name in ("podman", "runc") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root, to share directories with a container")
    container = Box(tmp_path)
    try:
        container.start()
        yield container
    finally:
        container.remove()


@pytest.fixture
def hub(box: Box) -> Iterator[RawDaemon]:
    with raw_daemon(env=box.env) as daemon:
        yield daemon


def cut_connection(daemon: RawDaemon, shell: str) -> None:
    """Kill the podman process that connects a daemon to a shell's target. Return when the daemon
    has noticed that the connection is lost.
    """
    read = daemon.request("bash_output", {"bash_id": shell, "wait": 60_000, "until": "exit"})
    # When this answer arrives, the target has also received the previous request.
    daemon.call("list_shells", {"target": "box"})
    connections = [
        pid
        for pid in descendants(daemon.process.pid)
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"podman\0exec")
    ]
    assert connections
    for pid in connections:
        os.kill(pid, signal.SIGKILL)
    assert daemon.answer(read)["error"]["data"]["kind"] == "target_lost"


def test_command_runs_in_the_container(box: Box, hub: RawDaemon) -> None:
    hub.call("add_target", {"name": "box", "argv": [*LEAD.split(), "shelld"]})
    there = hub.bash("cat /proc/1/cmdline", target="box")
    assert there["bash_id"].startswith("box:")
    assert there["stdout"].split("\0")[:-1] == list(INIT)
    hub.call("remove_target", {"name": "box"})
    assert box.processes() == []


@pytest.mark.parametrize("is_cut", [False, True])
def test_end_of_a_connection_leaves_no_process_in_the_container(
    box: Box, hub: RawDaemon, is_cut: bool
) -> None:
    hub.call("add_target", {"name": "box", "argv": [*LEAD.split(), "shelld"]})
    shell = hub.bash(COMMAND, target="box", run_in_background=True)["bash_id"]
    wait_for(lambda: box.processes().count(f"sleep {MARK}") == 2, "both commands")
    if is_cut:
        cut_connection(hub, shell)
    else:
        hub.call("remove_target", {"name": "box"})
    box.wait_until_empty()
    if is_cut:
        assert hub.bash("echo again", target="box")["stdout"] == "again\n"
        lost = hub.answer(hub.request("bash_output", {"bash_id": shell}))
        assert lost["error"]["data"]["kind"] == "shell_not_found"


def test_lasting_daemon_in_a_container_outlives_the_connection(box: Box, hub: RawDaemon) -> None:
    argv = [*LEAD.split(), "shelld", "attach", "--name", "work"]
    hub.call("add_target", {"name": "box", "argv": argv})
    command = "echo one; read line; echo $line"
    started = hub.bash(command, target="box", run_in_background=True, open_stdin=True)
    shell = started["bash_id"]
    cut_connection(hub, shell)
    write = {"bash_id": shell, "text": "two\n", "until": "exit", "wait": 60_000, "stdout_offset": 0}
    assert hub.call("write_stdin", write)["stdout"] == "one\ntwo\n"
    hub.bash("shelld stop work &", target="box")
    box.wait_until_empty()


def test_shelld_is_sent_to_a_container(box: Box, hub: RawDaemon) -> None:
    lead, name = LEAD.rsplit(" ", 1)
    path = f"PATH={os.path.dirname(BARE)}:/usr/bin:/bin"
    argv = [*lead.split(), "--env", path, name]
    hub.call("add_target", {"name": "bare", "argv": argv, "bootstrap": True})
    there = hub.bash("command -v shelld || cat /proc/1/cmdline", target="bare")
    assert there["stdout"].split("\0")[:-1] == list(INIT)
    assert any("/.cache/shelld/" in line for line in box.processes())
    hub.call("remove_target", {"name": "bare"})
    box.wait_until_empty()
