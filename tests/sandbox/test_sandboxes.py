"""If a part of the daemon fails, nobody waits for a sandbox that does not run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import anyio
import pytest

from shelld.keeper.pool import RunnerPool
from shelld.sandbox.policy import ResolvedPolicy, resolved
from shelld.sandbox.sandbox import Sandbox
from shelld.sandbox.sandboxes import IDLE_S, Sandboxes, SandboxKey
from shelld.sessions.dumps import DumpFiles
from shelld.shells.places import Places
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


async def be_ready(sandbox: Sandbox) -> None:
    sandbox.is_ready = True


def start_nothing(_sandbox: Sandbox) -> None:
    """Start no sandbox, because some machines have no sandboxes."""


async def test_sandbox_is_forgotten_if_its_task_cannot_start(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_task: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Sandbox, "start", start_nothing)
    sandboxes = Sandboxes(pool, fail, "/bin/bash", lambda _sandbox: None)
    for _ in range(2):
        with anyio.fail_after(DEADLINE_S), pytest.raises(MemoryError):
            await sandboxes.enter(SandboxKey(policy, ""))


async def test_sandbox_is_closed_although_its_end_fails(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_sandbox: Sandbox) -> None:
        raise MemoryError

    monkeypatch.setattr(Sandbox, "_end", fail)
    sandbox = Sandbox(pool, policy, "/bin/bash")
    with pytest.raises(MemoryError):
        await sandbox.run()
    assert sandbox.is_gone


async def test_retired_sandbox_ends_although_ending_its_spare_shells_fails(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_sandbox: Sandbox) -> None:
        raise MemoryError

    monkeypatch.setattr(Sandbox, "start", start_nothing)
    monkeypatch.setattr(Sandbox, "wait", be_ready)
    sandboxes = Sandboxes(pool, lambda _task: None, "/bin/bash", fail)
    sandbox = await sandboxes.enter(SandboxKey(policy, ""))
    sandbox.idle_since -= IDLE_S
    with pytest.raises(MemoryError):
        sandboxes.trim()
    assert sandbox.has_ended


async def test_spare_shells_of_sandbox_end_although_closing_its_files_fails(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_files: DumpFiles) -> None:
        raise MemoryError

    retired: list[Sandbox] = []
    monkeypatch.setattr(Sandbox, "start", start_nothing)
    monkeypatch.setattr(Sandbox, "wait", be_ready)
    monkeypatch.setattr(DumpFiles, "close", fail)
    places = Places(pool, lambda _task: None, "/bin/bash", retired.append)
    key = SandboxKey(policy, "")
    await places.enter(key)
    monkeypatch.setattr(Sandbox, "is_stale", True)
    with pytest.raises(MemoryError):
        await places.enter(key)
    assert len(retired) == 1
