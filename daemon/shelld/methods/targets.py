"""The methods ``add_target``, ``list_targets`` and ``remove_target``.

Also passes requests on to targets.

A request goes to a target if it names a target, if one of its ids names a target, or if its session
is at a target.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from msgspec import Raw

from shelld.methods.context import PassedOn, RequestContext
from shelld.methods.here import check_is_here
from shelld.methods.target_sessions import SessionUse, configure_again, is_about, place_in
from shelld.targets.naming import ID_PARAMS, Members, as_raw, named_result, split, text_of
from shelld.targets.targets import Place, Target
from shelld_protocol.encoding import decode, encode
from shelld_protocol.errors import (
    ErrorKind,
    PassedOnError,
    RpcError,
    invalid_params,
    no_such_call,
    target_lost,
    unknown_target,
)
from shelld_protocol.parameters import parameters_of
from shelld_protocol.params import members_of
from shelld_protocol.structs import Params
from shelld_protocol.target_methods import (
    AddTargetParams,
    AddTargetResult,
    ListTargetsParams,
    ListTargetsResult,
    RemoveTargetParams,
    RemoveTargetResult,
    is_target_name,
)

if TYPE_CHECKING:
    from shelld.targets.link import Link
    from shelld.targets.outgoing import Call

# If a request has one of these members, the client can later find the command or the subscription
# that the request has begun.
_KEYS: Final = ("idempotency_key", "subscription")

_MAX_DIGITS: Final = 64

# As in all other parameters, 5.0 counts as 5.
_number: Final = msgspec.json.Decoder(int, strict=False)

Divert = Callable[[RequestContext, bytes], Awaitable[Any] | None]


class _Begun(msgspec.Struct):
    """The members of a result that name the command or the subscription that the request has
    begun.
    """

    bash_id: str = ""
    status: str = ""
    subscription: str | None = None


_begun: Final = msgspec.json.Decoder(_Begun)


async def add_target(context: RequestContext, params: AddTargetParams) -> AddTargetResult:
    first, colon, _rest = params.name.partition(":")
    if colon and is_target_name(first):
        raise _unknown("name", first)
    context.daemon.targets.add(params.name, params.argv, bootstrap=params.bootstrap)
    return AddTargetResult(params.name)


async def list_targets(context: RequestContext, params: ListTargetsParams) -> ListTargetsResult:
    check_is_here(params.target)
    return ListTargetsResult(context.daemon.targets.list())


async def remove_target(context: RequestContext, params: RemoveTargetParams) -> RemoveTargetResult:
    targets = context.daemon.targets
    target = targets.get(params.name)
    if target is None:
        raise _unknown("name", params.name)
    return RemoveTargetResult(params.name, await targets.remove(target))


def _unknown(parameter: str, name: str) -> RpcError:
    error = unknown_target(name)
    return invalid_params(error.message.replace("target:", f"{parameter}:", 1), parameter)


def passing_on(method: str, params_type: type[Params]) -> Divert:
    """Return a function that passes a request on to its target.

    This function returns None if the request is for this daemon.
    """

    takes_target = "target" in parameters_of(params_type)

    def divert(context: RequestContext, raw_params: bytes) -> Awaitable[Any] | None:
        if context.daemon.targets.is_empty:
            return None
        members = members_of(params_type, raw_params)
        if (called := _waiting_request(context, members)) is not None:
            return _follow(context, method, called, members)
        found = _target_of(context, method, members, takes_target=takes_target)
        if found is None:
            return None
        context.is_for_target = True
        # A method without `target` cannot name the target's target that has the session. That
        # target is found at the next daemon.
        place = place_in(members) if takes_target else None
        return _pass_on(context, method, found, members, place)

    return divert


def _target_of(
    context: RequestContext, method: str, members: Members, *, takes_target: bool
) -> Target | None:
    """Return the target that answers a request, and remove the target's name from `members`.

    Raises `RpcError` (invalid_params).
    """
    targets = context.daemon.targets
    for name in ID_PARAMS.get(method, ()):
        parts = split(members.get(name))
        if parts is not None and (target := targets.get(parts[0])) is not None:
            for each in ID_PARAMS[method]:
                if split(members.get(each)) is not None:
                    members[each] = _without_target(members[each], target.name)
            if takes_target and _first_name(members) == target.name:
                _remove_first_name(members)
            return target
    if (called := _request_of(context, members)) is not None:
        members["request_id"] = Raw(called.far_id)
        return targets.get(called.target)
    named = _named_target(context, members) if takes_target else None
    return named or _target_of_session(context, members, takes_target=takes_target)


def _without_target(raw: Raw, target: str) -> Raw:
    text = text_of(raw) or ""
    return as_raw(text.removeprefix(f"{target}:"))


def _request_of(context: RequestContext, members: Members) -> PassedOn | None:
    """If `request_id` names a request in flight that was passed on, return this request."""
    raw = members.get("request_id")
    if raw is None:
        return None
    for each in context.find_requests(_plain(raw)):
        if each.passed_on is not None:
            return each.passed_on
    return None


def _waiting_request(context: RequestContext, members: Members) -> RequestContext | None:
    """If `request_id` names only a request that will be passed on, return this request."""
    raw = members.get("request_id")
    found = () if raw is None else context.find_requests(_plain(raw))
    is_waiting = all(each.is_for_target and each.passed_on is None for each in found)
    return found[0] if found and is_waiting else None


async def _follow(
    context: RequestContext, method: str, called: RequestContext, members: Members
) -> Any:
    """Pass a request on after the request that it names."""
    await called.wait_until_passed_on()
    target = _target_of(context, method, members, takes_target=False)
    if target is None:
        raise no_such_call()
    return await _pass_on(context, method, target, members, None)


def _plain(raw: Raw) -> int | str:
    content = bytes(raw)
    # No id of a request is longer than this, and Python refuses to convert thousands of digits.
    is_number = len(content) < _MAX_DIGITS and content[:1] != b'"'
    try:
        return decode(content, _number) if is_number else text_of(raw) or ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _named_target(context: RequestContext, members: Members) -> Target | None:
    name = _first_name(members)
    if name is None:
        return None
    target = context.daemon.targets.get(name)
    if target is None:
        raise unknown_target(text_of(members["target"]) or "")
    _remove_first_name(members)
    return target


def _first_name(members: Members) -> str | None:
    """Return the first name in the member `target`.

    After a colon, the member may also name a target of this target.
    """
    name = text_of(members.get("target"))
    return None if name is None else name.partition(":")[0]


def _remove_first_name(members: Members) -> None:
    _first, colon, rest = (text_of(members.pop("target")) or "").partition(":")
    if colon:
        members["target"] = as_raw(rest)


def _target_of_session(
    context: RequestContext, members: Members, *, takes_target: bool
) -> Target | None:
    """Return the target that has the request's session.

    If one of its targets has the session, add this target's name to `members`.
    """
    session, targets = text_of(members.get("session")), context.daemon.targets
    place = None if session is None else targets.place_of(session)
    if place is None:
        return None
    name, further = place
    if takes_target and further:
        members["target"] = as_raw(further)
    return targets.get(name)


async def _pass_on(
    context: RequestContext, method: str, target: Target, members: Members, place: Place | None
) -> Any:
    """Send a request to its target. Return the result. Each id in the result has the form that this
    daemon uses. `place` is where the request expects its session, if it names one.
    """
    daemon = context.daemon
    if method == "bash" and place is not None:
        await configure_again(context, target, place)
    await _end_if_unwanted(context, method, members)
    use = SessionUse(daemon.targets, target, method, place, members)
    link: Link | None = None
    call: Call | None = None
    try:
        pool, attend = daemon.manager.runtime.pool, daemon.manager.attend
        link = target.connected(pool, attend)
        link.listen(context.notify, context.recipient)
        call = link.begin(method, encode(members), context.request_id)
        leave = partial(link.leave, call) if method == "bash" else None
        context.passes_on(PassedOn(target.name, call.far_id, leave))
        if method == "bash" and context.leaves_command:
            # The client was lost while the request waited for its turn.
            link.leave(call)
        result = await _answer(context, link, call, method, members)
    except BaseException as error:
        use.fail(error, link, is_sent=call is not None and call.is_sent)
        if isinstance(error, RpcError) and is_about(error, "name"):
            _forget_removed(context, method, target, members)
        raise
    use.succeed(link)
    _forget_removed(context, method, target, members)
    try:
        await _note_events(context, link, method, members, result)
        return named_result(method, target.name, result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        link.cut()
        message = f"Target {target.name} has sent an invalid result"
        raise target_lost(target.name, message, maybe_started=True, text="") from None


def _forget_removed(context: RequestContext, method: str, target: Target, members: Members) -> None:
    """If a request removes a target of `target`, forget the sessions there. Call this even if
    `target` does not know the removed target, because the daemon of `target` may be a new one.
    """
    if method == "remove_target" and (removed := text_of(members.get("name"))):
        context.daemon.targets.forget_further(target, removed)


async def _answer(
    context: RequestContext, link: Link, call: Call, method: str, members: Members
) -> bytes:
    """Return the result (JSON) of a request, as the target has sent it. Raises `RpcError`."""
    try:
        return await link.answer(call)
    except anyio.get_cancelled_exc_class():
        if call.result is not None and not call.is_left:
            # The target had already sent its result when the request was cancelled.
            left = await _undo(link, method, members, call.result)
            context.error_data = {"bash_id": f"{link.target}:{left}"} if left else {}
        raise
    except PassedOnError as error:
        if method == "bash":
            # If the command has run, its last events may come after the error.
            begun = _begun_by(error, link.target)
            await _note_events(context, link, method, members, begun)
        raise
    finally:
        if call.error is not None and call.error.kind is ErrorKind.CANCELLED:
            # The target's error may list processes that survived the kill.
            context.error_data = call.error.data


async def _end_if_unwanted(context: RequestContext, method: str, members: Members) -> None:
    """If a `bash` request is cancelled already, do not let it start a command at its target. Do the
    same if the client is lost and the command would end with its client. Without this check, the
    target might start the command before it gets the cancellation. Raises `RpcError` (cancelled).
    """
    if method != "bash":
        return
    context.ends_with_client = _ends_with_client(members)
    context.end_if_left()
    if text_of(members.get("idempotency_key")) is None:
        await context.end_if_cancelled()
    elif context.is_over:
        # An earlier request may have started the command. If so, the target ends the command when
        # it gets the cancellation of this request.
        members["key_must_exist"] = msgspec.Raw(b"true")


async def _undo(link: Link, method: str, members: Members, result: bytes) -> str | None:
    """End the command or the subscription that a request has begun at a target, because the client
    will not learn of it.

    But a command or subscription with an idempotency key goes on. The client can find such a
    command or subscription again, and an earlier request may have begun it. Return the id of a
    command that goes on.
    """
    try:
        begun = decode(result, _begun)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    params: Mapping[str, str | None]
    # A member that is null counts as absent.
    keys = {name for name in _KEYS if text_of(members.get(name)) is not None}
    if method == "bash" and begun.status == "running" and "idempotency_key" not in keys:
        undo, params = "kill_shell", {"shell_id": begun.bash_id}
    elif method == "bash" and begun.status == "running":
        return begun.bash_id
    elif method == "subscribe" and not keys:
        undo, params = "unsubscribe", {"subscription": begun.subscription}
    else:
        return None
    await link.undo(undo, encode(params))
    return None


async def _note_events(
    context: RequestContext, link: Link, method: str, members: Members, result: bytes
) -> None:
    """Record the subscription that a request has begun, continued or ended.

    Raises msgspec.DecodeError for a result of another form.
    """
    if method == "subscribe" or "notify" in members:
        notify = members.get("notify") if method == "bash" else None
        link.subscribers.note(result, context.request_id, notify and bytes(notify))
        link.end_surplus()
        await link.tell_subscribers()
    elif method == "unsubscribe":
        link.subscribers.forget(text_of(members.get("subscription")) or "")


def _begun_by(error: PassedOnError, target: str) -> bytes:
    """Return the ids in a target's error, as JSON, in the form that the target uses."""
    named = {name: error.data.get(name) for name in ("subscription", "bash_id")}
    return encode({name: _without_target(raw, target) for name, raw in named.items() if raw})


def _ends_with_client(members: Members) -> bool:
    is_in_background = bytes(members.get("run_in_background", b"")) == b"true"
    return text_of(members.get("on_disconnect")) == "kill" and not is_in_background
