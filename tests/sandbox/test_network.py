"""The network of a policy: its hosts, how a call may tighten it, and the proxy variables that
commands get.
"""

from __future__ import annotations

from typing import Any

import pytest

from shelld.sandbox.network import proxy_variables, resolved_hosts, tightened_network
from shelld_protocol.errors import RpcError
from shelld_protocol.sandboxes import SandboxPolicy


def test_entries_have_one_form_and_one_order() -> None:
    given = SandboxPolicy(network="hosts", hosts=["PyPI.org.:443", "*.A.org", "pypi.org:443"])
    assert resolved_hosts(given) == ("*.a.org", "pypi.org:443")
    assert resolved_hosts(SandboxPolicy(network="hosts", hosts=[])) == ()
    assert resolved_hosts(SandboxPolicy(network="loopback")) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"network": "hosts"},
        {"network": "hosts", "hosts": ["http://a.org"]},
        {"network": "hosts", "hosts": ["a.org:https"]},
        {"network": "hosts", "hosts": ["10.0.0.0/8"]},
        {"network": "hosts", "hosts": ["*"]},
        {"network": "full", "hosts": ["a.org"]},
        {"hosts": ["a.org"]},
    ],
)
def test_invalid_hosts_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(RpcError) as caught:
        resolved_hosts(SandboxPolicy(**given))
    assert caught.value.data["parameter"] == "sandbox.hosts"


OWN = ("*.b.org", "10.0.0.1:80", "a.org")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("hosts", OWN)),
        ({"network": "hosts"}, ("hosts", OWN)),
        ({"network": "none"}, ("none", ())),
        ({"network": "loopback", "hosts": []}, ("loopback", ())),
        ({"hosts": []}, ("hosts", ())),
        ({"hosts": ["x.b.org:1", "10.0.0.1:80"]}, ("hosts", ("10.0.0.1:80", "x.b.org:1"))),
    ],
)
def test_a_call_may_tighten_the_policy(given: dict[str, Any], expected: object) -> None:
    assert tightened_network("hosts", OWN, SandboxPolicy(**given)) == expected


def test_call_that_restricts_the_whole_network_must_name_hosts() -> None:
    given = SandboxPolicy(network="hosts", hosts=["any.org"])
    assert tightened_network("full", (), given) == ("hosts", ("any.org",))
    with pytest.raises(RpcError):
        tightened_network("full", (), SandboxPolicy(network="hosts"))


@pytest.mark.parametrize(
    ("own", "given", "parameter"),
    [
        ("hosts", {"network": "full"}, "network"),
        ("hosts", {"hosts": ["b.org"]}, "hosts"),
        ("hosts", {"hosts": ["10.0.0.1"]}, "hosts"),
        ("hosts", {"hosts": ["*.a.org"]}, "hosts"),
        ("hosts", {"network": "none", "hosts": ["a.org"]}, "hosts"),
        ("loopback", {"network": "hosts", "hosts": []}, "network"),
        ("none", {"hosts": ["a.org"]}, "hosts"),
    ],
)
def test_a_call_cannot_loosen_the_policy(own: Any, given: dict[str, Any], parameter: str) -> None:
    with pytest.raises(RpcError) as caught:
        tightened_network(own, OWN if own == "hosts" else (), SandboxPolicy(**given))
    assert caught.value.data["parameter"] == f"sandbox.{parameter}"


def test_proxy_variables_lead_to_the_proxy() -> None:
    found = proxy_variables("hosts", ["pypi.org"])
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        assert found[name] == "http://127.0.0.1:3128"
    assert found["no_proxy"] == found["NO_PROXY"] == "localhost,127.0.0.1,::1"
    # This is an address of the machine itself. Commands reach the machine only through the proxy.
    assert proxy_variables("hosts", ["127.0.0.1:80"])["no_proxy"] == "localhost,::1"
    assert proxy_variables("full", []) == {}
