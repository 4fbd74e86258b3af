"""Runs the keeper of a sandbox. It is the first program in new namespaces, and the daemon's module
`sandbox` starts it.

This keeper protects itself and its runners from the commands, and then serves like any other
keeper. Commands run as the same user and see the keeper and its runners. But no command can trace
these processes, or read their memory or their descriptors. So no command can send messages to the
daemon as if it were a runner.

The keeper first sends ``(ENTERED,)``. This message has four descriptors: the directory for shelld's
own files, /dev/null, the root directory, and the list of mounts. If the sandbox has a proxy, a
fifth descriptor is the socket at which commands reach the proxy. Before this message, no command
has run in the sandbox. If the keeper cannot protect itself, it ends and sends no message. The
keeper is the first process of its namespace, so no command can kill it.
"""

from __future__ import annotations

import ctypes
import os
import socket
from typing import Final

from shelld.keeper import keeper
from shelld.keeper.channel import ENTERED, Channel
from shelld.keeper.landlock import restrict
from shelld.keeper.privileges import check_no_capabilities, protect_devices

_PR_SET_DUMPABLE: Final = 4
_WAITING: Final = 128
# This descriptor refers to the directory of the commands' terminals. The daemon opens these
# terminals outside the sandbox. Without a Landlock rule for them, /dev/stderr would not work.
_TERMINALS: Final = 6
_MOUNTS: Final = "/proc/self/mountinfo"
# Every sandbox has its own version of these directories. Commands can write there.
_OWN: Final = ("/dev", "/proc")


def main(
    file_limit: str, mechanism: str, directory: str, private: str, network: str, *writable: str
) -> None:
    """Serve the socket with descriptor 3. `private` is the directory of shelld's own files. If the
    sandbox shares the network of the machine, `network` is "shared". Otherwise, it is the port of
    the proxy, or "0" if there is no proxy. `writable` are the paths to which commands can write.

    If the descriptor `_TERMINALS` is open, it refers to a directory. This directory contains the
    terminals of the commands.
    """
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        os._exit(1)
    try:
        if os.geteuid() == 0:
            protect_devices()
        check_no_capabilities()
        terminals = [_TERMINALS] if os.path.isdir(_TERMINALS) else []
        restrict((*writable, *_OWN), terminals, closes_sockets=network == "shared")
        handle = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mounts = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        given = [handle, nothing, root, mounts]
        if network not in ("shared", "0"):
            given.append(_listener(int(network)))
        sock = socket.socket(fileno=3)
        Channel(sock).send((ENTERED,), tuple(given))
        sock.detach()
    except OSError:
        os._exit(1)
    keeper.main(3, file_limit, mechanism, "0", directory, is_namespaced=True)


def _listener(port: int) -> int:
    """Return a listening socket on the sandbox's own loopback interface. Raises OSError.

    Only the proxy accepts connections. Until it accepts them, up to `_WAITING` connections wait in
    the kernel.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind(("127.0.0.1", port))
        sock.listen(_WAITING)
        return sock.detach()
