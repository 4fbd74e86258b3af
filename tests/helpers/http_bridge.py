"""Serve MCP's Streamable HTTP in front of a stdio daemon, for clients that need HTTP.

The bridge implements only the features that these clients need, and listens only on loopback. All
clients share one daemon; the bridge assigns its own request ids to route the answers back. A call
that asks for progress gets its answer as an event stream. The bridge validates the HTTP headers,
because the specification makes this the transport's task.
"""

from __future__ import annotations

import itertools
import json
import queue
import re
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from support import Json, RawDaemon

META_VERSION = "io.modelcontextprotocol/protocolVersion"
HEADER_MISMATCH = -32020
# The HTTP status for each JSON-RPC error code. The bridge sends all other errors with 200.
STATUS = {-32700: 400, -32600: 400, -32602: 400, -32022: 400, HEADER_MISMATCH: 400, -32601: 404}
# For each method, the name of a parameter. The header `Mcp-Name` repeats the value of this
# parameter.
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


_LOOPBACK = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost)(?::\d+)?")


class Bridge:
    """The bridge sends requests with ids that no two clients share."""

    def __init__(self, daemon: RawDaemon) -> None:
        self._daemon = daemon
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.Queue[Json]] = {}
        # Requests that asked for progress, by token.
        self._tokens: dict[str, tuple[int, Any]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def notify(self, message: Json) -> None:
        with self._lock:
            self._daemon.send(message)

    def exchange(self, message: Json) -> Iterator[Json]:
        """Send a request; yield its notifications, if it wants any, then its answer."""
        number = next(self._ids)
        inbox: queue.Queue[Json] = queue.Queue()
        self._waiting[number] = inbox
        sent = {**message, "id": number}
        meta = _object(_object(message.get("params")).get("_meta"))
        if "progressToken" in meta:
            token = f"token-{number}"
            self._tokens[token] = (number, meta["progressToken"])
            sent["params"] = {**message["params"], "_meta": {**meta, "progressToken": token}}
        self.notify(sent)
        while True:
            received = inbox.get(timeout=30)
            if "id" in received:
                del self._waiting[number]
                yield {**received, "id": message["id"]}
                return
            yield received

    def _read(self) -> None:
        while True:
            try:
                message = self._daemon.receive(600)
            except (AssertionError, OSError, ValueError):
                return
            if "id" in message:
                self._waiting[message["id"]].put(message)
            else:
                number, token = self._tokens[message["params"]["progressToken"]]
                message["params"]["progressToken"] = token
                if number in self._waiting:
                    self._waiting[number].put(message)


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def header_problem(message: Json, headers: Any) -> str | None:
    """Return what is wrong with the headers of a request of MCP's modern era, or None."""
    params = _object(message.get("params"))
    meta = _object(params.get("_meta"))
    if META_VERSION not in meta:
        return None
    if headers.get("MCP-Protocol-Version") != meta[META_VERSION]:
        return "MCP-Protocol-Version does not match the message"
    if headers.get("Mcp-Method") != message["method"]:
        return "Mcp-Method does not match the message"
    name = params.get(NAMES.get(message["method"], ""))
    if name is not None and (headers.get("Mcp-Name") or "").strip() != name:
        return "Mcp-Name does not match the message"
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bridge: Bridge

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        host = self.headers.get("Host") or ""
        if not all(_LOOPBACK.fullmatch(each) for each in (host, self.headers.get("Origin", host))):
            # Prevent DNS rebinding.
            self._send(403, b"")
            return
        message = json.loads(body)
        if "id" not in message:
            self.bridge.notify(message)
            self._send(202, b"")
            return
        if (problem := header_problem(message, self.headers)) is not None:
            error = {"code": HEADER_MISMATCH, "message": problem}
            self._answer({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        received = self.bridge.exchange(message)
        first = next(received)
        if "id" in first:
            self._answer(first)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for each in itertools.chain([first], received):
            self.wfile.write(b"event: message\ndata: " + json.dumps(each).encode() + b"\n\n")
            self.wfile.flush()
        self.close_connection = True

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(405, b"")

    def _answer(self, message: Json) -> None:
        code = message["error"]["code"] if "error" in message else None
        self._send(STATUS.get(code, 200) if code else 200, json.dumps(message).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing, because the test reports failures."""


@contextmanager
def http_bridge(daemon: RawDaemon) -> Generator[str]:
    """Serve the daemon on a free port of loopback; yield the URL."""
    handler = type("Handler", (_Handler,), {"bridge": Bridge(daemon)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
