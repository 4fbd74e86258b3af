"""The methods ``subscribe`` and ``unsubscribe``, and the param `notify` of ``bash``."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from shelld.events.subscription import Subscription, SubscriptionOptions
from shelld.methods.context import RequestContext
from shelld.methods.here import check_is_here
from shelld.shells.shell import Shell
from shelld.waits.listening import check_ports
from shelld_protocol.errors import RpcError, invalid_params, missing_parameter
from shelld_protocol.event_methods import (
    DEFAULT_CHUNK_BYTES,
    DEFAULT_INTERVAL_MS,
    EventName,
    SubscribeParams,
    SubscribeResult,
    UnsubscribeParams,
)
from shelld_protocol.shell_methods import BashParams
from shelld_protocol.structs import Empty


async def subscribe(context: RequestContext, params: SubscribeParams) -> SubscribeResult:
    check_is_here(params.target)
    # This method does not await anything. So the answer comes before the first event, except in a
    # batch.
    subscriptions, key = context.daemon.subscriptions, params.idempotency_key
    if params.subscription is not None:
        if key is not None:
            raise invalid_params("Give either subscription or idempotency_key", "idempotency_key")
        named = subscriptions.get(params.subscription)
        _check_same(named.options, _with_given(named.options, params))
        return _continue(context, named, params.from_seq)
    if params.from_seq is not None and key is None:
        raise missing_parameter("subscription")
    if params.events is None:
        raise missing_parameter("events")
    _check_not_empty("events", params.events)
    options = _options_of(context, params, params.events)
    if key is not None and (found := subscriptions.find(key)) is not None:
        # An option that is left out has its default value, as in the first request.
        _check_same(found.options, options)
        # The client has not received the first answer, so it has received no events either.
        oldest, _newest = found.available
        return _continue(context, found, oldest if params.from_seq is None else params.from_seq)
    if params.from_seq:
        raise _not_kept(0, 0)
    shells = _shells_of(context, options)
    request_id = _request_id(context)
    return _result(subscriptions.add(options, context.recipient, request_id, shells, key))


async def unsubscribe(context: RequestContext, params: UnsubscribeParams) -> Empty:
    context.daemon.subscriptions.remove(params.subscription)
    return Empty()


@contextmanager
def notifying(context: RequestContext, params: BashParams) -> Generator[Callable[[Shell], None]]:
    """Begin the subscription that `notify` asks for, before the command starts.

    Yields a function, which the caller must call with the shell. If the `with` block ends without
    this call, the subscription ends, too. Raises `RpcError` (resource_exhausted).
    """
    if params.notify is None:
        yield _no_subscription
        return
    _check_not_empty("notify", params.notify)
    options = SubscriptionOptions(
        bash_id="",
        session=None,
        events=frozenset(params.notify),
        interval_ms=DEFAULT_INTERVAL_MS,
        max_bytes=DEFAULT_CHUNK_BYTES,
        strip=params.strip_ansi,
    )
    _check_possible(context, options)
    subscriptions = context.daemon.subscriptions
    added = subscriptions.add(options, context.recipient, _request_id(context), ())

    def attach(shell: Shell) -> None:
        subscriptions.attach(added, shell)
        context.subscription = added.name

    try:
        yield attach
    finally:
        if context.subscription is None:
            subscriptions.remove(added.name)


def _no_subscription(_shell: Shell) -> None:
    return None


def _continue(
    context: RequestContext, found: Subscription, from_seq: int | None
) -> SubscribeResult:
    oldest, newest = found.available
    seq = newest if from_seq is None else from_seq
    if not oldest <= seq <= newest:
        raise _not_kept(oldest, newest)
    subscriptions = context.daemon.subscriptions
    subscriptions.continue_after(found, seq, context.recipient, _request_id(context))
    return _result(found)


def _not_kept(oldest: int, newest: int) -> RpcError:
    message = f"Invalid value for from_seq: events are kept after {oldest} to {newest}"
    error = invalid_params(message, "from_seq")
    error.data["available"] = {"from": oldest, "to": newest}
    return error


def _result(subscription: Subscription) -> SubscribeResult:
    options = subscription.options
    return SubscribeResult(
        subscription.name,
        subscription.seq,
        sorted(options.events),
        options.bash_id,
        subscription.is_over,
    )


def _with_given(options: SubscriptionOptions, params: SubscribeParams) -> SubscriptionOptions:
    """Return the options of a subscription with the values that `params` gives."""
    given = {
        "bash_id": params.bash_id,
        "session": params.session,
        "events": None if params.events is None else frozenset(params.events),
        "interval_ms": params.interval_ms,
        "max_bytes": params.max_bytes,
        "strip": params.strip_ansi,
    }
    return replace(options, **{name: value for name, value in given.items() if value is not None})


def _check_same(current: SubscriptionOptions, wanted: SubscriptionOptions) -> None:
    """Raise `RpcError` if a client wants options that differ from those of a subscription."""
    for field in SubscriptionOptions.__struct_fields__:
        if getattr(wanted, field) != getattr(current, field):
            name = "strip_ansi" if field == "strip" else field
            raise invalid_params(f"Invalid value for {name}: the subscription has another", name)


def _options_of(
    context: RequestContext, params: SubscribeParams, events: list[EventName]
) -> SubscriptionOptions:
    if params.bash_id is not None and params.session is not None:
        raise invalid_params("Give either bash_id or session", "session")
    options = SubscriptionOptions(
        params.bash_id,
        params.session,
        frozenset(events),
        DEFAULT_INTERVAL_MS if params.interval_ms is None else params.interval_ms,
        DEFAULT_CHUNK_BYTES if params.max_bytes is None else params.max_bytes,
        params.strip_ansi is not False,
    )
    _check_possible(context, options)
    return options


def _check_not_empty(name: str, events: list[EventName]) -> None:
    if not events:
        raise invalid_params(f"Invalid value for {name}: must name an event", name)


def _check_possible(context: RequestContext, options: SubscriptionOptions) -> None:
    """Raise `RpcError` (unavailable) for events that this system cannot send."""
    if "screen" in options.events:
        context.daemon.manager.screens.check()
    if "listening" in options.events:
        check_ports()


def _shells_of(context: RequestContext, options: SubscriptionOptions) -> list[Shell]:
    manager = context.daemon.manager
    if options.bash_id is not None:
        return [manager.get(options.bash_id)]
    if options.session is not None:
        manager.sessions.known(options.session)
    return [shell for shell in manager.list_running() if options.includes(shell)]


def _request_id(context: RequestContext) -> Any:
    """Return the request's id as the client has written it."""
    return None if context.request_id is None else msgspec.Raw(context.request_id)
