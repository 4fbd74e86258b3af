"""For each command, the daemon counts the connections that the proxy refused."""

from __future__ import annotations

from shelld.sandbox.denials import Denials
from shelld_protocol.sandboxes import Denied


def test_command_without_refusals_shows_none() -> None:
    assert Denials().shown is None


def test_equal_refusals_are_counted() -> None:
    denials = Denials()
    for _ in range(2):
        denials.add("a.org", 443, "not_listed", 2)
    denials.add("a.org", 443, "full", 1)
    assert denials.shown == [
        Denied("network", "a.org", 443, 4, "not_listed"),
        Denied("network", "a.org", 443, 1, "full"),
    ]


def test_hosts_beyond_the_first_hundred_share_an_entry() -> None:
    denials = Denials()
    for number in range(150):
        denials.add(f"host{number}", 1, "not_listed", 1)
    shown = denials.shown
    assert shown is not None
    assert len(shown) == 101
    assert shown[-1] == Denied("network", "*", 0, 50, "not_listed")
