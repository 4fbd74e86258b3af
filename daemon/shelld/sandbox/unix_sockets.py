"""Lists the unix sockets of the machine that have a path, from /proc/net/unix. Changes nothing.

The list has the sockets of one network namespace. If a sandbox does not use the network of the
machine, it has a namespace of its own. The list then lacks the sockets that the commands in this
sandbox make.

The list has the path to which a server has bound its socket. If the file was renamed later, or was
linked to another name and removed, the list still has the first path. The program ssh makes such
links for the sockets of its shared connections.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

_HEAD: Final = b"Num"
# The path is the last column.
_PATHS: Final = re.compile(rb" (/[^\n]*)$", re.MULTILINE)
# A path may contain newlines. Text that does not begin an entry belongs to the path before it.
_BEGINNING: Final = re.compile(rb"\n[0-9a-f]+: [0-9A-F]{8} ")
_LONG_PATHS: Final = re.compile(
    rb"^[0-9a-f]+: (?:[0-9A-F]+ ){5} *\d+ (/[^\n]*(?:\n(?![0-9a-f]+: [0-9A-F]{8} )[^\n]+)*)$",
    re.MULTILINE,
)


def socket_paths() -> frozenset[str]:
    """Return the paths of all sockets. Raises OSError if they cannot be listed."""
    with open("/proc/net/unix", "rb") as file:
        return paths_in(file.read())


def paths_in(content: bytes) -> frozenset[str]:
    """Return the paths in the content of /proc/net/unix. Raises OSError if the list is hidden."""
    if not content.startswith(_HEAD):
        raise FileNotFoundError
    # The daemon reads this list before each command in a sandbox, so this must be fast. Almost
    # always, each line is one socket, which the fast pattern finds.
    is_plain = len(_BEGINNING.findall(content)) == content.count(b"\n") - 1
    found = (_PATHS if is_plain else _LONG_PATHS).findall(content)
    return frozenset(path.decode("utf-8", "surrogateescape") for path in found)


def sockets_in(directory: str) -> Iterator[str]:
    """Yield the paths of all sockets in a directory; nothing if it cannot be read."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            # These three checks need no system call. So only entries that are neither files, links
            # nor directories cost a system call.
            if entry.is_symlink() or entry.is_file() or entry.is_dir():
                continue
            with suppress(OSError):
                if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                    yield entry.path
