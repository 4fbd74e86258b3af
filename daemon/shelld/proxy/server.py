"""Accepts connections from a sandbox, and connects them to allowed hosts.

One connection carries one tunnel, or one HTTP request with its response. HTTP connections are not
reused, because a second request would also have to be judged.

Invariants:

* No byte from a client reaches a host before `Connector` has allowed the host.
* The client of a refused connection gets its answer after `note` has returned.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from shelld.proxy import socks
from shelld.proxy.connect import Connector, DeniedError, UnreachableError
from shelld.proxy.hosts import written
from shelld.proxy.owners import Peer
from shelld.proxy.reports import Refusal
from shelld.proxy.requests import RefusedError, Request, request_of, response_of
from shelld.proxy.streams import IDLE_S, Stream, copy, relay

# A browser or a package manager opens some tens of connections at once.
MAX_CONNECTED: Final = 200
# Above `MAX_CONNECTED`, the proxy reads the requests of clients only to refuse them. Above
# `MAX_CLIENTS`, clients wait.
MAX_CLIENTS: Final = 256
# A client sends its request immediately. A client that sends no request must not keep others out.
HEAD_TIMEOUT_S: Final = 10.0
# The maximum number of informational responses (1xx) before the response itself.
_MAX_INFORMATIONAL: Final = 10
# The pause after a shortage of descriptors.
_PAUSE_S: Final = 0.1

_END_OF_HEAD: Final = b"\r\n\r\n"
_CONNECTED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS: Final = {
    "not_listed": (403, "it is not in hosts"),
    "private_address": (403, "its addresses are private and not in hosts"),
    "full": (503, f"the sandbox has {MAX_CONNECTED} connections already"),
}

Note = Callable[[Peer, Refusal], Awaitable[None]]


class Server:
    """`note` is called with each refusal."""

    def __init__(self, connector: Connector, note: Note) -> None:
        self._connector = connector
        self._note = note
        self._connected = 0
        self._clients: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_CLIENTS)

    async def serve(self, listener: socket.socket) -> None:
        """Serve a listening socket until the task is cancelled. The socket must be non-blocking."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._room.acquire()
                try:
                    sock, peer = await loop.sock_accept(listener)
                except OSError:
                    self._room.release()
                    await asyncio.sleep(_PAUSE_S)
                    continue
                task = asyncio.create_task(self._serve_client(sock, peer))
                self._clients.add(task)
                task.add_done_callback(self._client_left)
        finally:
            for task in list(self._clients):
                task.cancel()

    def _client_left(self, task: asyncio.Task[None]) -> None:
        self._clients.discard(task)
        self._room.release()
        if not task.cancelled():
            # An unexpected exception ends only this connection.
            task.exception()

    async def _serve_client(self, sock: socket.socket, peer: Peer) -> None:
        client = await Stream.of(sock)
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                first = await client.reader.readexactly(1)
            if first[0] == socks.VERSION:
                await self._serve_socks(client, peer)
            else:
                await self._serve_http(client, peer, first)
        except (OSError, EOFError):
            pass
        finally:
            client.writer.transport.abort()

    # -- HTTP -------------------------------------------------------------------------------

    async def _serve_http(self, client: Stream, peer: Peer, first: bytes) -> None:
        try:
            request = await _read_request(client, first)
            async with self._connection(peer, request.host, request.port) as server:
                if request.is_tunnel:
                    await client.write(_CONNECTED)
                    await relay(client, server)
                else:
                    await _exchange(client, server, request)
            # The connection to the host is closed by now, so there is room for another one.
            await client.finish()
        except RefusedError as error:
            await _answer(client, error.status, str(error))
        except _NoConnectionError as error:
            await _answer(client, error.status, str(error))

    @asynccontextmanager
    async def _connection(self, peer: Peer, host: str, port: int) -> AsyncGenerator[Stream]:
        """Connect to a host. Raises `_NoConnectionError` if the connection is refused or fails."""
        name = written(host, port)
        try:
            if self._connected >= MAX_CONNECTED:
                raise DeniedError("full")
            self._connected += 1
            try:
                server = await Stream.of(await self._connector.connect(host, port))
                try:
                    yield server
                finally:
                    server.writer.transport.abort()
            finally:
                self._connected -= 1
        except DeniedError as error:
            await self._note(peer, (host, port, error.reason))
            status, why = _REASONS[error.reason]
            raise _NoConnectionError(status, f"shelld refuses {name}: {why}") from None
        except UnreachableError as error:
            raise _NoConnectionError(502, f"shelld cannot reach {name}: {error}") from None

    # -- SOCKS5 -----------------------------------------------------------------------------

    async def _serve_socks(self, client: Stream, peer: Peer) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                host, port = await _read_socks(client)
            async with self._connection(peer, host, port) as server:
                await client.write(socks.answer(socks.SUCCEEDED))
                await relay(client, server)
        except socks.SocksError as error:
            client.writer.write(error.answer)
            await client.finish()
        except _NoConnectionError as error:
            codes = {403: socks.NOT_ALLOWED, 503: socks.FAILED, 502: socks.UNREACHABLE}
            client.writer.write(socks.answer(codes[error.status]))
            await client.finish()


class _NoConnectionError(Exception):
    """`status`: the status of an answer in HTTP. The text is a message for users."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def _read_request(client: Stream, first: bytes) -> Request:
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            return request_of(first + await client.reader.readuntil(_END_OF_HEAD))
    except asyncio.LimitOverrunError:
        raise RefusedError(431, "The head of the request is too long") from None
    except TimeoutError:
        raise RefusedError(408, "The head of the request did not arrive in time") from None


async def _exchange(client: Stream, server: Stream, request: Request) -> None:
    """Pass on one request and its response. Raises OSError, EOFError and `RefusedError`."""
    await server.write(request.head)
    if request.awaits and request.length:
        await client.write(_CONTINUE)
    upload = asyncio.create_task(_upload(client, server, request))
    try:
        await _pass_response(client, server, request.method)
    finally:
        upload.cancel()
        with suppress(asyncio.CancelledError):
            await upload


async def _upload(client: Stream, server: Stream, request: Request) -> None:
    try:
        await copy(client, server, request.length)
    except (OSError, EOFError, RefusedError):
        # If the proxy closed the connection normally, the server might take a part of the body for
        # the whole body.
        server.writer.transport.abort()


async def _pass_response(client: Stream, server: Stream, method: bytes) -> None:
    for _ in range(_MAX_INFORMATIONAL):
        try:
            async with asyncio.timeout(IDLE_S):
                head = await server.reader.readuntil(_END_OF_HEAD)
        except asyncio.LimitOverrunError:
            raise RefusedError(502, "The head of the response is too long") from None
        except (OSError, EOFError):
            raise RefusedError(502, "The origin server has given no response") from None
        response = response_of(head, method)
        await client.write(response.head)
        if response.status >= 200:
            # An incomplete response is shorter than the length in its head, so the client notices
            # the failure.
            with suppress(RefusedError):
                await copy(server, client, response.length)
            return
    raise RefusedError(502, "The server sends only informational responses")


async def _read_socks(client: Stream) -> tuple[str, int]:
    reader = client.reader
    count = (await reader.readexactly(1))[0]
    await client.write(socks.method_of(await reader.readexactly(count)))
    kind = socks.kind_of(await reader.readexactly(socks.REQUEST_BYTES))
    size = (await reader.readexactly(1))[0] if kind.size is None else kind.size
    address = await reader.readexactly(size)
    return socks.target_of(kind, address, await reader.readexactly(2))


async def _answer(client: Stream, status: int, text: str) -> None:
    """Answer with an error. Some clients show only the status line."""
    body = f"{text}\n".encode()
    phrase = HTTPStatus(status).phrase
    head = (
        f"HTTP/1.1 {status} {phrase} ({text})\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    client.writer.write(head.encode() + body)
    await client.finish()
