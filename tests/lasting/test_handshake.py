"""The messages on the socket of a lasting daemon."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest

from shelld import app
from shelld.lasting import handshake
from shelld.lasting.handshake import (
    End,
    HandshakeError,
    Hello,
    Reply,
    Version,
    decode,
    encode,
    receive,
    send,
)
from shelld.lasting.views import ViewRequest, decoded, info_of
from shelld_protocol.about import PROTOCOL

MESSAGES: list[tuple[Any, Any]] = [
    (Hello(1, 2, "3", "attach", steal=True, linger_s=7), Hello),
    (Hello(wants="stop"), Hello),
    (Reply(1, 2, "3", "info", {"name": "work"}), Reply),
    (Reply(state="busy"), Reply),
    (End("stolen", 4), End),
]


@pytest.mark.parametrize(("message", "shape"), MESSAGES)
def test_message_survives_the_wire(message: Any, shape: Any) -> None:
    assert decode(encode(message), shape) == message


def test_names_on_the_wire_are_those_of_earlier_versions() -> None:
    assert json.loads(encode(Hello(1, 1, "0.1.0", "attach", steal=False, linger_s=5))) == {
        "handshake": 1,
        "protocol": 1,
        "version": "0.1.0",
        "wants": "attach",
        "steal": False,
        "lingerS": 5,
    }
    assert json.loads(encode(End("stopped", 3))) == {"reason": "stopped", "exitCode": 3}


def test_version_can_be_read_from_a_message_of_another_version() -> None:
    data = b'{"handshake": 99, "protocol": 7, "version": "9.9", "wants": "dance", "new": []}'
    assert decode(data, Version) == Version(99, 7, "9.9")
    with pytest.raises(HandshakeError):
        decode(data, Hello)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b"[" * 60_000,
        b'{"wants": "dance"}',
        b'{"wants": 1}',
        b'{"wants": []}',
        b'{"wants": "attach", "steal": 1}',
        b'{"wants": "attach", "lingerS": true}',
        b'{"wants": "attach", "lingerS": 1.5}',
        b'{"wants": "attach", "lingerS": -1}',
        b'{"wants": "attach", "lingerS": 2147483648}',
        b'{"wants": "attach", "lingerS": 1%b}' % (b"0" * 400),
        b'{"wants": "attach", "handshake": "1"}',
        b'{"wants": "attach", "version": null}',
    ],
)
def test_invalid_message_is_refused(data: bytes) -> None:
    with pytest.raises(HandshakeError):
        decode(data, Hello)


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"shells": 1, "lines": "x"}'])
def test_invalid_view_request_is_refused(data: bytes) -> None:
    with pytest.raises(HandshakeError):
        decoded(data, ViewRequest)


def test_invalid_description_of_a_daemon_is_refused() -> None:
    with pytest.raises(HandshakeError):
        info_of({"name": "work", "pid": "1"})


def test_last_message_arrives_although_its_sender_has_not_read_all() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            send(ours, Hello(wants="watch"))
            send(theirs, End("stopped", 3))
        data, descriptors = receive(ours)
        assert (decode(data, End), descriptors) == (End("stopped", 3), [])
        assert receive(ours) == (b"", [])


def test_handshake_and_server_have_the_same_protocol_number() -> None:
    assert handshake.PROTOCOL == PROTOCOL


def test_attach_and_daemon_have_the_same_exit_code_for_stdout() -> None:
    assert handshake.STDOUT_FAILED == app.STDOUT_FAILED


def test_attach_imports_no_slow_module() -> None:
    code = "import sys, shelld.__main__, shelld.cli.attach; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    # The user waits while `attach` imports modules, and these modules take the longest to import.
    assert not loaded & {"anyio", "asyncio", "inspect", "msgspec", "shelld_protocol"}
