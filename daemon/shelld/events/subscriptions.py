"""All subscriptions of the client, with their feeds.

Owns the subscriptions. A subscription to all shells, or to a session, lives until the client ends
it. If its client is lost, and no client continues it, it makes room for later subscriptions. A
subscription to a single shell is over when the last event of the shell was sent. It is then kept
until the shell is forgotten, so that a client can continue it. A subscription that is over does not
count towards `MAX_SUBSCRIPTIONS`. The number of such subscriptions is at most `MAX_OVER`, and the
total weight of their events is at most `MAX_OVER_WEIGHT`. Beyond these limits, the subscriptions
that ended first are removed. While events of a subscription are being sent again, the subscription
and its shell are kept.

Invariant: a new shell has its feeds before it can write, end or be forgotten.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from shelld.events.feed import Feed
from shelld.events.followers import PortFollower, PromptFollower, ScreenFollower
from shelld.events.subscription import Recipient, Subscription, SubscriptionOptions
from shelld.process import faults
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld_protocol.errors import RpcError, invalid_params, resource_exhausted
from shelld_protocol.event_methods import MAX_SUBSCRIPTIONS

# How many subscriptions to sessions or to all shells are kept whose clients are gone. Each of them
# delays every command, and its journal may take 3 MB.
MAX_LOST: Final = 32
# This is also the default number of retained shells.
MAX_OVER: Final = 1_000
# This many usual events, which have the weight 1, take about 30 MB.
MAX_OVER_WEIGHT: Final = 100_000


class Subscriptions:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._numbers = itertools.count(1)
        # The suffix of the names of all subscriptions. It differs from daemon to daemon. If a
        # target's daemon is lost, a client may try to continue its subscription at the daemon that
        # replaces the lost one. The new daemon must not mistake the name for the name of one of its
        # own subscriptions.
        self._mark = os.urandom(4).hex()
        self._all: dict[str, Subscription] = {}
        # The names of the subscriptions that have an idempotency key.
        self._by_key: dict[str, str] = {}
        # The feeds of subscriptions that are not over. The subscription that was begun or continued
        # last is at the end.
        self._feeds: dict[str, set[Feed]] = {}
        # The subscriptions that are over, in the order in which they ended. Maps each of them to
        # the weight of the events that it keeps. A subscription is left out while its events are
        # being sent again.
        self._over: dict[str, int] = {}
        self._over_weight = 0
        # The names of the subscriptions to a single shell, by the id of the shell.
        self._names: dict[str, set[str]] = {}
        manager.on_start = self._shell_starts
        manager.on_forget.append(self._shell_is_forgotten)

    def add(
        self,
        options: SubscriptionOptions,
        recipient: Recipient,
        request_id: Any,
        shells: Iterable[Shell],
        key: str | None = None,
    ) -> Subscription:
        """Begin a subscription. `shells`: the existing shells that the subscription covers. `key`
        must be new. `find` returns the subscription for this key.

        Raises `RpcError` (resource_exhausted).
        """
        self._make_room()
        if len(self._feeds) >= MAX_SUBSCRIPTIONS:
            message = f"There are too many subscriptions: {MAX_SUBSCRIPTIONS}"
            raise resource_exhausted("subscriptions", message)
        name = f"sub_{next(self._numbers)}{self._mark}"
        added = Subscription(name, options, recipient, request_id, self._manager.attend)
        self._all[name], self._feeds[name] = added, set()
        if key is not None:
            added.key, self._by_key[key] = key, name
        try:
            for shell in shells:
                self.attach(added, shell)
        except BaseException:
            self.remove(name)
            raise
        return added

    def _make_room(self) -> None:
        """Remove subscriptions of lost clients if there are too many.

        The subscriptions that were begun or continued first are removed first. A subscription to a
        single shell ends with its shell, so it is removed only if nothing else makes room.
        """
        lost = [name for name in self._feeds if self._all[name].has_no_client]
        wide = [name for name in lost if self._all[name].options.bash_id is None]
        for name in wide[:-MAX_LOST]:
            self.remove(name)
        if len(self._feeds) >= MAX_SUBSCRIPTIONS:
            for name in (wide or lost)[:1]:
                self.remove(name)

    def attach(self, subscription: Subscription, shell: Shell) -> None:
        """Send the events of a shell, beginning with its unread output.

        Does nothing if the subscription was removed.
        """
        if subscription.name not in self._all:
            # The client has ended the subscription before its shell started.
            return
        self._feed(subscription, shell)
        if subscription.options.bash_id is not None:
            # The subscription may have begun before its shell had an id.
            subscription.options = replace(subscription.options, bash_id=shell.id)
            self._names.setdefault(shell.id, set()).add(subscription.name)

    def get(self, name: str) -> Subscription:
        """Return a subscription. Raises `RpcError` (invalid_params)."""
        found = self._all.get(name)
        if found is None or self._has_expired(found):
            raise invalid_params(
                "Invalid value for subscription: it does not exist", "subscription"
            )
        return found

    def find(self, key: str) -> Subscription | None:
        """Return the subscription that has an idempotency key; None if there is none."""
        found = self._all.get(self._by_key.get(key, ""))
        if found is not None and self._has_expired(found):
            # Remove the subscription, so that a new one can get the key.
            self.remove(found.name)
            return None
        return found

    def _has_expired(self, subscription: Subscription) -> bool:
        """Return whether a subscription covers one shell only and that shell is not retained."""
        if not subscription.options.bash_id:
            return False
        try:
            self._manager.get(subscription.options.bash_id)
        except RpcError:
            return True
        return False

    def continue_after(
        self, subscription: Subscription, seq: int, recipient: Recipient, request_id: Any
    ) -> None:
        """Send the events after `seq` again. `seq` must be in the `available` range."""
        if subscription.name in self._over:
            shell = self._manager.get(subscription.options.bash_id or "")
            pin = ExitStack()
            pin.enter_context(self._manager.reading(shell))
            try:
                self._manager.attend(partial(self._keep_until_sent, subscription, pin))
            except BaseException:
                pin.close()
                raise
            self._over_weight -= self._over.pop(subscription.name)
        elif (feeds := self._feeds.pop(subscription.name, None)) is not None:
            self._feeds[subscription.name] = feeds
        subscription.continue_after(seq, recipient, request_id)

    async def _keep_until_sent(self, subscription: Subscription, pin: ExitStack) -> None:
        await subscription.flush()
        pin.close()
        self._note_over(subscription)

    def remove(self, name: str) -> None:
        """End a subscription. Does nothing if there is no such subscription."""
        self._over_weight -= self._over.pop(name, 0)
        found = self._all.pop(name, None)
        if found is not None:
            found.close()
            if found.key is not None:
                del self._by_key[found.key]
            self._names.get(found.options.bash_id or "", set()).discard(name)
        for feed in self._feeds.pop(name, ()):
            feed.close()

    def lose_client(self) -> None:
        """Send no more events until a client continues a subscription.

        The journals still record events.
        """
        for each in self._all.values():
            each.lose_client()

    async def settle(self) -> None:
        """Wait until all shells have ended, and all events up to the exit events were sent."""
        for feed in [each for feeds in self._feeds.values() for each in feeds]:
            await feed.end_told.wait()
        for subscription in list(self._all.values()):
            # If a client is getting earlier events again, the exit events come after these.
            await subscription.flush()

    def hurry(self) -> None:
        """Skip long output and do not wait for clients from now on: the daemon ends soon."""
        for each in self._all.values():
            each.hurry()
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.hurry()

    # -- shells -----------------------------------------------------------------------------

    def _shell_starts(self, shell: Shell) -> None:
        for name in list(self._feeds):
            try:
                if self._all[name].options.includes(shell):
                    self._feed(self._all[name], shell)
            except Exception as error:
                # The command goes on, and the client can still read its output.
                faults.answer_for(error, "a subscription")

    def _shell_is_forgotten(self, shell: Shell) -> None:
        for name in self._names.pop(shell.id, ()):
            self.remove(name)

    def _feed(self, subscription: Subscription, shell: Shell) -> None:
        feed = Feed(shell, subscription, self._manager)
        feeds = self._feeds[subscription.name]
        feeds.add(feed)
        try:
            events = subscription.options.events
            if shell.input is not None and "prompt" in events:
                feed.add_follower(PromptFollower(self._manager.check_turns, feed).run)
            if "listening" in events:
                feed.add_follower(
                    PortFollower(self._manager.check_turns, self._manager.socket_news, feed).run
                )
            if shell.has_terminal and "screen" in events:
                feed.add_follower(ScreenFollower(self._manager.screens, feed).run)
            self._manager.attend(partial(self._run, subscription, feed, feeds))
        except BaseException:
            feeds.discard(feed)
            feed.close()
            raise

    async def _run(self, subscription: Subscription, feed: Feed, feeds: set[Feed]) -> None:
        await feed.run()
        feeds.discard(feed)
        if subscription.options.bash_id is not None:
            # No more events can follow.
            self._feeds.pop(subscription.name, None)
            self._note_over(subscription)

    def _note_over(self, subscription: Subscription) -> None:
        """Record that a subscription is over, unless it was removed."""
        if subscription.name in self._all:
            self._over[subscription.name] = subscription.weight
            self._over_weight += subscription.weight
            while len(self._over) > MAX_OVER or self._over_weight > MAX_OVER_WEIGHT:
                self.remove(next(iter(self._over)))
