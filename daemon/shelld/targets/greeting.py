"""Finds the target's first answer in the received bytes, after any other text. Pure.

A login may print a banner, and a terminal between the two daemons may echo the request. So only the
answer to the first request shows where the protocol begins.
"""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from shelld_protocol.about import PROTOCOL
from shelld_protocol.errors import RpcError, unavailable

# A target may write other text before its first answer, for example at a login. The daemon accepts
# at most this many bytes of such text.
MAX_BANNER_BYTES: Final = 64 * 1024
# An error quotes at most this many bytes of such text and of the target's standard error.
QUOTED_BYTES: Final = 4_096


class _Limits(msgspec.Struct, rename="camel"):
    max_message_bytes: int


class Greeting(msgspec.Struct):
    """Describes the target. It is the result of ``server_info``."""

    version: str
    protocol: int
    limits: _Limits


class NoGreetingError(Exception):
    """The peer does not speak the protocol, or has refused the first request."""

    def __init__(self, problem: str = "it does not speak the protocol of shelld") -> None:
        super().__init__(problem)


class GreetingReader:
    """Finds the greeting. Pass all received bytes to `receive` until it returns the first answer.

    `request` is the first request to send. `banner` is the text before the answer.
    """

    def __init__(self) -> None:
        # Use a random id, because output from an earlier connection cannot contain it.
        request_id = f"greeting-{os.urandom(8).hex()}"
        self.request = b'{"jsonrpc":"2.0","id":"%b","method":"server_info"}' % request_id.encode()
        self._answer = re.compile(
            rb'\{"jsonrpc":"2\.0","id":"%b",(?="result"|"error")' % request_id.encode()
        )
        self._received = bytearray()
        self.banner = b""

    def receive(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Take the next bytes.

        Return the first answer and the bytes after it, or None before it is complete. Raises
        NoGreetingError if there is too much other text.
        """
        self._received += data
        if (found := self._answer.search(self._received)) is None:
            self.banner = bytes(self._received)
            if len(self._received) > MAX_BANNER_BYTES:
                raise NoGreetingError
            return None
        self.banner = bytes(self._received[: found.start()])
        answer, end, rest = self._received[found.start() :].partition(b"\n")
        if not end:
            if len(answer) > MAX_BANNER_BYTES:
                raise NoGreetingError
            return None
        self._received = bytearray()
        return bytes(answer), bytes(rest)


def check_version(target: str, greeting: Greeting) -> None:
    """Raise `RpcError` (unavailable) for a target with another version of the protocol."""
    if greeting.protocol != PROTOCOL:
        raise _other_version(target, greeting)


def _other_version(target: str, greeting: Greeting) -> RpcError:
    hint = (
        f"The shelld there has version {greeting.version:.50} and protocol {greeting.protocol}. "
        f"Install a version with protocol {PROTOCOL}."
    )
    return unavailable(f"target {target}", f"protocol {PROTOCOL}", hint)


def quoted(*texts: bytes) -> str:
    """Return the last part of the text that a program has written, for use in an error."""
    lines = b"\n".join(text.strip() for text in texts if text.strip())
    text = lines[-QUOTED_BYTES:].decode("utf-8", "replace")
    return "".join(each for each in text if each.isprintable() or each in "\n\t")


def last_line(text: str) -> str:
    return text.rpartition("\n")[2][:200].strip()
