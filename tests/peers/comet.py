"""A comet: a chain of processes that no scan can find.

Each process forks the next one, and ends 1 ms later. The next process starts a session of its own,
and forks at once. The comet writes to fd 9 once when it starts, and ends by itself within 30 s.

On a machine without a spare processor, no process can reap as fast as comets end. So the argument
limits how often one comet forks, because all comets together must not use up the machine's pids.
"""

import os
import sys
import time

LIFE_S = 0.001
END = time.monotonic() + 30

os.write(9, b"ready\n")
for _ in range(int(sys.argv[1])):
    if time.monotonic() > END:
        break
    if os.fork():
        time.sleep(LIFE_S)
        os._exit(0)
    os.setsid()
