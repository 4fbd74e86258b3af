"""Public internet addresses, and addresses that the proxy reaches only if a policy lists them."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.proxy.addresses import is_public


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1"),
        *("127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1"),
        *("192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
        *("168.63.129.16", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1"),
        *("64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1"),
        *("fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1"),
    ],
)
def test_private_and_special_addresses_must_be_listed(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "8.8.8.8", "100.63.0.1", "100.128.0.1", "172.15.0.1", "172.32.0.1"),
        *("192.169.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1"),
        *("::ffff:8.8.8.8", "64:ff9b::8.8.8.8"),
    ],
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses())
def test_public_address_is_global_for_python(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    # Whether a mapped address is global depends on the version of Python.
    if is_public(str(address)) and not str(address).startswith("::ffff:"):
        assert address.is_global
        assert not address.is_private
        assert not address.is_multicast
