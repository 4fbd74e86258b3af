"""The command lines that docs/targets.md gives for containers and namespaces.

A small program replaces each container engine. The program accepts the arguments that the engine
accepts, and refuses all others. `nsenter` is real. `test_targets_in_podman` has a real engine.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support import DAEMON_COMMAND, raw_daemon

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()
SECTION = PAGE.partition("## Containers")[2]
COMMANDS = re.findall(r"`((?:docker|podman|kubectl) exec [^`]+)`", SECTION)
NSENTER = re.findall(r"`(nsenter [^`]+)`", SECTION)

# This script stands for an engine. Its `exec` does what the `--help` of the engine says. Only
# kubectl needs `--` before the command.
ENGINE = """#!/bin/sh
[ "$1 $2" = "exec -i" ] || { echo "unknown words: $*" >&2; exit 125; }
case "$0 $4" in
*/kubectl' '--) shift 4;;
*/kubectl*) echo "kubectl exec needs --" >&2; exit 1;;
*) shift 3;;
esac
exec "$@"
"""


@pytest.fixture
def engines(tmp_path: Path) -> dict[str, str]:
    """An environment with stand-ins for the engines, and with `shelld`."""
    for name, text in {
        **dict.fromkeys(("docker", "podman", "kubectl"), ENGINE),
        "shelld": f'#!/bin/sh\nexec {shlex.join(DAEMON_COMMAND)} "$@"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_page_has_a_command_for_each_engine() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["docker", "podman", "kubectl"]
    assert len(NSENTER) == 1


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_command_of_an_engine_leads_to_a_daemon(command: str, engines: dict[str, str]) -> None:
    with raw_daemon(f"--target=box={command}", env=engines) as daemon:
        assert daemon.bash("echo there", target="box")["stdout"] == "there\n"
        # The id of the shell shows that the command ran at the target.
        assert daemon.bash("true", target="box")["bash_id"].startswith("box:")


def test_nsenter_leads_into_the_namespaces_of_a_process() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make namespaces")
    # Only the new namespace gets this host name.
    inner = "hostname inner && echo ready && exec sleep 300"
    process = subprocess.Popen(
        ["unshare", "--uts", "--mount", "sh", "-c", inner], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip("namespaces cannot be made here")
        words = [str(process.pid) if word == "PID" else word for word in NSENTER[0].split()]
        assert words[-1] == "shelld"
        argv = [*words[:-1], sys.executable, "-P", "-m", "shelld"]
        with raw_daemon() as daemon:
            daemon.call("add_target", {"name": "inner", "argv": argv})
            assert daemon.bash("uname -n", target="inner")["stdout"] == "inner\n"
            assert daemon.bash("uname -n")["stdout"] != "inner\n"
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
