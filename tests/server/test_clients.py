"""The clients of a lasting daemon, when a part of the daemon fails for one of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lasting_daemon import LastingDaemon
from support import altered_daemon

# This program is a daemon in which `greet` replaces `Clients._greet`.
_GREETING = """
import sys

import anyio

from shelld.__main__ import main
from shelld.server.clients import Clients

{code}

Clients._greet = greet
sys.exit(main())
"""

_FAILING = """
async def greet(clients, connection):
    raise TypeError
"""

_FORGETTING = """
greet, is_kept, failures = Clients._greet, Clients._is_kept, iter([TypeError()])


def fail_first(clients, connection):
    for failure in failures:
        raise failure
    return is_kept(clients, connection)


Clients._is_kept = fail_first
"""

# The first reply that attaches a client cannot be sent.
_REFUSING = """
greet, reply, failures = Clients._greet, Clients._reply, iter([OSError()])


def fail_first(clients, connection, state, *rest):
    if state == "attached":
        for failure in failures:
            raise failure
    reply(clients, connection, state, *rest)


Clients._reply = fail_first
"""

# The first call of `Output.release` fails before it has done anything.
_RELEASING = """
from shelld.server.stdio import Output

greet, release, failures = Clients._greet, Output.release, iter([MemoryError()])


def fail_first(output):
    for failure in failures:
        raise failure
    release(output)


Output.release = fail_first
"""

# This greeting begins after the linger time has passed, and after the daemon has checked several
# times whether it must end.
_LATE = """
looks = 0
in_time = Clients._greet
may_have_client = Clients._may_have_client.fget


def look(clients):
    global looks
    looks += 1
    return may_have_client(clients)


async def greet(clients, connection):
    global looks
    clients._left_at, clients._linger_s, looks = 0, 0, 0
    clients._tell_of_change()
    while looks < 3:
        await anyio.sleep(0.01)
    await in_time(clients, connection)


Clients._may_have_client = property(look)
"""


def greeting(folder: Path, code: str) -> Iterator[LastingDaemon]:
    program = _GREETING.replace("{code}", code)
    yield from running(folder, [sys.executable, "-W", "error", "-c", program])


def lasting(folder: Path, broken: str) -> Iterator[LastingDaemon]:
    """Run a daemon in which a function of `shelld.server` raises TypeError."""
    yield from running(folder, altered_daemon({f"shelld.server.{broken}": "not callable"}))


def running(folder: Path, command: list[str]) -> Iterator[LastingDaemon]:
    daemon = LastingDaemon(runtime=folder, command=command, env=dict(os.environ))
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def without_welcome(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from lasting(tmp_path, "clients.Reply")


@pytest.fixture
def without_goodbye(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from lasting(tmp_path, "attached_client.End")


@pytest.fixture
def without_greeting(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from greeting(tmp_path, _FAILING)


@pytest.fixture
def with_failing_end_of_greeting(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from greeting(tmp_path, _FORGETTING)


@pytest.fixture
def with_refused_reply(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from greeting(tmp_path, _REFUSING)


@pytest.fixture
def with_failing_release(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from greeting(tmp_path, _RELEASING)


@pytest.fixture
def with_late_greeting(tmp_path: Path) -> Iterator[LastingDaemon]:
    yield from greeting(tmp_path, _LATE)


def test_a_connection_that_cannot_be_greeted_is_closed(without_greeting: LastingDaemon) -> None:
    assert [without_greeting.attach() for _ in range(2)] == ["gone", "gone"]
    assert without_greeting.ask_about() == "gone"


def test_daemon_continues_although_the_end_of_a_greeting_fails_once(
    with_failing_end_of_greeting: LastingDaemon,
) -> None:
    assert with_failing_end_of_greeting.ask_about() == "info"
    assert with_failing_end_of_greeting.attach() == "attached"
    assert with_failing_end_of_greeting.call("ping") == {}


def test_daemon_does_not_end_before_it_greets_a_new_client(
    with_late_greeting: LastingDaemon,
) -> None:
    assert with_late_greeting.attach() == "attached"
    assert with_late_greeting.call("ping") == {}


def test_failed_welcome_closes_the_connection(without_welcome: LastingDaemon) -> None:
    # Each client sees the end of its connection at once.
    assert [without_welcome.attach() for _ in range(2)] == ["gone", "gone"]


def test_client_whose_reply_cannot_be_sent_reads_only_the_end(
    with_refused_reply: LastingDaemon,
) -> None:
    assert with_refused_reply.attach() == "gone"
    assert with_refused_reply.attach() == "attached"
    assert with_refused_reply.call("ping") == {}


def test_next_client_attaches_although_the_goodbye_to_the_last_failed(
    without_goodbye: LastingDaemon,
) -> None:
    assert without_goodbye.attach() == "attached"
    assert without_goodbye.call("ping") == {}
    without_goodbye.end_requests()
    assert without_goodbye.last_words() == b""
    assert without_goodbye.attach() == "attached"
    assert without_goodbye.call("ping") == {}


def test_client_reads_to_the_end_although_the_release_of_its_streams_fails_once(
    with_failing_release: LastingDaemon,
) -> None:
    assert with_failing_release.attach() == "attached"
    with_failing_release.end_requests()
    assert list(with_failing_release.answers_to_the_end()) == []
    assert with_failing_release.last_words()
    assert with_failing_release.attach() == "attached"
    assert with_failing_release.call("ping") == {}
