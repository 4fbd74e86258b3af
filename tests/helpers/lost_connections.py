"""Lose the connection of a client, for tests of clients that attach again."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import termios
from array import array
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import pytest

from both_clients import Shell, client_of, text_of
from lasting import Lasting
from shelld_client import AsyncClient, ShellError
from support import DAEMON_COMMAND, Gate, stopped

# The kind of event loop makes a difference only where `AsyncClient` waits, so only the tests of
# such waits have this mark.
ON_ALL_LOOPS: Final = pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])

OPEN_INPUT: Final = {"run_in_background": True, "open_stdin": True}

Attached: TypeAlias = Callable[[], AbstractAsyncContextManager[Shell]]


def lose_connection(shell: Shell) -> None:
    """Kill `shelld attach`, as a crash would."""
    # The process may have ended earlier. In this case, `Client` may have noticed the loss and
    # reaped the process.
    with suppress(ProcessLookupError):
        os.kill(shell.pid, signal.SIGKILL)


async def has_lost_connection(shell: Shell) -> None:
    """Wait until an idle client has noticed that its connection is lost."""
    client = client_of(shell)
    owner = client if isinstance(client, AsyncClient) else vars(client)["_link"]
    with anyio.fail_after(60):
        while (vars(owner).get("_failure") or vars(owner).get("failure")) is None:
            await anyio.sleep(0.01)


async def generation_of(shell: Shell) -> int:
    """Return how many connections the daemon has had."""
    attachment = (await shell.server_info()).attachment
    assert attachment is not None
    generation: int = attachment.generation
    return generation


@contextmanager
def occupied(user: Lasting, shell: Shell) -> Generator[None]:
    """Lose the connection, and keep the daemon occupied by another client while the `with` block
    runs.
    """
    lose_connection(shell)
    with user.attach("--name", "work") as other:
        assert other.call("ping") == {}
        yield


async def wait_until_command_runs(shell: Shell) -> None:
    """Wait until bash has started for at least one command."""
    while not [each for each in await shell.list_shells() if each.pid]:
        await anyio.sleep(0.01)


async def begin_to_attach_again(shell: Shell) -> None:
    """Lose the connection during a call. The daemon must be stopped, so that it does not answer."""
    before = shell.pid
    lose_connection(shell)
    while shell.pid == before:
        await anyio.sleep(0.01)


async def lose_answer(shell: Shell, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Lose the connection before the daemon reads a call, and wait for the end of the call."""
    daemon = (await shell.server_info()).pid
    async with anyio.create_task_group() as tasks:
        with stopped(daemon):
            tasks.start_soon(call)
            while not has_unread_input(daemon):
                await anyio.sleep(0.01)
            await begin_to_attach_again(shell)


async def cancel_lost_call(
    shell: Shell, call: Callable[[], Coroutine[Any, Any, object]], *, runs: bool = False
) -> None:
    """Lose the connection before the answer to a call comes, and cancel the call before the client
    is attached again.

    If `runs`, the call's command already runs when the connection is lost. Otherwise, the daemon
    has not read the call yet.
    """
    daemon = (await shell.server_info()).pid
    with ExitStack() as stack:
        async with anyio.create_task_group() as tasks:
            if not runs:
                stack.enter_context(stopped(daemon))
            tasks.start_soon(call)
            if runs:
                await wait_until_command_runs(shell)
                stack.enter_context(stopped(daemon))
            while not (runs or has_unread_input(daemon)):
                await anyio.sleep(0.01)
            await begin_to_attach_again(shell)
            tasks.cancel_scope.cancel()


def end_connections_at(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """From now on, if a client attaches to "work" and sends a request that matches `pattern`, this
    request ends the client's connection. The daemon does not get the request.
    """
    # sed reads the request, does not pass it on, and ends. A process that runs out of memory would
    # do the same.
    words = shlex.join([*DAEMON_COMMAND, "attach", "--name", "work", "--linger", "60"])
    argv = ["bash", "-c", f"sed -Eu {shlex.quote(f'/{pattern}/Q')} | {words}"]

    def attach_command(*_args: object, **_options: object) -> list[str]:
        return argv

    monkeypatch.setattr("shelld_client.spawned_client.attach_command", attach_command)


def has_unread_input(pid: int) -> bool:
    """Return whether any pipe of a process contains bytes that nobody has read."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if entry.is_fifo():
            with entry.open("rb") as pipe:
                unread = array("i", [0])
                fcntl.ioctl(pipe, termios.FIONREAD, unread)
            if unread[0]:
                return True
    return False


async def has_subscription(shell: Shell, name: str) -> bool:
    """Return whether the daemon knows a subscription. If the daemon knows it, end the
    subscription.
    """
    try:
        async with shell.events(subscription=name):
            return True
    except ShellError:
        return False


async def open_and_wait_for_output(shell: Shell, gate: Gate, bash_id: str) -> None:
    """Let a command write its next output, and wait until earlier subscriptions have sent it."""
    async with shell.events(bash_id=bash_id, events=["output"]) as others:
        await anext(others)
        gate.open()
        # The earlier subscriptions send the output before this subscription does.
        await anext(others)


async def text_from(job: Any, end: str) -> str:
    """Iterate over a job until its output ends with `end`, and return this output."""
    events = list[Any]()
    with anyio.fail_after(60):
        while not text_of(events).endswith(end):
            events.append(await anext(job))
    return text_of(events)
