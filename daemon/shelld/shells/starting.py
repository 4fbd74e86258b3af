"""Waits for the start of a command, and reports why it failed."""

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
    started_pid(shell)


def started_pid(shell: Shell) -> int:
    """Return the pid of a command that is not pending. Raises `RpcError` if it never had a pid."""
    raise_failure(shell)
    if shell.pid is None:
        # If `reason` is None, a kill came before the start. Otherwise the runner was lost, perhaps
        # right after the start.
        killed_before = shell.reason is None
        raise spawn_failed(errno.ECANCELED if killed_before else errno.ECHILD, "exec")
    return shell.pid
