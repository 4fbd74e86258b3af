"""A file system whose server never answers a read, in a mount namespace of its own.

Run it with a directory to mount on, a file for the log, and Python code. A child process runs the
code with `file`, a descriptor of a file in this file system. For each request, the log gets the
number of the operation, such as `READ`. The server answers every request except reads, so only
reads hang. If the server ends, the reads fail. The server ends after 100 seconds at the latest.
"""

import ctypes
import os
import signal
import struct
import sys

LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26
NOT_IMPLEMENTED = -38
LIFETIME_S = 100
NEW_NAMESPACE, PRIVATE = 0x20000, 0x44000


def attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, 4096, 8, *[0] * 6, mode, 1, 0, 0, 0, 4096, 0)


def answer_to(operation: int, node: int) -> bytes | None:
    # The kernel must cache nothing, so every answer is valid for 0 seconds.
    if operation == INIT:
        return struct.pack("<4IHHIIHH", 7, 31, 0, 0, 12, 10, 65536, 1, 0, 0) + bytes(32)
    if operation == LOOKUP:
        return struct.pack("<4Q2I", 2, *[0] * 5) + attributes(2)
    if operation == GETATTR:
        return bytes(16) + attributes(node)
    return struct.pack("<Q2I", 1, 0, 0) if operation == OPEN else None


def serve(server: int, log: str) -> None:
    while True:
        _, operation, request, node = struct.unpack_from("<2I2Q", os.read(server, 1 << 17))
        with open(log, "a", encoding="ascii") as file:
            file.write(f"{operation}\n")
        if operation != READ:
            answer = answer_to(operation, node)
            error = NOT_IMPLEMENTED if answer is None else 0
            body = answer or b""
            os.write(server, struct.pack("<IiQ", 16 + len(body), error, request) + body)


def main(folder: str, log: str, code: str) -> None:
    libc = ctypes.CDLL(None)
    server = -1
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
        if (
            libc.unshare(NEW_NAMESPACE)
            or libc.mount(b"none", b"/", None, PRIVATE, None)
            or libc.mount(b"silent", folder.encode(), b"fuse", 0, options)
        ):
            sys.exit("cannot be mounted")
    except OSError as error:
        sys.exit(str(error))
    if os.fork():
        signal.alarm(LIFETIME_S)
        serve(server, log)
    os.close(server)
    exec(code, {"file": os.open(f"{folder}/file", os.O_RDONLY)})


if __name__ == "__main__":
    main(*sys.argv[1:])
