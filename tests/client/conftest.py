from __future__ import annotations

import pytest

from both_clients import Spawn, spawn_of

# A hanging test may block in a thread, or in an event loop that no exception can end. The timeout
# method "thread" ends the whole process.
ENDS = pytest.mark.timeout(method="thread")


@pytest.fixture(
    params=[
        pytest.param("sync", marks=ENDS),
        pytest.param("asyncio", marks=ENDS),
        pytest.param("trio", marks=[ENDS, pytest.mark.slow]),
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """The client under test: `Client`, or `AsyncClient` on one of its event loops."""
    return str(request.param)


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that `kind` names. It is asyncio for `Client`, and for a test without a
    `kind`.
    """
    kind = request.getfixturevalue("kind") if "kind" in request.fixturenames else "sync"
    return "asyncio" if kind == "sync" else str(kind)


@pytest.fixture
def spawn(kind: str) -> Spawn:
    return spawn_of(kind)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time after which the client ends a peer that does not stop by itself."""
    monkeypatch.setattr("shelld_client.child.CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr("shelld_client.child.TERMINATE_TIMEOUT_S", 0.1)
