"""Defines the messages that a lasting daemon exchanges with `shelld attach` and other commands.

The other commands are `shelld list`, `stop` and `watch`. Each message is one packet of JSON. The
command first sends a `Hello`. To attach, it also sends two descriptors: the client's stdin and
stdout. The daemon answers with a `Reply`. When the daemon no longer serves the client, it sends an
`End` to the process that has attached. If the connection ends without an `End`, the daemon has
died.

To watch, the command sends a `ViewRequest`, and the daemon answers with a `View` of the shells (see
`views`). Then the command may send the next `ViewRequest`. When the daemon ends, it sends an `End`.

Requests and answers never go through this socket: the daemon itself reads and writes the client's
streams.

`shelld attach` loads this module while a client waits. So this module imports neither msgspec nor
the protocol. These imports would take longer than everything else that `shelld attach` does.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

# The maximum size of a message. Only a `View` can be nearly as large.
MAX_BYTES: Final = 64 * 1024
_DESCRIPTORS: Final = 2
# Increment this number for a change that another version of `shelld attach` would not understand.
# Each side checks this number first.
HANDSHAKE: Final = 1
# The version of the protocol. It equals `PROTOCOL` in `shelld_protocol.about`.
PROTOCOL: Final = 1
# The exit code if answers could not be written although the client may still run. `app` defines the
# same exit code.
STDOUT_FAILED: Final = 3


class Version(NamedTuple):
    """Holds the members of a message that all versions of shelld understand."""

    handshake: int = 0
    # `protocol` is the number that `server_info` reports. `version` is the version of the program.
    protocol: int = 0
    version: str = ""


class Hello(NamedTuple):
    """The first three members are those of `Version`."""

    handshake: int = 0
    protocol: int = 0
    version: str = ""
    wants: Literal["attach", "info", "stop", "watch"] = "info"
    steal: bool = False
    # How long the daemon stays without a client. If this is None, the daemon keeps its current
    # limit.
    linger_s: int | None = None


class Reply(NamedTuple):
    """Answers a `Hello`.

    In the state `busy`, another client is attached. In the state `failed`, the daemon is short of a
    resource that a client needs, or already has the maximum number of watchers. The first three
    members are those of `Version`. `info`: a `views.Info`, as decoded JSON.
    """

    handshake: int = 0
    protocol: int = 0
    version: str = ""
    state: Literal[
        "attached", "busy", "info", "stopping", "watching", "other_version", "failed"
    ] = "failed"
    info: Mapping[str, Any] | None = None


class End(NamedTuple):
    """The daemon no longer serves the client. `shelld attach` exits with `exit_code`.

    `detached`: the client has closed its stream. `stolen`: another client has taken the daemon.
    `stopped`: the daemon ends.
    """

    reason: Literal["detached", "stolen", "stopped"]
    exit_code: int = 0


M = TypeVar("M", Version, Hello, Reply, End)

# The members that have another name in JSON.
_NAMES: Final = {"linger_s": "lingerS", "exit_code": "exitCode"}
# The types or the values that each member may have. A message may omit a member with a default.
_ALLOWED: Final[Mapping[str, tuple[object, ...]]] = {
    "handshake": (int,),
    "protocol": (int,),
    "version": (str,),
    "wants": ("attach", "info", "stop", "watch"),
    "steal": (bool,),
    "linger_s": (int, type(None)),
    "state": ("attached", "busy", "info", "stopping", "watching", "other_version", "failed"),
    "info": (dict, type(None)),
    "reason": ("detached", "stolen", "stopped"),
    "exit_code": (int,),
}
# If the type of a message has one of these members, the message must contain it.
_REQUIRED: Final = frozenset({"wants", "state", "reason"})
# The largest number in a message. The daemon adds such numbers to its clock, and reports them to
# clients.
_MAX_NUMBER: Final = 2**31 - 1


class HandshakeError(Exception):
    """The other side has not sent a message of the expected kind."""


def encode(message: Version | Hello | Reply | End) -> bytes:
    members = {_NAMES.get(name, name): value for name, value in message._asdict().items()}
    return json.dumps(members).encode()


def decode(data: bytes, shape: type[M]) -> M:
    """Return the message that `data` encodes. Raises HandshakeError."""
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HandshakeError from error
    if not isinstance(found, dict):
        raise HandshakeError
    members = cast("dict[str, object]", found)
    values: dict[str, Any] = {}
    for name in shape._fields:
        key = _NAMES.get(name, name)
        if key in members:
            values[name] = _checked(name, members[key])
        elif name in _REQUIRED:
            raise HandshakeError
    return shape(**values)


def _checked(name: str, value: object) -> object:
    # Compare the type itself, because Python's True is an int, but true in JSON is not a number.
    if type(value) not in _ALLOWED[name] and not (
        isinstance(value, str) and value in _ALLOWED[name]
    ):
        raise HandshakeError
    if isinstance(value, int) and not 0 <= value <= _MAX_NUMBER:
        raise HandshakeError
    return value


def send(
    connection: socket.socket,
    message: Version | Hello | Reply | End | bytes,
    descriptors: tuple[int, ...] = (),
) -> None:
    """Send a message, which may be encoded already. Raises OSError."""
    data = message if isinstance(message, bytes) else encode(message)
    if descriptors:
        socket.send_fds(connection, [data], list(descriptors), socket.MSG_NOSIGNAL)
    else:
        connection.send(data, socket.MSG_NOSIGNAL)


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and its descriptors. The message is b"" at end of file.

    Raises OSError.
    """
    size = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
    try:
        received = connection.recvmsg(MAX_BYTES, size, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        # The other side has closed the connection before it has read all messages. The kernel
        # reports this once. After this report, it returns the last messages of the other side.
        received = connection.recvmsg(MAX_BYTES, size, socket.MSG_CMSG_CLOEXEC)
    data, ancillary, _, _ = received
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) // 4 * 4])
    return data, list(descriptors)


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
