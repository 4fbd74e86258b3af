"""Reads the messages of a SOCKS5 client (RFC 1928), and writes the answers. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

from shelld.proxy.hosts import HostError, host_of

VERSION: Final = 5
# The lengths of the greeting without its list of methods, and of the request without its address.
GREETING_BYTES: Final = 2
REQUEST_BYTES: Final = 4

_NO_AUTHENTICATION: Final = 0
_CONNECT: Final = 1
_IPV4: Final = 1
_NAME: Final = 3
_IPV6: Final = 4

SUCCEEDED: Final = 0
FAILED: Final = 1
NOT_ALLOWED: Final = 2
UNREACHABLE: Final = 4
_NO_COMMAND: Final = 7
_NO_ADDRESS: Final = 8


class SocksError(Exception):
    """`answer`: the bytes that the client gets before the connection is closed."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class Kind(NamedTuple):
    """The kind of the address that follows in a request. `size` is None if the first byte of the
    address is its length.
    """

    number: int
    size: int | None


def method_of(methods: bytes) -> bytes:
    """Return the answer to the client's list of methods. Raises `SocksError`."""
    if _NO_AUTHENTICATION not in methods:
        raise SocksError(bytes((VERSION, 0xFF)))
    return bytes((VERSION, _NO_AUTHENTICATION))


def kind_of(request: bytes) -> Kind:
    """Return the kind of address in a request. Raises `SocksError`."""
    version, command, _, kind = request
    if version != VERSION:
        raise SocksError(b"")
    if command != _CONNECT:
        raise SocksError(answer(_NO_COMMAND))
    sizes = {_IPV4: 4, _IPV6: 16, _NAME: None}
    if kind not in sizes:
        raise SocksError(answer(_NO_ADDRESS))
    return Kind(kind, sizes[kind])


def target_of(kind: Kind, address: bytes, port: bytes) -> tuple[str, int]:
    """Return the host and the port that a request names.

    The host is in its normal form. Raises `SocksError`.
    """
    number = int.from_bytes(port, "big")
    try:
        text = str(ipaddress.ip_address(address)) if kind.size else address.decode("ascii")
        host = host_of(text)
    except (HostError, UnicodeDecodeError):
        raise SocksError(answer(NOT_ALLOWED)) from None
    if not number:
        raise SocksError(answer(NOT_ALLOWED))
    return host, number


def answer(code: int) -> bytes:
    """Return the answer to a request. The address in the answer has no meaning."""
    return bytes((VERSION, code, 0, _IPV4, 0, 0, 0, 0, 0, 0))
