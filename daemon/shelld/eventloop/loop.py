"""Provides an event loop that does not end when memory is short.

If a callback fails, asyncio describes the callback in the log. If there is also no memory for the
description, asyncio's loop ends, and so does the daemon. This loop continues until it is stopped.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

# The loop pauses for this time after a failure, because the shortage may last.
_PAUSE_S: Final = 0.01


class EventLoop(asyncio.SelectorEventLoop):
    _is_to_stop = False

    def stop(self) -> None:
        # If `run_forever` of the base class fails, the base class forgets the call of `stop`. So
        # record this call.
        self._is_to_stop = True
        super().stop()

    def run_forever(self) -> None:
        self._is_to_stop = False
        while True:
            try:
                super().run_forever()
            except MemoryError:
                if self._is_to_stop:
                    return
                # Only the failed callback is lost. All other callbacks that were due will run after
                # the pause.
                time.sleep(_PAUSE_S)
            else:
                return
