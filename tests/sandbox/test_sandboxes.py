"""Sandboxes, when something of the daemon fails: nobody waits for a sandbox that does not run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import anyio
import pytest

from shelld.keeper.pool import RunnerPool
from shelld.sandbox.host import Host
from shelld.sandbox.policy import ResolvedPolicy, resolved
from shelld.sandbox.sandboxes import Sandboxes, SandboxKey
from shelld_protocol.sandboxes import SandboxPolicy
from support import DEADLINE_S


@pytest.fixture
def pool() -> Iterator[RunnerPool]:
    pool = RunnerPool()
    yield pool
    pool.close()


@pytest.fixture
def policy() -> ResolvedPolicy:
    found = resolved(SandboxPolicy(), os.getcwd(), "auto")
    assert found is not None
    return found


async def test_sandbox_that_nothing_follows_is_forgotten(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_task: object) -> None:
        raise MemoryError

    def start(_host: Host) -> None:
        """Start nothing: not every machine has sandboxes."""

    monkeypatch.setattr(Host, "start", start)
    sandboxes = Sandboxes(pool, fail, "/bin/bash", lambda _host: None)
    for _ in range(2):
        with anyio.fail_after(DEADLINE_S), pytest.raises(MemoryError):
            await sandboxes.enter(SandboxKey(policy, ""))


async def test_sandbox_is_closed_although_its_end_has_failed(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_host: Host) -> None:
        raise MemoryError

    monkeypatch.setattr(Host, "_end", fail)
    host = Host(pool, policy, "/bin/bash")
    with pytest.raises(MemoryError):
        await host.run()
    assert host.is_gone
