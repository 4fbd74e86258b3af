"""The entries of a policy: their forms, and the hosts that they allow."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.proxy.hosts import HostError, Rule, Rules, host_of, is_address, rule_of, split


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pypi.org", "pypi.org"),
        ("PyPI.org.:443", "pypi.org:443"),
        ("*.GitHub.com", "*.github.com"),
        ("*.github.com:22", "*.github.com:22"),
        ("localhost:8080", "localhost:8080"),
        ("my_host", "my_host"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("::1", "::1"),
        ("[2001:DB8::0001]", "2001:db8::1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ("1.2.3.4.example", "1.2.3.4.example"),
    ],
)
def test_an_entry_has_one_form(text: str, shown: str) -> None:
    assert str(rule_of(text)) == shown
    assert str(rule_of(shown)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "*",
        "*.",
        "*.*.x",
        "a.*.x",
        "*x",
        "https://pypi.org",
        "pypi.org/simple",
        "10.0.0.0/8",
        "*.10.0.0.1",
        "*.::1",
        "user@pypi.org",
        "pypi.org:",
        "pypi.org:0",
        "pypi.org:65536",
        "pypi.org:+80",
        "pypi.org:https",
        "pypi..org",
        "-a.org",
        "a-.org",
        "a" * 64 + ".org",
        "a." * 127 + "org",
        "bücher.example",
        "ſ.example",
        "a b",
        "a\n",
        "a\0",
        "256.0.0.1",
        "01.2.3.4",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "a.0x",
        "017700000001",
        "[::1",
        "[127.0.0.1]",
        "[::1]80",
        "::1%eth0",
        "::1%1",
        ":80",
        ":::",
    ],
)
def test_an_invalid_entry_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        rule_of(text)


@pytest.mark.parametrize(
    ("rule", "host", "port", "allowed"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 8080, True),
        ("pypi.org", "files.pypi.org", 443, False),
        ("pypi.org", "pypi.org.evil.com", 443, False),
        ("pypi.org", "evilpypi.org", 443, False),
        ("pypi.org:443", "pypi.org", 443, True),
        ("pypi.org:443", "pypi.org", 80, False),
        ("*.github.com", "api.github.com", 443, True),
        ("*.github.com", "a.b.github.com", 443, True),
        ("*.github.com", "github.com", 443, False),
        ("*.github.com", "evilgithub.com", 443, False),
        ("*.github.com:443", "api.github.com", 22, False),
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("127.0.0.1:80", "127.0.0.1", 81, False),
        ("127.0.0.1", "localhost", 80, False),
        ("localhost", "127.0.0.1", 80, False),
        ("::1", "::1", 80, True),
    ],
)
def test_an_entry_allows_its_hosts_and_ports_only(
    rule: str, host: str, port: int, *, allowed: bool
) -> None:
    assert Rules([rule_of(rule)]).allow(host, port) is allowed


@pytest.mark.parametrize(
    ("own", "other", "covered"),
    [
        ("a.org", "a.org", True),
        ("a.org", "a.org:80", True),
        ("a.org:80", "a.org", False),
        ("a.org:80", "a.org:81", False),
        ("a.org", "*.a.org", False),
        ("*.a.org", "b.a.org", True),
        ("*.a.org", "*.a.org:80", True),
        ("*.a.org", "*.b.a.org", True),
        ("*.b.a.org", "*.a.org", False),
        ("*.a.org", "a.org", False),
        ("*.a.org:80", "b.a.org", False),
        ("10.0.0.1", "10.0.0.1:80", True),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_one_entry_may_cover_another(own: str, other: str, *, covered: bool) -> None:
    assert Rules([rule_of(own)]).cover(rule_of(other)) is covered


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)
names = st.lists(labels, min_size=2, max_size=5).map(".".join)
ports = st.none() | st.integers(1, 65535)
entries = st.tuples(names, st.booleans(), ports)


@given(entries, entries, names, st.integers(1, 65535))
def test_covered_entry_allows_no_further_host(
    own: tuple[str, bool, int | None],
    other: tuple[str, bool, int | None],
    host: str,
    port: int,
) -> None:
    if is_address(own[0]) or is_address(other[0]) or is_address(host):
        return
    # The entry `other` allows the host `below`.
    below = f"x.{other[0]}" if other[1] else other[0]
    if Rules([Rule(*own)]).cover(Rule(*other)):
        for each, number in ((host, port), (below, other[2] or port)):
            if Rules([Rule(*other)]).allow(each, number):
                assert Rules([Rule(*own)]).allow(each, number)


@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fx.:\[\]%]{1,30}"))
def test_a_text_is_refused_or_has_one_form(text: str) -> None:
    try:
        host, port = split(text)
    except HostError:
        return
    assert host_of(host) == host
    assert port is None or 0 < port < 65536
    if is_address(host):
        assert str(ipaddress.ip_address(host)) == host
    else:
        # No resolver takes this text for an address.
        assert not host.rpartition(".")[2].isdigit()
        assert host.isascii()
