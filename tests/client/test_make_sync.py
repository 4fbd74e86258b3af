"""`Client` has the same methods as `AsyncClient`."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_sync_modules_are_made_from_the_async_ones() -> None:
    script = runpy.run_path(str(ROOT / "client" / "make_sync.py"))
    assert len(script["TARGETS"]) == 5
    for target in script["TARGETS"]:
        assert target.read_text() == script["made"](target), "run: make sync"
