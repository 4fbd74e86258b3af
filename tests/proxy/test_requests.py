"""The heads of requests and responses that the proxy passes on, and those that it refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.proxy.requests import RefusedError, Request, chunk_size_of, request_of, response_of


def head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def lines_of(request: Request) -> list[bytes]:
    assert request.head.endswith(b"\r\n\r\n")
    return request.head[:-4].split(b"\r\n")


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        ("pypi.org:443", "pypi.org", 443),
        ("PYPI.org.:443", "pypi.org", 443),
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("[::1]:80", "::1", 80),
        ("[::ffff:127.0.0.1]:80", "127.0.0.1", 80),
    ],
)
def test_connect_request_opens_a_tunnel_to_its_target(target: str, host: str, port: int) -> None:
    request = request_of(head(f"CONNECT {target} HTTP/1.1", "Host: another", "X: y"))
    assert (request.host, request.port, request.is_tunnel) == (host, port, True)


@pytest.mark.parametrize(
    ("target", "host", "port", "first", "written"),
    [
        ("http://a.org", "a.org", 80, "GET / HTTP/1.1", "a.org"),
        ("HTTP://A.org/x?y=z", "a.org", 80, "GET /x?y=z HTTP/1.1", "a.org"),
        ("http://a.org:80/", "a.org", 80, "GET / HTTP/1.1", "a.org"),
        ("http://a.org:8080?q", "a.org", 8080, "GET /?q HTTP/1.1", "a.org:8080"),
        ("http://[::1]/x", "::1", 80, "GET /x HTTP/1.1", "[::1]:80"),
        ("http://a.org/http://b.org/", "a.org", 80, "GET /http://b.org/ HTTP/1.1", "a.org"),
    ],
)
def test_proxy_rewrites_the_target_and_the_host_of_a_request(
    target: str, host: str, port: int, first: str, written: str
) -> None:
    request = request_of(head(f"GET {target} HTTP/1.1", "Accept: */*", "Host: another.org"))
    assert (request.host, request.port) == (host, port)
    expected = [first, f"Host: {written}", "Accept: */*", "Connection: close"]
    assert lines_of(request) == [line.encode() for line in expected]


def test_headers_of_one_connection_are_not_passed_on() -> None:
    given_ = ["Proxy-Authorization: Basic eA==", "Connection: x-own, Keep-Alive", "X-Own: 1"]
    given_ += ["Keep-Alive: 5", "TE: trailers", "Upgrade: websocket", "Expect: 100-continue"]
    given_ += ["Proxy-Connection: keep-alive", "Cookie: a=b", "cookie: c"]
    request = request_of(head("POST http://a.org/ HTTP/1.1", *given_, "Content-Length: 5"))
    assert lines_of(request)[1:] == [
        *(b"Host: a.org", b"Cookie: a=b", b"cookie: c", b"Content-Length: 5"),
        b"Connection: close",
    ]
    assert (request.length, request.awaits) == (5, True)


def test_headers_tell_the_length_of_a_body() -> None:
    post = "POST http://a.org/ HTTP/1.1"
    assert request_of(head(post)).length == 0
    assert request_of(head(post, "content-length:  12 ")).length == 12
    assert request_of(head(post, "Transfer-Encoding: Chunked")).length == "chunked"


@pytest.mark.parametrize(
    "lines",
    [
        *(["GET / HTTP/1.1", "Host: a.org"], ["GET a.org HTTP/1.1"], ["GET * HTTP/1.1"]),
        *(["GET https://a.org/ HTTP/1.1"], ["GET ftp://a.org/ HTTP/1.1"]),
        *(["GET http://a.org/ HTTP/2.0"], ["GET http://a.org/"], ["GET  http://a.org/ HTTP/1.1"]),
        *(["GET http://a.org/ HTTP/1.1 "], ["G@T http://a.org/ HTTP/1.1"], [""], [" "]),
        *(["GET http://a.org/\x7f HTTP/1.1"], ["GET http://a.org/\xe4 HTTP/1.1"]),
        *(["GET http://a.org/#x HTTP/1.1"], ["GET http:///x HTTP/1.1"]),
        *(["GET http://u:p@a.org/ HTTP/1.1"], ["GET http://a.org@b.org/ HTTP/1.1"]),
        *(["GET http://a.org\\@b.org/ HTTP/1.1"], ["GET http://a.org:99999/ HTTP/1.1"]),
        *(["GET http://127.1/ HTTP/1.1"], ["GET http://0x7f000001/ HTTP/1.1"]),
        *(["CONNECT a.org HTTP/1.1"], ["CONNECT a.org: HTTP/1.1"], ["CONNECT :443 HTTP/1.1"]),
        *(["CONNECT http://a.org:443 HTTP/1.1"], ["CONNECT 2130706433:80 HTTP/1.1"]),
        *(["CONNECT [fe80::1%25eth0]:80 HTTP/1.1"], ["CONNECT u@a.org:443 HTTP/1.1"]),
    ],
)
def test_an_invalid_request_line_is_refused(lines: list[str]) -> None:
    with pytest.raises(RefusedError):
        request_of(head(*lines))


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: -1"],
        ["Content-Length: "],
        ["Content-Length: " + "9" * 16],
        ["Content-Length\t: 5"],
        ["Content-Length : 5"],
        [" Content-Length: 5"],
        ["X: y", " continued"],
        ["X: y\rContent-Length: 5"],
        ["X: y\nContent-Length: 5"],
        ["X: y\0"],
        ["X"],
        [": y"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: \x0bchunked"],
        ["Connection: close, Content-Length"],
        ["Connection: Host"],
        ["Connection: transfer-encoding"],
        [f"X-{n}: y" for n in range(101)],
    ],
)
def test_smuggled_and_unclear_headers_are_refused(headers: list[str]) -> None:
    with pytest.raises(RefusedError):
        request_of(head("POST http://a.org/ HTTP/1.1", *headers))
    if not any("Connection" in header for header in headers):
        with pytest.raises(RefusedError):
            response_of(head("HTTP/1.1 200 OK", *headers), b"GET")


def test_http_1_0_request_with_chunks_is_refused() -> None:
    # The server also sees HTTP/1.0, so it sends neither chunks nor 100 Continue.
    request = request_of(head("GET http://a.org/ HTTP/1.0", "Expect: 100-continue"))
    assert (lines_of(request)[0], request.awaits) == (b"GET / HTTP/1.0", False)
    with pytest.raises(RefusedError):
        request_of(head("POST http://a.org/ HTTP/1.0", "Transfer-Encoding: chunked"))


@pytest.mark.parametrize(
    ("lines", "method", "length"),
    [
        (["HTTP/1.1 200 OK", "Content-Length: 3"], "GET", 3),
        (["HTTP/1.0 200", "Connection: keep-alive"], "GET", "rest"),
        (["HTTP/1.1 200 OK", "Transfer-Encoding: chunked"], "GET", "chunked"),
        (["HTTP/1.1 200 OK", "Content-Length: 3"], "HEAD", 0),
        (["HTTP/1.1 304 Not Modified", "Content-Length: 3"], "GET", 0),
        (["HTTP/1.1 204 No Content"], "GET", 0),
    ],
)
def test_response_head_tells_the_length_and_closes(
    lines: list[str], method: str, length: object
) -> None:
    response = response_of(head(*lines), method.encode())
    assert response.length == length
    assert response.head.endswith(b"\r\nConnection: close\r\n\r\n")
    assert b"keep-alive" not in response.head


def test_an_informational_response_does_not_close() -> None:
    assert response_of(head("HTTP/1.1 103 Early Hints", "Link: x"), b"GET").head == (
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    )


@pytest.mark.parametrize("line", ["HTTP/1.1 101 Switching", "HTTP/2 200", "200 OK", "HTTP/1.1 99"])
def test_an_invalid_response_is_refused(line: str) -> None:
    with pytest.raises(RefusedError) as caught:
        response_of(head(line), b"GET")
    assert caught.value.status == 502


@pytest.mark.parametrize(
    ("line", "size"),
    [(b"0", 0), (b"a", 10), (b"0A;x=y", 10), (b"1 ;x", 1)],
)
def test_chunk_begins_with_its_size_in_hexadecimal_digits(line: bytes, size: int) -> None:
    assert chunk_size_of(line) == size


@pytest.mark.parametrize(
    "line", [b"", b"g", b"-1", b"+1", b"0x1", b" 1", b"1\n", b"1\r", b"1" * 13]
)
def test_an_invalid_chunk_is_refused(line: bytes) -> None:
    with pytest.raises(RefusedError):
        chunk_size_of(line)


pieces = st.sampled_from(
    [
        *("GET ", "POST ", "CONNECT ", "http://a.org/", "a.org:443", " HTTP/1.1", " ", "\r\n"),
        *("Host: b.org", "Content-Length: 5", "Transfer-Encoding: chunked", "\r", "\n", ":", "\t"),
        *("Connection: ", "close", "X: ", "\0", "\x0b", ",", "5"),
    ]
)


@given(st.lists(pieces | st.text(max_size=3), max_size=25).map("".join))
def test_passed_on_head_is_one_unambiguous_request(text: str) -> None:
    message = text.encode("utf-8", "surrogatepass").split(b"\r\n\r\n")[0] + b"\r\n\r\n"
    with suppress(RefusedError):
        request = request_of(message)
        if request.is_tunnel:
            return
        lines = lines_of(request)
        for line in lines:
            assert not set(line) & set(b"\r\n\0")
        names = [line.split(b":")[0].lower() for line in lines[1:]]
        assert names.count(b"host") == 1
        assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
        assert lines[1].startswith(b"Host: " + request.host.encode())
        # The proxy itself understands the new head in the same way.
        again = lines[0].replace(b" ", b" http://a.org", 1)
        if lines[0].split()[1].startswith(b"/"):
            second = request_of(b"\r\n".join([again, *lines[1:], b"", b""]))
            assert second.length == request.length


names = st.sampled_from(["X", "x-y", "Content-Length", "Transfer-Encoding", "Connection", "Host"])
values = st.sampled_from(["5", "chunked", "close", "a", "x, x-y"]) | st.text(
    st.characters(max_codepoint=255), max_size=5
)
spaces = st.sampled_from(["", " ", "\t", "  "])
header_lines = st.builds(lambda *parts: "".join(parts), names, spaces, st.just(":"), spaces, values)
paths = st.sampled_from(["", "/", "/x?y", "?q", "/a/../b", "//c", "/%2e", "/http://d.org"])
methods = st.sampled_from(["GET", "POST", "OPTIONS", "HEAD", "get", "PUT"])


@given(methods, paths, st.lists(header_lines, max_size=5), st.sampled_from("01"))
def test_another_parser_understands_a_head_in_the_same_way(
    method: str, path: str, headers: list[str], minor: str
) -> None:
    h11 = pytest.importorskip("h11")
    with suppress(RefusedError):
        request = request_of(head(f"{method} http://a.org{path} HTTP/1.{minor}", *headers))
        server = h11.Connection(h11.SERVER)
        server.receive_data(request.head)
        seen = server.next_event()
        assert (seen.method, seen.http_version) == (method.encode(), b"1." + minor.encode())
        assert seen.target.startswith(b"/") or (method, seen.target) == ("OPTIONS", b"*")
        found = dict(seen.headers)
        assert found[b"host"] == b"a.org"
        assert [name for name, _ in seen.headers].count(b"host") == 1
        if request.length == "chunked":
            assert found[b"transfer-encoding"] == b"chunked"
        else:
            assert b"transfer-encoding" not in found
            assert int(found.get(b"content-length", b"0")) == request.length
