"""A server that reads and writes lines on stdin and stdout, in JSON or in a language of its own."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from compare.contestant import LIMIT_S, NoAnswer
from measure import family_of

CHUNK = 1 << 20


class LineServer:
    """`send` sends a request; `messages` yields incoming messages in order."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._ids = itertools.count(1)

    def pids(self) -> list[int]:
        return family_of(self._process.pid)

    def send(self, method: str, params: object = None, *, jsonrpc: bool = True) -> int:
        """Send a request; return its id."""
        request_id = next(self._ids)
        # Without params, omit the member, because some servers reject null.
        more = {} if params is None else {"params": params}
        self._write({"id": request_id, "method": method, **more}, jsonrpc)
        return request_id

    def notify(self, method: str, *, jsonrpc: bool = True) -> None:
        self._write({"method": method}, jsonrpc)

    def _write(self, message: dict[str, object], jsonrpc: bool) -> None:
        if jsonrpc:
            message["jsonrpc"] = "2.0"
        self.write(msgspec.json.encode(message))

    def write(self, line: bytes) -> None:
        try:
            self._stdin.write(line + b"\n")
        except OSError as error:
            raise NoAnswer("it has ended") from error

    def messages(self, limit_s: float = LIMIT_S) -> Iterator[dict[str, Any]]:
        """Yield the messages that come within `limit_s` seconds, then raise `NoAnswer`."""
        for line in self.lines(limit_s):
            message = msgspec.json.decode(line)
            if isinstance(message, dict):
                yield message

    def lines(self, limit_s: float = LIMIT_S) -> Iterator[bytes]:
        """Yield the lines that come within `limit_s` seconds, without decoding them. Then raise
        `NoAnswer`.
        """
        deadline = time.monotonic() + limit_s
        while True:
            while self._lines:
                yield self._lines.popleft()
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._stdout], [], [], left)[0]:
                raise NoAnswer(f"no answer in {limit_s:g} s")
            self._receive()

    def _receive(self) -> None:
        data = os.read(self._stdout.fileno(), CHUNK)
        if not data:
            raise NoAnswer("it has ended")
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._partial.append(line)
            self._lines.append(b"".join(self._partial))
            self._partial.clear()
        if rest:
            self._partial.append(rest)

    def answer(self, request_id: int, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Return the full message that answers a request."""
        for message in self.messages(limit_s):
            if message.get("id") == request_id and "method" not in message:
                return message
        raise AssertionError

    def crash(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()
