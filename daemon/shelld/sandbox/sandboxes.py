"""All running sandboxes, by what they enforce.

Sessions with the same policy and the same rules for their environment share a sandbox: in a
sandbox, a command can read the environment of every other. A sandbox starts when it is first
needed, and ends after some time without commands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, NamedTuple

from shelld.keeper.pool import RunnerPool
from shelld.sandbox import engine
from shelld.sandbox.host import Host
from shelld.sandbox.policy import ResolvedPolicy, check_expressible
from shelld_protocol.errors import resource_exhausted, shutting_down, unavailable

# A sandbox costs about 12 MiB of memory, and three processes.
MAX_SANDBOXES: Final = 32
IDLE_S: Final = 300.0


class SandboxKey(NamedTuple):
    """What makes two sandboxes different. `environment`: the rules for the environment."""

    policy: ResolvedPolicy
    environment: Hashable


class Sandboxes:
    """`start_task` starts a task that outlives the request. `bash`: the program of commands.

    `on_retire` is called with each sandbox that gets no more commands.
    """

    def __init__(
        self,
        pool: RunnerPool,
        start_task: Callable[[Callable[[], Awaitable[None]]], object],
        bash: str,
        on_retire: Callable[[Host], None],
    ) -> None:
        self._pool = pool
        self._start_task = start_task
        self._bash = bash
        self._on_retire = on_retire
        self._hosts: dict[SandboxKey, Host] = {}
        # Those that get no more commands.
        self._ending: set[Host] = set()
        self._is_open = True

    async def enter(self, key: SandboxKey) -> Host:
        """Return a sandbox that is ready, which may be new.

        Raises OSError and `RpcError` (unavailable, resource_exhausted, shutting_down). Nothing runs
        then.
        """
        check_expressible(key.policy)
        while True:
            host = self._current(key) or self._start(key)
            await host.wait()
            if not host.is_ready:
                self._retire(key, host)
                missing = host.missing or engine.NO_KEEPER
                raise unavailable("sandbox", missing.what, missing.hint)
            if self._hosts.get(key) is host:
                return host
            # It was retired meanwhile.

    def ready(self, key: SandboxKey) -> Host | None:
        """Return the sandbox if it is running, without waiting."""
        host = self._hosts.get(key)
        return host if host is not None and host.is_ready and not host.has_ended else None

    def _current(self, key: SandboxKey) -> Host | None:
        host = self._hosts.get(key)
        if host is not None and (host.has_ended or host.is_stale):
            self._retire(key, host)
            return None
        return host

    def _start(self, key: SandboxKey) -> Host:
        if not self._is_open:
            raise shutting_down()
        self._make_room()
        host = Host(self._pool, key.policy, self._bash)
        self._hosts[key] = host
        try:
            host.start()
        except BaseException:
            del self._hosts[key]
            host.close()
            raise
        self._start_task(lambda: self._follow(host))
        return host

    async def _follow(self, host: Host) -> None:
        try:
            await host.run()
        finally:
            self._ending.discard(host)

    def _make_room(self) -> None:
        if len(self._hosts) < MAX_SANDBOXES:
            return
        idle = [key for key, host in self._hosts.items() if host.is_idle]
        if not idle:
            raise resource_exhausted(
                "sandboxes", f"Too many sandboxes are running: {MAX_SANDBOXES}"
            )
        oldest = min(idle, key=lambda key: self._hosts[key].idle_since)
        self._retire(oldest, self._hosts[oldest])

    def _retire(self, key: SandboxKey, host: Host) -> None:
        """Give a sandbox no more commands. It ends with its last command."""
        if self._hosts.get(key) is host:
            del self._hosts[key]
            self._on_retire(host)
        if host.is_idle:
            host.end()
        elif not host.is_gone:
            self._ending.add(host)

    def left(self, host: Host) -> None:
        """Learn that nothing is left of a command that ran in a sandbox."""
        host.leave()
        if host in self._ending and host.is_idle:
            host.end()

    def trim(self) -> None:
        """End the sandboxes without commands, and idle runners of the others."""
        now = time.monotonic()
        for key, host in list(self._hosts.items()):
            host.trim()
            if host.has_ended or (host.is_idle and now - host.idle_since >= IDLE_S):
                self._retire(key, host)

    def stop(self) -> None:
        """End all sandboxes, and start no more. Their ends take some milliseconds."""
        self._is_open = False
        for host in (*self._hosts.values(), *self._ending):
            host.end()

    def abandon(self) -> None:
        """Close the channels in a forked child."""
        for host in (*self._hosts.values(), *self._ending):
            host.abandon()
