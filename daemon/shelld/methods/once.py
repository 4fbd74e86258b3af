"""Starts a command once for each idempotency key, and finds this command for repeated requests.

Owns the keys. A key is known from its first request until its shell has ended and the retention
time is over. `--max-retained` may make the daemon forget the shell earlier. The key then stays
known for the retention time, and a repeated request gets the error shell_not_found. So the command
never runs a second time.

Invariant: at most one request at a time starts a command for a key. The other requests for the key
wait for this request. If this request starts no command, one of the waiting requests starts it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import anyio
from msgspec import Struct, field

from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld_protocol.errors import RpcError, invalid_params, key_not_found, shell_not_found

T = TypeVar("T")


class StartingRequest(Protocol):
    """A request that starts the command for an idempotency key."""

    command: Shell | None

    async def wait_for_command(self) -> Shell | None:
        """Wait until the request has started a command. Return None if it starts no command."""
        ...


class KeyedStart(Struct, eq=False):
    """The start of a command that has an idempotency key.

    Either `request` is about to start the command, or `shell_id` is the id of its shell.
    """

    # A hash of 64 bits, because the command may be long.
    command_hash: int
    request: StartingRequest | None
    shell_id: str = ""
    # This is None if the shell was forgotten. `forgotten_at` is the `time.monotonic()` at which
    # this happened.
    shell: Shell | None = None
    forgotten_at: float = math.inf
    # This is set when `request` has started a command, or will not start a command.
    decided: anyio.Event = field(default_factory=anyio.Event)


class Keys:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._starts: dict[str, KeyedStart] = {}
        # Maps the id of a shell to its key.
        self._by_shell: dict[str, str] = {}
        # The keys of forgotten shells, in the order in which the shells were forgotten.
        self._orphans: dict[str, KeyedStart] = {}
        manager.on_forget.append(self._shell_is_forgotten)

    def find(self, key: str, command: str) -> KeyedStart | None:
        """Return the `KeyedStart` for a key.

        Return None if no command was started with the key within the retention period.

        Raises `RpcError` (invalid_params) if the key belongs to another command.
        """
        self._drop_expired(key)
        found = self._starts.get(key)
        if found is not None and found.command_hash != hash(command):
            name = "idempotency_key"
            raise invalid_params(f"Invalid value for {name}: another command has this key", name)
        return found

    @contextmanager
    def starting(self, key: str, command: str, request: StartingRequest) -> Generator[None]:
        """Record that `request` starts a command within this block. The key must be new."""
        start = self._starts[key] = KeyedStart(hash(command), request)
        try:
            yield
        finally:
            start.request, shell = None, request.command
            if shell is None or shell.failure is not None:
                del self._starts[key]
            else:
                self._note(key, start, shell)
            start.decided.set()

    def _note(self, key: str, start: KeyedStart, shell: Shell) -> None:
        start.shell_id, start.shell = shell.id, shell
        self._by_shell[shell.id] = key
        try:
            self._manager.get(shell.id)
        except RpcError:
            # The shell has ended and is forgotten already, because the daemon retains too many
            # other shells.
            self._shell_is_forgotten(shell)

    def _shell_is_forgotten(self, shell: Shell) -> None:
        if (key := self._by_shell.pop(shell.id, None)) is not None:
            start = self._starts[key]
            start.shell, start.forgotten_at = None, time.monotonic()
            if shell.ended_before(self._manager.options.retain_seconds):
                del self._starts[key]
            else:
                self._orphans[key] = start

    def _drop_expired(self, key: str) -> None:
        """Drop `key`, and keys of forgotten shells, if their retention period is over."""
        seconds = self._manager.options.retain_seconds
        start = self._starts.get(key)
        if start is not None and start.shell is not None and start.shell.ended_before(seconds):
            del self._starts[key], self._by_shell[start.shell_id]
        oldest = time.monotonic() - seconds

        def is_expired(orphan: str) -> bool:
            return self._orphans[orphan].forgotten_at <= oldest

        for orphan in list(itertools.takewhile(is_expired, self._orphans)):
            del self._orphans[orphan], self._starts[orphan]


async def start_once(
    keys: Keys,
    request: StartingRequest,
    key: str,
    command: str,
    *,
    start: Callable[[], Awaitable[T]],
    again: Callable[[Shell], Awaitable[T]],
    key_must_exist: bool,
) -> T:
    """Return the result of `start`, or of `again` if the key has started a command already.

    With `key_must_exist`, never calls `start`, but raises shell_not_found instead.

    Raises `RpcError` (invalid_params, shell_not_found), and the errors of `start` and `again`.
    """
    while (found := keys.find(key, command)) is not None:
        shell = found.shell
        if found.request is not None:
            shell = await found.request.wait_for_command()
            if shell is None:
                await found.decided.wait()
                continue
        if shell is None:
            raise shell_not_found(found.shell_id, expired=True)
        return await again(shell)
    if key_must_exist:
        raise key_not_found()
    with keys.starting(key, command, request):
        return await start()
