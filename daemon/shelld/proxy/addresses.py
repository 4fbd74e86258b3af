"""Decides which addresses are on the internet. Pure.

All other addresses may belong to this machine or its network. Other people control the DNS records
of the names that a policy allows. So such a name may resolve to an address of the machine or of its
network. Such an address is allowed only if the policy lists it. The table in this module is more
careful than `ipaddress`, whose `is_global` differs between versions of Python.
"""

from __future__ import annotations

import ipaddress
from typing import Final

_IPV4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            # Shared address space of providers (carrier-grade NAT).
            "100.64.0.0/10",
            "127.0.0.0/8",
            # Link-local addresses. In clouds, the metadata service has one of these addresses.
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            # At this address, Azure provides services to its own machines.
            "168.63.129.16/32",
            # Multicast, reserved, broadcast.
            "224.0.0.0/3",
        ),
    )
)
# No address outside this network is global unicast.
_IPV6_GLOBAL: Final = ipaddress.IPv6Network("2000::/3")
_IPV6: Final = tuple(
    map(
        ipaddress.IPv6Network,
        # The first network is for protocols such as Teredo, and the third for 6to4. The second and
        # the fourth are for documentation.
        ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
# The network of IPv6 addresses that stand for an IPv4 address behind a translator (NAT64).
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(host: str) -> bool:
    """Return whether an address is on the internet."""
    address = ipaddress.ip_address(host)
    if address.version == 6:
        if address in _TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        mapped = address.ipv4_mapped
        if mapped is not None:
            return is_public(str(mapped))
        return address in _IPV6_GLOBAL and not any(address in each for each in _IPV6)
    return not any(address in each for each in _IPV4)
