"""Decides what a sandbox shows of the machine, and turns a policy into arguments of bubblewrap.

The root is read-only. The other mounts follow. A directory is mounted before its subdirectories,
because a later mount of the directory would hide the mounts of the subdirectories. Commands cannot
replace a path that a mount denies, because the directories above this path are mounts as well, and
the kernel never renames a mount.

If a denied path does not exist, and commands could create it, the sandbox needs a directory there,
on which it can mount something. `View.placeholders` lists these directories. The caller makes them
before the sandbox starts, and removes them after the sandbox has ended, if they are empty.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from shelld.keeper.privileges import CAPABILITIES
from shelld.sandbox.policy import TEMPORARY, ResolvedPolicy, is_within
from shelld.sandbox.unix_sockets import shown_sockets

# The directory of a sandbox for the files of shelld itself.
PRIVATE: Final = "/run/shelld"
_PARENT_OF_PRIVATE: Final = os.path.dirname(PRIVATE)
# This directory holds the states of sessions. Each state has at most 4 MiB.
_PRIVATE_BYTES: Final = 256 * 1024 * 1024

_ISOLATION: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    # Without --as-pid-1, the first process would be bubblewrap, whose program is a file outside of
    # the sandbox.
    *("--cap-drop", "ALL", "--die-with-parent", "--as-pid-1"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
)
# As root, a process without capabilities could still write to these files of a new /proc.
_KERNEL_SETTINGS: Final = ("sys", "sysrq-trigger", "fs", "acpi", "scsi", "mtrr", "pressure")
# The paths in /run that programs need. The first two exist on NixOS, and belong to the installed
# system. The third has the configuration of the resolver.
_NEEDED_IN_RUN: Final = ("/run/current-system", "/run/opengl-driver", "/run/systemd/resolve")
_RESOLVER: Final = "/etc/resolv.conf"
# A device and an inode.
Identity: TypeAlias = tuple[int, int]


class Mount(NamedTuple):
    """One mount of a sandbox, with the arguments of bubblewrap for it.

    `source`: the path outside of the sandbox whose content the mount shows. If it is "", the mount
    shows an empty directory or an empty device. `is_writable`: whether commands may write to it.
    """

    path: str
    arguments: tuple[str, ...]
    source: str = ""
    is_writable: bool = False

    @classmethod
    def bind(cls, path: str, source: str, *, is_writable: bool) -> Mount:
        option = "--bind" if is_writable else "--ro-bind"
        return cls(path, (option, source, path), source, is_writable)

    @classmethod
    def null(cls, path: str) -> Mount:
        return cls(path, ("--ro-bind", "/dev/null", path))

    @classmethod
    def directory(cls, path: str, mode: str, *, is_writable: bool) -> Mount:
        """An empty directory. It is private to the sandbox."""
        closing = () if is_writable else ("--remount-ro", path)
        return cls(path, ("--perms", mode, "--tmpfs", path, *closing), is_writable=is_writable)


class View(Struct, frozen=True):
    """`arguments`: the arguments of bubblewrap, without the program. `mounts`: the mounts that they
    ask for, except for those in /dev, /proc and `PRIVATE`. `placeholders`: see the module.

    `missing`: denied paths that did not exist when the view was made, in places where commands
    cannot write. If such a path appears, this view no longer hides it. `present`: denied paths that
    existed when the view was made, with their devices and inodes. If such a path is replaced from
    outside, the kernel removes the mount on it. `masked`: sockets of the machine, with their
    devices and inodes. The view hides these sockets. `hidden` and `shown`: see `shown_sockets`.

    While the view is used, the caller must keep the paths in `present` and `masked` open.
    Otherwise, the system may give the inode of a removed file to another file.
    """

    arguments: tuple[str, ...]
    mounts: tuple[Mount, ...]
    placeholders: tuple[str, ...]
    missing: tuple[str, ...]
    present: tuple[tuple[str, Identity | None], ...]
    masked: tuple[tuple[str, Identity | None], ...]
    sockets: frozenset[str]
    hidden: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def is_outdated(self) -> bool:
        """Whether a denied path has appeared or was replaced, or a hidden socket was replaced."""
        return (
            any(map(os.path.lexists, self.missing))
            or any(identity_of(path) != identity for path, identity in self.present)
            # Nobody can connect to a socket that is gone.
            or any(identity_of(path) not in (identity, None) for path, identity in self.masked)
        )

    @property
    def is_socket_gone(self) -> bool:
        """Whether a hidden socket was removed or replaced. If a socket is missing, bubblewrap does
        not start.
        """
        return any(identity_of(path) != identity for path, identity in self.masked)


def identity_of(path: str) -> Identity | None:
    """Return the identity of a path; None if it does not exist."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def view_of(policy: ResolvedPolicy, sockets: frozenset[str], needed: Iterable[str]) -> View:
    """Return the view for a policy. `sockets`: the sockets of the machine. `needed`: paths that
    shelld needs in the sandbox, such as the path of bash.
    """
    return _Builder(policy, sockets, needed).view


class _Builder:
    def __init__(
        self, policy: ResolvedPolicy, sockets: frozenset[str], needed: Iterable[str]
    ) -> None:
        self._policy = policy
        self._writable = policy.writable
        self._hidden = tuple(_hidden(policy))
        self._mounts: dict[str, Mount] = {}
        self._placeholders: dict[str, None] = {}
        self._missing: dict[str, None] = {}
        self._present: dict[str, Identity | None] = {}
        self._masked: dict[str, Identity | None] = {}
        # Private directories that become read-only after everything is mounted in them.
        self._closed: list[str] = []
        shown = (*needed, policy.directory, *_needed_in_run(policy))
        self._shown = (*self._writable, *(path for path in shown if self._is_hidden(path)))
        for path in self._hidden:
            mode = "1777" if path != "/run" else "0755"
            self._add(Mount.directory(path, mode, is_writable=True))
        for path in self._shown[len(self._writable) :]:
            if os.path.exists(path):
                # On NixOS, these are symbolic links. Commands cannot write to /run outside.
                source = os.path.realpath(path) if path in _NEEDED_IN_RUN else path
                self._add(Mount.bind(path, source, is_writable=False))
        for path in self._writable:
            self._add(Mount.bind(path, path, is_writable=True))
        for path in policy.unix_sockets:
            if self._is_hidden(path):
                self._add(Mount.bind(path, path, is_writable=False))
        masked = list(shown_sockets(policy, self._hidden, self._shown, sockets))
        for path in masked:
            self._mask(path)
        for path in policy.deny_write:
            self._deny(path, is_readable=True)
        for path in policy.deny_read:
            self._deny(path, is_readable=False)
        # Leave out mounts in unreadable directories, because such a mount would show a part of the
        # directory again.
        unreadable = policy.deny_read
        mounts = [
            self._mounts[path]
            for path in sorted(self._mounts, key=lambda path: (path.count("/"), path))
            if not is_within(os.path.dirname(path), unreadable)
        ]
        self.view = View(
            tuple(self._arguments(mounts)),
            tuple(mounts),
            tuple(self._placeholders),
            tuple(self._missing),
            tuple(self._present.items()),
            tuple(self._masked.items()),
            frozenset(masked),
            self._hidden,
            self._shown,
        )

    def _add(self, mount: Mount) -> None:
        self._mounts[mount.path] = mount

    def _is_hidden(self, path: str) -> bool:
        return is_within(path, self._hidden)

    def _mask(self, path: str) -> None:
        # Mount /dev/null on the socket. Nobody can connect to a device, and nobody can open a
        # device on such a mount.
        path = os.path.realpath(path)
        self._masked[path] = identity_of(path)
        self._add(Mount.null(path))
        self._hold(path)

    def _hold(self, path: str) -> None:
        """Mount each directory above `path` on itself. Nobody in the sandbox can rename a mounted
        directory. Leave out the directories in a denied directory: they must stay read-only, so
        nobody can rename them anyway.
        """
        denied = (*self._policy.deny_write, *self._policy.deny_read)
        roots = [each for each in self._writable if is_within(path, (each,))]
        if roots and path not in roots:
            # If one root is in another root, both are mounts, but the directories between them are
            # not.
            top = min(roots, key=len)
            above = os.path.dirname(path)
            while above != top:
                if not is_within(above, denied):
                    self._mounts.setdefault(above, Mount.bind(above, above, is_writable=True))
                above = os.path.dirname(above)

    def _deny(self, path: str, *, is_readable: bool) -> None:
        is_open = is_within(path, self._writable)
        is_shown = not self._is_hidden(path) or is_within(path, self._shown)
        if path == _PARENT_OF_PRIVATE and not is_readable:
            # `_arguments` leaves out all mounts below this directory, so nothing appears there.
            self._closed.append(path)
        elif not is_shown and is_readable:
            # The machine has no file at this place. The shown paths below this place must be
            # mounted first, so `_arguments` makes the directory read-only later.
            self._mounts.setdefault(path, Mount.directory(path, "0555", is_writable=True))
            self._closed.append(path)
        elif not is_shown and path not in self._hidden:
            self._empty(path, is_readable=False)
        elif os.path.lexists(path):
            self._present[path] = identity_of(path)
            if is_readable:
                self._add(Mount.bind(path, path, is_writable=False))
            elif os.path.isdir(path):
                self._empty(path, is_readable=False)
            else:
                self._add(Mount.null(path))
            self._hold(path)
        elif is_open:
            first = _first_missing(path)
            self._placeholders[first] = None
            self._empty(first, is_readable=is_readable)
            self._hold(first)
        else:
            self._missing[path] = None

    def _empty(self, path: str, *, is_readable: bool) -> None:
        """Mount an empty directory that nobody can write to."""
        mode = "0555" if is_readable else "0000"
        self._add(Mount.directory(path, mode, is_writable=False))

    def _arguments(self, mounts: Iterable[Mount]) -> Iterator[str]:
        yield from _ISOLATION
        if self._policy.network != "full":
            yield "--unshare-net"
        if os.geteuid() == 0:
            # The keeper gives up these capabilities before any command runs.
            for name in CAPABILITIES:
                yield from ("--cap-add", name)
        for name in _KERNEL_SETTINGS:
            yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
        for mount in mounts:
            yield from mount.arguments
        yield from ("--size", str(_PRIVATE_BYTES), "--perms", "0700", "--tmpfs", PRIVATE)
        for path in self._closed:
            if not is_within(os.path.dirname(path), self._policy.deny_read):
                yield from ("--remount-ro", path)
        yield from ("--chdir", "/")


def _hidden(policy: ResolvedPolicy) -> Iterator[str]:
    """Yield the directories that are empty in a new sandbox."""
    yield "/run"
    if policy.tmp == "private":
        yield from (path for path in TEMPORARY if os.path.realpath(path) == path)


def writable_in(policy: ResolvedPolicy) -> tuple[str, ...]:
    """Return the writable paths. Leave out the directories that every sandbox has for itself."""
    return (*_hidden(policy), *policy.writable)


def _needed_in_run(policy: ResolvedPolicy) -> Iterator[str]:
    yield from _NEEDED_IN_RUN
    resolver = os.path.realpath(_RESOLVER)
    # Programs replace this file often. A mount on it would need a new sandbox each time.
    if policy.network == "full" and not is_within(resolver, _NEEDED_IN_RUN):
        yield resolver


def _first_missing(path: str) -> str:
    """Return the first missing directory on the way to a missing path."""
    above = os.path.dirname(path)
    while not os.path.lexists(above):
        path, above = above, os.path.dirname(above)
    return path


def needed_paths(*programs: str) -> tuple[str, ...]:
    """Return the paths of this interpreter, this package and `programs`, for `view_of`."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    found = (sys.prefix, sys.base_prefix, sys.executable, package, *programs)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found))
