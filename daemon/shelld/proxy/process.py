"""Runs the daemon's side of a proxy: starts the process, and starts another one if it ends.

Owns the listening socket of the sandbox, the runner of the process, and the socket that connects
the daemon to the process. A runner starts the process in the same way as a command. So the process
ends when `close` closes the runner's channel, or when the daemon is gone.

While there is no process, connections wait in the listening socket. Only a proxy can accept these
connections, so a sandbox without a proxy reaches no host.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio

from shelld.keeper.channel import RUN, Channel
from shelld.keeper.pool import RunnerPool
from shelld.process.logs import Log
from shelld.proxy import DENIED, SERVE, SERVING, Reason

logger = Log("shelld.proxy")

# If a process has run for less than this when it ends, the daemon waits for this long before it
# starts the next process.
_PAUSE_S: Final = 1.0

_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); from shelld.proxy.main import main; main()"
)
# The directory in which the program finds `shelld`.
_OURS: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
# These variables say how the C library resolves names, and where the interpreter finds its
# libraries.
_VARIABLES: Final = (b"LD_LIBRARY_PATH", b"LOCALDOMAIN", b"RES_OPTIONS")

# An entry in a DENIED message. Its items are the pid of the runner (0 if unknown), the host, the
# port, the reason, the number of refusals, and a time.
Entry = tuple[int, str, int, Reason, int, float]


class Proxy:
    """`note` is called once for each entry of a DENIED message. `hosts`: the hosts of the
    policy.
    """

    def __init__(
        self, pool: RunnerPool, hosts: Sequence[str], note: Callable[[Entry], None]
    ) -> None:
        self._pool = pool
        self._hosts = list(hosts)
        self._note = note
        self._runner: Channel | None = None
        self._control: Channel | None = None
        self._listener: int | None = None
        self._first = 0
        self._started_at = 0.0
        self._is_serving = False

    def start(self) -> None:
        """Start the process, before there is anything to serve. Raises OSError."""
        self._started_at = time.monotonic()
        self._runner = self._pool.acquire()
        self._control, theirs = Channel.pair()
        command = (sys.executable, "-I", "-S", "-c", _BOOT, _OURS)
        argv = [os.fsencode(word) for word in command]
        env = {name: os.environb[name] for name in _VARIABLES if name in os.environb}
        with theirs, open(os.devnull, "wb") as null:
            descriptors = (theirs.fileno(), null.fileno(), null.fileno())
            what = (argv[0], argv, env, b"/", len(descriptors), False, None)
            self._runner.send((RUN, *what), descriptors)

    async def serve(self, listener: int, first: int) -> bool:
        """Give the listening socket to the process. This object owns the socket from now on.

        Returns False if the process has ended. `first`: see SERVE.
        """
        self._listener, self._first = listener, first
        with suppress(OSError):
            self._hand_over()
        while not self._is_serving:
            if not await self._receive():
                return False
        return True

    async def run(self) -> None:
        """Handle the messages of the process, and replace the process if it ends."""
        while True:
            if await self._receive():
                continue
            logger.info("the proxy of a sandbox has ended, and another one starts")
            if time.monotonic() - self._started_at < _PAUSE_S:
                await anyio.sleep(_PAUSE_S)
            self._end()
            # If the system has no free descriptors or processes, the start fails. The loop then
            # tries again.
            with suppress(OSError):
                self.start()
                self._hand_over()

    def _hand_over(self) -> None:
        assert self._control is not None
        assert self._listener is not None
        self._control.send((SERVE, self._first, self._hosts), (self._listener,))

    async def _receive(self) -> bool:
        """Wait for messages. Return False if the process is gone."""
        if self._control is None:
            return False
        await anyio.wait_readable(self._control)
        return self.collect()

    def collect(self) -> bool:
        """Handle the messages that have arrived. Return False if the process is gone."""
        messages = None if self._control is None else self._control.receive()
        for message, _ in messages or ():
            if message[0] == SERVING:
                self._is_serving = True
            elif message[0] == DENIED:
                for entry in message[1]:
                    self._note(entry)
        return messages is not None

    def _end(self) -> None:
        self._is_serving = False
        # Even if a call fails here, the channels close when nothing refers to them any more.
        control, self._control = self._control, None
        runner, self._runner = self._runner, None
        for channel in (control, runner):
            if channel is not None:
                channel.close()

    def close(self) -> None:
        """End the process.

        In a forked child, this method closes only the child's copies of the descriptors.
        """
        try:
            self._end()
        finally:
            if self._listener is not None:
                os.close(self._listener)
                self._listener = None
