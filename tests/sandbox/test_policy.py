"""Policies: their paths, the policies that the daemon refuses, and calls that tighten a policy."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from shelld.sandbox.policy import ResolvedPolicy, check_expressible, resolved, tightened
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.sandboxes import SandboxPolicy


def policy(directory: Path, **given: Any) -> ResolvedPolicy:
    found = resolved(SandboxPolicy(**given), str(directory), "auto")
    assert found is not None
    return found


def refusal(directory: Path, **given: Any) -> str:
    with pytest.raises(RpcError) as caught:
        resolved(SandboxPolicy(**given), str(directory), "auto")
    assert caught.value.kind is ErrorKind.INVALID_PARAMS
    return str(caught.value.data["parameter"])


def test_default_policy_is_mode_workspace_without_exceptions(tmp_path: Path) -> None:
    found = policy(tmp_path)
    assert found == ResolvedPolicy(str(tmp_path), "workspace", (str(tmp_path),))
    assert (found.tmp, found.network, found.unix_sockets) == ("private", "none", ())


def test_mode_off_gives_no_policy_and_allows_no_other_member(tmp_path: Path) -> None:
    assert resolved(SandboxPolicy(mode="off"), str(tmp_path), "auto") is None
    assert refusal(tmp_path, mode="off", network="none") == "sandbox.network"


def test_paths_are_real_and_relative_to_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = policy(tmp_path, write=["link"], deny_read=["~/.ssh"], deny_write=["real/../a"])
    assert found.write == (str(tmp_path / "real"),)
    assert found.deny_read == (str(tmp_path / "home/.ssh"),)
    assert found.deny_write == (str(tmp_path / "a"),)


@pytest.mark.parametrize(
    ("member", "given"),
    [
        ("write", {"write": ["missing"]}),
        ("write", {"write": ["*.py"]}),
        ("write", {"write": ["/"]}),
        ("write", {"write": ["/proc/self"]}),
        ("write", {"write": ["/dev"]}),
        ("write", {"write": ["/tmp"]}),
        ("write", {"mode": "read-only", "write": ["."]}),
        ("deny_read", {"deny_read": ["*.pem"]}),
        ("deny_read", {"deny_read": ["/"]}),
        ("deny_write", {"deny_write": ["~root/x"]}),
        ("hosts", {"hosts": ["pypi.org:443"]}),
        ("unix_sockets", {"unix_sockets": ["missing"]}),
    ],
)
def test_bad_members_are_named(tmp_path: Path, member: str, given: dict[str, Any]) -> None:
    assert refusal(tmp_path, **given) == f"sandbox.{member}"


@pytest.mark.parametrize(
    ("given", "hint"), [({"engine": "landlock"}, "cannot close the unix sockets of the machine")]
)
def test_policy_that_no_engine_can_enforce_is_unavailable(
    tmp_path: Path, given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(RpcError) as caught:
        check_expressible(policy(tmp_path, **given))
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert hint in str(caught.value.data)


def test_a_denied_link_that_commands_could_replace_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(RpcError) as caught:
        check_expressible(policy(tmp_path, deny_write=["link"]))
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    # Nobody can replace the link if its directory is read-only.
    check_expressible(policy(tmp_path, mode="read-only", deny_write=["link"]))


@pytest.mark.parametrize(
    ("given", "looser"),
    [
        ({"mode": "off"}, "mode"),
        ({"network": "full"}, "network"),
        ({"tmp": "shared"}, "tmp"),
        ({"write": ["/etc"]}, "write"),
        ({"unix_sockets": ["socket"]}, "unix_sockets"),
    ],
)
def test_a_call_cannot_loosen_the_policy(
    tmp_path: Path, given: dict[str, Any], looser: str
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
    own = policy(tmp_path, network="loopback")
    with pytest.raises(RpcError) as caught:
        tightened(own, SandboxPolicy(**given), str(tmp_path), "auto")
    assert caught.value.data["parameter"] == f"sandbox.{looser}"


def test_a_call_may_tighten_the_policy(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    own = policy(tmp_path, network="full", tmp="shared", deny_write=["a"])
    given = SandboxPolicy(
        write=["part"], network="none", tmp="private", deny_write=["b"], deny_read=[]
    )
    found = tightened(own, given, str(tmp_path), "auto")
    assert found is not None
    assert found.write == (str(tmp_path / "part"),)
    assert found.deny_write == (str(tmp_path / "a"), str(tmp_path / "b"))
    assert (found.network, found.tmp, found.deny_read) == ("none", "private", ())


@pytest.mark.parametrize("write", [["/tmp"], None])
def test_a_call_cannot_have_a_private_directory_that_it_shares(
    tmp_path: Path, write: list[str] | None
) -> None:
    own = policy(tmp_path, write=["/tmp"], tmp="shared")
    with pytest.raises(RpcError) as caught:
        tightened(own, SandboxPolicy(write=write, tmp="private"), str(tmp_path), "auto")
    assert caught.value.data["parameter"] == "sandbox.write"
    given = SandboxPolicy(write=[str(tmp_path)], tmp="private")
    assert tightened(own, given, str(tmp_path), "auto") is not None


def test_call_without_restrictions_keeps_the_policy(tmp_path: Path) -> None:
    own = policy(tmp_path, deny_read=["secret"])
    assert tightened(own, SandboxPolicy(deny_read=[]), str(tmp_path), "auto") == own


def test_a_denied_directory_is_not_writable(tmp_path: Path) -> None:
    assert policy(tmp_path, deny_write=["."]).writable == ()
