"""If a sandbox lacks a mechanism that it needs, the daemon refuses the command and runs nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from mount_namespace import run_after
from sandboxes import directory_for_workspaces, why_impossible
from support import Json, altered_daemon, raw_daemon

pytestmark = pytest.mark.slow

PEER = Path(__file__).parents[1] / "peers" / "refuses_system_calls.py"
BWRAP = shutil.which("bwrap")

if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)


def assert_refused(workspace: Path, missing: str, policy: Json, **popen: Any) -> None:
    """Ask for a policy in every possible way, and check that no command runs."""
    popen.setdefault("cwd", workspace)
    with raw_daemon(**popen) as daemon:
        command = f"touch {workspace}/witness"
        configured: Json = {"session": "main", "sandbox": policy}
        for error in (
            daemon.fail("configure_session", configured),
            # Although `configure_session` has failed, the session has the policy from now on.
            daemon.fail("bash", {"command": command}),
            daemon.fail("bash", {"command": command, "run_in_background": True}),
            daemon.fail("bash", {"command": command, "tty": True}),
            daemon.fail("bash", {"command": command, "session": None, "sandbox": policy}),
        ):
            assert (error["code"], error["data"]["missing"]) == (1010, missing), error
            assert error["data"]["hint"]
        called = daemon.call("call_tool", {"name": "Bash", "arguments": {"command": command}})
        assert called["success"] is False
        # The daemon goes on, and a session without a sandbox works.
        assert daemon.bash("echo works", session="outside")["stdout"] == "works\n"
        assert all(not shell["isRunning"] for shell in daemon.call("list_shells")["shells"])
    assert os.listdir(workspace) == []


def with_bwrap(directory: Path, script: str) -> dict[str, str]:
    """Return an environment in which the program `bwrap` is `script`. In the script, `$real` is the
    path of the real bwrap.
    """
    directory.mkdir()
    program = directory / "bwrap"
    program.write_text(f"#!/bin/sh\nreal={BWRAP}\n{script}\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("echo 'bwrap: Creating new namespace failed' >&2; exit 1", "userns"),
        ('echo "bwrap: Can\'t find source path /x" >&2; exit 1', "a path of its policy"),
        # These scripts do not start the keeper.
        ("exit 0", "its keeper"),
        ("kill -9 $$", "its keeper"),
        ("exec true", "its keeper"),
        ("exec sh -c 'exec 3>&-; exec sleep 1'", "its keeper"),
        # In this sandbox, commands could get a capability.
        ('own="$1 $2 $3 $4"; shift 4; exec $real $own --cap-add CAP_CHOWN "$@"', "its keeper"),
    ],
)
def test_nothing_runs_if_bubblewrap_fails(
    workspace: Path, tmp_path: Path, script: str, missing: str
) -> None:
    env = with_bwrap(tmp_path / "bin", script)
    assert_refused(workspace, missing, {"mode": "workspace"}, env=env)


def test_nothing_runs_if_bubblewrap_isolates_nothing(
    workspace: Path, unprivileged: dict[str, Any]
) -> None:
    # Run as an ordinary user. If root ran this, the keeper would refuse to start because it has
    # capabilities.
    script = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    with directory_for_workspaces() as place:
        programs = with_bwrap(place / "bin", script)
        popen = {**unprivileged, "env": {**unprivileged["env"], "PATH": programs["PATH"]}}
        os.chown(workspace, unprivileged["user"], unprivileged["group"])
        assert_refused(workspace, "its keeper", {}, **{**popen, "cwd": workspace})


def test_sandbox_starts_although_a_socket_goes(workspace: Path) -> None:
    with directory_for_workspaces() as place:
        path = place / "goes"
        env = with_bwrap(place / "bin", f'rm -f {path}; exec $real "$@"')
        with (
            socket.socket(socket.AF_UNIX) as server,
            raw_daemon("--sandbox", "workspace", cwd=workspace, env=env) as daemon,
        ):
            server.bind(str(path))
            # bubblewrap cannot mount on a socket that is gone, so the daemon starts the sandbox
            # again.
            result = daemon.bash(f"touch made; test -e {path}")
            assert (result["exitCode"], os.listdir(workspace)) == (1, ["made"])
            assert result["sandbox"]["files"] == "workspace"


def test_nothing_runs_without_bubblewrap(workspace: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("env", "sh", "touch", "bash"):
        (programs / name).symlink_to(shutil.which(name) or "")
    env = {**os.environ, "PATH": str(programs)}
    assert_refused(workspace, "bwrap", {"mode": "read-only"}, env=env)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="has the numbers of x86-64")
@pytest.mark.parametrize(("what", "missing"), [("userns", "userns"), ("seccomp", "seccomp")])
def test_nothing_runs_if_a_container_refuses_the_mechanism(
    workspace: Path, what: str, missing: str
) -> None:
    prefix = [sys.executable, str(PEER), what]
    folders = [str(Path(__file__).parents[2] / name) for name in ("daemon", "protocol")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    assert_refused(workspace, missing, {"mode": "workspace"}, prefix=prefix, env=env)


@pytest.mark.parametrize(
    ("constants", "policy", "missing"),
    [
        ({"shelld.sandbox.seccomp._MACHINES": {}}, {}, "seccomp"),
        ({"shelld.keeper.landlock._CREATE_RULESET": 100_000}, {"network": "full"}, "landlock_abi"),
        ({"shelld.sandbox.engine._BOOT": "raise SystemExit"}, {}, "its keeper"),
        ({"shelld.sandbox.engine._BOOT": "import time; time.sleep(60)"}, {}, "its keeper"),
        ({"shelld.proxy.process._BOOT": "raise SystemExit"}, {"network": "hosts"}, "its proxy"),
        ({}, {"deny_read": [sys.prefix, sys.base_prefix]}, "its keeper"),
    ],
)
def test_nothing_runs_if_the_system_lacks_a_part(
    workspace: Path, constants: dict[str, Any], policy: Json, missing: str
) -> None:
    if "hosts" in policy.values():
        policy = {**policy, "hosts": []}
    constants = {**constants, "shelld.sandbox.sandbox.START_TIMEOUT_S": 5}
    assert_refused(workspace, missing, policy, command=altered_daemon(constants))


def test_nothing_runs_without_a_list_of_sockets(workspace: Path) -> None:
    # Without the list, the daemon does not know which sockets to hide.
    prefix = run_after("mount -t proc -o subset=pid proc /proc")
    assert_refused(workspace, "its list of sockets", {}, prefix=prefix)
