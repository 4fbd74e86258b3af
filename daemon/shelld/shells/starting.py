"""Waits until a command has started, or reports why it could not start."""

from __future__ import annotations

import errno

from shelld.shells.lifecycle import ShellStatus
from shelld.shells.shell import Shell
from shelld_protocol.errors import spawn_failed


def raise_failure(shell: Shell) -> None:
    """Raise `RpcError` (spawn_failed, resource_exhausted) if the command could not be started."""
    if shell.failure is not None:
        raise spawn_failed(*shell.failure)


async def wait_for_start(shell: Shell) -> None:
    """Wait until a command runs, or has run. Raises `RpcError` (spawn_failed)."""
    pending = ShellStatus.PENDING
    await shell.wait_until(lambda: shell.status is not pending or shell.failure is not None)
    check_started(shell)


def check_started(shell: Shell) -> None:
    """Raise `RpcError` if a command never ran. Either it could not be started, or somebody killed
    it before its start.

    If the runner was lost before it reported the pid, the command may have run, so it counts as
    started.
    """
    raise_failure(shell)
    if shell.pid is None and shell.reason != "lost":
        # Somebody has killed the command before its start.
        raise spawn_failed(errno.ECANCELED, "exec")
