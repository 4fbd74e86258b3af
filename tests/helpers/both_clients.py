"""Test `Client` and `AsyncClient` through one interface, and against fake peers.

A peer is a short script that replaces the daemon. Pytest's own timeout ends a test that hangs.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast

import anyio.to_thread
import pytest

from shelld_client import AsyncClient, Client, OutputEvent

# A client makes a call when its `with` block begins. This bash code answers that call.
GREETING = """read -r; echo '{"jsonrpc":"2.0","id":1,"result":{}}'"""

# This peer answers every request at once. It is faster than a daemon.
ANSWERING = r"""
while read -r line; do
    case $line in
    *cancelRequest*) ;;
    *) [[ $line =~ '"id":'([0-9]+) ]]
       echo "{\"jsonrpc\":\"2.0\",\"id\":${BASH_REMATCH[1]},\"result\":{}}" ;;
    esac
done
"""


# This mark runs a test of `AsyncClient` once for each event loop.
ASYNC_ONLY = pytest.mark.parametrize(
    "anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.slow)]
)


class Shell(Protocol):
    """The methods of `AsyncClient` that these tests use."""

    @property
    def pid(self) -> int: ...

    async def ping(self) -> None: ...

    async def server_info(self) -> Any: ...

    async def bash(self, command: str, **options: Any) -> Any: ...

    async def bash_output(self, bash_id: str, **options: Any) -> Any: ...

    async def write_stdin(self, bash_id: str, text: str | None = None, **options: Any) -> Any: ...

    async def resize_shell(self, bash_id: str, rows: int, cols: int) -> Any: ...

    async def read_screen(self, bash_id: str, **options: Any) -> Any: ...

    async def kill_shell(self, shell_id: str, **options: Any) -> Any: ...

    async def background(self, bash_id: str) -> Any: ...

    async def list_shells(self, **options: Any) -> Any: ...

    async def explain_command(self, command: str, **options: Any) -> Any: ...

    async def configure_session(self, session: str, **options: Any) -> Any: ...

    async def get_session(self, session: Any = "main", **options: Any) -> Any: ...

    async def close_session(self, session: Any, **options: Any) -> Any: ...

    async def add_target(self, name: str, argv: Any, **options: Any) -> None: ...

    async def list_targets(self, **options: Any) -> Any: ...

    async def remove_target(self, name: str) -> Any: ...

    async def call_tool(self, name: str, *args: Any, **options: Any) -> Any: ...

    def events(self, **options: Any) -> Any: ...

    def stream(self, command: str, **options: Any) -> Any: ...

    def start(self, command: str, **options: Any) -> Any: ...


class Spawn(Protocol):
    def __call__(
        self, command: Sequence[str] | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Shell]: ...


class Attach(Protocol):
    def __call__(self, name: str, **options: Any) -> AbstractAsyncContextManager[Shell]: ...


_END = object()


class _AwaitedStream:
    """A stream of `Client`, iterated over in threads."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _AwaitedStream:
        await _in_thread(self._stream.__enter__)
        return self

    async def __aexit__(self, *error: object) -> None:
        with anyio.CancelScope(shield=True):
            await _in_thread(self._stream.__exit__, *error)

    def __aiter__(self) -> _AwaitedStream:
        iter(self._stream)
        return self

    async def __anext__(self) -> Any:
        item = await _in_thread(next, self._stream, _END)
        if item is _END:
            raise StopAsyncIteration
        return item


class _AwaitedJob(_AwaitedStream):
    """A job of `Client`. The methods of the job run in threads and can be awaited."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)
        return functools.partial(_in_thread, found) if callable(found) else found


async def _in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    call = functools.partial(function, *args, **options)
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


class _Awaited:
    """A `Client` whose methods run in threads and can be awaited."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def pid(self) -> int:
        return self._client.pid

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        if name in ("events", "stream"):
            return lambda *args, **options: _AwaitedStream(method(*args, **options))
        if name == "start":
            return lambda *args, **options: _AwaitedJob(method(*args, **options))
        return functools.partial(_in_thread, method)


@asynccontextmanager
async def _spawn_sync(
    command: Sequence[str] | None = None, **options: Any
) -> AsyncGenerator[Shell, None]:
    # Enter and leave the client on the event loop's thread, because no other task has to run during
    # these steps.
    with Client.spawn(command, **options) as client:
        yield cast("Shell", _Awaited(client))


def spawn_of(kind: str) -> Spawn:
    """Return the function that starts a client of this kind: "sync", "asyncio" or "trio"."""
    if kind == "sync":
        return _spawn_sync
    return cast("Spawn", AsyncClient.spawn)


@asynccontextmanager
async def _attach_sync(name: str, **options: Any) -> AsyncGenerator[Shell, None]:
    with Client.attach(name, **options) as client:
        yield cast("Shell", _Awaited(client))


def attach_of(kind: str) -> Attach:
    """Return the function that attaches a client of this kind."""
    if kind == "sync":
        return _attach_sync
    return cast("Attach", AsyncClient.attach)


def client_of(shell: Shell) -> Client | AsyncClient:
    """Return the client behind the interface."""
    return cast("Client | AsyncClient", vars(shell).get("_client", shell))


def peer(script: str, *, greets: bool = True) -> list[str]:
    """Return the command line of a peer that runs `script` in bash."""
    return ["/bin/bash", "-c", f"{GREETING}\n{script}" if greets else script]


def text_of(items: list[Any], stream: str = "stdout") -> str:
    """Return the text of the output events among `items`."""
    return "".join(
        each.text for each in items if isinstance(each, OutputEvent) and each.stream == stream
    )


async def is_over(shell: Shell, command: str) -> None:
    """Wait until the shells of a command have ended."""
    with anyio.fail_after(60):
        while any(
            each.is_running or each.leftover
            for each in await shell.list_shells()
            if each.command == command
        ):
            await anyio.sleep(0.01)
