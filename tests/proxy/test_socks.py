"""Messages of SOCKS5 clients."""

from __future__ import annotations

import pytest

from shelld.proxy.socks import Kind, SocksError, answer, kind_of, method_of, target_of


def test_client_must_offer_to_go_without_a_password() -> None:
    assert method_of(b"\x02\x00") == b"\x05\x00"
    with pytest.raises(SocksError) as caught:
        method_of(b"\x02")
    assert caught.value.answer == b"\x05\xff"


@pytest.mark.parametrize(
    ("kind", "address", "host"),
    [
        (1, b"\x7f\x00\x00\x01", "127.0.0.1"),
        (3, b"PyPI.org", "pypi.org"),
        (3, b"127.0.0.1", "127.0.0.1"),
        (4, bytes(15) + b"\x01", "::1"),
        (4, bytes(10) + b"\xff\xff\x0a\x00\x00\x01", "10.0.0.1"),
    ],
)
def test_target_is_read_in_every_kind_of_address(kind: int, address: bytes, host: str) -> None:
    found = kind_of(bytes((5, 1, 0, kind)))
    assert found.size in (None, len(address))
    assert target_of(found, address, b"\x01\xbb") == (host, 443)


@pytest.mark.parametrize(
    ("request_", "code"),
    [(b"\x05\x02\x00\x01", 7), (b"\x05\x03\x00\x01", 7), (b"\x05\x01\x00\x05", 8)],
)
def test_an_unsupported_request_is_refused(request_: bytes, code: int) -> None:
    with pytest.raises(SocksError) as caught:
        kind_of(request_)
    assert caught.value.answer == answer(code)


@pytest.mark.parametrize(
    "name", [b"", b"127.1", b"2130706433", b"a\0.org", b"\xff.org", b"*.a.org"]
)
def test_an_invalid_name_is_refused(name: bytes) -> None:
    with pytest.raises(SocksError) as caught:
        target_of(Kind(3, None), name, b"\x01\xbb")
    assert caught.value.answer == answer(2)


def test_the_port_0_is_refused() -> None:
    with pytest.raises(SocksError):
        target_of(Kind(3, None), b"a.org", b"\x00\x00")
