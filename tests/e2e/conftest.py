from __future__ import annotations

import pytest

from support import RawDaemon


@pytest.fixture
def events(new_daemon: RawDaemon) -> RawDaemon:
    """A new daemon for each test, because a test takes all messages."""
    return new_daemon
