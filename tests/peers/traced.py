"""A stopped child under ptrace(2), and a tracer that never lets it continue."""

import ctypes
import os
import signal
import time

PTRACE_TRACEME = 0

pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).ptrace(PTRACE_TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(pid, os.WUNTRACED)
os.write(9, b"ready\n")
time.sleep(60)
