"""What one session is to its next command: the state that the last one left.

A session starts from the daemon's own environment and working directory. Each command starts from
the state as it was last kept; what it leaves is kept as a whole or not at all, so that commands
which run at the same time never make a mixture: the one that ends last wins.
"""

from __future__ import annotations

import math
import os
from typing import Final, NamedTuple

from msgspec.structs import replace

from shelld.keeper.channel import anonymous_file
from shelld.shells.state import ShellState, parse_dump
from shelld_protocol.errors import session_not_found

DEFAULT_SESSION: Final = "main"

# More than that is not kept: to read it takes time from others.
_MAX_DUMP_BYTES: Final = 4 * 1024 * 1024

# Of one process, or told by `cwd`.
_NOT_TOLD: Final = frozenset({b"_", b"SHLVL", b"PWD", b"OLDPWD"})


class _Left(NamedTuple):
    """What a command has left, which was started in a directory and with changes of its own."""

    dump: bytes
    started_in: str | None
    changes: dict[str, str | None] | None


class Session:
    """`base` is the state that every session starts from. `name` None: nothing is ever kept."""

    def __init__(self, name: str | None, base: ShellState) -> None:
        self.name = name
        self.base = base
        self._state = base
        self._unread: _Left | None = None
        # When its last command ended, as of time.monotonic(); and how many more bashes for its next
        # ones were slow to start than were not, since there was a pause, and as of when.
        self.used_at = -math.inf
        self.slow_starts = 0
        self.slow_since = -math.inf

    @property
    def state(self) -> ShellState:
        """What the next command starts from; another object whenever anything is different."""
        if self._unread is not None:
            self._read()
        return self._state

    @property
    def cwd(self) -> str:
        return os.fsdecode(self.state.cwd)

    def resolve(self, cwd: str | None) -> str:
        """Return the working directory of a command; a relative one is the session's.

        One that was deleted meanwhile is not a reason to run nothing: the next directory above it
        that is still there takes its place.
        """
        if cwd is not None:
            return os.path.join(self.cwd, cwd)
        state = self.state
        directory = os.fsdecode(state.cwd)
        while state is not self.base and not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        return directory

    def environment(self, changes: dict[str, str | None] | None) -> dict[bytes, bytes]:
        """Return what a command is started with: the exported variables, with `changes`."""
        state = self.state
        if state is self.base and not changes:
            return state.env
        env = {name: value for name, value in state.env.items() if name not in state.later}
        if state is not self.base:
            env.update(state.functions)
            env[b"PWD"] = state.cwd
            if b"SHLVL" in self.base.env:
                # Each bash adds one.
                env[b"SHLVL"] = self.base.env[b"SHLVL"]
        for name, value in (changes or {}).items():
            key = os.fsencode(name)
            if value is None:
                env.pop(key, None)
            else:
                env[key] = os.fsencode(value)
        return env

    def keep(self, dump: bytes, cwd: str | None, changes: dict[str, str | None] | None) -> None:
        """Keep what a command left that was started in `cwd` and with `changes`, if given.

        Those are for that command only, as far as it did not change them itself. The command is
        being answered, so what it left is read when it is asked for.
        """
        # First what an earlier one has left.
        self._read()
        self._unread = _Left(dump, cwd, changes)

    def _read(self) -> None:
        left, self._unread = self._unread, None
        if left is None:
            return
        state, before = parse_dump(left.dump), self._state
        if state is None:
            return
        cwd, env = state.cwd, state.env
        if left.started_in is not None and _is_same_directory(left.started_in, cwd):
            cwd = before.cwd
        for name, value in (left.changes or {}).items():
            key = os.fsencode(name)
            if env.get(key) == (None if value is None else os.fsencode(value)):
                env.pop(key, None)
                if key in before.env:
                    env[key] = before.env[key]
        state = replace(state, cwd=cwd, env=env)
        if state != before:
            self._state = state

    def changed_env(self) -> dict[str, str | None]:
        """Return the exported variables that differ from the daemon's; None for those removed."""
        env, base = self.state.env, self.base.env
        changed = {name: value for name, value in env.items() if base.get(name) != value}
        removed = dict.fromkeys(name for name in base if name not in env)
        return {
            name.decode("utf-8", "replace"): None
            if value is None
            else value.decode("utf-8", "replace")
            for name, value in {**changed, **removed}.items()
            if name not in _NOT_TOLD and not name.startswith(b"BASH_FUNC_")
        }


class Sessions:
    """All sessions by name. The default one always exists; others do from their first use."""

    def __init__(self, base: ShellState) -> None:
        self._base = base
        self._sessions: dict[str, Session] = {}
        # Of the commands that are of no session.
        self._none = Session(None, base)

    def get(self, name: str | None) -> Session:
        """Return a session, a new one if there was none."""
        if name is None:
            return self._none
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, self._base)
        return session

    def has(self, name: str | None) -> bool:
        return name is None or name in self._sessions

    def is_current(self, session: Session) -> bool:
        """Whether a session has not been forgotten since it was looked up."""
        return session.name is None or self._sessions.get(session.name) is session

    def known(self, name: str) -> Session:
        """Return a session. Raises `RpcError` (session_not_found) for one that was never used."""
        if name not in self._sessions and name != DEFAULT_SESSION:
            raise session_not_found(name)
        return self.get(name)

    def look_at(self, name: str | None) -> Session:
        """Return a session; for one that was never used, what it would start from."""
        return self._none if name is None else self._sessions.get(name, self._none)

    def all(self) -> dict[str, Session]:
        self.get(DEFAULT_SESSION)
        return self._sessions

    def forget(self, name: str) -> None:
        """Raises `RpcError` (session_not_found)."""
        self.known(name)
        del self._sessions[name]


class Recorder:
    """Takes down what one command leaves behind; owns the file that its bash writes to.

    The command has no descriptor of that. Its bash opens it at the end by `path`, where a process
    of the same user can.
    """

    def __init__(
        self, session: Session, cwd: str | None, changes: dict[str, str | None] | None
    ) -> None:
        self._session = session
        self._cwd = cwd
        self._changes = changes
        self._descriptor: int | None = anonymous_file(b"")
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def keep(self) -> None:
        """The command has ended by itself."""
        if self._descriptor is not None:
            dump = os.pread(self._descriptor, _MAX_DUMP_BYTES, 0)
            if dump:
                self._session.keep(dump, self._cwd, self._changes)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_same_directory(path: str, other: bytes) -> bool:
    try:
        return os.path.samefile(os.fsencode(path), other)
    except OSError:
        return False
