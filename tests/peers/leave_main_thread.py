"""A process whose first thread has ended while another runs: ps(1) shows it as a zombie.

The second thread waits until the first has ended. Then it writes the PID to the file named by the
argument, and sleeps.
"""

import ctypes
import os
import sys
import threading
import time

# Unlike pthread_exit(3), which would unwind the interpreter's frames, this system call only ends
# the calling thread.
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
FIRST_THREAD = f"/proc/self/task/{os.getpid()}/stat"


def state_of_first_thread() -> str:
    with open(FIRST_THREAD) as file:
        return file.read().rpartition(")")[2].split()[0]


def go_on() -> None:
    while state_of_first_thread() != "Z":
        time.sleep(0.001)
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(300)


threading.Thread(target=go_on, daemon=True).start()
ctypes.CDLL(None).syscall(SYS_EXIT, 0)
