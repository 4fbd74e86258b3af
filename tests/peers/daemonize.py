"""Escape like a daemon: a double fork, a new session, every descriptor closed.

Such a process cannot hold a witness, so it beats: it appends one byte per tick to the file named by
its argument.
"""

import os
import sys
import time

TICK_S = 0.005
END = time.monotonic() + 30

os.write(9, b"ready\n")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        while time.monotonic() < END:
            beat = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(beat, b".")
            os.close(beat)
            time.sleep(TICK_S)
    os._exit(0)
os._exit(0)
