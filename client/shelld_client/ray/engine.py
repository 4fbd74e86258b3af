"""Contains all code of this package that uses Ray.

Owns the actors that it starts, until `Actor.kill`. Invariant: this module converts every exception
of Ray into `ActorGone` or a `ShellError`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NamedTuple

from shelld_client.errors import ShellError, SpawnFailed
from shelld_client.ray.actor import DaemonActor

# Ray's own types are incomplete, so this module does not depend on them.
_ray: Final[Any] = import_module("ray")

# How many calls an actor may execute at once. The pool makes two calls at a time, and one more to
# end the actor.
_CONCURRENCY: Final = 8

# How often to check whether Ray was shut down. There is no event to wait for.
_SHUTDOWN_POLL_S: Final = 1.0


class ActorGone(Exception):
    """An actor has ended, cannot be reached, or could not be started. Its text says why."""


class Needs(NamedTuple):
    """The resources that one actor takes from the cluster. `options` are further options of Ray's
    actors."""

    num_cpus: float
    resources: Mapping[str, float]
    options: Mapping[str, Any]

    @property
    def amounts(self) -> dict[str, float]:
        """The amount of each resource, under Ray's name for the resource."""
        amounts = {
            "CPU": self.num_cpus,
            "GPU": self.options.get("num_gpus"),
            "memory": self.options.get("memory"),
            **self.resources,
        }
        return {name: amount for name, amount in amounts.items() if amount}

    def __str__(self) -> str:
        needed = [f"{amount:g} {name}" for name, amount in self.amounts.items()]
        return ", ".join(needed) or "no resources"


class Actor:
    """Represents a daemon in an actor.

    If the actor dies, nobody restarts it, because its sessions are lost.
    """

    def __init__(self, needs: Needs) -> None:
        """Ask Ray for the actor, without waiting for it. Raises `SpawnFailed`."""
        options = {
            **needs.options,
            "num_cpus": needs.num_cpus,
            "resources": dict(needs.resources) or None,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": _CONCURRENCY,
        }
        try:
            _require_ray()
            self._handle: Any = _ray.remote(DaemonActor).options(**options).remote()
        except Exception as error:
            raise SpawnFailed(f"Ray refuses the actor: {_reason(error)}") from error

    async def start(self, args: Sequence[str]) -> None:
        """Wait until Ray has placed the actor, and start its daemon. Raises `SpawnFailed`."""
        error = await self._call("start", list(args))
        if error is not None:
            raise error

    async def feed(self, data: bytes) -> None:
        """Write to the daemon."""
        await self._call("feed", data)

    async def take(self) -> bytes | ShellError:
        """Return the daemon's next output, or the error that says why no more output will come."""
        call = asyncio.create_task(self._call("take"))
        try:
            while not call.done():
                # After `ray.shutdown`, the call would never return.
                _require_ray()
                await asyncio.wait([call], timeout=_SHUTDOWN_POLL_S)
            taken: bytes | ShellError = await call
        finally:
            call.cancel()
        return taken

    async def close(self) -> None:
        """End the daemon, with all its commands."""
        await self._call("close")

    def kill(self) -> None:
        """End the actor. The daemon then ends as well, because its input ends."""
        # If Ray has been shut down, it has already ended the actor.
        with suppress(Exception):
            _require_ray()
            _ray.kill(self._handle, no_restart=True)

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            _require_ray()
            return await getattr(self._handle, method).remote(*args)
        except Exception as error:
            raise ActorGone(_reason(error)) from error


def _require_ray() -> None:
    """Raise `ActorGone` after `ray.shutdown`. Most functions of Ray would start Ray again."""
    if not _ray.is_initialized():
        raise ActorGone("Ray was shut down")


def connect() -> None:
    """Start Ray, or join the cluster that the environment names, unless Ray already runs.

    This may block. Raises `SpawnFailed`.
    """
    try:
        if not _ray.is_initialized():
            _ray.init()
    except Exception as error:
        raise SpawnFailed(f"Ray cannot be started or reached: {_reason(error)}") from error


def room(needs: Needs) -> int:
    """Return how many more actors with these needs fit into the cluster. This may block."""
    try:
        nodes = _free_resources()
    except Exception as error:
        raise SpawnFailed(f"Ray cannot be reached: {_reason(error)}") from error
    amounts = needs.amounts
    if not amounts:
        return len(nodes)
    # An actor runs on one node, so what is left on several nodes does not add up. The small number
    # makes up for rounding.
    return sum(
        min(math.floor(free.get(name, 0) / amount + 1e-6) for name, amount in amounts.items())
        for free in nodes.values()
    )


def _free_resources() -> Mapping[str, Mapping[str, float]]:
    """Return what each node has left."""
    try:
        # Ray has no public function for this.
        per_node = import_module("ray._private.state").available_resources_per_node
    except (ImportError, AttributeError):
        # This version of Ray lacks the private function, so take the cluster for one node.
        return {"cluster": _ray.available_resources()}
    found: Mapping[str, Mapping[str, float]] = per_node()
    return found


def _reason(error: Exception) -> str:
    """Return the first line of an error. If the error contains a traceback, return its last line,
    which names the cause.
    """
    lines = str(error).strip().splitlines()
    if any(line.startswith('  File "') for line in lines):
        return lines[-1]
    return lines[0] if lines else type(error).__name__
