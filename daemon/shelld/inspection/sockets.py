"""Lists the TCP sockets that listen in the network namespace of a process.

sock_diag(7) is a hundred times faster than /proc/net/tcp. To produce that file, the kernel goes
through all connections of the machine. But sock_diag covers only the namespace of the caller. For
other namespaces, and if the kernel lacks sock_diag, this module reads /proc.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from shelld.keeper.proc import read_file
from shelld_protocol.errors import exhausted_limit

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_PIECE_BYTES: Final = 64 * 1024

# These numbers are from linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST_DUMP: Final = 0x301
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_TCP_LISTEN: Final = 10
# The header of a message has its length, its type, flags, a sequence number and a pid.
_HEADER: Final = struct.Struct("=IHHII")
# A question asks the kernel for a list of sockets. Its fields are family, protocol, extensions,
# padding and states. After these fields come 48 bytes that select one socket.
_QUESTION: Final = struct.Struct("=BBBBI48x")
# After four bytes, an answer has the port, the port of the peer, and the address. The inode follows
# after many other fields.
_ANSWER: Final = struct.Struct("!4xHxx16s")
_INODE: Final = struct.Struct("=68xI")

_IN_USE: Final = re.compile(rb"^TCP6?: inuse (\d+)", re.MULTILINE)

# The value of `_TCP_LISTEN` in the form that /proc uses. The kernel lists the sockets in this state
# before all other sockets.
_LISTENS: Final = b"0A"


class Socket(NamedTuple):
    inode: int
    port: int
    address: str


@cache
def can_be_listed() -> bool:
    """Return whether this system can list listening sockets.

    Raises OSError if the system is short of memory or descriptors.
    """
    try:
        listening("/proc/self")
    except OSError as error:
        if exhausted_limit(error.errno or 0):
            raise
        return False
    return True


def listening(proc_dir: str) -> list[Socket]:
    """Return the sockets that listen in the namespace of a process. Raises OSError.

    `proc_dir`: the directory of the process, or of one of its threads, in /proc.
    """
    if os.stat(f"{proc_dir}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
        with contextlib.suppress(OSError):
            return [each for family in _FAMILIES for each in _asked(family)]
    found = read_table(socket.AF_INET, f"{proc_dir}/net/tcp")
    with contextlib.suppress(FileNotFoundError):
        # The system may have no IPv6.
        found += read_table(socket.AF_INET6, f"{proc_dir}/net/tcp6")
    return found


def number_of(proc_dir: str) -> int | None:
    """Return how many TCP sockets of a namespace are listening or connected; None if unknown.

    This is much faster than listing the sockets. `proc_dir` has the same meaning as in `listening`.
    Raises OSError.
    """
    try:
        content = read_file(f"{proc_dir}/net/sockstat")
    except FileNotFoundError:
        return None
    with contextlib.suppress(FileNotFoundError):
        # The system may have no IPv6.
        content += read_file(f"{proc_dir}/net/sockstat6")
    numbers = _IN_USE.findall(content)
    return sum(map(int, numbers)) if numbers else None


# -- sock_diag --------------------------------------------------------------------------------


def _asked(family: int) -> Iterator[Socket]:
    """Yield the sockets in the kernel's answer. Raises OSError if the kernel refuses."""
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _TCP_LISTEN)
    size = _HEADER.size + len(question)
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0) + question)
        while True:
            data = memoryview(kernel.recv(_PIECE_BYTES))
            while data:
                size, message, *_ = _HEADER.unpack_from(data)
                if message == _NLMSG_DONE:
                    return
                if message == _NLMSG_ERROR:
                    raise OSError
                yield _answered(family, data[_HEADER.size : size])
                # The lengths of messages are rounded up to multiples of four bytes.
                data = data[(size + 3) & ~3 :]


def _answered(family: int, body: memoryview) -> Socket:
    port, address = _ANSWER.unpack_from(body)
    (inode,) = _INODE.unpack_from(body)
    return Socket(
        inode, port, socket.inet_ntop(family, address[: 4 if family == socket.AF_INET else 16])
    )


# -- /proc ------------------------------------------------------------------------------------


def read_table(family: int, path: str) -> list[Socket]:
    found: list[Socket] = []
    with open(path, "rb", buffering=_PIECE_BYTES) as file:
        next(file, None)
        for line in file:
            fields = line.split()
            if fields[3] != _LISTENS:
                break
            host, _, port = fields[1].partition(b":")
            found.append(Socket(int(fields[9]), int(port, 16), address_of(family, host)))
    return found


def address_of(family: int, words: bytes) -> str:
    """Return the address in its usual form. The kernel writes words in the machine's byte order."""
    parts = [int(words[at : at + 8], 16) for at in range(0, len(words), 8)]
    return socket.inet_ntop(family, b"".join(part.to_bytes(4, sys.byteorder) for part in parts))
