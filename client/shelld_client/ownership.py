"""Which request owns each subscription.

The owner gets the events of the subscription. When the owner leaves, it ends the subscription.

A request that continues a subscription becomes its owner when its answer arrives, in the order of
the answers. Until then the request is an *heir*. While a subscription has an heir, an owner that
leaves does not end it.

Invariant: shared state changes only in single dictionary operations, so any thread, finaliser or
signal handler may call anything at any time.
"""

from __future__ import annotations

from shelld_client.errors import ShellError


class Ownership:
    def __init__(self) -> None:
        # The owner of each subscription: the id of its request.
        self._owners: dict[str, int] = {}
        # Owners that have left their subscription to an heir.
        self._left: dict[int, None] = {}
        self._heirs: dict[tuple[str, int], None] = {}
        # The subscriptions that their owners are about to end.
        self._ending: dict[str, None] = {}

    def expect(self, subscription: str, request_id: int) -> None:
        """Note that a request will continue a subscription. Call it before the request is sent.

        Raises `ShellError` if the subscription is about to be ended.
        """
        self._heirs[subscription, request_id] = None
        # Check only now. `leave` does the two steps in the other order, so at least one of the two
        # requests sees the other.
        if subscription in self._ending:
            self._heirs.pop((subscription, request_id), None)
            raise ShellError(f"{subscription} was ended by its reader")

    def claim(self, subscription: str, request_id: int) -> int | None:
        """Make a request the owner. Return the previous owner, unless it has left."""
        before = self._owners.get(subscription)
        self._owners[subscription] = request_id
        self._heirs.pop((subscription, request_id), None)
        return None if before is None or self._left.pop(before, 0) is None else before

    def leave(self, subscription: str, request_id: int) -> bool:
        """Note that a request needs its subscription no more, or could not continue it.

        Return whether the caller must end the subscription, and then call `ended`.
        """
        self._heirs.pop((subscription, request_id), None)
        owner = self._owners.get(subscription)
        if owner is None:
            # Nobody owns the subscription, so there is nothing to end. But if an interrupt came
            # before `ended`, the caller must still end it.
            return subscription in self._ending
        if owner != request_id and owner not in self._left:
            return False
        self._ending[subscription] = None
        if any(name == subscription for name, _ in list(self._heirs)):
            self._left[owner] = None
            is_last = False
        else:
            # An heir may have become the owner since `owner` was read.
            is_last = self._owners.get(subscription) == owner
        if not is_last:
            self.ended(subscription)
            return False
        self._owners.pop(subscription, None)
        self._left.pop(owner, None)
        return True

    def ended(self, subscription: str) -> None:
        """Note that the request that ends a subscription was sent."""
        self._ending.pop(subscription, None)

    def abandon(self, subscription: str, request_id: int) -> None:
        """Note that a request has left its subscription to whoever continues it."""
        if self._owners.get(subscription) == request_id:
            self._owners.pop(subscription, None)
