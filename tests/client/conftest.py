from __future__ import annotations

import pytest

from both_clients import Spawn, spawn_of

# What hangs may be a thread, or an event loop that an exception cannot end: the process ends.
ENDS = pytest.mark.timeout(method="thread")


@pytest.fixture(params=[pytest.param(kind, marks=ENDS) for kind in ("sync", "asyncio", "trio")])
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
