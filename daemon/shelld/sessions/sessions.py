"""All sessions of a manager, by name."""

from __future__ import annotations

from msgspec.structs import replace

from shelld.sandbox.policy import ResolvedPolicy
from shelld.sandbox.sandboxes import SandboxKey
from shelld.sessions.dumps import DumpFiles
from shelld.sessions.environment import EnvironmentRules
from shelld.sessions.mounts import Mounts
from shelld.sessions.session import Session
from shelld.sessions.state import ShellState, first_state
from shelld_protocol.errors import invalid_params, session_not_found
from shelld_protocol.structs import DEFAULT_SESSION, NO_LIMITS, ResourceLimits


class Sessions:
    """All sessions by name.

    The default session always exists. Any other session exists from its first use.

    Until `close`, owns the files to which commands write their state. `cwd` and `env` are the
    directory and the environment of the daemon. `own_directory`: a path that leads to `cwd` even
    after `cwd` was renamed. `rules` choose the variables that a session takes from `env`, `limits`
    are its limits, and `sandbox` is the policy of its sandbox. A session can have its own rules,
    limits and sandbox instead.
    """

    def __init__(
        self,
        cwd: bytes,
        env: dict[bytes, bytes],
        own_directory: str,
        rules: EnvironmentRules,
        *,
        limits: ResourceLimits = NO_LIMITS,
        sandbox: ResolvedPolicy | None = None,
    ) -> None:
        self._cwd = cwd
        self._env = env
        self.rules = rules
        self.limits = limits
        self.sandbox = sandbox
        self._base = self._first_state(rules, sandbox)
        self._dump_files = DumpFiles(own_directory)
        self._mounts = Mounts()
        self._sessions: dict[str, Session] = {}
        # Commands without a session start from the state of this session, which never keeps a
        # state.
        self._none = self._new(None, self._base, limits, rules, sandbox)

    def _first_state(self, rules: EnvironmentRules, sandbox: ResolvedPolicy | None) -> ShellState:
        env = rules.apply(self._env)
        if sandbox is not None:
            own = {name.encode(): value.encode() for name, value in sandbox.variables.items()}
            env = {**env, **own}
        state = first_state(self._cwd, env)
        # In a sandbox, the runner starts in another directory. So commands cannot inherit the
        # daemon's directory.
        return state if sandbox is None else replace(state, inherits_cwd=False)

    def _new(
        self,
        name: str | None,
        base: ShellState,
        limits: ResourceLimits,
        rules: EnvironmentRules,
        sandbox: ResolvedPolicy | None,
    ) -> Session:
        key = None if sandbox is None else SandboxKey(sandbox, rules)
        return Session(
            name, base, self._dump_files, self._mounts, limits=limits, sandbox=key, rules=rules
        )

    def get(self, name: str | None) -> Session:
        """Return the session of this name. If there is none, create it."""
        if name is None:
            return self._none
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = self._new(
                name, self._base, self.limits, self.rules, self.sandbox
            )
        return session

    def check_unused(self, name: str) -> None:
        """Raise `RpcError` (invalid_params) if the session has started a command."""
        if name in self._sessions and self._sessions[name].is_used:
            raise invalid_params(f"Session {name} has already started a command", "session")

    def configure(
        self,
        name: str,
        rules: EnvironmentRules,
        limits: ResourceLimits,
        sandbox: ResolvedPolicy | None = None,
    ) -> Session:
        """Create a session with rules, limits and a sandbox of its own.

        Raises `RpcError` (invalid_params) if the session has started a command.
        """
        self.check_unused(name)
        base = self._first_state(rules, sandbox)
        session = self._sessions[name] = self._new(name, base, limits, rules, sandbox)
        return session

    def removed(self, session: Session) -> list[str]:
        """Return the names of the variables that a session does not take from the daemon's
        environment.
        """
        whole = first_state(self._cwd, self._env).env
        names = whole.keys() - session.base.env.keys()
        return sorted(name.decode("utf-8", "replace") for name in names)

    def has(self, name: str | None) -> bool:
        return name is None or name in self._sessions

    def is_current(self, session: Session) -> bool:
        """Return False if a session has been forgotten since the caller got it."""
        return session.name is None or self._sessions.get(session.name) is session

    def known(self, name: str) -> Session:
        """Return the session of this name.

        Raises `RpcError` (session_not_found) if it was never used.
        """
        if name not in self._sessions and name != DEFAULT_SESSION:
            raise session_not_found(name)
        return self.get(name)

    def peek(self, name: str | None) -> Session:
        """Return the session of this name.

        If it was never used, return a session that has the state of a new session.
        """
        return self._none if name is None else self._sessions.get(name, self._none)

    def all(self) -> dict[str, Session]:
        self.get(DEFAULT_SESSION)
        return self._sessions

    def forget(self, name: str) -> None:
        """Forget a session. Raises `RpcError` (session_not_found)."""
        self.known(name)
        del self._sessions[name]

    def close(self) -> None:
        """Close the files. After this, no state can be recorded."""
        self._dump_files.close()
        self._mounts.close()
