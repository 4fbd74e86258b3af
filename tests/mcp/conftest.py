from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.terminals.pty import Size
from support import DEADLINE_S
from task_listener import Listen, Listening


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Start a command on a terminal, as a task."""
    async with Manager() as manager:

        async def start(command: str) -> Listening:
            request = StartRequest(command, terminal=Size(30, 120), in_foreground=True)
            return Listening(manager, await manager.start(request))

        with anyio.fail_after(DEADLINE_S):
            yield start
