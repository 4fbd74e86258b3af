"""Fixtures for the tests of keeper and runners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shelld.keeper.pool import RunnerPool


@pytest.fixture
def pool() -> Iterator[RunnerPool]:
    pool = RunnerPool()
    yield pool
    pool.close()
