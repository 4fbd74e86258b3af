"""The home directory of the user if HOME is unset."""

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


def test_home_without_the_variable_is_that_of_bash() -> None:
    shown = subprocess.run(
        ["/bin/bash", "-c", "echo ~"], env={}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert home_without_variable({}) == shown.rstrip("\n")


def test_home_variable_takes_precedence_even_if_empty() -> None:
    assert home_without_variable({"HOME": ""}) is None


def test_home_of_an_unknown_user_is_the_root_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert home_without_variable({}) == "/"
