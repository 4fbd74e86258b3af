"""Turns the policy that a client gives into a policy with real paths. This module looks at paths,
but changes nothing.

A policy is resolved once, when a session is configured. From then on, it holds real paths. So a
symbolic link that a command makes later cannot change which files are allowed or denied.

Invariants:

* A call never gets more than its session has (`tightened`).
* A policy that no engine can enforce is refused (`check_expressible`), never weakened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shelld.process.user import home_of_user
from shelld.sandbox.network import proxy_variables, resolved_hosts, tightened_network
from shelld.sandbox.refusals import invalid, looser, tighter
from shelld_protocol.errors import inexpressible
from shelld_protocol.sandboxes import (
    EnforcedSandbox,
    SandboxEngine,
    SandboxMode,
    SandboxNetwork,
    SandboxPolicy,
    SandboxTmp,
)

# The directories of temporary files. If `tmp` is private, these directories are empty in a sandbox.
TEMPORARY: Final = ("/tmp", "/var/tmp")

_ALWAYS_PRIVATE: Final = ("/dev", "/proc", "/run")

_PATTERN: Final = re.compile(r"[*?\[\]\0]")
# The `write` of a policy cannot list these directories of the system, or paths in them.
_NEVER_WRITTEN: Final = ("/proc", "/sys", "/dev")
# The values of each member, from the tightest to the loosest.
_MODES: Final[Sequence[SandboxMode]] = ("read-only", "workspace", "off")
_TMPS: Final[Sequence[SandboxTmp]] = ("private", "shared")


class ResolvedPolicy(Struct, frozen=True):
    """A policy with real paths. `directory`: the directory of the session, which stays visible even
    below /tmp.
    """

    directory: str
    mode: SandboxMode = "workspace"
    write: tuple[str, ...] = ()
    deny_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    tmp: SandboxTmp = "private"
    network: SandboxNetwork = "none"
    unix_sockets: tuple[str, ...] = ()
    engine: SandboxEngine = "auto"
    hosts: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """The variables that are added to the environment of commands."""
        return proxy_variables(self.network, self.hosts)

    @property
    def writable(self) -> tuple[str, ...]:
        """The paths of the machine that commands can write to, except for denied paths."""
        if self.mode != "workspace":
            return ()
        shared = [path for path in TEMPORARY if os.path.isdir(path)] if self.tmp == "shared" else []
        denied = (*self.deny_write, *self.deny_read)
        return tuple(path for path in (*self.write, *shared) if not is_within(path, denied))

    def is_private(self, path: str) -> bool:
        """Return whether a path leads to different files in the sandbox and outside of it. This is
        so below the directories that every sandbox has for itself, except in `directory` and
        `write`.
        """
        private = (*_ALWAYS_PRIVATE, *(TEMPORARY if self.tmp == "private" else ()))
        is_below = path not in private and is_within(path, private)
        return is_below and not is_within(path, (self.directory, *self.write))

    @property
    def enforced(self) -> EnforcedSandbox:
        """The limits that a sandbox with this policy enforces. `check_expressible` must have
        accepted the policy.
        """
        assert self.mode != "off"
        return EnforcedSandbox("bwrap", self.mode, self.network, "isolated")

    @property
    def shown(self) -> SandboxPolicy:
        """The policy, as a client would give it."""
        return SandboxPolicy(
            mode=self.mode,
            write=list(self.write),
            deny_write=list(self.deny_write),
            deny_read=list(self.deny_read),
            tmp=self.tmp,
            network=self.network,
            hosts=list(self.hosts) if self.network == "hosts" else None,
            unix_sockets=list(self.unix_sockets),
            engine=self.engine,
        )


def is_within(path: str, directories: Iterable[str]) -> bool:
    """Return whether a path is one of `directories`, or below one. `path` and `directories` must be
    real and absolute paths.
    """
    return any(
        path == each or path.startswith(each if each.endswith("/") else each + "/")
        for each in directories
    )


def check_expressible(policy: ResolvedPolicy) -> None:
    """Raise `RpcError` (unavailable) if no engine can enforce a policy."""
    if policy.engine == "landlock":
        hint = (
            "Use the engine bwrap. Landlock cannot close the unix sockets of the machine, and it "
            "lets commands change the modes, owners and times of all files of the user."
        )
        raise inexpressible("engine landlock", hint)
    for name, paths in (("deny_write", policy.deny_write), ("deny_read", policy.deny_read)):
        for path in paths:
            if os.path.realpath(path) != path:
                hint = "Name the target of the link, or remove the link."
                raise inexpressible(f"{name} at a symbolic link", hint)


def resolved(given: SandboxPolicy, directory: str, engine: SandboxEngine) -> ResolvedPolicy | None:
    """Return the policy that a client gives; None for the mode off.

    `directory`: the directory of the session. `engine`: the engine that the daemon uses. Raises
    `RpcError` (invalid_params).
    """
    mode = given.mode or "workspace"
    hosts = resolved_hosts(given)
    if mode == "off":
        for name in ("write", "deny_write", "deny_read", "tmp", "network", "unix_sockets"):
            if getattr(given, name):
                raise invalid(name, "needs a sandbox, and mode is off")
        return None
    paths = Paths(directory)
    real = os.path.realpath(directory)
    if mode == "read-only" and given.write:
        raise invalid("write", "must be empty in the mode read-only")
    given_write = ["."] if given.write is None else given.write
    write = paths.writable(given_write if mode == "workspace" else ())
    tmp = given.tmp or "private"
    _check_shared(write, tmp)
    policy = ResolvedPolicy(
        real,
        mode,
        write,
        tmp=tmp,
        network=given.network or "none",
        unix_sockets=paths.sockets(given.unix_sockets or ()),
        engine=given.engine or engine,
        hosts=hosts,
    )
    return _with_denied(policy, given, paths)


def tightened(
    policy: ResolvedPolicy | None, given: SandboxPolicy, directory: str, engine: SandboxEngine
) -> ResolvedPolicy | None:
    """Return the policy of a call. `policy` is the policy of its session. The result is never
    looser than `policy`.

    Raises `RpcError` (invalid_params).
    """
    if policy is None:
        return resolved(given, directory, engine)
    network, hosts = tightened_network(policy.network, policy.hosts, given)
    paths = Paths(directory)
    mode = tighter("mode", policy.mode, given.mode, _MODES)
    write = policy.write
    if given.write is not None:
        write = paths.writable(given.write)
        if not all(is_within(path, policy.write) for path in write):
            raise looser("write")
    if mode != "workspace":
        write = ()
    tmp = tighter("tmp", policy.tmp, given.tmp, _TMPS)
    _check_shared(write, tmp)
    sockets = policy.unix_sockets
    if given.unix_sockets is not None:
        sockets = paths.sockets(given.unix_sockets)
        if not set(sockets) <= set(policy.unix_sockets):
            raise looser("unix_sockets")
    if given.engine not in (None, "auto", policy.engine) and policy.engine != "auto":
        raise invalid("engine", f"differs from the session's value: {policy.engine}")
    tight = ResolvedPolicy(
        policy.directory,
        mode,
        write,
        policy.deny_write,
        policy.deny_read,
        tmp,
        network,
        sockets,
        policy.engine if given.engine in (None, "auto") else given.engine,
        hosts,
    )
    return _with_denied(tight, given, paths)


def _check_shared(write: Iterable[str], tmp: SandboxTmp) -> None:
    """Raise `RpcError` (invalid_params) if `write` has a directory that `tmp` makes private."""
    if tmp == "private" and any(path in TEMPORARY for path in write):
        raise invalid("write", "has a directory that is private in the sandbox: set tmp to shared")


def _with_denied(policy: ResolvedPolicy, given: SandboxPolicy, paths: Paths) -> ResolvedPolicy:
    """Return `policy` with more denied paths: the paths that the client denies in `given`."""
    writable = policy.writable
    denied: Mapping[str, tuple[str, ...]] = {
        name: tuple(
            dict.fromkeys(
                (*getattr(policy, name), *paths.denied(name, getattr(given, name) or (), writable))
            )
        )
        for name in ("deny_write", "deny_read")
    }
    changed = replace(policy, deny_write=denied["deny_write"], deny_read=denied["deny_read"])
    return policy if changed == policy else changed


class Paths:
    """Resolves the paths of a policy. Raises `RpcError` (invalid_params)."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def _absolute(self, name: str, path: str) -> str:
        if _PATTERN.search(path):
            raise invalid(name, "must be paths, not patterns")
        if path == "~" or path.startswith("~/"):
            path = (os.environ.get("HOME") or home_of_user()) + path[1:]
        elif path.startswith("~"):
            raise invalid(name, "has the home directory of another user")
        return os.path.join(self._directory, path)

    def writable(self, given: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self._writable, given)))

    def _writable(self, path: str) -> str:
        real = os.path.realpath(self._absolute("write", path))
        if not os.path.exists(real):
            raise invalid("write", "has a path that does not exist")
        if real == "/" or is_within(real, _NEVER_WRITTEN):
            raise invalid("write", "has a directory of the system, or /")
        return real

    def sockets(self, given: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self._socket, given)))

    def _socket(self, path: str) -> str:
        real = os.path.realpath(self._absolute("unix_sockets", path))
        if not os.path.exists(real) or os.path.isdir(real):
            raise invalid("unix_sockets", "has a path that is not a socket")
        return real

    def denied(self, name: str, given: Iterable[str], writable: Sequence[str]) -> tuple[str, ...]:
        """Return real paths for denied paths. A link stays a link if commands could replace it."""
        return tuple(
            dict.fromkeys(_denied(self._absolute(name, path), writable, name) for path in given)
        )


def _denied(path: str, writable: Sequence[str], name: str) -> str:
    walked = "/"
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            walked = os.path.dirname(walked)
            continue
        step = os.path.join(walked, part)
        if os.path.islink(step) and is_within(walked, writable):
            # `check_expressible` refuses such a link.
            return step
        walked = os.path.realpath(step)
    if walked == "/" or is_within(walked, ("/proc", "/dev")):
        raise invalid(name, "has a directory of the system, or /")
    return walked
