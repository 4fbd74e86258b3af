"""The listening sockets of a namespace, from netlink and from /proc."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from shelld.inspection import sockets
from shelld.inspection.sockets import Socket

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
LINE = "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  0  0 {} 1 0 100 0\n"


def place_of(server: socket.socket) -> Socket:
    address, port = server.getsockname()[:2]
    return Socket(os.fstat(server.fileno()).st_ino, port, address)


@pytest.fixture(params=["netlink", "proc"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the kernel answer only through netlink, or only through /proc."""

    def refuse(*_: object) -> list[Socket]:
        raise OSError

    name = {"netlink": "read_table", "proc": "_asked"}[request.param]
    monkeypatch.setattr(sockets, name, refuse)
    sockets.can_be_listed.cache_clear()
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_both_ways_list_the_same_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert place_of(server) in sockets.listening("/proc/self")
    assert sockets.can_be_listed()


@pytest.mark.usefixtures("way")
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
@pytest.mark.parametrize("address", ["::1", "::"])
def test_both_ways_list_ipv6_sockets(address: str) -> None:
    with socket.create_server((address, 0), family=socket.AF_INET6) as server:
        assert place_of(server) in sockets.listening("/proc/self")


@pytest.mark.usefixtures("way")
def test_only_sockets_that_listen_are_listed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        taken, _ = server.accept()
        with taken:
            inodes = {each.inode for each in sockets.listening("/proc/self")}
            assert place_of(server).inode in inodes
            assert not {place_of(client).inode, place_of(taken).inode} & inodes


def test_many_sockets_fill_several_messages() -> None:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(300)]
    try:
        found = set(sockets.listening("/proc/self"))
        assert {place_of(server) for server in servers} <= found
    finally:
        for server in servers:
            server.close()


def test_sockets_cannot_be_listed_if_both_ways_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[Socket]:
        raise OSError

    monkeypatch.setattr(sockets, "_asked", refuse)
    monkeypatch.setattr(sockets, "read_table", refuse)
    sockets.can_be_listed.cache_clear()
    assert not sockets.can_be_listed()
    sockets.can_be_listed.cache_clear()


@pytest.mark.parametrize(
    ("family", "words", "address"),
    [
        (socket.AF_INET, b"0100007F", "127.0.0.1"),
        (socket.AF_INET, b"00000000", "0.0.0.0"),
        (socket.AF_INET6, b"0" * 32, "::"),
        (socket.AF_INET6, b"00000000000000000000000001000000", "::1"),
        (socket.AF_INET6, b"B80D0120000000000000000001000000", "2001:db8::1"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the examples are from such a machine")
def test_address_has_its_usual_form(
    family: socket.AddressFamily, words: bytes, address: str
) -> None:
    assert sockets.address_of(family, words) == address


def test_table_ends_with_its_listening_sockets(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    lines = [
        LINE.format("0100007F:1F90", "0A", 11),
        LINE.format("00000000:0050", "0A", 12),
        LINE.format("0100007F:9999", "01", 13),
        "garbage\n" * 100_000,
    ]
    table.write_text(HEAD + "".join(lines))
    assert [each.inode for each in sockets.read_table(socket.AF_INET, str(table))] == [11, 12]


def test_empty_table_has_no_sockets(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text("")
    assert sockets.read_table(socket.AF_INET, str(tmp_path / "tcp")) == []
