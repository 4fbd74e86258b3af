"""Reads the stream of requests. Goes on if our own code fails.

Owns the bytes that were read and not framed yet, and knows whether and why the stream has ended.
Never reads the content of a message. `start` takes the frames.

Invariant: all bytes that were read are framed, even if the attempt that has read them fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from shelld.process import faults
from shelld.server.stdio import Input
from shelld_protocol.framing import FrameReader

# After a failure, the reader tries again after a pause. After a few faults in a row, it gives up.
# After shortages, it tries again many more times, because a shortage may last a minute.
READ_PAUSE_S: Final = 0.1
MAX_READ_FAULTS: Final = 3
MAX_READ_SHORTAGES: Final = 600

# If a client does not read its answers, the reader checks at this interval whether the client has
# closed its end.
HANG_UP_CHECK_S: Final = 0.25


class RequestReader:
    """Puts all bytes that it reads into `frames`.

    `start` starts the requests that have arrived, and returns False if there is no room for all.
    `wait_for_room` waits until there may be room. `wants_no_more` returns whether to stop before
    the end of the stream.
    """

    def __init__(
        self,
        source: Input,
        frames: FrameReader,
        *,
        start: Callable[[], bool],
        wait_for_room: Callable[[], Awaitable[None]],
        wants_no_more: Callable[[], bool],
    ) -> None:
        # The reason why the reader gave up before the end of the stream, or None.
        self.failure: str | None = None
        # True if everything was read up to the end of the stream.
        self.at_end = False
        # True if the client has hung up. Then the stream ends after the bytes that are still
        # unread.
        self._is_hung_up = False
        self._source = source
        self._frames = frames
        self._start = start
        self._wait_for_room = wait_for_room
        self._wants_no_more = wants_no_more
        # Bytes that were read but not framed yet; b"" means the end of file.
        self._received: bytes | None = None
        # The number of failed reads in a row, and how many of these failures were not caused by a
        # shortage.
        self._failures = self._faults = 0

    @property
    def is_ending(self) -> bool:
        """True if the client has closed its end of the stream."""
        return self.at_end or self._is_hung_up

    async def run(self) -> None:
        """Read until the stream ends, the reader gives up, or `wants_no_more` returns True."""
        while not self._is_over:
            try:
                if self._failures:
                    await faults.pause(READ_PAUSE_S)
                await self._read()
            except Exception as error:
                self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        is_fault = not faults.is_shortage(error)
        if not self._failures or (is_fault and not self._faults):
            faults.report("the reader of requests")
        self._failures += 1
        self._faults += is_fault
        if self._faults >= MAX_READ_FAULTS:
            self.failure = "an unexpected error"
        elif self._failures >= MAX_READ_SHORTAGES:
            self.failure = "the system is short of memory or another resource"

    @property
    def _is_over(self) -> bool:
        # After a failed attempt, some requests may not have started, so the reader must try again.
        is_done = self.at_end and not self._failures
        return is_done or self.failure is not None or self._wants_no_more()

    async def _read(self) -> None:
        # Process the bytes that a failed attempt has read.
        self._frame_received()
        while not (self._is_over or self._start()):
            await self._wait_to_read()
        if self.at_end:
            self._failures = self._faults = 0
        if not self._is_over:
            await self._source.watch(self._receive)

    def _receive(self) -> bool:
        """Read bytes, and start the requests that have arrived.

        Return True to stop reading for now.
        """
        self._received = self._source.read()
        self._frame_received()
        has_room = self._start()
        self._failures = self._faults = 0
        return not has_room or self._is_over

    def _frame_received(self) -> None:
        data = self._received
        if data:
            self._frames.receive_data(data)
        elif data is not None:
            self.at_end = True
            self._frames.receive_eof()
        self._received = None

    async def _wait_to_read(self) -> None:
        """Wait until there is room, or until the client has closed its end of the stream.

        If the client has closed its end, little is left to read, and the daemon must see the end of
        file.
        """
        while True:
            with anyio.move_on_after(HANG_UP_CHECK_S):
                await self._wait_for_room()
                return
            if self._source.is_hung_up():
                self._is_hung_up = True
                return
