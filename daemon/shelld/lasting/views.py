"""Defines what a lasting daemon reports to `shelld list` and `shelld watch`. See `handshake`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from shelld.lasting.handshake import HandshakeError

# The maximum number of shells in a `View`, and the maximum number of lines of each shell. A `View`
# has no more, even if a `ViewRequest` asks for more.
MAX_SHELLS: Final = 200
MAX_LINES: Final = 50


class Message(msgspec.Struct, rename="camel"):
    pass


class Info(Message):
    """Describes a daemon for `shelld list`. `client` is the pid of its `shelld attach`."""

    name: str
    pid: int
    uptime_ms: int
    client: int | None
    detached_ms: int | None
    linger_s: int
    shells_running: int
    shells_retained: int


class ViewRequest(Message):
    """Requests a view of at most `shells` shells, with at most `lines` lines of each."""

    shells: int
    lines: int


class WatchedShell(Message):
    """Describes a shell for `shelld watch`. `written` counts the bytes of both streams."""

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
    """Answers a `ViewRequest`.

    `shells` has the running shells, oldest first, and then the ended shells, latest first.

    `omitted` is the number of shells that did not fit.
    """

    info: Info
    shells: list[WatchedShell]
    omitted: int


T = TypeVar("T", bound=Message)


def encoded(message: Message) -> bytes:
    return msgspec.json.encode(message)


def info_of(info: Mapping[str, Any]) -> Info:
    """Return the `info` of a reply. Raises HandshakeError."""
    try:
        return msgspec.convert(info, Info)
    except msgspec.ValidationError as error:
        raise HandshakeError from error


def decoded(data: bytes, shape: type[T]) -> T:
    """Decode a message into an object of the type `shape`. Raises HandshakeError."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HandshakeError from error
