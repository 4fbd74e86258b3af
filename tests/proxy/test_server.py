"""The proxy over sockets: requests that it passes on, and requests that it refuses and reports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from shelld.proxy import connect, socks, streams
from shelld.proxy import server as server_module
from shelld.proxy.connect import Connector, is_here
from shelld.proxy.hosts import Rules, rule_of
from shelld.proxy.server import Server

TIMEOUT_S = 20
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Origin(NamedTuple):
    """The server to which the names of allowed hosts resolve. `requests` has the heads that the
    server has received.
    """

    port: int
    requests: list[bytes]


class Proxy:
    """`refused` has the host, port and reason of each refusal. `looked_up` has the names that the
    proxy has looked up.
    """

    def __init__(self, names: dict[str, list[list[str]]]) -> None:
        self.port = 0
        self.refused: list[tuple[str, int, str]] = []
        self.looked_up: list[str] = []
        self._names = names

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the next answer for a name, like a name server whose answers change."""
        del port
        self.looked_up.append(host)
        if host not in self._names:
            raise OSError
        answers = self._names[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def note(self, peer: tuple[str, int], refusal: tuple[str, int, str]) -> None:
        assert peer[0] == "127.0.0.1"
        self.refused.append(refusal)

    async def ask(self, data: bytes) -> bytes:
        """Send bytes, and return everything that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(TIMEOUT_S):
                return await reader.read()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def proxy(
    rules: Iterable[str], names: dict[str, list[list[str]]] | None = None
) -> AsyncGenerator[Proxy]:
    made = Proxy(names or {})
    connector = Connector(Rules(map(rule_of, rules)), made.resolve)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        made.port = listener.getsockname()[1]
        task = asyncio.create_task(Server(connector, made.note).serve(listener))
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.wait([task])
            # The tasks of the clients end as well.
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: bytes
) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(response)
    await writer.drain()
    writer.close()
    return head


@asynccontextmanager
async def origin(
    response: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
) -> AsyncGenerator[Origin]:
    requests: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await answer(reader, writer, response))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield Origin(server.sockets[0].getsockname()[1], requests)


def get(url: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {url} HTTP/1.1", *headers, "", "")).encode()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test()

    asyncio.run(limited())


def test_a_listed_name_with_a_listed_address_is_reached() -> None:
    async def test() -> None:
        async with origin() as server:
            at = f"a.org:{server.port}"
            rules = [at, f"127.0.0.1:{server.port}"]
            async with proxy(rules, {"a.org": [["127.0.0.1"]]}) as made:
                got = await made.ask(get(f"http://{at}/x", "Host: evil.org", "Cookie: c"))
                assert got.endswith(b"\r\n\r\nok")
                head = server.requests[0]
                assert head.startswith(b"GET /x HTTP/1.1\r\nHost: " + at.encode() + b"\r\n")
                assert b"evil" not in head
                assert made.refused == []

    run(test)


def test_a_tunnel_passes_everything_on() -> None:
    async def test() -> None:
        async with origin(b"raw \0 bytes") as server, proxy([f"127.0.0.1:{server.port}"]) as made:
            target = f"127.0.0.1:{server.port}".encode()
            got = await made.ask(b"CONNECT %s HTTP/1.1\r\n\r\nany\r\n\r\n" % target)
            assert got.partition(b"\r\n\r\n")[2] == b"raw \0 bytes"
            assert server.requests == [b"any\r\n\r\n"]

    run(test)


def test_socks_client_reaches_a_listed_name_and_address() -> None:
    async def test() -> None:
        async with origin(b"bytes") as server:
            rules = [f"a.org:{server.port}", f"127.0.0.1:{server.port}"]
            async with proxy(rules, {"a.org": [["127.0.0.1"]]}) as made:
                port = server.port.to_bytes(2, "big")
                for address in (b"\x03\x05a.org", b"\x01\x7f\0\0\1"):
                    got = await made.ask(b"\x05\x01\x00\x05\x01\x00" + address + port + b"\r\n\r\n")
                    assert got == b"\x05\x00" + socks.answer(socks.SUCCEEDED) + b"bytes"
                got = await made.ask(b"\x05\x01\x00\x05\x01\x00\x03\x05b.org\x01\xbb")
                assert got == b"\x05\x00" + socks.answer(socks.NOT_ALLOWED)
                assert made.refused == [("b.org", 443, "not_listed")]

    run(test)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "not_listed"),
        ("10.0.0.1", "not_listed"),
        ("8.8.8.8", "not_listed"),
        ("[::1]", "not_listed"),
        ("[::ffff:127.0.0.1]", "not_listed"),
        ("b.org", "not_listed"),
        ("org", "not_listed"),
        ("wild.org", "not_listed"),
        ("a.org", "private_address"),
        ("mapped.org", "private_address"),
        ("x.wild.org", "private_address"),
    ],
)
@pytest.mark.parametrize("kind", ["tunnel", "request", "socks"])
def test_unlisted_host_and_unlisted_private_address_are_refused(
    host: str, reason: str, kind: str
) -> None:
    names = {
        "a.org": [["127.0.0.1", "10.0.0.1", "169.254.169.254"]],
        "mapped.org": [["::ffff:127.0.0.1", "fe80::1"]],
        "x.wild.org": [["100.64.0.1"]],
    }

    async def test() -> None:
        rules = ["a.org", "mapped.org", "*.wild.org", "127.0.0.1:1"]
        async with origin() as server, proxy(rules, names) as made:
            bare = host.strip("[]")
            port = server.port
            if kind == "tunnel":
                got = await made.ask(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
            elif kind == "request":
                got = await made.ask(get(f"http://{host}:{port}/"))
            else:
                text = bare.encode()
                where = b"\x03" + bytes((len(text),)) + text + port.to_bytes(2, "big")
                got = await made.ask(b"\x05\x01\x00\x05\x01\x00" + where)
            if kind == "socks":
                assert got == b"\x05\x00" + socks.answer(socks.NOT_ALLOWED)
            else:
                assert got.startswith(b"HTTP/1.1 403 Forbidden (shelld refuses ")
            seen = bare.removeprefix("::ffff:")
            assert made.refused == [(seen, port, reason)]
            assert server.requests == []
            # A name that no entry allows is not even resolved.
            assert made.looked_up == ([bare] if reason == "private_address" else [])

    run(test)


def test_a_name_is_resolved_once() -> None:
    # The name server of this host answers with an allowed address first, and then with another one.
    async def test() -> None:
        async with origin() as server:
            rules = [f"a.org:{server.port}", f"127.0.0.1:{server.port}"]
            answers = [["127.0.0.1"], ["127.0.0.2"]]
            async with proxy(rules, {"a.org": answers}) as made:
                url = f"http://a.org:{server.port}/"
                assert (await made.ask(get(url))).endswith(b"ok")
                assert made.looked_up == ["a.org"]
                assert b" 403 " in await made.ask(get(url))
                assert len(server.requests) == 1

    run(test)


def test_only_the_allowed_of_several_addresses_are_tried() -> None:
    async def test() -> None:
        async with origin() as server:
            rules = [f"a.org:{server.port}", f"127.0.0.1:{server.port}"]
            names = {"a.org": [["127.0.0.2", "::1", "127.0.0.1"]]}
            async with proxy(rules, names) as made:
                assert (await made.ask(get(f"http://a.org:{server.port}/"))).endswith(b"ok")

    run(test)


def test_a_public_address_of_this_machine_must_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def is_here(address: str) -> bool:
        tried.append(address)
        return True

    monkeypatch.setattr(connect, "is_here", is_here)

    async def test() -> None:
        async with proxy(["a.org"], {"a.org": [["192.31.196.1", "2620:4f:8000::1"]]}) as made:
            assert b" 403 " in await made.ask(get("http://a.org/"))
            assert made.refused == [("a.org", 80, "private_address")]
            assert tried == ["192.31.196.1", "2620:4f:8000::1"]

    run(test)


def test_proxy_knows_the_addresses_of_this_machine() -> None:
    assert is_here("127.0.0.1")
    assert is_here("::1")
    assert not is_here("192.0.2.1")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", 400),
        (b"GET http://a.org/ HTTP/1.1\r\nX : y\r\n\r\n", 400),
        (b"POST http://a.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET http://a.org/ HTTP/1.1\r\nX: " + b"y" * 40_000 + b"\r\n\r\n", 431),
        (b"\x16\x03\x01\x00\r\n\r\n", 400),
        (b"GET http://unknown.org/ HTTP/1.1\r\n\r\n", 502),
    ],
)
def test_an_invalid_request_is_answered(request_: bytes, status: int) -> None:
    async def test() -> None:
        async with proxy(["a.org", "unknown.org"]) as made:
            assert b"HTTP/1.1 %d " % status in await made.ask(request_)
            assert made.refused == []

    run(test)


def test_data_after_a_request_is_not_passed_on() -> None:
    async def test() -> None:
        async with origin() as server, proxy([f"127.0.0.1:{server.port}"]) as made:
            url = f"http://127.0.0.1:{server.port}/"
            smuggled = get("http://127.0.0.1/secret")
            got = await made.ask(get(url) + smuggled)
            assert got.count(b"HTTP/1.1") == 1
            assert b"secret" not in server.requests[0]

    run(test)


@pytest.mark.parametrize(
    ("headers", "body", "passed"),
    [
        ("Content-Length: 4", b"bodyGET / HTTP/1.1\r\n\r\n", b"body"),
        (
            "Transfer-Encoding: chunked",
            b"2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\nX: y\r\n\r\nGET",
            b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
        ),
    ],
)
def test_a_body_is_passed_on_exactly(headers: str, body: bytes, passed: bytes) -> None:
    async def test() -> None:
        bodies: list[bytes] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            bodies.append(await reader.readexactly(len(passed)))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nall")
            writer.write_eof()
            bodies.append(await reader.read())
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with proxy([f"127.0.0.1:{port}"]) as made:
                head = f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\n{headers}\r\n\r\n"
                got = await made.ask(head.encode() + body)
                assert got.endswith(b"\r\n\r\nall")
        assert bodies == [passed, b""]

    run(test)


def test_incomplete_body_is_passed_on_without_an_end() -> None:
    async def test() -> None:
        got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            got.set_result(await reader.read())
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with proxy([f"127.0.0.1:{port}"]) as made:
                url = f"http://127.0.0.1:{port}/"
                head = f"POST {url} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                answered = await made.ask(head.encode() + b"1\r\nx\r\nzz\r\n")
                # The end of the chunks is missing.
                assert await got == b"1\r\nx\r\n"
                assert b" 502 " in answered

    run(test)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            b"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz",
            b"\r\n\r\nx",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nmore",
            b"1\r\nx\r\n0\r\n\r\n",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", b"\r\n\r\nto the end"),
        (b"nonsense\r\n\r\n", b"is invalid\n"),
        (b"", b"has given no response\n"),
    ],
)
def test_response_is_passed_on_or_reported_as_invalid(response: bytes, expected: bytes) -> None:
    async def test() -> None:
        async with origin(response) as server, proxy([f"127.0.0.1:{server.port}"]) as made:
            got = await made.ask(get(f"http://127.0.0.1:{server.port}/"))
            assert got.endswith(expected)

    run(test)


def test_full_proxy_refuses_clients_and_counts_the_refusals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTED", 1)

    async def test() -> None:
        held = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"x")
            await held.wait()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with proxy([f"127.0.0.1:{port}"]) as made:
                connect = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()
                reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
                writer.write(connect + b"x")
                await reader.readuntil(b"\r\n\r\nx")
                assert b"HTTP/1.1 503 " in await made.ask(connect)
                assert made.refused == [("127.0.0.1", port, "full")]
                held.set()
                assert await reader.read() == b""
                writer.transport.abort()

    run(test)


def test_silent_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT_S", 0.05)
    monkeypatch.setattr(server_module, "MAX_CLIENTS", 1)

    async def test() -> None:
        async with origin() as server, proxy([f"127.0.0.1:{server.port}"]) as made:
            for silent in (b"", b"GET http", b"\x05", b"\x05\x01\x00\x05"):
                await made.ask(silent)
            # There is room for only one client, and the silent clients no longer occupy it.
            got = await made.ask(get(f"http://127.0.0.1:{server.port}/"))
            assert got.endswith(b"ok")

    run(test)


def test_idle_tunnel_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "IDLE_S", 0.05)

    async def test() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with proxy([f"127.0.0.1:{port}"]) as made:
                got = await made.ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
                assert got.endswith(b"\r\n\r\n")

    run(test)
