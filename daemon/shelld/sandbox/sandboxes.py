"""Manages all running sandboxes. Commands with the same limits share a sandbox.

Only sessions with the same policy and the same rules for their environment share a sandbox. The
reason is that a command can read the environment of every other command in its sandbox. A sandbox
starts when it is first needed, and ends after some time without commands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, NamedTuple

from shelld.keeper.pool import RunnerPool
from shelld.sandbox import engine
from shelld.sandbox.guests import Guest
from shelld.sandbox.policy import ResolvedPolicy, check_expressible
from shelld.sandbox.sandbox import Sandbox
from shelld.sandbox.view import Identity
from shelld_protocol.errors import resource_exhausted, shutting_down, unavailable

# A sandbox costs about 12 MiB of memory, and three processes.
MAX_SANDBOXES: Final = 32
IDLE_S: Final = 300.0
# Several attempts may be needed, because programs on the machine may make or remove sockets, or
# replace paths of the policy, while a sandbox starts.
_STARTS: Final = 5


class SandboxKey(NamedTuple):
    """Two sandboxes are different if one of these members differs. `environment`: the rules for the
    environment.
    """

    policy: ResolvedPolicy
    environment: Hashable


class Sandboxes:
    """`start_task` starts a task that outlives the request, and starts it again if it fails.
    `bash`: the path of the bash that runs commands.

    `on_retire` is called with each sandbox that gets no more commands.
    """

    def __init__(
        self,
        pool: RunnerPool,
        start_task: Callable[[Callable[[], Awaitable[None]]], object],
        bash: str,
        on_retire: Callable[[Sandbox], None],
    ) -> None:
        self._pool = pool
        self._start_task = start_task
        self._bash = bash
        self._on_retire = on_retire
        self._sandboxes: dict[SandboxKey, Sandbox] = {}
        # The sandboxes that get no more commands. They stay here until none of their processes is
        # left.
        self._ending: set[Sandbox] = set()
        # The directories that the sandboxes have made as placeholders.
        self._made: dict[str, Identity] = {}
        self._is_open = True

    async def enter(self, key: SandboxKey) -> Sandbox:
        """Return a sandbox that is ready. It may be a new sandbox.

        Raises OSError and `RpcError` (unavailable, resource_exhausted, shutting_down). After such
        an error, the command does not run.
        """
        check_expressible(key.policy)
        starts = 0
        while True:
            sandbox = self._current(key) or self._start(key)
            await sandbox.wait()
            if not sandbox.is_ready:
                self._retire(key, sandbox)
                starts += 1
                if sandbox.was_too_late and starts < _STARTS:
                    continue
                missing = sandbox.missing or engine.NO_KEEPER
                raise unavailable("sandbox", missing.what, missing.hint)
            if self._sandboxes.get(key) is sandbox:
                return sandbox
            # The sandbox was retired during the wait, so try another one.

    def ready(self, key: SandboxKey) -> Sandbox | None:
        """Return the sandbox if it is ready, and None otherwise. Do not wait until the sandbox is
        ready.
        """
        sandbox = self._sandboxes.get(key)
        if sandbox is None or not sandbox.is_ready or sandbox.has_ended:
            return None
        return sandbox

    def _current(self, key: SandboxKey) -> Sandbox | None:
        sandbox = self._sandboxes.get(key)
        if sandbox is not None and (sandbox.has_ended or sandbox.is_stale):
            self._retire(key, sandbox)
            return None
        return sandbox

    def _start(self, key: SandboxKey) -> Sandbox:
        if not self._is_open:
            raise shutting_down()
        self._make_room()
        sandbox = Sandbox(self._pool, key.policy, self._bash, self._made)
        self._sandboxes[key] = sandbox
        try:
            sandbox.start()
            # If this task cannot start, no caller may wait for the sandbox, because the sandbox
            # would never become ready.
            self._start_task(lambda: self._follow(sandbox))
        except BaseException:
            del self._sandboxes[key]
            sandbox.close()
            raise
        return sandbox

    async def _follow(self, sandbox: Sandbox) -> None:
        await sandbox.run()
        self._ending.discard(sandbox)

    def _make_room(self) -> None:
        # A retired sandbox takes room until its last command has ended.
        retired = [sandbox for sandbox in self._ending if not sandbox.is_ending]
        if len(self._sandboxes) + len(retired) < MAX_SANDBOXES:
            return
        idle = [key for key, sandbox in self._sandboxes.items() if sandbox.is_idle]
        if not idle:
            raise resource_exhausted(
                "sandboxes", f"Too many sandboxes are running: {MAX_SANDBOXES}"
            )
        oldest = min(idle, key=lambda key: self._sandboxes[key].idle_since)
        self._retire(oldest, self._sandboxes[oldest])

    def _retire(self, key: SandboxKey, sandbox: Sandbox) -> None:
        """Start no more commands in a sandbox. It ends when its last command has ended."""
        # Do this first, so that the sandbox ends even if something below fails.
        if not sandbox.is_gone:
            self._ending.add(sandbox)
        try:
            if self._sandboxes.get(key) is sandbox:
                # Delete the entry last, so that the next call tries again if `_on_retire` fails.
                self._on_retire(sandbox)
                del self._sandboxes[key]
        finally:
            self._end_unused()

    def _end_unused(self) -> None:
        """End each retired sandbox that runs no command. An earlier attempt to end this sandbox may
        have failed.
        """
        for sandbox in list(self._ending):
            if sandbox.is_idle and not sandbox.is_ending:
                sandbox.end()

    def left(self, sandbox: Sandbox, guest: Guest) -> None:
        """Record that all processes of `guest`, a command in `sandbox`, have ended."""
        try:
            sandbox.leave(guest)
        finally:
            self._end_unused()

    def trim(self) -> None:
        """End each sandbox that has run no command for `IDLE_S`. In the other sandboxes, end the
        idle runners.
        """
        self._end_unused()
        now = time.monotonic()
        for key, sandbox in list(self._sandboxes.items()):
            sandbox.trim()
            if sandbox.has_ended or (sandbox.is_idle and now - sandbox.idle_since >= IDLE_S):
                self._retire(key, sandbox)

    def stop(self) -> None:
        """End all sandboxes, and start no more. The processes of the sandboxes end some
        milliseconds later.
        """
        self._is_open = False
        for sandbox in (*self._sandboxes.values(), *self._ending):
            sandbox.end()

    def abandon(self) -> None:
        """Close the channels in a forked child."""
        for sandbox in (*self._sandboxes.values(), *self._ending):
            sandbox.abandon()
