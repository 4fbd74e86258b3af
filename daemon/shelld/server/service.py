"""The interface of a service.

A service serves a single client, or several clients, which attach one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import anyio.abc

from shelld.methods.context import Daemon
from shelld.server.dispatch import Method
from shelld.server.serve import Server
from shelld.server.stdio import Output


class Service(Protocol):
    """Serves one or more clients.

    `server` and `output` belong to the current client. Without a client, they are None.
    """

    @property
    def server(self) -> Server | None: ...

    @property
    def output(self) -> Output | None: ...

    def begin(
        self,
        daemon: Daemon,
        make_methods: Callable[[], Mapping[str, Method]],
        requests: anyio.abc.TaskGroup,
    ) -> None:
        """Call this before any other method. `make_methods` makes the methods of one client."""

    async def serve(self) -> None:
        """Read requests until the daemon should end."""

    async def close(self) -> None:
        """Accept no further clients. The current client stays connected while the daemon stops."""

    def end(self, exit_code: int) -> None:
        """Tell the current client that the daemon ends."""
