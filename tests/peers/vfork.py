"""A parent blocked in vfork(2): its child waits for a FIFO before it calls exec.

The argument is the FIFO, which nobody writes to.
"""

import os
import sys

os.write(9, b"ready\n")
os.posix_spawn(
    "/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
)
