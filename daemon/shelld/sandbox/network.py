"""Resolves the network of a policy: `network`, `hosts`, and the variables that lead to the proxy.
Pure.

Invariant: a call can reach only hosts that its session can also reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shelld.proxy import ADDRESS, PORT
from shelld.proxy.hosts import HostError, Rule, Rules, rule_of
from shelld.sandbox.refusals import invalid, looser, tighter
from shelld_protocol.sandboxes import SandboxNetwork, SandboxPolicy

# The networks, from the tightest to the loosest.
_NETWORKS: Final[Sequence[SandboxNetwork]] = ("none", "loopback", "hosts", "full")

_PROXY: Final = f"http://{ADDRESS}:{PORT}"
# Many programs know these variables only in lower case or only in upper case, so both are set.
# Some know only `all_proxy`.
_FOR_PROXY: Final = ("http_proxy", "https_proxy", "all_proxy")
# These names lead to the servers of the sandbox itself.
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")


def resolved_hosts(given: SandboxPolicy) -> tuple[str, ...]:
    """Return the hosts of a policy in their normal form. Raises `RpcError` (invalid_params)."""
    if given.network != "hosts":
        if given.hosts:
            raise invalid("hosts", "is allowed only if network is hosts")
        return ()
    if given.hosts is None:
        raise invalid("hosts", "is required if network is hosts")
    return _shown(_rules_of(given.hosts))


def tightened_network(
    own: SandboxNetwork, own_hosts: tuple[str, ...], given: SandboxPolicy
) -> tuple[SandboxNetwork, tuple[str, ...]]:
    """Return the network and the hosts of a call. `own` and `own_hosts` are the network and the
    hosts of its session.

    Raises `RpcError` (invalid_params).
    """
    network = tighter("network", own, given.network, _NETWORKS)
    if network != "hosts":
        if given.hosts:
            raise invalid("hosts", "is allowed only if network is hosts")
        return network, ()
    if given.hosts is None:
        if own != "hosts":
            raise invalid("hosts", "is required if network is hosts")
        return network, own_hosts
    rules = _rules_of(given.hosts)
    if own == "hosts" and not all(map(Rules(map(rule_of, own_hosts)).cover, rules)):
        raise looser("hosts")
    return network, _shown(rules)


def _rules_of(given: Iterable[str]) -> list[Rule]:
    try:
        return [rule_of(each) for each in given]
    except HostError as error:
        raise invalid("hosts", str(error)) from None


def _shown(rules: Iterable[Rule]) -> tuple[str, ...]:
    # The result is sorted, because sessions with the same hosts share a sandbox.
    return tuple(sorted(set(map(str, rules))))


def proxy_variables(network: SandboxNetwork, hosts: Iterable[str]) -> dict[str, str]:
    """Return the variables with which programs find the proxy. There are none if `network` is not
    "hosts", because then there is no proxy.

    If `hosts` lists 127.0.0.1, this address means the machine and not the sandbox. In this case,
    `no_proxy` does not list 127.0.0.1, because commands reach the machine only through the proxy.
    """
    if network != "hosts":
        return {}
    listed = {rule_of(each).host for each in hosts}
    variables: dict[str, str] = dict.fromkeys(_FOR_PROXY, _PROXY)
    variables["no_proxy"] = ",".join(name for name in _OWN_NAMES if name not in listed)
    return variables | {name.upper(): value for name, value in variables.items()}
