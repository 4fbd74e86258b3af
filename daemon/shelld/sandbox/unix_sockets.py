"""The unix sockets of the machine that have a path, from /proc/net/unix. Reads only.

The list has the sockets of one network namespace. A sandbox without the network of the machine has
a namespace of its own, so sockets that its commands make are not in the list.
"""

from __future__ import annotations

import re
from typing import Final

# The path is the last column, and ends the line.
_PATHS: Final = re.compile(rb" (/[^\n]*)$", re.MULTILINE)


def socket_paths() -> frozenset[str]:
    """Return the paths of all sockets. Raises OSError if they cannot be listed."""
    with open("/proc/net/unix", "rb") as file:
        content = file.read()
    return frozenset(path.decode("utf-8", "surrogateescape") for path in _PATHS.findall(content))
