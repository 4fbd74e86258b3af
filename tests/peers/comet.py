"""No scan can find this process, because it forks its successor after 1 ms in its own session.

It writes to fd 9 once when it starts, and ends by itself after 30 s.

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
