"""The methods of sessions."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from msgspec.structs import asdict, replace

from shelld.methods.context import RequestContext
from shelld.methods.here import check_is_here
from shelld.sandbox.policy import resolved
from shelld.sessions.environment import EnvironmentRules
from shelld.sessions.session import Session
from shelld.sessions.text import shown
from shelld_protocol import session_methods as wire
from shelld_protocol.errors import invalid_params
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.session_methods import (
    CloseSessionParams,
    CloseSessionResult,
    ConfigureSessionParams,
    ConfigureSessionResult,
    GetSessionParams,
    GetSessionResult,
    ListSessionsResult,
    SessionInfo,
)
from shelld_protocol.structs import NO_LIMITS, NoParams, ResourceLimits

# Which patterns for the names of variables are allowed, and how many. More or longer patterns would
# delay other requests.
_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_%*?]{1,64}")
_MAX_PATTERNS: Final = 100


async def configure_session(
    context: RequestContext, params: ConfigureSessionParams
) -> ConfigureSessionResult:
    check_is_here(params.target)
    sessions = context.daemon.manager.sessions
    limits = _tightened(sessions.limits, params.limits or NO_LIMITS)
    given = params.env or wire.EnvironmentRules()
    for name, patterns in (("env.remove", given.remove), ("env.keep", given.keep)):
        _check_patterns(name, patterns)
    mode = given.mode or sessions.rules.mode
    rules = EnvironmentRules(mode, tuple(given.remove), tuple(given.keep))
    sessions.check_unused(params.session)
    policy = sessions.sandbox
    if params.sandbox is not None:
        directory = sessions.peek(params.session).cwd
        policy = resolved(params.sandbox, directory, context.daemon.options.sandbox_engine)
    session = sessions.configure(params.session, rules, limits, policy)
    # If this sandbox cannot start, the daemon refuses all commands of the session as well.
    await context.daemon.manager.enter_sandbox(session)
    return ConfigureSessionResult(
        params.session, sessions.removed(session), _shown(session), _policy_of(session)
    )


def _tightened(default: ResourceLimits, given: ResourceLimits) -> ResourceLimits:
    """Return the limits of a session.

    The limits in `given` replace those in `default`.

    Raises `RpcError` (invalid_params) if a given limit is higher than the default. The limits that
    the daemon's options set apply to every session.
    """
    maxima = asdict(default)
    changes = {name: limit for name, limit in asdict(given).items() if limit is not None}
    for name, limit in changes.items():
        maximum = maxima[name]
        if maximum is not None and limit > maximum:
            parameter = f"limits.{name}"
            raise invalid_params(f"Value for {parameter} exceeds maximum: {maximum}", parameter)
    return replace(default, **changes)


def _shown(session: Session) -> ResourceLimits | None:
    """Return the limits of a session, if it has any."""
    return session.limits if session.is_limited else None


def _policy_of(session: Session) -> SandboxPolicy | None:
    """Return the policy of the session's sandbox, if it has one."""
    if session.sandbox is None:
        return None
    policy = session.sandbox.policy.shown
    names = ("write", "deny_write", "deny_read", "unix_sockets")
    return replace(policy, **{name: list(map(shown, getattr(policy, name))) for name in names})


def _check_patterns(parameter: str, patterns: list[str]) -> None:
    if len(patterns) > _MAX_PATTERNS:
        raise invalid_params(f"Too many items in {parameter}: at most {_MAX_PATTERNS}", parameter)
    if not all(map(_NAME_PATTERN.fullmatch, patterns)):
        raise invalid_params(
            f"Invalid value for {parameter}: must be a pattern for names of variables", parameter
        )


async def get_session(context: RequestContext, params: GetSessionParams) -> GetSessionResult:
    check_is_here(params.target)
    manager = context.daemon.manager
    session = manager.sessions.known(params.session)
    await session.settle_all()
    shells = [shell.id for shell in manager.list_running() if shell.session == params.session]
    return GetSessionResult(
        params.session,
        shown(session.cwd),
        session.changed_env(),
        shells,
        manager.sessions.removed(session),
        _shown(session),
        _policy_of(session),
    )


async def list_sessions(context: RequestContext, _params: NoParams) -> ListSessionsResult:
    manager = context.daemon.manager
    for session in list(manager.sessions.all().values()):
        await session.settle_all()
    running = Counter(shell.session for shell in manager.list_running())
    return ListSessionsResult(
        [
            SessionInfo(name, shown(session.cwd), running[name])
            for name, session in manager.sessions.all().items()
        ]
    )


async def close_session(context: RequestContext, params: CloseSessionParams) -> CloseSessionResult:
    check_is_here(params.target)
    killed = await context.daemon.manager.close_session(params.session)
    survivors = [pid for shell in killed for pid in shell.survivors]
    return CloseSessionResult(params.session, len(killed), survivors)
