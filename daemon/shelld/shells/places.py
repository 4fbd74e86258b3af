"""Owns the places where commands start: directly under the daemon's keeper, or in a sandbox.

A place has the runners for its commands, and the files to which these commands write their state.
This module starts no command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from shelld.keeper.pool import RunnerPool
from shelld.keeper.runners import Runners
from shelld.sandbox.guests import Guest
from shelld.sandbox.sandbox import Sandbox
from shelld.sandbox.sandboxes import Sandboxes, SandboxKey
from shelld.sessions.dumps import DumpFiles, PrivateDumpFiles
from shelld.shells.shell import Shell


class Place(NamedTuple):
    """A place where commands start.

    If `files` is None, the commands use the files of their session. `sandbox` is None outside all
    sandboxes.
    """

    runners: Runners
    files: DumpFiles | None = None
    sandbox: Sandbox | None = None

    def show(self, shell: Shell) -> None:
        """Record in `shell` which parts of the sandbox policy this place enforces."""
        shell.sandbox = None if self.sandbox is None else self.sandbox.policy.enforced


class Places:
    """`start_task` starts a task that outlives the request. `Places` calls `on_retire` with each
    sandbox that gets no more commands.
    """

    def __init__(
        self,
        pool: RunnerPool,
        start_task: Callable[[Callable[[], Awaitable[None]]], object],
        bash: str,
        on_retire: Callable[[Sandbox], None],
    ) -> None:
        self.outside: Final = Place(pool)
        self._sandboxes = Sandboxes(pool, start_task, bash, self._retire)
        self._inside: dict[Sandbox, Place] = {}
        self._on_retire = on_retire

    async def enter(self, key: SandboxKey) -> Place:
        """Return the place for a command in a sandbox. Starts the sandbox if necessary.

        Raises OSError and `RpcError` (unavailable, resource_exhausted, shutting_down).
        """
        return self._place_in(await self._sandboxes.enter(key))

    def ready(self, key: SandboxKey | None) -> Place:
        """Return a place without waiting. Raises OSError if its sandbox does not run."""
        if key is None:
            return self.outside
        sandbox = self._sandboxes.ready(key)
        if sandbox is None:
            raise ConnectionError
        return self._place_in(sandbox)

    def _place_in(self, sandbox: Sandbox) -> Place:
        place = self._inside.get(sandbox)
        if place is None:
            files = PrivateDumpFiles(sandbox.open_file, sandbox.has_file, sandbox.open_nothing)
            place = self._inside[sandbox] = Place(sandbox, files, sandbox)
        return place

    def left(self, sandbox: Sandbox, guest: Guest) -> None:
        """Record that no process of a command in a sandbox is left."""
        self._sandboxes.left(sandbox, guest)

    def _retire(self, sandbox: Sandbox) -> None:
        place = self._inside.get(sandbox)
        try:
            self._on_retire(sandbox)
        finally:
            if place is not None and place.files is not None:
                # Files in use are closed when their commands end.
                place.files.close()
        self._inside.pop(sandbox, None)

    def trim(self) -> None:
        """End the sandboxes that have run no command for some time."""
        self._sandboxes.trim()

    def stop(self) -> None:
        """End all sandboxes, and start no more."""
        self._sandboxes.stop()

    def close(self) -> None:
        """Close the files."""
        while self._inside:
            _, place = self._inside.popitem()
            if place.files is not None:
                place.files.close()

    def abandon(self) -> None:
        """In a forked child, close the child's copies of the channels."""
        self._sandboxes.abandon()
