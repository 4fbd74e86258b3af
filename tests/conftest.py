from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import RawDaemon, descendants, is_alive, raw_daemon, wait_for


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def daemon() -> Iterator[RawDaemon]:
    """A daemon with default options. Nothing it started may be left when the test is over."""
    with raw_daemon() as running:
        running.call("ping")
        yield running
        family = descendants(running.pid)
    wait_for(lambda: not any(map(is_alive, family)), "the end of everything the daemon started")
