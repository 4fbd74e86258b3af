"""Start shells of a manager in the test's own process."""

from __future__ import annotations

from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.shells.starting import wait_for_start


async def start_shell(
    manager: Manager, command: str, cwd: str, env: dict[str, str | None] | None = None
) -> Shell:
    """Start a command in the background and wait until it runs."""
    shell = await manager.start(StartRequest(command, cwd=cwd, env=env))
    await wait_for_start(shell)
    return shell
