"""If a part of the daemon fails, no command waits for a sandbox that will never run."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from leaks import descriptors_of
from shelld.keeper.channel import Channel, anonymous_file
from shelld.keeper.pool import RunnerPool
from shelld.sandbox import engine
from shelld.sandbox.denials import Denials
from shelld.sandbox.placeholders import Placeholders
from shelld.sandbox.policy import ResolvedPolicy, resolved
from shelld.sandbox.sandbox import Sandbox
from shelld.sandbox.sandboxes import IDLE_S, MAX_SANDBOXES, Sandboxes, SandboxKey
from shelld.sandbox.view import Identity
from shelld.sessions.dumps import DumpFiles
from shelld.shells.places import Places
from shelld_protocol.errors import ErrorKind, RpcError
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


def test_a_shortage_of_descriptors_is_no_fault_of_the_policy(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def lacks_nothing(_policy: ResolvedPolicy) -> None:
        """Start on machines without sandboxes, too."""

    monkeypatch.setattr(engine, "lacking", lacks_nothing)
    monkeypatch.setattr(Placeholders, "keep_while_starting", no_descriptor)
    sandbox = Sandbox(pool, policy, "/bin/bash", {})
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        sandbox.start()
    sandbox.close()


async def test_sandbox_is_closed_although_its_end_fails(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_sandbox: Sandbox) -> None:
        raise MemoryError

    monkeypatch.setattr(Sandbox, "_end", fail)
    sandbox = Sandbox(pool, policy, "/bin/bash", {})
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


class Command:
    """A command that runs in a sandbox."""

    runner = None
    began = 0.0
    is_gone = False

    def __init__(self) -> None:
        self.denials = Denials()


async def test_retired_sandbox_that_runs_a_command_counts_towards_the_limit(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sandbox, "start", start_nothing)
    monkeypatch.setattr(Sandbox, "wait", be_ready)
    monkeypatch.setattr(Sandbox, "is_stale", True)
    sandboxes = Sandboxes(pool, lambda _task: None, "/bin/bash", lambda _sandbox: None)
    key = SandboxKey(policy, "")
    commands = [Command() for _ in range(MAX_SANDBOXES)]
    entered: list[Sandbox] = []
    for command in commands:
        entered.append(await sandboxes.enter(key))
        entered[-1].join(command)
    with pytest.raises(RpcError) as caught:
        await sandboxes.enter(key)
    assert caught.value.kind is ErrorKind.RESOURCE_EXHAUSTED
    # A sandbox without commands makes room.
    commands[0].is_gone = True
    sandboxes.left(entered[0], commands[0])
    await sandboxes.enter(key)


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


async def test_files_of_sandbox_are_closed_although_its_first_retirement_fails(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [MemoryError()]

    def fail_once(_sandbox: Sandbox) -> None:
        while failures:
            raise failures.pop()

    def open_file(_sandbox: Sandbox) -> tuple[int, str]:
        return anonymous_file(b""), "/file"

    monkeypatch.setattr(Sandbox, "start", start_nothing)
    monkeypatch.setattr(Sandbox, "wait", be_ready)
    monkeypatch.setattr(Sandbox, "open_file", open_file)
    places = Places(pool, lambda _task: None, "/bin/bash", fail_once)
    place = await places.enter(SandboxKey(policy, ""))
    assert place.files is not None
    assert place.sandbox is not None
    place.sandbox.idle_since -= IDLE_S
    with pytest.raises(MemoryError):
        places.trim()
    descriptor = place.files.take()
    places.trim()
    # A file that is given back after the sandbox has ended is closed at once.
    place.files.give_back(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_sandbox_is_killed_although_the_message_cannot_be_sent(
    pool: RunnerPool, policy: ResolvedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    sandbox = Sandbox(pool, policy, "/bin/bash", {})
    ours, runner = Channel.pair()
    sandbox._outside = ours  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Channel, "send", no_memory)
    sandbox.end()
    # A runner kills its command when its channel is closed.
    assert runner.recv(1) == b""
    sandbox.close()
    runner.close()


class DyingPool(RunnerPool):
    """A pool that has orphans for a while. `seen`: whether `path` exists meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.adopts = True
        self._path = path
        self.seen: list[bool] = []

    def is_dying(self, runner: int | None) -> bool:
        self.seen.append(self._path.exists())
        return len(self.seen) < 2

    def expect_orphans(self) -> None:
        pass

    def orphans(self) -> list[int] | None:
        self.seen.append(self._path.exists())
        return []


async def test_placeholder_stays_until_no_process_is_left_of_a_sandbox_whose_runner_died(
    tmp_path: Path, policy: ResolvedPolicy
) -> None:
    path = tmp_path / "missing"
    pool = DyingPool(path)
    sandbox = Sandbox(pool, policy, "/bin/bash", {})
    sandbox._placeholders.make([str(path)])  # pyright: ignore[reportPrivateUsage]
    sandbox._outside, runner = Channel.pair()  # pyright: ignore[reportPrivateUsage]
    sandbox._keeper, keeper = Channel.pair()  # pyright: ignore[reportPrivateUsage]
    sandbox._errors, errors = os.pipe()  # pyright: ignore[reportPrivateUsage]
    sandbox._is_begun = True  # pyright: ignore[reportPrivateUsage]
    os.close(errors)
    runner.close()
    keeper.close()
    with anyio.fail_after(DEADLINE_S):
        await sandbox.run()
    assert pool.seen == [True, True, True]
    assert not path.exists()


def test_placeholder_is_closed_although_its_lock_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    before = descriptors_of(os.getpid())
    placeholders = Placeholders({})
    monkeypatch.setattr(fcntl, "flock", no_memory)
    with pytest.raises(MemoryError):
        placeholders.hold([str(tmp_path)])
    placeholders.close(removes=False)
    assert descriptors_of(os.getpid()) == before


def test_the_last_sandbox_removes_the_directory_that_another_one_has_made(tmp_path: Path) -> None:
    made: dict[str, Identity] = {}
    first, second, path = Placeholders(made), Placeholders(made), tmp_path / "missing"
    first.make([str(path)])
    second.hold([str(path)])
    first.close(removes=True)
    assert path.is_dir()
    second.close(removes=True)
    assert not path.exists()
    # A directory that no sandbox has made stays.
    path.mkdir()
    second.hold([str(path)])
    second.close(removes=True)
    assert path.is_dir()


def test_the_last_sandbox_removes_the_directories_above_those_that_it_uses(tmp_path: Path) -> None:
    made: dict[str, Identity] = {}
    first, second, third = Placeholders(made), Placeholders(made), Placeholders(made)
    above, below = str(tmp_path / "missing"), str(tmp_path / "missing" / "denied")
    first.make([above])
    second.make([below])
    third.hold([below])
    for each in (first, second):
        each.close(removes=True)
        assert os.path.isdir(below)
    third.close(removes=True)
    assert not os.path.exists(above)


def test_a_directory_that_replaces_the_one_of_a_sandbox_stays(tmp_path: Path) -> None:
    made: dict[str, Identity] = {}
    first, second, path = Placeholders(made), Placeholders(made), tmp_path / "missing"
    first.make([str(path)])
    path.rmdir()
    path.mkdir()
    second.hold([str(path)])
    for each in (first, second):
        each.close(removes=True)
    assert path.is_dir()
