"""Stop the process with the given pid as a debugger does, report the stop, and never continue
it.
"""

import ctypes
import os
import sys
import time

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207

ptrace = ctypes.CDLL(None, use_errno=True).ptrace
pid = int(sys.argv[1])
if ptrace(PTRACE_SEIZE, pid, None, None) or ptrace(PTRACE_INTERRUPT, pid, None, None):
    os.write(1, os.strerror(ctypes.get_errno()).encode())
else:
    os.waitpid(pid, 0)
    os.write(1, b"stopped")
time.sleep(300)
