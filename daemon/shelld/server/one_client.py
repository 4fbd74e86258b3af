"""Serves the only client of a daemon. The daemon ends when this client is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio.abc

from shelld.methods.context import Daemon
from shelld.server.dispatch import Method
from shelld.server.serve import Server
from shelld.server.startup import hint_for
from shelld.server.stdio import Input, Output


class OneClient:
    """Serves one client. Raises StartupError and OSError."""

    def __init__(self, streams: tuple[int, int]) -> None:
        self.output = Output(streams[1])
        self._source = Input(streams[0])
        self._hint = hint_for(streams[0])
        self._server: Server | None = None

    def begin(
        self,
        daemon: Daemon,
        make_methods: Callable[[], Mapping[str, Method]],
        requests: anyio.abc.TaskGroup,
    ) -> None:
        """Call this before any other method."""
        self._server = Server(
            daemon, make_methods(), self._source, self.output, requests, hint=self._hint
        )

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    async def serve(self) -> None:
        """Serve the client until its stream ends, or `exit` arrives."""
        await self.server.read_requests()

    async def close(self) -> None:
        """Do nothing, because no other client can come."""

    def end(self, exit_code: int) -> None:
        """Do nothing, because the client sees the end of the process."""
