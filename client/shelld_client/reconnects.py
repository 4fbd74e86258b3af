"""What a client needs to attach again to a lasting daemon, after its connection was lost. Pure.

Owns the command that attaches again, and the identity of the daemon. Never starts anything: the
clients do.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from shelld_client.calls import Call
from shelld_client.errors import DaemonExited, NoAnswer, SpawnFailed, TargetLost
from shelld_client.ownership import Ownership

# How long to try again, and the first and the longest pause between two attempts. The daemon may
# take ten seconds until it no longer serves the lost connection.
RECONNECT_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0

# Exit codes of ``shelld attach``: the daemon does not answer, or there is no room for another
# process; another client is attached; the daemon has died.
UNUSABLE: Final = 2
OCCUPIED: Final = 4
DIED: Final = 6

# If one of these calls is repeated, nothing changes a second time.
_REPEATABLE: Final = frozenset(
    {
        *("ping", "server_info", "list_shells", "list_sessions", "list_targets", "list_tools"),
        *("get_session", "explain_command", "kill_shell"),
    }
)


class Reconnect:
    """The lasting daemon `name`. `command` attaches to it, but never starts or steals one."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        # The pid of the daemon; None before the first connection.
        self.pid: int | None = None
        # Calls that a lost connection has not answered, and whose answers nobody needs.
        self.unsent: collections.deque[Call[Any]] = collections.deque()

    def take_unsent(self, ownership: Ownership) -> Iterator[Call[Any]]:
        """Yield the calls to send on another connection. `ownership` is that of the connection."""
        with suppress(IndexError):
            while True:
                call = self.unsent.popleft()
                is_end = call.method == "unsubscribe"
                # Another reader may have continued the subscription.
                if not (is_end and ownership.has_reader(call.params["subscription"])):
                    yield call

    def lost(self) -> TargetLost:
        """Return the error of a call that was under way when the connection was lost."""
        data = {"target": self.name, "maybeStarted": True}
        return TargetLost(f"the connection to the daemon {self.name} was lost", data=data)

    def identify(self, pid: int) -> None:
        """Take the pid of the daemon that has the name now.

        Raises `DaemonExited` if it is another daemon than before.
        """
        if self.pid not in (None, pid):
            raise DaemonExited(f"the daemon {self.name} has died", exit_code=DIED)
        self.pid = pid


def is_connection_lost(failure: object) -> bool:
    """Whether the daemon may go on without the client.

    Any exit code but 0 says that the daemon has died, or that another client has taken it.
    """
    return isinstance(failure, DaemonExited) and failure.exit_code in (None, 0)


def may_go_on(failure: object) -> bool:
    """Whether another attempt to attach may succeed after one that has failed."""
    # The daemon may not have noticed yet that this client is gone. The machine may be busy, or
    # short of memory or processes.
    is_passing = isinstance(failure, DaemonExited) and failure.exit_code in (OCCUPIED, UNUSABLE)
    is_short = isinstance(failure, NoAnswer | SpawnFailed)
    return is_passing or is_short or is_connection_lost(failure)


def is_repeatable(call: Call[Any]) -> bool:
    """Whether a call has the same effect and result if the daemon gets it twice."""
    params = call.params
    if call.method == "bash":
        return params.get("idempotency_key") is not None
    if call.method == "bash_output":
        # Other reads count their output as read.
        return {"stdout_offset", "stderr_offset"} <= params.keys()
    return call.method in _REPEATABLE


def pauses() -> Iterator[float]:
    """Yield the pauses between attempts, in seconds, for ever."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)
