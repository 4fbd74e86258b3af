"""Reads the head of one HTTP request to the proxy, and the head of one response. Pure.

The module is strict: it refuses each message that two programs could understand differently. So the
origin server understands the same request that the proxy has judged. The proxy sends a new request
to the origin server, with the judged host in `Host`.

Invariants:

* A request has at most one length: a Content-Length, or the transfer coding chunked.
* Headers that concern only one connection are not passed on.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from shelld.proxy.hosts import HostError, split, written

# Web servers allow 8 to 16 KiB of headers; some cookies are long.
MAX_HEAD_BYTES: Final = 32 * 1024
_MAX_HEADERS: Final = 100
# No real file has a length with more digits.
_MAX_LENGTH_DIGITS: Final = 15

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_HEADER: Final = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_DIGITS: Final = re.compile(rb"[0-9]{1,%d}" % _MAX_LENGTH_DIGITS)
_SCHEME: Final = b"http://"
_HTTP_PORT: Final = 80

# These headers apply to one connection only, so they are not passed on.
_HOP_BY_HOP: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization"),
        *(b"proxy-authenticate", b"te", b"trailer", b"upgrade", b"expect", b"http2-settings"),
    )
)
_LENGTHS: Final = (b"content-length", b"transfer-encoding")
# `Connection` must not list these headers, because a request without them would mean something
# else.
_KEPT: Final = frozenset((b"host", *_LENGTHS))

# The length of a body: a number of bytes, "chunked" for a chunked body, or "rest" for a body that
# ends when the connection ends.
Length = int | Literal["chunked", "rest"]
Header = tuple[bytes, bytes]


class RefusedError(Exception):
    """Raised for a message that is not passed on.

    `status`: the status of the answer. The text is a message for users.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request(NamedTuple):
    """`head`: the head that the origin server gets, or b"" for a tunnel (CONNECT).

    `awaits`: the client sends the body only after "100 Continue".
    """

    method: bytes
    host: str
    port: int
    head: bytes = b""
    length: Length = 0
    awaits: bool = False

    @property
    def is_tunnel(self) -> bool:
        return self.method == b"CONNECT"


class Response(NamedTuple):
    """`head`: the head that the client gets."""

    status: int
    head: bytes
    length: Length


def request_of(head: bytes) -> Request:
    """Return the request with this head, which ends with an empty line. Raises `RefusedError`."""
    first, headers = _lines(head)
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise RefusedError(400, "The request line is invalid")
    method, target, minor = line.groups()
    if method == b"CONNECT":
        host, port = _authority(target)
        if port is None:
            raise RefusedError(400, "A tunnel needs a port")
        return Request(method, host, port)
    if not target.lower().startswith(_SCHEME):
        problem = "This is a proxy: it takes CONNECT, and URLs that begin with http://"
        raise RefusedError(400, problem)
    rest = target[len(_SCHEME) :]
    authority = re.split(rb"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    if b"#" in path:
        raise RefusedError(400, "The URL has a fragment")
    host, given_port = _authority(authority)
    port = given_port or _HTTP_PORT
    length = _length(headers)
    if length == "chunked" and minor == b"0":
        raise RefusedError(400, "HTTP/1.0 has no transfer codings")
    if not path.startswith(b"/"):
        path = b"*" if method == b"OPTIONS" and not path else b"/" + path
    host_header = host if port == _HTTP_PORT and ":" not in host else written(host, port)
    kept = [(b"Host", host_header.encode()), *_passed_on(headers)]
    # The server must know which version the client understands, because HTTP/1.0 has no chunks.
    new = _head(b"%s %s HTTP/1.%s" % (method, path, minor), kept)
    awaits = minor == b"1" and any(name == b"expect" for name, _ in map(_lower, headers))
    return Request(method, host, port, new, 0 if length is None else length, awaits)


def response_of(head: bytes, method: bytes) -> Response:
    """Return the response that has this head.

    `method` is the method of its request. Raises `RefusedError`.
    """
    try:
        first, headers = _lines(head)
        line = _STATUS_LINE.fullmatch(first)
        status = 0 if line is None else int(line[1])
        if line is None or status == 101:
            raise RefusedError(502, "The status line is invalid")
        length = _length(headers)
        if method == b"HEAD" or status in (204, 304) or status < 200:
            length = 0
        is_final = status >= 200
        new = _head(first, _passed_on(headers, is_response=True), closes=is_final)
    except RefusedError:
        raise RefusedError(502, "The response of the origin server is invalid") from None
    return Response(status, new, "rest" if length is None else length)


def chunk_size_of(line: bytes) -> int:
    """Return the size of a chunk. `line`: the line before the chunk, without its line end. Raises
    `RefusedError`.
    """
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise RefusedError(400, "A chunk is invalid")
    return int(found[1], 16)


def _lines(head: bytes) -> tuple[bytes, list[Header]]:
    """Return the first line and the headers."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(lines) > _MAX_HEADERS:
        raise RefusedError(431, "There are too many headers")
    headers: list[Header] = []
    for line in lines:
        # A lone CR or LF does not match. A line that continues the previous line does not match
        # either.
        found = _HEADER.fullmatch(line)
        if found is None:
            raise RefusedError(400, "A header is invalid")
        headers.append((found[1], found[2].strip(b" \t")))
    return first, headers


def _lower(header: Header) -> Header:
    return header[0].lower(), header[1]


def _authority(text: bytes) -> tuple[str, int | None]:
    try:
        return split(text.decode("ascii"))
    except HostError as error:
        raise RefusedError(400, f"The URL cannot be used: it {error}") from None


def _length(headers: list[Header]) -> int | Literal["chunked"] | None:
    """Return the length that the headers give; None if they give none."""
    found = [header for header in map(_lower, headers) if header[0] in _LENGTHS]
    if not found:
        return None
    name, value = found[0]
    if len(found) == 1 and name == b"content-length" and _DIGITS.fullmatch(value):
        return int(value)
    if len(found) == 1 and name == b"transfer-encoding" and value.lower() == b"chunked":
        return "chunked"
    raise RefusedError(400, "The headers do not say clearly how long the body is")


def _passed_on(headers: list[Header], *, is_response: bool = False) -> list[Header]:
    """Return the headers that concern both the client and the origin server, and not only one
    connection. Leave out the `Host` of a request, because the caller writes a new one.
    """
    named = {
        name.strip().lower()
        for header, value in map(_lower, headers)
        if header in (b"connection", b"proxy-connection")
        for name in value.split(b",")
    }
    if named & _KEPT:
        raise RefusedError(400, "The Connection header lists a header that must be passed on")
    dropped = _HOP_BY_HOP | named
    if not is_response:
        dropped |= {b"host"}
    return [header for header in headers if header[0].lower() not in dropped]


def _head(first: bytes, headers: list[Header], *, closes: bool = True) -> bytes:
    ending = [(b"Connection", b"close")] if closes else []
    lines = [first, *(b"%s: %s" % header for header in [*headers, *ending])]
    return b"\r\n".join(lines) + b"\r\n\r\n"
