"""The messages on the socket of a lasting daemon: with `shelld attach`, `list`, `stop`, `watch`.

One message is one packet of JSON. The other side first sends a `Hello`. To attach, it sends two
descriptors along: the client's stdin and stdout. The daemon answers with a `Reply`. To a process
that has attached, it sends an `End` when it no longer serves the client. If the connection ends
without an `End`, the daemon has died.

To watch, the other side sends a `Look`, and the daemon answers it with a `View`; then it may send
the next `Look`. When the daemon ends, it sends an `End`.

Requests and answers never pass this socket: the daemon itself reads and writes the client's
streams.
"""

from __future__ import annotations

import array
import os
import socket
from contextlib import suppress
from typing import Final, Literal, TypeVar

import msgspec

# The longest message. A `View` is the only one that comes near it.
MAX_BYTES: Final = 64 * 1024
_DESCRIPTORS: Final = 2
# Increment it for a change that another version of `shelld attach` would not understand. It is the
# first thing that either side looks at.
HANDSHAKE: Final = 1


class Message(msgspec.Struct, rename="camel"):
    pass


class Version(Message):
    """The part of a message that all versions understand."""

    handshake: int = 0
    # The protocol of `server_info`, and the version of the program.
    protocol: int = 0
    version: str = ""


class Hello(Version, kw_only=True):
    wants: Literal["attach", "info", "stop", "watch"]
    steal: bool = False
    # How long the daemon stays without a client. None: as before.
    linger_s: int | None = None


class Info(Message):
    """A daemon, as `shelld list` shows it. `client` is the pid of its `shelld attach`."""

    name: str
    pid: int
    uptime_ms: int
    client: int | None
    detached_ms: int | None
    linger_s: int
    shells_running: int
    shells_retained: int


class Reply(Version, kw_only=True):
    """`busy`: another client is attached. `failed`: the daemon lacks something for a client, or
    has as many watchers as it takes.
    """

    state: Literal["attached", "busy", "info", "stopping", "watching", "other_version", "failed"]
    info: Info | None = None


class Look(Message):
    """Asks for at most so many shells, and lines of each."""

    shells: int
    lines: int


class WatchedShell(Message):
    """A shell, as `shelld watch` shows it. `written` counts the bytes of both streams."""

    id: str
    session: str | None
    command: str
    status: str
    is_running: bool
    exit_code: int | None
    signal: str | None
    elapsed_ms: int
    written: int
    lines: list[str]


class View(Message):
    """The shells that run, oldest first, and then those that have ended, latest first.

    `omitted`: how many did not fit.
    """

    info: Info
    shells: list[WatchedShell]
    omitted: int


class End(Message):
    """The daemon no longer serves the client. `exit_code` is the one of `shelld attach`.

    `detached`: the client has closed its stream. `stolen`: another client has taken the daemon.
    `stopped`: the daemon ends.
    """

    reason: Literal["detached", "stolen", "stopped"]
    exit_code: int = 0


M = TypeVar("M", bound=Message)


class HandshakeError(Exception):
    """The other side has sent no message of the expected kind."""


def send(connection: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Send a message. Raises OSError."""
    data = msgspec.json.encode(message)
    if descriptors:
        socket.send_fds(connection, [data], list(descriptors), socket.MSG_NOSIGNAL)
    else:
        connection.send(data, socket.MSG_NOSIGNAL)


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message, and the descriptors that came with it; b"" at end of file.

    Raises OSError.
    """
    size = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = connection.recvmsg(MAX_BYTES, size, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) // 4 * 4])
    return data, list(descriptors)


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)


def decode(data: bytes, shape: type[M]) -> M:
    """Return a message. Raises HandshakeError."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HandshakeError from error
