"""Holds what a client needs to reconnect to a lasting daemon after a lost connection.

Owns the command with which the client reconnects, and the identity of the daemon. Never starts a
process; the clients do this. Reads the clock, and does nothing else with the system.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from shelld_client.calls import Call
from shelld_client.errors import DaemonExited, NoAnswer, ShellError, SpawnFailed, TargetLost
from shelld_client.ownership import Ownership

# How long to try to reconnect. The pause between two attempts grows from `_FIRST_PAUSE_S` to
# `_LONGEST_PAUSE_S`. The daemon may need ten seconds to notice the lost connection.
RECONNECT_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0

# A loss is quick if the connection is lost within `_QUICK_LOSS_S` after a call was sent. If a call
# has had `_MAX_QUICK_LOSSES` quick losses in a row, the client does not repeat the call again. Such
# a call may be the cause: its answer may need too much memory, for example.
_MAX_QUICK_LOSSES: Final = 5
_QUICK_LOSS_S: Final = 10.0
# If nobody waits for a call, it may lose this many connections. This limit is lower, so that the
# client gives up this call before the other calls that were sent on the same connections.
_MAX_UNSENT_LOSSES: Final = 3

# Exit codes of ``shelld attach``. OCCUPIED: another client is attached, or has taken the daemon.
# OTHER_VERSION: the daemon cannot be used. DIED: the daemon has died. Any other exit code says
# nothing about the daemon. For example, the machine may have had no memory for the process.
OCCUPIED: Final = 4
OTHER_VERSION: Final = 5
DIED: Final = 6

# Methods that can be called again without any further effect.
_REPEATABLE: Final = frozenset(
    {
        *("ping", "server_info", "list_shells", "list_sessions", "list_targets", "list_tools"),
        *("get_session", "explain_command", "kill_shell", "rpc.discover"),
    }
)


class Reconnect:
    """Identifies the lasting daemon `name`.

    `command` attaches to this daemon, but never starts it or takes it from another client. So it
    does not need the directory in which the daemon was started: this directory may be gone.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        # The pid of the daemon; None before the first connection.
        self.pid: int | None = None
        # Why the last attempt to attach has failed. Calls that have waited for this attempt fail,
        # too. Otherwise, these calls would try again one after the other, each for the same time.
        self.failure: ShellError | None = None
        # These calls must be sent again, because the connection was lost before their answers came.
        # Nobody needs the answers.
        self.unsent: collections.deque[Call[Any]] = collections.deque()

    def send_later(self, call: Call[Any]) -> None:
        """Keep a call for the next connection, unless this call may be the reason why connections
        end.
        """
        if call.losses < _MAX_UNSENT_LOSSES:
            self.unsent.append(call)

    def take_unsent(self, ownership: Ownership) -> Iterator[Call[Any]]:
        """Yield the calls to send on a new connection. `ownership` belongs to that connection."""
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

    def stolen(self, failure: DaemonExited) -> DaemonExited:
        """Return the error to raise after another client has taken the daemon.

        `shelld attach` may end too late for the client to get its exit code.
        """
        if not is_connection_lost(failure):
            return failure
        sentence = f"another client has taken the daemon {self.name}"
        return DaemonExited(sentence, stderr=failure.stderr, exit_code=OCCUPIED)

    def identify(self, pid: int) -> None:
        """Record the pid of the daemon that now has the name `name`.

        Raises `DaemonExited` if this is another daemon than before.
        """
        if self.pid not in (None, pid):
            raise DaemonExited(f"the daemon {self.name} has died", exit_code=DIED)
        self.pid = pid


class Losses:
    """Counts the connections that a call has lost soon after it was sent. Begins again at 0 if the
    call receives anything new, or if a connection lasts longer.
    """

    def __init__(self) -> None:
        self._count = 0
        self._sent_at = 0.0

    def sent(self) -> None:
        """Record that the call is sent now."""
        self._sent_at = time.monotonic()

    def received(self) -> None:
        """Record that the call has received something that no earlier call has received."""
        self._count = 0

    def may_repeat(self) -> bool:
        """Record that the connection was lost. Return whether the call may be sent again."""
        is_quick = time.monotonic() - self._sent_at < _QUICK_LOSS_S
        self._count = self._count + 1 if is_quick else 0
        return self._count < _MAX_QUICK_LOSSES


def is_connection_lost(failure: object) -> bool:
    """Return whether `failure` says no more than that the connection was lost."""
    final = (OCCUPIED, OTHER_VERSION, DIED)
    return isinstance(failure, DaemonExited) and failure.exit_code not in final


def can_try_again(failure: object) -> bool:
    """Return whether another attempt to attach may succeed after `failure`."""
    # The daemon may not have noticed yet that the old connection is lost. The machine may be busy,
    # or short of memory or processes.
    is_occupied = isinstance(failure, DaemonExited) and failure.exit_code == OCCUPIED
    is_short = isinstance(failure, NoAnswer | SpawnFailed)
    return is_occupied or is_short or is_connection_lost(failure)


def is_repeatable(call: Call[Any]) -> bool:
    """Return whether a call can be sent twice without changing its effect or its result."""
    params = call.params
    if call.method == "bash":
        return params.get("idempotency_key") is not None
    if call.method == "subscribe":
        # Without a number, the second request would skip the events since the first.
        is_numbered = params.get("from_seq") is not None
        return params.get("idempotency_key") is not None or is_numbered
    if call.method == "bash_output":
        # A read without an offset counts its output as read, so a second read would return other
        # output. A read with one offset reads only one stream.
        return not params.keys().isdisjoint({"stdout_offset", "stderr_offset"})
    if call.method == "read_screen":
        # Without `since`, the second request would wait for another change than the first.
        waits_for_change = params.get("wait") and params.get("until") == "change"
        return not waits_for_change or params.get("since") is not None
    return call.method in _REPEATABLE


def pauses() -> Iterator[float]:
    """Yield the pauses between attempts, in seconds, for ever."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)
