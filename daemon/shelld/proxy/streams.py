"""Moves bytes between two connections, and gives up if no byte moves for a long time."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, NamedTuple

from shelld.proxy.requests import MAX_HEAD_BYTES, Length, RefusedError, chunk_size_of

# This is long enough for a server that computes its answer, or a connection that waits for an
# event.
IDLE_S: Final = 600.0
_PIECE_BYTES: Final = 64 * 1024
# After the last answer to a client, the proxy reads the client's input for this long. If some input
# stayed unread, the kernel would throw the answer away.
_LINGER_S: Final = 1.0
_MAX_TRAILERS: Final = 100


class Stream(NamedTuple):
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def of(cls, sock: socket.socket) -> Stream:
        """Take over a connected socket."""
        try:
            return cls(*await asyncio.open_connection(sock=sock, limit=MAX_HEAD_BYTES))
        except BaseException:
            sock.close()
            raise

    async def write(self, data: bytes) -> None:
        """Write data. Wait while the other end does not read. Raises OSError."""
        self.writer.write(data)
        async with asyncio.timeout(IDLE_S):
            await self.writer.drain()

    async def read(self, most: int = _PIECE_BYTES) -> bytes:
        """Return the bytes that have arrived, or b"" at the end. Raises OSError."""
        async with asyncio.timeout(IDLE_S):
            return await self.reader.read(most)

    async def read_line(self) -> bytes:
        """Return a line without its end. Raises OSError, EOFError and `RefusedError`."""
        try:
            async with asyncio.timeout(IDLE_S):
                return (await self.reader.readuntil(b"\r\n"))[:-2]
        except asyncio.LimitOverrunError:
            raise RefusedError(400, "A line is too long") from None

    async def finish(self) -> None:
        """Close the connection after the last answer, so that the client gets this answer."""
        try:
            async with asyncio.timeout(_LINGER_S):
                await self.writer.drain()
                self.writer.write_eof()
                while await self.reader.read(_PIECE_BYTES):
                    pass
        except (OSError, RuntimeError):
            pass
        finally:
            self.writer.close()


async def copy(source: Stream, target: Stream, length: Length) -> None:
    """Copy a body. Raises OSError, EOFError if the body is incomplete, and `RefusedError`."""
    if length == "rest":
        while data := await source.read():
            await target.write(data)
    elif length == "chunked":
        await _copy_chunks(source, target)
    else:
        await _copy_bytes(source, target, length)


async def _copy_bytes(source: Stream, target: Stream, size: int) -> None:
    while size:
        data = await source.read(min(size, _PIECE_BYTES))
        if not data:
            raise EOFError
        size -= len(data)
        await target.write(data)


async def _copy_chunks(source: Stream, target: Stream) -> None:
    """Copy chunks. Write new chunks without the extensions, and leave out the trailers."""
    while size := chunk_size_of(await source.read_line()):
        await target.write(b"%x\r\n" % size)
        await _copy_bytes(source, target, size)
        if await source.read_line():
            raise RefusedError(400, "A chunk does not end where its size says")
        await target.write(b"\r\n")
    for _ in range(_MAX_TRAILERS):
        if not await source.read_line():
            await target.write(b"0\r\n\r\n")
            return
    raise RefusedError(400, "There are too many trailers")


async def relay(one: Stream, other: Stream) -> None:
    """Copy in both directions until both have ended, or until nothing moves for `IDLE_S`."""
    activity = _Activity()
    directions = {
        asyncio.create_task(_relay(one, other, activity)),
        asyncio.create_task(_relay(other, one, activity)),
    }
    try:
        while directions and (left := activity.seconds_left) > 0:
            done, directions = await asyncio.wait(
                directions, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if any(task.exception() is not None for task in done):
                return
    finally:
        for task in directions:
            task.cancel()


class _Activity:
    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.note()

    def note(self) -> None:
        self._at = self._clock()

    @property
    def seconds_left(self) -> float:
        return self._at + IDLE_S - self._clock()


async def _relay(source: Stream, target: Stream, activity: _Activity) -> None:
    while data := await source.reader.read(_PIECE_BYTES):
        activity.note()
        target.writer.write(data)
        await target.writer.drain()
        activity.note()
    target.writer.write_eof()
