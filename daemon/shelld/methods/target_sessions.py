"""Records what a request to a target means for the session that it names.

Also repeats the settings of a session at a target whose connection was lost. The target's daemon
may be a new one by then. Without the settings, such as a sandbox, no command of the session may run
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw

from shelld.methods.context import Daemon, RequestContext
from shelld.targets.naming import Members, as_raw, text_of
from shelld.targets.targets import Configured, Place, Target, Targets, was_not_started
from shelld_protocol.encoding import encode
from shelld_protocol.errors import ErrorKind, PassedOnError, RpcError, unknown_target
from shelld_protocol.structs import DEFAULT_SESSION

if TYPE_CHECKING:
    from shelld.targets.link import Link

# A request for one of these methods counts as a use of the session in its param `session`, unless
# the request starts nothing. From its first use on, a session belongs to this daemon or to one
# target.
_USING: Final = frozenset({"bash", "configure_session"})

# The errors of a sandbox that does not start.
_SANDBOX_ERRORS: Final = frozenset(
    {ErrorKind.UNAVAILABLE, ErrorKind.RESOURCE_EXHAUSTED, ErrorKind.SPAWN_FAILED}
)


def place_in(members: Members) -> Place | None:
    """Return two names from a request to a target: the session, and a further target behind that
    target. If the target itself must answer, the second name is empty. If the session is not a
    name, return None.
    """
    session = text_of(members.get("session", as_raw(DEFAULT_SESSION)))
    return None if session is None else (session, text_of(members.get("target")) or "")


class SessionUse:
    """Holds what a request means for its session at a target, from the time just before the request
    is sent. The code that sends the request must call `fail` or `succeed` once.

    `place` is None if the request has no valid session.
    """

    def __init__(
        self, targets: Targets, target: Target, method: str, place: Place | None, members: Members
    ) -> None:
        """Raises `RpcError` if the session is elsewhere, or if there are too many sessions."""
        self._targets = targets
        self._target = target
        self._method = method
        self._place = place
        self._members = members
        self._use: int | None = None
        if place is None:
            return
        session, further = place
        targets.check(session, target.name, further)
        if method in _USING and not _starts_nothing(members):
            self._use = targets.use(session, target.name, further)
        self._last_use = targets.last_use(session)
        self._settings = target.configured.get(place)

    def fail(self, error: BaseException, link: Link | None, *, is_sent: bool) -> None:
        """Record that the request has failed.

        `link` is the connection over which it was to be sent. `is_sent`: whether any byte of it was
        sent.
        """
        if self._place is None:
            return
        if self._use is not None:
            may_exist = is_sent and not was_not_started(error)
            self._targets.settle(self._place[0], self._use, may_exist=may_exist)
        if not isinstance(error, RpcError):
            return
        if link is not None and _may_have_settings(error):
            self._keep_settings(link)
        # The target's target may be gone, because the target's daemon is a new one.
        if error.kind is ErrorKind.SESSION_NOT_FOUND or is_about(error, "target"):
            self._note_close()

    def succeed(self, link: Link) -> None:
        """Record that the target has sent the result of the request over `link`."""
        if self._place is None:
            return
        if self._use is not None:
            self._targets.settle(self._place[0], self._use, may_exist=True)
        self._note_close()
        self._keep_settings(link)

    def _keep_settings(self, link: Link) -> None:
        """Record the settings that the request has sent over `link`."""
        if self._method == "configure_session" and self._place is not None:
            self._target.configured[self._place] = Configured(encode(self._members), link)

    def _note_close(self) -> None:
        """Forget the session that the request has closed, unless it was used in the meantime."""
        if self._method != "close_session" or self._place is None:
            return
        self._targets.forget_if_unused(self._place[0], self._last_use)
        configured = self._target.configured
        if self._settings is not None and configured.get(self._place) is self._settings:
            del configured[self._place]


def _may_have_settings(error: RpcError) -> bool:
    """Return whether a session may have its settings although ``configure_session`` has failed.

    If a sandbox does not start, the target refuses all commands of the session.
    """
    return isinstance(error, PassedOnError) and error.kind in _SANDBOX_ERRORS


def _starts_nothing(members: Members) -> bool:
    return b"true" in {bytes(members.get(name, b"")) for name in ("key_must_exist", "dry_run")}


async def configure_again(context: RequestContext, target: Target, place: Place) -> None:
    """If a session was configured over an earlier connection, configure it over this one.

    Raises OSError, and the target's error if it refuses the settings.
    """
    while (configured := target.configured.get(place)) is not None and configured.link.is_over:
        if context.is_over:
            # A request that was cancelled starts no command.
            return
        async with configured.lock:
            await _send_settings(context.daemon, target, configured)
    if context.daemon.targets.get(target.name) is not target:
        raise unknown_target(target.name)


async def _send_settings(daemon: Daemon, target: Target, configured: Configured) -> None:
    if daemon.targets.get(target.name) is not target:
        raise unknown_target(target.name)
    if not configured.link.is_over:
        # Another request has sent them.
        return
    link = target.connected(daemon.manager.runtime.pool, daemon.manager.attend)
    try:
        await link.answer(link.begin("configure_session", configured.params, None))
    except RpcError as error:
        if error.kind is ErrorKind.TARGET_LOST:
            # The settings were sent, but not the command that waits for them.
            error.data["maybeStarted"] = False
        # The target may be a lasting daemon, which still has the session. Then it refuses the
        # settings, because the session has run commands.
        if not is_about(error, "session"):
            raise
    configured.link = link


def is_about(error: RpcError, parameter: str) -> bool:
    """Return whether a target has refused a parameter of a request."""
    found = error.data.get("parameter")
    is_same = isinstance(found, Raw) and text_of(found) == parameter
    return error.kind is ErrorKind.INVALID_PARAMS and is_same
