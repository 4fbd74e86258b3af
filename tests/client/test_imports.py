"""The client library imports no event loop before it needs one, and has all its public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shelld_client

USE = """
import sys
from shelld_client import Client

with Client.spawn() as shell, shell.start("echo hello") as job:
    assert [*job]
    assert [*shell.stream("echo hello")]
assert not {"anyio", "asyncio"} & {*sys.modules}, "an event loop was imported"
from shelld_client import AsyncClient
assert "anyio" in sys.modules
"""


def test_client_imports_no_event_loop() -> None:
    subprocess.run([sys.executable, "-c", USE], check=True, timeout=60)


def test_every_public_name_can_be_found() -> None:
    assert not set(shelld_client.__all__) - set(dir(shelld_client))
    for name in shelld_client.__all__:
        assert getattr(shelld_client, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    name = "Shell"
    with pytest.raises(AttributeError, match="module 'shelld_client' has no attribute 'Shell'"):
        getattr(shelld_client, name)
