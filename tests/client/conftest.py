from __future__ import annotations

import pytest

from both_clients import Spawn, spawn_of


@pytest.fixture(params=["sync", "asyncio", "trio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which client: `Client`, or `AsyncClient` on one of its event loops."""
    return str(request.param)


@pytest.fixture
def spawn(kind: str) -> Spawn:
    return spawn_of(kind)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that does not stop by itself is ended soon."""
    monkeypatch.setattr("shelld_client.child.CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr("shelld_client.child.TERMINATE_TIMEOUT_S", 0.1)
