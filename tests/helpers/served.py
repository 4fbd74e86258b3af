"""A server over pipes, with methods that misbehave."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.server.dispatch import as_method
from shelld.server.serve import (
    MAX_BACKLOG_BYTES,
    Server,
)
from shelld.server.stdio import Input, Output
from shelld.shells.manager import Manager
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.structs import NoParams

SECRET = "/home/secret/path"


Body = Callable[[RequestContext, NoParams], Awaitable[Any]]


async def nothing(_context: RequestContext, _params: NoParams) -> None:
    return None


async def broken(_context: RequestContext, _params: NoParams) -> None:
    raise RuntimeError(SECRET)


async def broken_type(_context: RequestContext, _params: NoParams) -> None:
    raise TypeError(SECRET)


async def unencodable(_context: RequestContext, _params: NoParams) -> object:
    return object()


async def surrogate(_context: RequestContext, _params: NoParams) -> str:
    return "\ud800"


async def own_error(_context: RequestContext, _params: NoParams) -> None:
    raise RpcError(ErrorKind.SPAWN_FAILED, "no", {"errno": "ENOENT"})


async def unencodable_error(_context: RequestContext, _params: NoParams) -> None:
    raise RpcError(ErrorKind.SPAWN_FAILED, "no", {"errno": object()})


async def group(_context: RequestContext, _params: NoParams) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broken, _context, _params)


async def forever(_context: RequestContext, _params: NoParams) -> None:
    await anyio.sleep_forever()


async def slow_to_die(_context: RequestContext, _params: NoParams) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()


async def deaf(_context: RequestContext, _params: NoParams) -> str:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.1)
    return "done anyway"


BODIES: dict[str, Body] = {
    body.__name__: body
    for body in (
        *(nothing, broken, broken_type, unencodable, surrogate, own_error, unencodable_error),
        *(group, forever, slow_to_die, deaf),
    )
}


METHODS = {name: as_method(NoParams, body) for name, body in BODIES.items()}


async def talks(context: RequestContext, _params: NoParams) -> int:
    """Send far more than the daemon should keep for a client that does not read.

    Returns how many notifications were sent.
    """
    return sum(
        context.notify("progress", {"number": number, "text": "x" * 10_000})
        for number in range(3 * MAX_BACKLOG_BYTES // 10_000)
    )


class Peer:
    """The client's ends of the pipes."""

    def __init__(self, stdin: int, stdout: int) -> None:
        # `served` sets this attribute.
        self.server: Server
        self._stdin: int | None = stdin
        self._stdout = stdout
        self._data = b""

    def send(self, *messages: Any) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def write(self, data: bytes) -> None:
        assert self._stdin is not None
        os.write(self._stdin, data)

    def end(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def stop_reading(self) -> None:
        """Close the end that reads the answers. Unread answers are lost."""
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, self._stdout)
        os.close(null)

    async def receive(self) -> Any:
        with anyio.fail_after(60):
            while b"\n" not in self._data:
                await anyio.wait_readable(self._stdout)
                self._data += os.read(self._stdout, 65536)
        line, _, self._data = self._data.partition(b"\n")
        return json.loads(line)

    async def rest(self) -> list[Any]:
        while data := os.read(self._stdout, 65536):
            self._data += data
        return [json.loads(line) for line in self._data.splitlines()]


@asynccontextmanager
async def served(
    max_in_flight: int = 4096, drain_s: float = 0.05, large: Body | None = None
) -> AsyncGenerator[Peer]:
    """Run a server over pipes.

    When the `with` block ends, the server's input ends, and the server must stop.
    """
    stdin, stdin_end = os.pipe()
    stdout, stdout_end = os.pipe()
    peer = Peer(stdin_end, stdout)
    try:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                draining = anyio.Event()
                more = {"talks": talks, "holds": holds, "stalls": stalls_after(draining)}
                more["large"] = large or forever
                methods = METHODS | {name: as_method(NoParams, body) for name, body in more.items()}
                daemon = Daemon(Options(max_in_flight=max_in_flight), Manager())
                output = Output(stdout_end)
                peer.server = server = Server(daemon, methods, Input(stdin), output, tasks)

                async def serve() -> None:
                    await server.read_requests()
                    # Tasks that wait for this event run only after the drain's time limit has
                    # begun.
                    draining.set()
                    await server.drain(drain_s)
                    server.refuse_in_flight()

                tasks.start_soon(serve)
                yield peer
                peer.end()
                output.close()
    finally:
        peer.end()
        for descriptor in (stdin, stdout, stdout_end):
            os.close(descriptor)


LARGE_BYTES = MAX_BACKLOG_BYTES + (1 << 20)


class LargeBody:
    """The body of a method with large answers. It counts the answers that it has made."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self, context: RequestContext, _params: NoParams) -> str:
        await context.begin_large_answer()
        self.made += 1
        return "x" * LARGE_BYTES


class Held:
    """This object stands for a command's output, and only the command's request refers to it."""

    alive = 0

    def __init__(self) -> None:
        Held.alive += 1

    def __del__(self) -> None:
        Held.alive -= 1


async def holds(_context: RequestContext, _params: NoParams) -> None:
    held = Held()
    await anyio.sleep_forever()
    del held


DRAIN_S = 0.5


def stalls_after(draining: anyio.Event) -> Body:
    """Return the body of a method. While the daemon drains, this method blocks the daemon, as if
    the machine gave the daemon no processor time.
    """

    async def stalls(_context: RequestContext, _params: NoParams) -> str:
        await draining.wait()
        time.sleep(DRAIN_S + 0.1)  # noqa: ASYNC251 - nothing else may run meanwhile
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return "made it"

    return stalls


def request(method: str, request_id: Any, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def cancel(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}}


def failing(
    function: Callable[..., Any], times: float, error: type[Exception] = ValueError
) -> Callable[..., Any]:
    """Return a function that calls `function`, but first raises `error`. `times` says how often."""
    calls = itertools.count(1)

    def fail_first(*args: Any) -> Any:
        if next(calls) <= times:
            raise error(SECRET)
        return function(*args)

    return fail_first
