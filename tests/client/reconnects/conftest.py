from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from both_clients import Attach, attach_of
from lasting import Lasting, lasting_user
from lost_connections import Attached


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Lasting]:
    with lasting_user(tmp_path / "runtime") as user:
        user.runtime.mkdir()
        yield user


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def attach(kind: str) -> Attach:
    return attach_of(kind)


@pytest.fixture
def attached(attach: Attach, user: Lasting) -> Attached:
    return partial(attach, "work", env=user.env, reconnect=True)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clients give up soon when they attach again."""
    monkeypatch.setattr("shelld_client.client.RECONNECT_S", 0.5)
    monkeypatch.setattr("shelld_client.sync.RECONNECT_S", 0.5)


@pytest.fixture
def forgetful(attach: Attach, user: Lasting, tmp_path: Path) -> Attached:
    """Attach to a daemon that keeps only the last event of each subscription."""
    (tmp_path / "sitecustomize.py").write_text(
        "import shelld.events.subscription as module\nmodule.JOURNAL_EVENTS = 1\n"
    )
    env = {**user.env, "PYTHONPATH": str(tmp_path)}
    return partial(attach, "work", env=env, reconnect=True)
