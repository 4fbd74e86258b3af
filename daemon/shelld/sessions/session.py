"""One session, with the state from which its next command starts.

A session starts from the daemon's own environment and working directory. Each command starts from
the last state that was kept. A session keeps the state of a command as a whole or not at all. So
concurrent commands never mix their states. The session keeps the state of the command that ends
last.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from shelld.eventloop.threads import run_in_thread
from shelld.process import faults
from shelld.sandbox.sandboxes import SandboxKey
from shelld.sessions.calls import (
    CallReport,
    directory_in,
    sizes_set_by_bash,
    untouched,
    without_options_of_call,
)
from shelld.sessions.differences import lines_between
from shelld.sessions.dump_parser import (
    has_lost_functions,
    hides_options,
    is_whole,
    parse_dump,
    parse_short_dump,
)
from shelld.sessions.dumps import DumpFiles
from shelld.sessions.environment import INHERIT, EnvironmentRules
from shelld.sessions.mounts import Mounts
from shelld.sessions.state import (
    SET_LATE,
    OptionNames,
    ShellState,
    exported,
    passed_on,
    with_late_settings,
)
from shelld.sessions.text import to_bytes, to_text
from shelld_protocol.structs import NO_LIMITS, ResourceLimits, Unkept

# A larger state is not kept, because parsing it would delay other requests.
MAX_DUMP_BYTES: Final = 4 * 1024 * 1024

# A thread parses longer dumps. Parsing a dump of this length takes one or two milliseconds, or a
# third of this time if most lines are in the cache.
MAX_INLINE_BYTES: Final = 64 * 1024

# The daemon does not report these variables to clients. Each process sets `_` and SHLVL itself, and
# instead of PWD and OLDPWD the daemon reports `cwd`.
_NOT_TOLD: Final = frozenset({b"_", b"SHLVL", b"PWD", b"OLDPWD"})


class ShortDumpBasis(NamedTuple):
    """What is known about a command that writes a short dump: `state` is the session's state when
    the command started, and `names` are the variables that the command can change.

    Besides these variables, the command can change only the directory.
    """

    state: ShellState
    names: frozenset[bytes]


class LeftState(NamedTuple):
    """The dump of a command, with the directory and the variables that its call has set.

    `started_in` and `changes` are `cwd` and `env` of the call. The session keeps a directory or a
    value only if the command itself has set it, not if it comes from the call. `started_in` has two
    forms of the path: the path as given, and the path without symbolic links. Bash may know the
    directory by either form. If a call has no `cwd`, but has PWD in its `env`, `started_in` is the
    session's directory.
    """

    dump: bytes
    started_in: tuple[bytes, ...] = ()
    changes: dict[str, str | None] | None = None
    # The report that bash made before it ran the command, if the call had an `env`.
    report: CallReport | None = None
    # For a short dump, what is known about the command; None for a long dump.
    basis: ShortDumpBasis | None = None
    # The number of the command: commands are counted in the order in which they end.
    number: int = 0
    has_terminal: bool = False


class Session:
    """One session.

    `base`: the state of a new session. A session without a `name` never keeps a state.
    """

    def __init__(
        self,
        name: str | None,
        base: ShellState,
        dump_files: DumpFiles,
        mounts: Mounts,
        *,
        limits: ResourceLimits = NO_LIMITS,
        sandbox: SandboxKey | None = None,
        rules: EnvironmentRules = INHERIT,
    ) -> None:
        self.name = name
        self.base = base
        # The limits on the resources that the session's commands use.
        self.limits = limits
        self.is_limited = limits != NO_LIMITS
        # The rules for the variables that the session takes from the daemon's environment.
        self.rules = rules
        # The policy of the sandbox in which the session's commands run; None for no sandbox.
        self.sandbox = sandbox
        # The number of the sandbox in which the last command ran; None if no command has run in a
        # sandbox. 0 if no result has said yet that this sandbox is new, because a call was
        # cancelled.
        self.last_sandbox: int | None = None
        # True if the session has started a command.
        self.is_used = False
        self.dump_files = dump_files
        self._mounts = mounts
        self._state = base
        self._passed_on = passed_on(base.env)
        # The line that sets OLDPWD to its value in the daemon's environment.
        self._usual_oldpwd = exported(b"OLDPWD", base.env.get(b"OLDPWD", b""))
        # The lines that change a bash from another state to the present state. The key is the id of
        # the other state.
        self._lines: dict[int, tuple[ShellState, bytes | None]] = {}
        # The number of the last command that left a state, and the number of the last command whose
        # state was kept.
        self._ended = self._kept = 0
        # A directory, remote or in a sandbox, in which a command could not start.
        self._lost_directory: bytes | None = None
        # The number of dumps that threads are parsing. Until a dump is parsed, the session does not
        # have the state that the dump describes.
        self._settling = 0
        self._when_settled: Callable[[], None] | None = None
        # For each of these dumps, the function that parses the dump and passes its state to the
        # session.
        self.unsettled: list[Callable[[], Awaitable[None]]] = []

    @property
    def state(self) -> ShellState:
        """The state from which the next command starts. Every change creates a new object."""
        return self._state

    def lines_from(self, before: ShellState) -> bytes | None:
        """Return the lines that change a bash from another state to this one; None if no lines can
        do so.
        """
        known = self._lines.get(id(before))
        if known is None:
            known = self._lines[id(before)] = before, lines_between(before, self._state)
        return known[1]

    @property
    def cwd(self) -> str:
        """The session's directory after its last command. This directory may be deleted by now."""
        return to_text(self._state.cwd)

    @property
    def inherits_cwd(self) -> bool:
        """True if the next command starts in the directory in which the daemon started.

        The path of that directory may have changed since then.
        """
        return self._state.inherits_cwd

    def resolve(self, cwd: str | None) -> str:
        """Return the working directory of a command.

        A relative `cwd` is relative to the session's directory.

        Without `cwd`, the command starts in the session's directory. If that directory was deleted,
        the command starts in the nearest parent directory that exists. If the directory is remote,
        this method does not check whether it exists. So if a remote directory was deleted, the
        daemon does not notice this until a command fails to start there.
        """
        if cwd is not None:
            return os.path.join(self.cwd, cwd)
        return to_text(self._existing(self._state.cwd, self._state.inherits_cwd))

    def paths_of(self, cwd: str) -> tuple[bytes, ...]:
        """Return a path as it was given. If resolving the path cannot block, also return it without
        symbolic links.

        In a sandbox, the path may lead elsewhere, so bash itself reports where it leads.
        """
        path = to_bytes(cwd)
        if self.sandbox is not None or self._mounts.may_hang(path):
            return (path,)
        return path, os.path.realpath(path)

    @property
    def is_remote(self) -> bool:
        """True if a system call on the session's directory may block for ever."""
        return not self.inherits_cwd and self._mounts.may_hang(self._state.cwd)

    def directory_failed(self, directory: str) -> None:
        """Record that no command could start in `directory`. If the session has its own sandbox,
        this is a directory in the sandbox.

        If `directory` is remote, this failure shows that its file system answers. So system calls
        on `directory` no longer block.
        """
        if directory in (self.cwd, self.resolve(None)):
            self._lost_directory = to_bytes(directory)

    def _existing(self, directory: bytes, is_inherited: bool) -> bytes:
        if is_inherited:
            return directory
        if self.sandbox is not None:
            # Only commands can see a directory that is private to the sandbox.
            if not self._is_lost(directory):
                return directory
            assert self._lost_directory is not None
            directory = os.path.dirname(self._lost_directory)
        elif directory != self._lost_directory and self._mounts.may_hang(directory):
            return directory
        while not self._is_directory(directory) and directory != os.path.dirname(directory):
            directory = os.path.dirname(directory)
        return directory

    def _is_lost(self, directory: bytes) -> bool:
        """Return whether a directory is the lost directory, or below it."""
        lost = self._lost_directory
        return lost is not None and (directory == lost or directory.startswith(lost + b"/"))

    def _is_directory(self, path: bytes) -> bool:
        """Return whether a path is a directory, as far as the daemon can tell."""
        if self.sandbox is not None and self.sandbox.policy.is_private(to_text(path)):
            return False
        return os.path.isdir(path)

    def _directory_after(self, left: LeftState, cwd: bytes, is_daemons: bool) -> tuple[bytes, bool]:
        """Return the session's directory after a command, and whether the next command inherits it.

        `cwd` is the directory in which the command ended. The next command inherits this directory
        only if the daemon itself started there, and if bash and the daemon know the directory by
        the same path.
        """
        # The directory of a call does not become the session's directory. If bash's directory was
        # deleted, bash does not know the path. In both cases, the session keeps the directory that
        # it had before the command.
        own, others = left.started_in, left.started_in[:1]
        if self.sandbox is not None:
            reported = None if left.report is None else directory_in(left.report)
            is_private = any(self.sandbox.policy.is_private(to_text(path)) for path in own)
            if is_private or reported is not None:
                # Outside the sandbox, the paths may lead elsewhere, so do not follow them here.
                others = ()
            own += () if reported is None else (reported,)
        if not cwd or cwd in own or any(self._mounts.is_same(path, cwd) for path in others):
            return self._state.cwd, self._state.inherits_cwd
        return cwd, is_daemons and cwd == self.base.cwd

    def environment(self, changes: dict[str, str | None] | None) -> dict[bytes, bytes]:
        """Return the environment of a command: the session's exported variables, with `changes`."""
        state = self.state
        if state is self.base and not changes:
            return state.env
        env = {name: value for name, value in state.env.items() if name not in state.later}
        # Bash starts with the daemon's locale. If bash does not know the session's locale, it keeps
        # the daemon's locale.
        env.update(
            (name, self.base.env[name])
            for name in state.later
            if name.startswith(SET_LATE) and name in self.base.env
        )
        if state is not self.base:
            env.update(state.functions)
            env[b"PWD"] = state.cwd
            if b"SHLVL" in self.base.env:
                # Each bash adds 1 to SHLVL.
                env[b"SHLVL"] = self.base.env[b"SHLVL"]
            if b"_" in self.base.env:
                # In each new bash, ``$_`` begins with this value.
                env[b"_"] = self.base.env[b"_"]
        for name, value in (changes or {}).items():
            if value is None:
                env.pop(to_bytes(name), None)
            else:
                env[to_bytes(name)] = to_bytes(value)
        return env

    def keep(self, left: LeftState) -> LeftState | Unkept | None:
        """Keep the state that a command has left.

        Returns None if the state is kept. If the state or a part of it cannot be kept, returns the
        reason. If the dump is long, returns a `LeftState` for `settle`, which parses the dump.
        """
        if not is_whole(left.dump, is_short=left.basis is not None):
            return Unkept.INCOMPLETE if left.dump else Unkept.MISSING
        if left.changes and left.report:
            dump = without_options_of_call(left.dump, left.report, left.changes, self.state)
            left = left._replace(dump=dump)
        self._ended += 1
        left = left._replace(number=self._ended)
        if len(left.dump) > MAX_INLINE_BYTES:
            self._settling += 1
            return left
        return self._keep(left, *_parse(left, self.state.option_names))

    async def settle(self, left: LeftState) -> Unkept | None:
        """Parse a long dump in a thread.

        If the state or a part of it cannot be kept, returns the reason.
        """
        try:
            return self._keep(left, *await _parsed(left, self.state.option_names))
        finally:
            self._settling -= 1
            if self._when_settled is not None and not self._settling:
                callback, self._when_settled = self._when_settled, None
                callback()

    async def settle_all(self) -> None:
        """Wait until the session has the states of all commands that have ended.

        Await this before you use the state, because a command can count as ended before its dump is
        parsed.
        """
        for settle in list(self.unsettled):
            await settle()

    def when_settled(self, callback: Callable[[], None]) -> bool:
        """Return whether threads are parsing dumps. If so, call `callback` when they are done."""
        if self._settling:
            self._when_settled = callback
        return self._settling > 0

    def _keep(self, left: LeftState, state: ShellState | None, names: list[bytes]) -> Unkept | None:
        """Keep the state that a command has left, except for the variables in `names`.

        If the state or a part of it cannot be kept, returns the reason.
        """
        if state is None:
            return Unkept.LOCAL_OPTIONS if hides_options(left.dump) else Unkept.UNREADABLE
        if left.basis is not None and state.size > MAX_DUMP_BYTES:
            return Unkept.TOO_LARGE
        if left.number > self._kept:
            # If `left.number` is smaller, the session already has the state of a command that ended
            # later.
            self._take(left, state, names)
            self._kept = left.number
        return Unkept.FUNCTIONS if has_lost_functions(left.dump) else None

    def _take(self, left: LeftState, state: ShellState, names: list[bytes]) -> None:
        before = self._state
        if left.changes and left.has_terminal:
            names = names + sizes_set_by_bash(left.changes, before, state)
        if names:
            state = state.with_entries_of(before, names)
        if state.declarations.get(b"OLDPWD") == self._usual_oldpwd:
            del state.declarations[b"OLDPWD"]
        env = {**self._passed_on, **state.env}
        if self._is_lost(state.cwd):
            # The command has made the directory again.
            self._lost_directory = None
        cwd, is_inherited = self._directory_after(left, state.cwd, state.inherits_cwd)
        state = replace(state, cwd=cwd, inherits_cwd=is_inherited, env=env)
        state = with_late_settings(state, self.base.env)
        if not state.option_names.is_known:
            # Commands that are running now may rely on the names of options, so keep these names.
            state = replace(state, option_names=before.option_names)
        if state != before:
            self._state = state
            self._lines.clear()

    def changed_env(self) -> dict[str, str | None]:
        """Return the exported variables that differ from the daemon's. Removed ones are None."""
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


def _untouched(left: LeftState) -> list[bytes]:
    """Return the variables of a call's `env` that its command has not changed."""
    return untouched(left.dump, left.report, left.changes) if left.changes and left.report else []


def _parse(left: LeftState, known: OptionNames) -> tuple[ShellState | None, list[bytes]]:
    if left.basis is not None:
        return parse_short_dump(left.dump, *left.basis), []
    return parse_dump(left.dump, known), _untouched(left)


async def _parsed(left: LeftState, known: OptionNames) -> tuple[ShellState | None, list[bytes]]:
    try:
        return await run_in_thread(_parse, left, known)
    except RuntimeError as error:
        if faults.shortage(error) is None:
            raise
        # If no thread can start, parse the dump here, so that the state is not lost.
        return _parse(left, known)
