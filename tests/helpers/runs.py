"""One command on its own runner, without the daemon."""

from __future__ import annotations

import os

from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    RUN,
    STARTED,
    Channel,
    Message,
)
from shelld.keeper.pool import RunnerPool
from support import is_readable


class Run:
    """One command on its own runner."""

    def __init__(
        self,
        pool: RunnerPool,
        command: bytes,
        *,
        env: dict[bytes, bytes] | None = None,
        channel: Channel | None = None,
    ):
        self.channel = channel or pool.acquire()
        null = os.open(os.devnull, os.O_RDWR)
        argv = [b"/bin/bash", b"-c", command]
        self.channel.send(
            (RUN, argv[0], argv, dict(os.environb) if env is None else env, b"", 3, False, None),
            (null,) * 3,
        )
        os.close(null)
        self.messages: list[Message] = []

    def until(self, kind: int) -> Message:
        """Return the first message of this kind, without losing the others."""
        while True:
            for message in self.messages:
                if message[0] == kind:
                    return message
            assert is_readable(self.channel)
            received = self.channel.receive()
            assert received is not None, "the runner is gone"
            self.messages += [message for message, _ in received]

    def until_empty(self) -> None:
        """Wait until no process is left. The message EXITED may already report this; otherwise,
        EMPTY reports it later.
        """
        if not self.until(EXITED)[-1]:
            self.until(EMPTY)

    @property
    def runner(self) -> int:
        """Return the runner's pid."""
        self.until(STARTED)
        assert self.channel.peer is not None
        return self.channel.peer.pid

    def kinds(self) -> list[int]:
        return [message[0] for message in self.messages]
