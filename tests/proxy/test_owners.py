"""The search in /proc for the owner of a connection."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from shelld.keeper.proc import children_of, proc_is_usable
from shelld.proxy.owners import runners_of
from support import wait_for

pytestmark = pytest.mark.skipif(not proc_is_usable(), reason="needs /proc")


@contextmanager
def connected(port: int) -> Generator[subprocess.Popen[bytes]]:
    """Run a chain of four processes, of which the last holds a connection. Yield the first.

    The first three stand for the first process of a sandbox, the keeper and a runner.
    """
    client = f"exec 3<>/dev/tcp/127.0.0.1/{port}; read"
    command = ["bash", "-c", f'bash -c "bash -c \'bash -c \\"{client}\\"; :\'; :"; :']
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as first:
        try:
            yield first
        finally:
            first.communicate(b"\n")


def only_child(pid: int) -> int:
    wait_for(lambda: len(children_of(pid)) == 1, "a child")
    return children_of(pid)[0]


def test_a_connection_has_the_runner_of_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with connected(server.getsockname()[1]) as first:
            connection, peer = server.accept()
            with connection:
                runner = only_child(only_child(first.pid))
                assert runners_of(first.pid, [peer, ("127.0.0.1", 1)]) == {peer: runner}
        assert first.returncode == 0


def test_closed_connection_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with connected(server.getsockname()[1]) as first:
            connection, peer = server.accept()
            connection.close()
        assert runners_of(first.pid, [peer]) == {}
