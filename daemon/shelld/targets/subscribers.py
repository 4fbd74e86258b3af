"""Records the subscriptions at one target whose events a link passes on. Pure.

Owns their names, each with the id of the client's request. Forgets a subscription that the client
ends, and a subscription of a single shell once that shell has sent its last event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from shelld_protocol.encoding import decode
from shelld_protocol.event_methods import LOST_NOTIFICATION, OVER_NOTIFICATION

# The maximum number of recorded subscriptions. A daemon has at most 256 at a time, but this module
# does not always learn that a subscription has ended.
MAX_KEPT: Final = 1_024


class _Begun(msgspec.Struct):
    subscription: str | None = None
    bash_id: str | None = None


class _Event(msgspec.Struct):
    subscription: str = ""
    leftover: Raw = Raw()


_begun: Final = msgspec.json.Decoder(_Begun)
_event: Final = msgspec.json.Decoder(_Event)

_ENDS: Final = frozenset({LOST_NOTIFICATION, OVER_NOTIFICATION})
_LAST_EVENTS: Final = frozenset({"shell/exited", "shell/leftover", *_ENDS})


class _Subscriber(NamedTuple):
    request_id: bytes | None
    is_of_one_shell: bool


class Subscribers:
    def __init__(self) -> None:
        self._kept: dict[str, _Subscriber] = {}

    def note(self, result: bytes, request_id: bytes | None) -> None:
        """Record the subscription that a request has begun or continued, if its result names one.

        Raises msgspec.DecodeError for a result of another form.
        """
        begun = decode(result, _begun)
        if begun.subscription:
            self._kept.pop(begun.subscription, None)
            self._kept[begun.subscription] = _Subscriber(request_id, begun.bash_id is not None)
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]

    def forget(self, subscription: str) -> None:
        """Forget a subscription that the client has ended, or whose last event has come."""
        self._kept.pop(subscription, None)

    def note_event(self, method: str, params: bytes) -> None:
        """Forget a subscription if this notification is its last event.

        `params` is JSON, as the target has sent it.

        Raises msgspec.DecodeError for params of another form.
        """
        if method not in _LAST_EVENTS or not self._kept:
            return
        event = decode(params, _event)
        found = self._kept.get(event.subscription)
        if found is None:
            return
        is_last = found.is_of_one_shell and bytes(event.leftover) == b"[]"
        if method in _ENDS or is_last:
            self.forget(event.subscription)

    def take_lost(self, target: str, message: str) -> Mapping[str, Any] | None:
        """Forget the oldest subscription. Return the params of ``shell/lost`` for it.

        Return None if no subscription is left.
        """
        if not self._kept:
            return None
        name = next(iter(self._kept))
        request_id = self._kept.pop(name).request_id
        own = {} if request_id is None else {"requestId": Raw(request_id)}
        return {"subscription": f"{target}:{name}", **own, "target": target, "message": message}
