"""Records which request owns each subscription.

The owner gets the events of the subscription. When the owner leaves, it ends the subscription.

A request that continues a subscription is first an *heir*. It becomes the owner when its answer
arrives. If several heirs are answered, the owner is the heir whose answer came last. If the owner
leaves while the subscription has an heir, the subscription does not end.

If a request is interrupted after it has become the owner, it gives the subscription *back* to the
previous reader. That reader owns the subscription again, so it ends the subscription when it
leaves. But it receives no more events.

Invariant: each change of shared state is a single dictionary operation, so any thread, finaliser or
signal handler may call anything at any time.
"""

from __future__ import annotations

from shelld_client.errors import ShellError


class Ownership:
    def __init__(self) -> None:
        # Maps each subscription to the id of the request that owns it.
        self._owners: dict[str, int] = {}
        # The requests that have become owners and have not left yet.
        self._readers: dict[int, None] = {}
        # The ids of the requests that have given their subscriptions back. The value is the id of
        # the previous reader, which owns the subscription again.
        self._given_back: dict[int, int] = {}
        self._heirs: dict[tuple[str, int], None] = {}
        # The subscriptions that their owners are about to end.
        self._ending: dict[str, None] = {}

    def expect(self, subscription: str, request_id: int) -> None:
        """Record that a request will continue a subscription.

        Call this method before the request is sent. Raises `ShellError` if the owner is about to
        end the subscription.
        """
        self._heirs[subscription, request_id] = None
        # First register the heir, then check `_ending`. `leave` does the two steps in the other
        # order, so at least one of the two requests sees the other.
        if subscription in self._ending:
            self._heirs.pop((subscription, request_id), None)
            raise ShellError(f"{subscription} was ended by its reader")

    def claim(self, subscription: str, request_id: int) -> int | None:
        """Record that a request has become the owner.

        Return the previous reader, unless it has left.
        """
        before = self._owners.get(subscription)
        # First register the request as a reader, because an owner that is not a reader counts as
        # having left.
        self._readers[request_id] = None
        self._owners[subscription] = request_id
        self._heirs.pop((subscription, request_id), None)
        if before is not None:
            before = self._given_back.pop(before, before)
        return before if before in self._readers else None

    def give_back(self, subscription: str, request_id: int, reader: int) -> None:
        """Give a request's subscription back to `reader`, the previous reader. Call `leave` next.

        Does nothing if the request is no longer the owner.
        """
        self._given_back[request_id] = reader
        # First make the entry, then check the owner. `claim` does the two steps in the other order,
        # so one of the two methods removes the entry of a request that is no longer the owner.
        if self._owners.get(subscription) != request_id:
            self._given_back.pop(request_id, None)

    def leave(self, subscription: str, request_id: int) -> bool:
        """Record that a request no longer needs its subscription, or could not continue the
        subscription.

        If this returns true, the caller must end the subscription and then call `ended`.
        """
        self._readers.pop(request_id, None)
        return self.renounce(subscription, request_id)

    def renounce(self, subscription: str, request_id: int) -> bool:
        """Record that a request may never be answered. Return what `leave` returns.

        If an answer comes nevertheless, the request becomes the owner.
        """
        self._heirs.pop((subscription, request_id), None)
        owner = self._owners.get(subscription)
        if owner is None:
            # The subscription has ended, or is unknown, or an interrupt has come before the call of
            # `ended`.
            return subscription in self._ending
        if self._given_back.get(owner, owner) in self._readers:
            return False
        self._ending[subscription] = None
        if any(name == subscription for name, _ in list(self._heirs)):
            is_last = False
        else:
            # An heir may have become the owner since `owner` was read.
            is_last = self._owners.get(subscription) == owner
        if not is_last:
            self.ended(subscription)
            return False
        self._owners.pop(subscription, None)
        self._given_back.pop(owner, None)
        return True

    def withdraw(self, subscription: str, request_id: int) -> None:
        """Record that a request leaves its subscription to a later request of the same reader.

        The subscription does not end. Until the later request comes, the subscription has no owner.
        """
        self._readers.pop(request_id, None)
        self._heirs.pop((subscription, request_id), None)
        if self._owners.get(subscription) == request_id:
            self._owners.pop(subscription, None)

    def lost(self, subscription: str) -> None:
        """Record that a subscription is gone, so that nobody needs to end it."""
        self._owners.pop(subscription, None)

    def has_reader(self, subscription: str) -> bool:
        """Return whether a request reads a subscription, or will do so once it is answered."""
        owner = self._owners.get(subscription)
        is_read = owner is not None and self._given_back.get(owner, owner) in self._readers
        return is_read or any(name == subscription for name, _ in list(self._heirs))

    def ended(self, subscription: str) -> None:
        """Record that the request that ends a subscription was sent."""
        self._ending.pop(subscription, None)
