"""Decides which hosts a sandbox may reach, according to the entries of `hosts` in a policy. Pure.
Makes no look-ups.

An entry is a name, a wildcard (`*.` and a name) or an address, with or without a port. Each host
has one normal form: a name in lower case without a final dot, or the shortest form of an address.
If an IPv6 address stands for an IPv4 address, its normal form is the IPv4 address.

Invariants:

* A text that some resolver would take for an address, such as `0x7f.1`, is never a name.
* An entry with a name allows no address, and an entry with an address allows no name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

# Longer names do not exist in DNS.
_MAX_NAME: Final = 253
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# getaddrinfo(3) accepts IPv4 addresses in many forms. If the part after the last dot is a number,
# it treats the whole text as an IPv4 address.
_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_IPV4: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_IPV6: Final = re.compile(r"[0-9a-fA-F:.]{2,45}")
_PORT: Final = re.compile(r"[0-9]{1,5}")

MAX_PORT: Final = 65_535


class HostError(ValueError):
    """The message continues a sentence that begins with "it", which stands for the host."""


class Rule(NamedTuple):
    """One entry of `hosts`. `host`: the host, without `*.` if the entry is a wildcard. `port`: the
    port, or None for every port.
    """

    host: str
    is_wildcard: bool = False
    port: int | None = None

    def __str__(self) -> str:
        host = f"*.{self.host}" if self.is_wildcard else self.host
        return host if self.port is None else written(host, self.port)


def is_address(host: str) -> bool:
    """Return whether a host is an address. The host is in its normal form."""
    return ":" in host or _IPV4.fullmatch(host) is not None


def written(host: str, port: int) -> str:
    """Return a host and a port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(text: str) -> str:
    """Return a host in its normal form. An IPv6 address has no brackets. Raises `HostError`."""
    if ":" in text:
        return _ipv6(text)
    host = text.lower().removesuffix(".")
    if _IPV4.fullmatch(host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise HostError("has an invalid address") from None
    if len(host) > _MAX_NAME or not _NAME.fullmatch(host):
        raise HostError("has an invalid name")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise HostError("has an address in an unusual form")
    return host


def _ipv6(text: str) -> str:
    if not _IPV6.fullmatch(text):
        # A zone, such as %eth0, is of no use here.
        raise HostError("has an invalid address")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise HostError("has an invalid address") from None
    return str(address.ipv4_mapped or address)


def split(text: str) -> tuple[str, int | None]:
    """Return the host and the port of `host`, `host:port` or `[address]:port`.

    Raises `HostError`.
    """
    port: str | None
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise HostError("has an invalid address")
        port = rest[1:] if rest else None
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, None
    return host_of(host), None if port is None else _port(port)


def _port(text: str) -> int:
    port = int(text) if _PORT.fullmatch(text) else 0
    if not 0 < port <= MAX_PORT:
        raise HostError("has an invalid port")
    return port


def rule_of(text: str) -> Rule:
    """Return the entry that a text describes. Raises `HostError`."""
    if "/" in text:
        raise HostError("has a URL or a range of addresses, not a host")
    is_wildcard = text.startswith("*.")
    host, port = split(text[2:] if is_wildcard else text)
    if is_wildcard and is_address(host):
        raise HostError("has a wildcard for an address")
    return Rule(host, is_wildcard, port)


class Rules:
    """Judges hosts in their normal form."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._ports: dict[str, set[int | None]] = {}
        self._ports_below: dict[str, set[int | None]] = {}
        for rule in rules:
            table = self._ports_below if rule.is_wildcard else self._ports
            table.setdefault(rule.host, set()).add(rule.port)

    def allow(self, host: str, port: int) -> bool:
        """Return whether an entry for this host or for a wildcard allows the host and the port."""
        return _has(self._ports, host, port) or self._has_above(host, port)

    def cover(self, rule: Rule) -> bool:
        """Return whether one of the entries allows everything that `rule` allows."""
        if rule.is_wildcard and _has(self._ports_below, rule.host, rule.port):
            return True
        if not rule.is_wildcard and _has(self._ports, rule.host, rule.port):
            return True
        return self._has_above(rule.host, rule.port)

    def _has_above(self, host: str, port: int | None) -> bool:
        """Return whether there is a wildcard for a host. `port`: the port, or None for all ports of
        the host.
        """
        if is_address(host):
            return False
        _, dot, above = host.partition(".")
        while dot:
            if _has(self._ports_below, above, port):
                return True
            _, dot, above = above.partition(".")
        return False


def _has(table: dict[str, set[int | None]], host: str, port: int | None) -> bool:
    ports = table.get(host, ())
    return None in ports or port in ports
