from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import directory_for_workspaces
from support import RawDaemon, raw_daemon
from target_daemons import FAR


@pytest.fixture
def events(new_daemon: RawDaemon) -> RawDaemon:
    """A new daemon for each test, because a test reads all messages of its daemon."""
    return new_daemon


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory that a sandbox neither hides nor replaces."""
    with directory_for_workspaces() as path:
        yield path


@pytest.fixture(scope="module")
def shared_hub() -> Iterator[RawDaemon]:
    targets = [f"--target={name}={shlex.join(FAR)}" for name in ("box", "other")]
    with raw_daemon(*targets) as daemon:
        daemon.bash("true", target="box")
        yield daemon


@pytest.fixture
def hub(shared_hub: RawDaemon) -> Iterator[RawDaemon]:
    """A daemon that the tests share. It has two targets, of which `box` is connected."""
    yield shared_hub
    # Check that the test has received every event that it has asked for.
    shared_hub.call("ping")
    left = shared_hub.unclaimed
    shared_hub.forget_answers()
    assert left == []
