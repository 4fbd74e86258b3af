"""Defines the interface of an object that gives runners to commands: the pool, or a sandbox."""

from __future__ import annotations

from typing import Protocol

from shelld.keeper.channel import Channel


class Runners(Protocol):
    """See `RunnerPool`, which describes the methods. Only `acquire` raises OSError."""

    @property
    def adopts(self) -> bool: ...

    @property
    def is_blind(self) -> bool: ...

    def acquire(self) -> Channel: ...

    def release(self, channel: Channel) -> None: ...

    def stop_runner(self, pid: int) -> None: ...

    def replace_keeper_of(self, channel: Channel) -> None: ...

    def is_dying(self, runner: int | None) -> bool: ...

    def expect_orphans(self) -> None: ...

    def orphans(self) -> list[int] | None: ...
