"""Records the subscriptions at one target.

A link passes on the events of these subscriptions. Pure.

Owns the names of the subscriptions, each with the id of the client's request. Forgets a
subscription when the client ends it. Forgets a subscription to a single shell when the shell has
sent its last event. This event may come before the answer that names the subscription.

The target does not notice that a client is lost. So this module also has the names of the lost
client's subscriptions to sessions and to all shells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from shelld_protocol.encoding import decode
from shelld_protocol.event_methods import LOST_NOTIFICATION, OVER_NOTIFICATION

# The maximum number of recorded subscriptions. A daemon has at most 256 subscriptions at a time.
# But some subscriptions send no event when they end, so this module may still record them after
# they have ended. Beyond the limit, it forgets the oldest subscriptions.
MAX_KEPT: Final = 1_024
# How many subscriptions of lost clients may stay at the target, as in this daemon.
MAX_LOST: Final = 32


class _Begun(msgspec.Struct, rename={"is_over": "isOver"}):
    subscription: str | None = None
    bash_id: str | None = None
    events: list[str] = []
    is_over: bool = False


class _Event(msgspec.Struct):
    subscription: str = ""
    leftover: Raw = Raw()


_begun: Final = msgspec.json.Decoder(_Begun)
_event: Final = msgspec.json.Decoder(_Event)
_names: Final = msgspec.json.Decoder(list[str])

_ENDS: Final = frozenset({LOST_NOTIFICATION, OVER_NOTIFICATION})
_LAST_EVENTS: Final = frozenset({"shell/exited", "shell/leftover", *_ENDS})


class _Subscriber(NamedTuple):
    request_id: bytes | None
    is_of_one_shell: bool
    events: frozenset[str]
    # Whether the last event of the subscription will tell the client that the subscription has
    # ended.
    tells_end: bool

    def ends_with(self, *, has_leftover: bool) -> bool:
        """Return whether an exit event, or an event about leftover processes, ends this
        subscription.

        If the event says that processes are left over (`has_leftover`), and the subscription
        includes events about such processes, the subscription goes on.
        """
        return self.is_of_one_shell and not (has_leftover and "leftover" in self.events)


class Subscribers:
    def __init__(self) -> None:
        self._kept: dict[str, _Subscriber] = {}
        # The last event of a subscription may come before the answer that names the subscription.
        # For each such subscription, this tells whether the event reports leftover processes.
        self._early: dict[str, bool] = {}
        # The names of the subscriptions of lost clients, oldest first.
        self._left: dict[str, None] = {}

    def note(self, result: bytes, request_id: bytes | None, notify: bytes | None = None) -> None:
        """If the result of a request names a subscription, record this subscription.

        `notify`: the names of the events (JSON), if the request has started a command.

        Raises msgspec.DecodeError for a result of another form.
        """
        begun = decode(result, _begun)
        name = begun.subscription
        if not name:
            return
        self._left.pop(name, None)
        names = begun.events if notify is None else decode(notify, _names)
        is_of_one_shell = begun.bash_id is not None
        tells_end = not is_of_one_shell or ("exit" in names and not begun.is_over)
        noted = _Subscriber(request_id, is_of_one_shell, frozenset(names), tells_end)
        early = self._early.pop(name, None)
        self._kept.pop(name, None)
        if notify is not None and early is not None and noted.ends_with(has_leftover=early):
            return
        self._kept[name] = noted
        if len(self._kept) > MAX_KEPT:
            unsure = (each for each, kept in self._kept.items() if not kept.tells_end)
            del self._kept[next(unsure, next(iter(self._kept)))]

    def forget(self, subscription: str) -> None:
        """Forget a subscription that the client has ended, or whose last event has come."""
        self._kept.pop(subscription, None)
        self._left.pop(subscription, None)

    def forget_all(self) -> None:
        """Forget all subscriptions, because another client has replaced the previous client."""
        for name, kept in self._kept.items():
            if not kept.is_of_one_shell:
                self._left[name] = None
        self._kept.clear()
        self._early.clear()

    def take_surplus(self) -> list[str]:
        """Forget the subscriptions of lost clients that are too many, and return their names."""
        names = list(self._left)[:-MAX_LOST]
        for name in names:
            del self._left[name]
        return names

    def note_event(self, method: str, params: bytes) -> None:
        """Forget a subscription if this notification is its last event.

        `params` is the JSON that the target has sent.

        Raises msgspec.DecodeError for params of another form.
        """
        if method not in _LAST_EVENTS:
            return
        event = decode(params, _event)
        name, has_leftover = event.subscription, bytes(event.leftover) != b"[]"
        found = self._kept.get(name)
        if method in _ENDS:
            self.forget(name)
        elif found is None:
            self._early[name] = has_leftover
            if len(self._early) > MAX_KEPT:
                # If the answer to a command is an error, no answer ever names the subscription of
                # the command. Then the item would stay for ever, so limit the number of items.
                del self._early[next(iter(self._early))]
        elif found.ends_with(has_leftover=has_leftover):
            self.forget(name)

    def take_lost(self, target: str, message: str) -> Mapping[str, Any] | None:
        """Forget the oldest subscription, and return the params of ``shell/lost`` for this
        subscription.

        Return None if no subscription is left.
        """
        if not self._kept:
            return None
        name = next(iter(self._kept))
        request_id = self._kept.pop(name).request_id
        own = {} if request_id is None else {"requestId": Raw(request_id)}
        return {"subscription": f"{target}:{name}", **own, "target": target, "message": message}
