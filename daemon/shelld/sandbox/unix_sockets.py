"""Finds the unix sockets of the machine that a sandbox must hide. Changes nothing.

The paths come from /proc/net/unix. This list has the sockets of one network namespace. If a sandbox
does not use the network of the machine, it has a namespace of its own. The list then lacks the
sockets that the commands in this sandbox make.

The list has the path to which a server has bound its socket. If the file was renamed later, or was
linked to another name and removed, the list still has the first path. The program ssh makes such
links for the sockets of its shared connections.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from shelld.lasting.directory import possible_directories
from shelld.sandbox.policy import ResolvedPolicy, is_within

_HEAD: Final = b"Num"
# The path is the last column.
_PATHS: Final = re.compile(rb" (/[^\n]*)$", re.MULTILINE)
# A path may contain newlines. Text that does not begin an entry belongs to the path before it.
_BEGINNING: Final = re.compile(rb"\n[0-9a-f]+: [0-9A-F]{8} ")
_LONG_PATHS: Final = re.compile(
    rb"^[0-9a-f]+: (?:[0-9A-F]+ ){5} *\d+ (/[^\n]*(?:\n(?![0-9a-f]+: [0-9A-F]{8} )[^\n]+)*)$",
    re.MULTILINE,
)
# The errors that a system call reports for a path that leads nowhere, or that no program of this
# user can reach.
_LEADS_NOWHERE: Final = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES)
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


def shown_sockets(
    policy: ResolvedPolicy, hidden: Iterable[str], shown: Iterable[str], paths: Iterable[str]
) -> Iterator[str]:
    """The policy does not allow some sockets of the machine, but a sandbox would show them. Yield
    these sockets. Raises OSError.

    `hidden`: the directories that are private in the sandbox, such as /tmp. `shown`: the
    directories of the machine that stay visible inside private directories. `paths`: the paths that
    the kernel lists. If such a path is gone, its socket may have another name in the same
    directory. If the path of a lasting daemon's socket is too long, the daemon binds the socket by
    a descriptor, and the kernel does not list the real path.
    """
    directories = dict.fromkeys(possible_directories())
    for path in paths:
        if not os.path.lexists(path):
            directories[os.path.dirname(path)] = None
        elif _shows_socket(policy, hidden, shown, path):
            yield path
    for directory in directories:
        if not os.path.isdir(directory):
            # Resolving the path would take longer, and this code runs for each command in a
            # sandbox.
            continue
        real = os.path.realpath(directory)
        if not is_within(real, hidden) or is_within(real, shown):
            found = sockets_in(real)
            yield from (path for path in found if _shows_socket(policy, hidden, shown, path))


def _shows_socket(
    policy: ResolvedPolicy, hidden: Iterable[str], shown: Iterable[str], path: str
) -> bool:
    if path in policy.unix_sockets:
        return False
    real = _real_path(path)
    if real is None or real in policy.unix_sockets or is_within(real, policy.deny_read):
        return False
    return not is_within(real, hidden) or is_within(real, shown)


def _real_path(path: str) -> str | None:
    """Return the path without symbolic links; None if the path leads nowhere. Raises OSError."""
    # This is several times as fast as `os.path.realpath`, and it runs for each command in a
    # sandbox.
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _LEADS_NOWHERE:
            return None
        raise
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
