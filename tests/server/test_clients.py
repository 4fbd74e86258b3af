"""The clients of a lasting daemon, when something of the daemon fails for one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lasting_daemon import LastingDaemon
from support import altered_daemon


def lasting(folder: Path, broken: str) -> Iterator[LastingDaemon]:
    """Run a daemon in which a function of the room `server` raises TypeError."""
    command = altered_daemon({f"shelld.server.{broken}": "not callable"})
    daemon = LastingDaemon(runtime=folder, command=command, env=dict(os.environ))
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def without_welcome(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from lasting(tmp_path, "clients.Reply")


@pytest.fixture
def without_goodbye(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from lasting(tmp_path, "attached_client.End")


def test_a_client_that_cannot_be_welcomed_is_lost(without_welcome: LastingDaemon) -> None:
    # The end of file tells each of them at once.
    assert [without_welcome.attach() for _ in range(2)] == ["gone", "gone"]


def test_a_client_can_come_although_the_one_before_could_not_be_told_of_its_end(
    without_goodbye: LastingDaemon,
) -> None:
    assert without_goodbye.attach() == "attached"
    assert without_goodbye.call("ping") == {}
    without_goodbye.end_requests()
    assert without_goodbye.last_words() == b""
    assert without_goodbye.attach() == "attached"
    assert without_goodbye.call("ping") == {}
