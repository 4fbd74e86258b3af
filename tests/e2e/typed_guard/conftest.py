"""A daemon whose guard blocks a program that does not exist.

So a line that gets through does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from guarded_typing import BASH, RULES, at_prompt
from support import RawDaemon, raw_daemon
from typing_session import Session


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("guard") / "rules.toml"
    path.write_text(RULES)
    return str(path)


@pytest.fixture(scope="module")
def guarded(rules: str) -> Iterator[RawDaemon]:
    with raw_daemon("--guard-rules", rules) as daemon:
        yield daemon


@pytest.fixture
def typing(guarded: RawDaemon) -> Session:
    return at_prompt(guarded, BASH)
