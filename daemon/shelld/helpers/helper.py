"""Starts a helper process, and exchanges frames with it on behalf of the daemon.

A runner starts the process in the same way as a command. So the runner kills the process and all
its descendants when the runner's channel is closed or the daemon is gone. The daemon and the
program exchange frames over a socket: see `program`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import anyio

from shelld.keeper.channel import RUN
from shelld.keeper.inherited import environment
from shelld.keeper.pool import RunnerPool

# The directory that contains the package `shelld`, for the import path of a program.
_OURS: Final = str(Path(__file__).parents[2])
_READ_BYTES: Final = 256 * 1024


class Helper:
    """A helper process, which runs until `close` is called.

    Owns the channel to its runner, and the socket to the process.

    `words` are the arguments of the program. `packages` are further directories for the import path
    of the program. Raises OSError if no process can start.
    """

    def __init__(
        self, pool: RunnerPool, program: Path, words: Sequence[str], packages: Sequence[str]
    ) -> None:
        with ExitStack() as stack:
            channel = pool.acquire()
            stack.callback(channel.close)
            self._connection, theirs = socket.socketpair()
            stack.callback(self._connection.close)
            self._connection.setblocking(False)
            command = (sys.executable, "-I", "-S", str(program), *words, _OURS, *packages)
            argv = [os.fsencode(word) for word in command]
            with theirs, open(os.devnull, "wb") as null:
                descriptors = (theirs.fileno(), null.fileno(), null.fileno())
                what = (argv[0], argv, environment(), b"", len(descriptors), False, None)
                channel.send((RUN, *what), descriptors)
            self._resources = stack.pop_all()

    def close(self) -> None:
        """End the process."""
        self._resources.close()

    def hang_up(self) -> None:
        """Make every wait for the process raise EOFError."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    async def wait_until_it_runs(self) -> None:
        """Wait for the first frame. Raises EOFError or ConnectionError if the start has failed."""
        await self._receive_frame()

    async def ask(self, data: bytes) -> bytes:
        """Send a frame, and return the frame that answers it.

        Raises EOFError or ConnectionError once the process is gone. After any exception, including
        a cancellation, the process cannot be used any more.
        """
        await self._send(len(data).to_bytes(4, "big") + data)
        return await self._receive_frame()

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._connection.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._connection)

    async def _receive_frame(self) -> bytes:
        return await self._receive(int.from_bytes(await self._receive(4), "big"))

    async def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                more = self._connection.recv(min(size - len(data), _READ_BYTES))
            except BlockingIOError:
                await anyio.wait_readable(self._connection)
                continue
            if not more:
                raise EOFError
            data += more
        return bytes(data)
