from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import directory_for_workspaces
from support import RawDaemon


@pytest.fixture
def events(new_daemon: RawDaemon) -> RawDaemon:
    """A new daemon for each test, because a test reads all messages of its daemon."""
    return new_daemon


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory that a sandbox neither hides nor replaces."""
    with directory_for_workspaces() as path:
        yield path
