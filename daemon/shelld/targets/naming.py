"""Adds a target's name to the ids in messages from the target, and removes the name from ids in
messages to the target. Pure.

No message is decoded as a whole. The functions split an object into its members, and each member
stays JSON text. They change only the members that hold ids. So a target may send members and values
that this daemon does not know.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from shelld_protocol.encoding import decode, encode
from shelld_protocol.errors import PassedOnError

Members = dict[str, Raw]

# For each method, its params that hold an id.
ID_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "bash_output": ("bash_id",),
    "write_stdin": ("bash_id",),
    "resize_shell": ("bash_id",),
    "read_screen": ("bash_id",),
    "kill_shell": ("shell_id", "bash_id"),
    "background": ("bash_id",),
    "subscribe": ("bash_id", "subscription"),
    "unsubscribe": ("subscription",),
    "add_target": ("name",),
    "remove_target": ("name",),
}

# The members of results, errors and events that hold an id.
_IDS: Final = ("bash_id", "shell_id", "subscription", "target")
# For each method, the member of the result that holds a list. The items are ids, or objects with
# ids.
_LISTS: Final = {"list_shells": "shells", "get_session": "shells", "list_targets": "targets"}
# The methods whose results contain the name of a target.
_OF_TARGETS: Final = frozenset({"add_target", "list_targets", "remove_target"})

_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# The beginning of an id that `request_id_for` has made, up to the end of its number.
_FAR_ID: Final = re.compile(rb'"([0-9]{1,18})["-]')
# The id of a shell in the message of an error, as in "Shell shell_1c0ffee42 has no terminal".
_SHELL_IN_MESSAGE: Final = re.compile(r"(?<=[Ss]hell )(?:[\w.-]+:)*shell_\w+")
_SLICE_BYTES: Final = 1024 * 1024

_members: Final = msgspec.json.Decoder(Members)
_list: Final = msgspec.json.Decoder(list[Raw])
_string: Final = msgspec.json.Decoder(str)


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Raw = Raw()


def is_utf8(data: bytes) -> bool:
    """Return whether a message, which may be long, is valid UTF-8."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), _SLICE_BYTES):
            decoder.decode(data[start : start + _SLICE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def text_of(raw: Raw | None) -> str | None:
    """Return the string that `raw` encodes, or None for any other JSON value."""
    content = b"" if raw is None else bytes(raw)
    return decode(content, _string) if content[:1] == b'"' else None


def split(raw: Raw | None) -> tuple[str, str] | None:
    """Split an id such as ``box:shell_1`` into the target and the rest.

    Return None if the id names no target.
    """
    target, colon, rest = (text_of(raw) or "").partition(":")
    return (target, rest) if colon else None


def as_raw(text: str) -> Raw:
    return Raw(encode(text))


def named_result(method: str, target: str, result: bytes) -> Raw:
    """Return a result of a target, with the target's name before each id."""
    if result[:1] != b"{":
        return Raw(result)
    members = decode(result, _members)
    name_ids(members, target, ("name",) if method in _OF_TARGETS else _IDS)
    listed = _LISTS.get(method)
    if listed in members:
        items = decode(members[listed], _list)
        members[listed] = Raw(encode([_named_item(method, target, item) for item in items]))
    return Raw(encode(members))


def _named_item(method: str, target: str, item: Raw) -> Raw:
    if bytes(item)[:1] == b"{":
        return named_result(method, target, bytes(item))
    return _prefixed(item, target)


def named_error(target: str, error: bytes) -> PassedOnError:
    """Return an error of a target, with the target's name before each id.

    Raises msgspec.DecodeError if `error` is not an error of JSON-RPC.
    """
    body = decode(error, msgspec.json.Decoder(_Error))
    data: Members = {}
    if bytes(body.data)[:1] == b"{":
        data = decode(body.data, _members)
    data["message"] = as_raw(body.message)
    names_shell = data.keys() & {"bash_id", "shell_id"}
    name_ids(data, target)
    message = text_of(data.pop("message")) or ""
    if not names_shell:
        message = _SHELL_IN_MESSAGE.sub(rf"{target}:\g<0>", message)
    return PassedOnError(body.code, message, data)


def named_event(target: str, params: bytes, first: int = 0) -> dict[str, Any] | None:
    """Return the params of a target's event, with the names and ids that the client knows.

    Return None if `params` are not those of an event, or if the event belongs to a request with a
    number below `first`.
    """
    members = decode(params, _members)
    if "subscription" not in members:
        return None
    name_ids(members, target)
    members.setdefault("target", as_raw(target))
    if "requestId" in members:
        far_id = bytes(members["requestId"])
        if (number := _number_in(far_id)) is not None and number < first:
            return None
        if far_id == request_id_for(number or 0, None):
            # The client's request has no id.
            del members["requestId"]
        else:
            members["requestId"] = Raw(request_id_in(far_id))
    return members


def name_ids(members: Members, target: str, names: tuple[str, ...] = _IDS) -> None:
    """Put the target's name before the ids in `members`, and in the member `message`."""
    for name in names:
        raw = members.get(name)
        if raw is None or not (old := text_of(raw)):
            continue
        members[name] = _prefixed(raw, target)
        message = text_of(members.get("message"))
        if message is None:
            continue
        if name in ("bash_id", "shell_id"):
            members["message"] = as_raw(message.replace(old, f"{target}:{old}"))
        elif name == "target":
            # Change only the first match, because the message may end with the text of another
            # program.
            named = re.compile(rf"(?<=\b[Tt]arget )(?={re.escape(old)} )")
            members["message"] = as_raw(named.sub(f"{target}:", message, count=1))


def _prefixed(raw: Raw, target: str) -> Raw:
    """Put a target's name before a string (JSON text). The name needs no escapes."""
    if bytes(raw)[:1] != b'"':
        return raw
    return Raw(b'"%b:%b' % (target.encode(), bytes(raw)[1:]))


def request_id_for(number: int, request_id: bytes | None) -> bytes:
    """Return the id with which a request is sent to a target. Both ids are JSON texts.

    The returned id contains the client's id. So even an event that comes long after the answer
    shows which of the client's requests it belongs to.
    """
    if request_id is None:
        return b'"%d"' % number
    if request_id[:1] == b'"':
        return b'"%d-s%b' % (number, request_id[1:])
    return b'"%d-n%b"' % (number, request_id)


def _number_in(far_id: bytes) -> int | None:
    """Return the number in an id that `request_id_for` has made. Return None for another id."""
    found = _FAR_ID.match(far_id)
    return None if found is None else int(found[1])


def request_id_in(far_id: bytes) -> bytes:
    """Return the client's id in `far_id`, or null if `far_id` has none. `request_id_for` has made
    `far_id`.
    """
    _, dash, own = far_id.partition(b"-")
    if not dash or far_id[:1] != b'"':
        return b"null"
    if own[:1] == b"s":
        return b'"' + own[1:]
    number = own[1:-1]
    return number if _NUMBER.fullmatch(number) else b"null"
