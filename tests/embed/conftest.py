"""Fixtures for the tests of the single manager."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shelld.embed import ShellManager


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def manager() -> AsyncIterator[ShellManager]:
    yield ShellManager()
    await ShellManager.reset()
