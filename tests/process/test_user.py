"""The home directory without HOME."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from shelld.process.user import home_of_user, home_without_variable


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    home_of_user.cache_clear()
    yield
    home_of_user.cache_clear()


def test_the_home_is_that_of_bash() -> None:
    shown = subprocess.run(
        ["/bin/bash", "-c", "echo ~"], env={}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert home_without_variable({}) == shown.rstrip("\n")


def test_a_variable_takes_precedence() -> None:
    assert home_without_variable({"HOME": ""}) is None


def test_an_unknown_user_is_at_home_in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert home_without_variable({}) == "/"
