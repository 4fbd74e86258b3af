"""`Client` has the same methods as `AsyncClient`."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_sync_methods_are_made_from_the_async_ones() -> None:
    script = runpy.run_path(str(ROOT / "client" / "make_sync.py"))
    assert script["TARGET"].read_text() == script["made"](), "run: make sync"
