"""Begins a connection: sends shelld itself if necessary, and finds the greeting. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from shelld.targets.bootstrap import Bootstrap, Over
from shelld.targets.greeting import (
    Greeting,
    GreetingReader,
    NoGreetingError,
    check_version,
)
from shelld.targets.incoming import decode_message
from shelld.targets.naming import named_error
from shelld_protocol.encoding import decode

_greeting: Final = msgspec.json.Decoder(Greeting)


class Opened(NamedTuple):
    """Holds the target's greeting. `rest` is the data after the greeting."""

    greeting: Greeting
    rest: bytes


class Opening:
    """Send `first`.

    Pass all received bytes to `receive`, and send the bytes that it returns, until it returns
    `Opened`.
    """

    def __init__(self, target: str, bootstrap: Bootstrap | None) -> None:
        self._target = target
        self._bootstrap = bootstrap
        self._reader = GreetingReader()
        request = self._reader.request + b"\n"
        self.first = request if bootstrap is None else bootstrap.first
        self._request = request

    @property
    def texts(self) -> tuple[bytes, bytes]:
        """The received text that is not part of the bootstrap or the greeting. Errors quote it."""
        before = b"" if self._bootstrap is None else self._bootstrap.text
        return before, self._reader.banner

    def receive(self, data: bytes) -> bytes | Opened:
        """Return the bytes to send, or `Opened` once the greeting has come.

        Raises `RpcError` if the target cannot be used, and NoGreetingError if the peer does not
        speak the protocol or refuses the first request.
        """
        reply = b""
        if self._bootstrap is not None:
            step = self._bootstrap.receive(data)
            if not isinstance(step, Over):
                return step
            self._bootstrap, data, reply = None, step.rest, self._request
        found = self._reader.receive(data)
        if found is None:
            return reply
        try:
            answer = decode_message(found[0])
            if bytes(answer.error):
                refusal = named_error(self._target, bytes(answer.error)).message
                raise NoGreetingError(f"it has refused the first request: {refusal:.200}")
            greeting = decode(answer.result, _greeting)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise NoGreetingError from None
        check_version(self._target, greeting)
        return Opened(greeting, found[1])
