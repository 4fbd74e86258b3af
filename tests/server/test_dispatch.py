"""The partial import of jsonrpcserver costs little, and does not affect other code that imports
jsonrpcserver.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref

import pytest

from shelld.server.dispatch import as_method, dispatch
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.structs import NoParams

USE_IT = """
import asyncio, jsonrpcserver
@jsonrpcserver.method
def ping(): return jsonrpcserver.Success("pong")
assert "pong" in jsonrpcserver.dispatch('{"jsonrpc": "2.0", "method": "ping", "id": 1}')
"""
USE_OURS = """
import asyncio
from shelld.server.dispatch import as_method, dispatch
from shelld_protocol.structs import NoParams
async def body(context, params): return context
methods = {"x": as_method(NoParams, body)}
assert asyncio.run(dispatch(methods, "context", "x", b"{}")) == "context"
"""


@pytest.mark.parametrize("script", [USE_OURS + USE_IT + USE_OURS, USE_IT + USE_OURS + USE_IT])
def test_jsonrpcserver_works_imported_before_or_after_dispatch(script: str) -> None:
    # On some versions of Python, importing jsonrpcserver itself causes warnings.
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=100)


def test_failed_request_is_freed_without_garbage_collection() -> None:
    class Held:
        """The test puts this object into an error's data, in the place of the output."""

    held: weakref.ref[Held] | None = None

    async def body(_context: None, _params: NoParams) -> None:
        nonlocal held
        output = Held()
        held = weakref.ref(output)
        raise RpcError(ErrorKind.TIMEOUT, "Timed out", {"output": output})

    async def ask() -> None:
        answer = await dispatch({"x": as_method(NoParams, body)}, None, "x", b"{}")
        assert isinstance(answer, RpcError)
        assert "output" in answer.data

    gc.disable()
    try:
        asyncio.run(ask())
        assert held is not None
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_unused_modules_are_not_imported() -> None:
    script = "import sys, shelld.app; print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, check=True, timeout=100
    )
    modules = set(shown.stdout.decode().split())
    assert "shelld.server.dispatch" in modules
    assert not modules & {
        "jsonschema",
        "http.server",
        "oslash.list",
        "re2",
        "argparse",
        "shelld_protocol.schemas",
    }
