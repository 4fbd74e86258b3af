"""The keeper of a sandbox: the first program in new namespaces. `sandbox` in the daemon starts it.

Protects itself and its runners from the commands, then serves as any other keeper. Commands run as
the same user and see these processes. But no command can trace them, or read their memory or their
descriptors. So none can send messages to the daemon in the name of a runner.

It first sends ``(ENTERED,)`` with descriptors of the directory for shelld's own files, of /dev/null
and, if the sandbox has a proxy, of the listening socket at which commands find it. Until then,
nothing has run in the sandbox. If it cannot protect itself, it ends instead. It is the first
process of its namespace, so no command can kill it.
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
# The terminals of commands are opened outside. Without a rule for them, /dev/stderr would not work.
_TERMINALS: Final = 6
# What every sandbox has for itself.
_OWN: Final = ("/dev", "/proc")


def main(
    file_limit: str, mechanism: str, directory: str, private: str, network: str, *writable: str
) -> None:
    """Serve the socket 3. `private`: the directory of shelld's own files. `network`: "shared" with
    the machine, or the port of the proxy, or "0" for no proxy. `writable`: where commands can
    write.

    The descriptor `_TERMINALS` is the directory of the terminals that commands get, if it is open.
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
        given = [handle, nothing]
        if network not in ("shared", "0"):
            given.append(_listener(int(network)))
        sock = socket.socket(fileno=3)
        Channel(sock).send((ENTERED,), tuple(given))
        sock.detach()
    except OSError:
        os._exit(1)
    keeper.main(3, file_limit, mechanism, "0", directory, is_namespaced=True)


def _listener(port: int) -> int:
    """Return a listening socket of the sandbox's own loopback. Raises OSError.

    Only the proxy accepts connections. Until it does, the kernel lets some wait.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind(("127.0.0.1", port))
        sock.listen(_WAITING)
        return sock.detach()
