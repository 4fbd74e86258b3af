"""A daemon in a directory that its user may not enter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import raw_daemon


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A directory that only root may enter."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a directory that another user may not enter")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o001)
    directory = tmp_path / "closed"
    directory.mkdir(0o700)
    yield directory
    directory.chmod(0o700)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["subreaper", "process-group"])
@pytest.mark.parametrize("closed_later", [False, True])
def test_commands_run_in_closed_directory(
    unprivileged: dict[str, Any], closed: Path, mechanism: str, closed_later: bool
) -> None:
    options: dict[str, Any] = {**unprivileged, "cwd": closed}
    if closed_later:
        closed.chmod(0o755)
    # Use `setpriv`, because `subprocess` would change the user before it changes the directory.
    become = ["setpriv", f"--reuid={options.pop('user')}", f"--regid={options.pop('group')}"]
    options.pop("extra_groups")
    with raw_daemon(
        "--containment", mechanism, prefix=[*become, "--clear-groups"], **options
    ) as daemon:
        if closed_later:
            daemon.bash("true")
            closed.chmod(0o700)
        for session in ("main", None, "other"):
            result = daemon.bash("echo here", session=session)
            assert (result["stdout"], result["status"]) == ("here\n", "completed")
            # Leave the directory, then return to it.
            for _ in range(3):
                result = daemon.bash("pwd", cwd="/", session=session)
                assert (result["stdout"], result["status"]) == ("/\n", "completed")
                assert "reason" not in result
            result = daemon.bash("readlink /proc/$$/cwd", session=session)
            assert (result["stdout"], result["status"]) == (f"{closed}\n", "completed")


@pytest.mark.slow
def test_failed_start_elsewhere_keeps_session_directory(
    unprivileged: dict[str, Any], closed: Path
) -> None:
    options: dict[str, Any] = {**unprivileged, "cwd": closed}
    become = ["setpriv", f"--reuid={options.pop('user')}", f"--regid={options.pop('group')}"]
    options.pop("extra_groups")
    with raw_daemon("--spare-shells", "0", prefix=[*become, "--clear-groups"], **options) as daemon:
        huge = {"HUGE": "x" * 200_000}
        for _ in range(3):
            error = daemon.fail("bash", {"command": "true", "cwd": "/", "env": huge})
            assert error["data"]["kind"] == "spawn_failed"
            error = daemon.fail("bash", {"command": "true", "cwd": "/nowhere"})
            assert error["data"]["kind"] == "spawn_failed"
        result = daemon.bash("readlink /proc/$$/cwd")
        assert result["stdout"] == f"{closed}\n"
