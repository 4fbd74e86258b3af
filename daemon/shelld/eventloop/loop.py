"""An event loop that a shortage of memory does not end.

If a callback fails, asyncio describes the callback in the log. If there is no memory for the
description either, asyncio's loop ends, and with it the daemon. This loop goes on, until it is
stopped.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

# After a failure, the loop pauses: the shortage may last.
_PAUSE_S: Final = 0.01


class EventLoop(asyncio.SelectorEventLoop):
    _is_to_stop = False

    def stop(self) -> None:
        # The base class forgets this when it fails.
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
                # What was ready stays so, and runs now. Only the failed callback is lost.
                time.sleep(_PAUSE_S)
            else:
                return
