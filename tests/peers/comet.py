"""A process that is never there when it is looked for: it lives 1 ms, in a session of its own, and
hands over to a child. Tells fd 9 once that it flies; ends by itself after a while."""

import os
import time

LIFE_S = 0.001
END = time.monotonic() + 30

os.write(9, b"ready\n")
while time.monotonic() < END:
    if os.fork():
        time.sleep(LIFE_S)
        os._exit(0)
    os.setsid()
