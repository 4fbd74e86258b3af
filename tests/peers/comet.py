"""A process that is never there when it is looked for: it lives 1 ms, in a session of its own, and
hands over to a child. Tells fd 9 once that it flies; ends by itself after 30 s.

Nobody may reap as fast as comets end, on a machine that has no processor to spare. So the argument
limits how often one hands over: together they must not take all the pids of the machine.
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
