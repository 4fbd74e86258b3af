"""Connects to a host that a policy allows. Judges the name first, and then each address.

Invariants:

* A name that no entry allows is never resolved, because a look-up sends the name to other people's
  servers, and a command can hide data in a name.
* The module connects to exactly the address that it has judged, because it resolves a name only
  once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from shelld.proxy import Reason
from shelld.proxy.addresses import is_public
from shelld.proxy.hosts import HostError, Rules, host_of, is_address

# The C library asks each name server twice, and waits for 5 s each time.
RESOLVE_TIMEOUT_S: Final = 10.0
# A connection takes a few round trips. A lost packet is sent again after 1, 3 and 7 s.
CONNECT_TIMEOUT_S: Final = 10.0
# Most names have only a few addresses. It would take too long to try more addresses.
_MAX_ADDRESSES: Final = 6
_MAX_LOOKUPS: Final = 16

Resolver = Callable[[str, int], Awaitable[list[str]]]


class DeniedError(Exception):
    """The policy does not allow this connection."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class UnreachableError(Exception):
    """The host is allowed, but there is no connection. The text gives the reason."""


class SystemResolver:
    """Resolves names as the machine does, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MAX_LOOKUPS)

    async def __call__(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, host, port)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A link-local address has its zone after a percent sign.
    return list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))


class Connector:
    """Connects to the hosts that `rules` allow. `resolve` returns the addresses of a name, or
    raises OSError.
    """

    def __init__(self, rules: Rules, resolve: Resolver) -> None:
        self._rules = rules
        self._resolve = resolve

    async def connect(self, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to a host, which is in its normal form.

        Raises `DeniedError` and `UnreachableError`.
        """
        if not self._rules.allow(host, port):
            raise DeniedError("not_listed")
        addresses = [host] if is_address(host) else await self._judged(host, port)
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await _connected(address, port)
            except OSError:
                continue
        raise UnreachableError("no connection to the host")

    async def _judged(self, host: str, port: int) -> list[str]:
        """Look up a name. Return only the addresses to which the rules allow a connection."""
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = [host_of(each) for each in await self._resolve(host, port)]
        except (OSError, HostError, UnicodeError):
            raise UnreachableError("the name of the host has no address") from None
        if not found:
            raise UnreachableError("the name of the host has no address")
        allowed = [each for each in found if self._may_reach(each, port)]
        if not allowed:
            raise DeniedError("private_address")
        return allowed

    def _may_reach(self, address: str, port: int) -> bool:
        if self._rules.allow(address, port):
            return True
        return is_public(address) and not is_here(address)


def is_here(address: str) -> bool:
    """Return whether an address belongs to this machine. If the machine connects to one of its own
    addresses, the kernel uses the same address as the source.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            # On a datagram socket, `connect` sends nothing.
            sock.connect((address, 9))
            own = str(sock.getsockname()[0])
    except OSError:
        return False
    return host_of(own.partition("%")[0]) == address


async def _connected(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock
