"""Writes the pages that are made from the code: `make docs`.

protocol.md comes from the types and the recorded exchanges, options.md from the parser,
python-api.md from the docstrings of the client. A test fails if a page is out of date.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, get_overloads

import msgspec

import shelld_client
from shelld.cli.parser import option_parser
from shelld_protocol.errors import ErrorKind
from shelld_protocol.event_methods import NOTIFICATIONS, Event
from shelld_protocol.schemas import openrpc_document

HERE = Path(__file__).parent
_REFERENCE = "#/components/schemas/"
# `additionalProperties` of an object whose members can be anything.
_FREE: tuple[Any, ...] = ({}, True, False)

PROTOCOL = """\
# The protocol

This page is generated from the types with which the daemon validates requests. `rpc.discover`
returns an OpenRPC document with the same content.

The protocol is JSON-RPC 2.0. A message is one JSON value on a line, or has `Content-Length` headers
as in LSP. The first byte of the stream decides which of these two framings the stream has, and
answers have the same framing. Params are given by name or, in the order of the tables below, by
position. Null is the same as leaving an optional param out. The exception is `session`: null means
that there is no session.

Requests run at the same time, and each is answered when it ends. `$/cancelRequest` (`id`) and
`$/cancel_request` (`requestId`) end a request, which is then answered with `cancelled`.
`notifications/cancelled` (`requestId`) ends a request without an answer. A batch has at most 10,000
members. MCP's methods work on the same stream, as
[its specification](https://modelcontextprotocol.io) defines them.

The examples show the lines that one client sends and receives: a request, its answer, and the
[notifications](#notifications) that follow it. Long strings are cut.

A newer daemon may send members and values that are not listed here; clients ignore what they do not
know. The number `protocol` in the result of `server_info` increases only when a change breaks
clients.
"""

OPTIONS = """\
# Options of the daemon

This page and the output of `shelld --help` are generated from the parser of the command line. A
SIZE is a number of bytes, or of KiB, MiB or GiB with `K`, `M` or `G` behind it:
`--retain-bytes 64M`.

An option can also come from a variable or from a file; the command line overrides variables, and
variables override the file. [The command line](command-line.md#options-from-variables-and-a-file)
has examples.

| option | |
|---|---|
"""

NOTIFICATIONS_INTRO = """\
## Notifications

The daemon sends these to clients that [subscribe](#subscribe), or give `notify` to [`bash`](#bash).
They are JSON-RPC notifications: they have no id, and are not answered. [Events](events.md) shows
how to use them. The tables list the members of `params`. Every notification has these members:
"""

# For each kind: when the error comes, and what `data` has besides `kind`.
ERRORS = {
    ErrorKind.PARSE_ERROR: ("The message is not JSON in UTF-8. The id is null.", ""),
    ErrorKind.INVALID_REQUEST: (
        "The message is not a request, or is too large.",
        "`max_message_bytes`, if it is too large",
    ),
    ErrorKind.METHOD_NOT_FOUND: ("There is no such method.", ""),
    ErrorKind.INVALID_PARAMS: (
        "A param is missing, unknown or out of range.",
        "`parameter`; `available`: `from` and `to`, for a `from_seq` that is not kept",
    ),
    ErrorKind.INTERNAL_ERROR: ("The daemon has failed. The log has the reason.", ""),
    ErrorKind.CANCELLED: (
        "The request was cancelled. Its command was killed, unless it ended at that moment.",
        "`survivors`, if a process of the command survives; `bash_id`, if a command with an "
        "`idempotency_key` goes on at a target; `written`, if `write_stdin` has written its input",
    ),
    ErrorKind.TIMEOUT: (
        "The command was killed at its `timeout` or `idle_timeout`.",
        "`timeout_ms`, and all members of [`bash`](#bash)'s result",
    ),
    ErrorKind.BLOCKED: ("The guard refused the command. Nothing ran.", "`rule`, `segment`"),
    ErrorKind.SHELL_NOT_FOUND: (
        "There is no such shell, or it is no longer retained.",
        "`bash_id`, `expired`",
    ),
    ErrorKind.SPAWN_FAILED: (
        "The command could not be started because of its directory, bash, its environment or the "
        "program of its target.",
        "`errno`: the name, such as `ENOENT`; `ECANCELED` if its session was closed",
    ),
    ErrorKind.STDIN_CLOSED: (
        "The shell takes no input.",
        "`reason`: `ended`, `closed` (after its end of file), or `not_open`",
    ),
    ErrorKind.NOT_POSSIBLE: (
        "The shell is not of the kind that the request needs. Nothing was done.",
        "`what`: `tty`, if it has no terminal; `secret`, if its terminal could show the text; "
        "`eof`, if its program reads keys",
    ),
    ErrorKind.UNAVAILABLE: (
        "The system lacks what the request needs. Nothing ran.",
        "`what`: `tty`, `read_screen`, `listening`, `limits` or a target; `missing`; `hint`: "
        "a sentence that says what helps; `found`, if a target has the wrong Python",
    ),
    ErrorKind.RESOURCE_EXHAUSTED: (
        "The daemon or the system is short of something. A retry may succeed.",
        "`limit`: `max_shells`, `max_in_flight`, `filters`, `subscriptions`, `processes`, `files`, "
        "`threads`, `memory`, `disk`, `ptys`, `stdin` (the program does not read), `target` (too "
        "many bytes wait for it), `targets`, `screen` (its output takes too long to show)",
    ),
    ErrorKind.TARGET_LOST: (
        "The target cannot be reached, or the connection to it is gone. The next request connects "
        "again.",
        "`target`; `maybeStarted`: whether the target may have received the request; `text`: what "
        "the program that leads to it has written",
    ),
    ErrorKind.SHUTTING_DOWN: ("The daemon is ending.", ""),
    ErrorKind.SESSION_NOT_FOUND: ("The session has not run a command.", "`session`"),
    ErrorKind.MISSING_CAPABILITY: (
        "MCP: the request needs a capability that its client does not declare.",
        "`requiredCapabilities`",
    ),
    ErrorKind.UNSUPPORTED_VERSION: (
        "MCP: the revision is not supported.",
        "`supported`, `requested`",
    ),
}

PYTHON_API = """\
# The classes of the Python client

This page is generated from the docstrings of `shelld_client`. [The Python client](python.md) shows
how to use the classes.

`AsyncClient` has coroutines, `Client` has the same methods without `await`. Both are context
managers.
"""


class Reference:
    """Renders the schemas of an OpenRPC document."""

    def __init__(self) -> None:
        self._document = openrpc_document("")
        self._recorded: list[dict[str, Any]] = json.loads((HERE / "exchanges.json").read_text())
        _, events = msgspec.json.schema_components(
            (Event, *NOTIFICATIONS.values()), ref_template=_REFERENCE + "{name}"
        )
        self._schemas: dict[str, Any] = {**events, **self._document["components"]["schemas"]}

    def render(self) -> str:
        lines = [PROTOCOL]
        for method in self._document["methods"]:
            lines += self._method(method)
        lines += self._notifications()
        lines += ["## What results are made of", ""]
        for name in sorted(self._inner()):
            lines += self._shape(name)
        lines += [
            "## Errors",
            "",
            "`error.data.kind` is the name. `data` may have more members:",
            "",
        ]
        lines += ["| kind | code | when | data |", "|---|---|---|---|"]
        lines += [
            f"| `{kind.value}` | {kind.code} | {' | '.join(ERRORS[kind])} |" for kind in ErrorKind
        ]
        lines += ["", *(line for each in self._exchanges(None) for line in each)]
        return "\n".join(lines) + "\n"

    def _exchanges(self, method: str | None) -> Iterator[list[str]]:
        """Yield the recorded exchanges of a method. For None, yield all exchanges that ended in an
        error.
        """
        for each in self._recorded:
            request, answer = each["request"], each["answer"]
            if (None if "error" in answer else request["method"]) == method:
                shown = [request, answer, *each.get("events", [])]
                yield ["```json", *map(json.dumps, shown), "```", ""]

    def _method(self, method: dict[str, Any]) -> Iterator[str]:
        yield from (f"## `{method['name']}`", "", method["summary"], "")
        params = method["params"]
        if params:
            yield from ("| param | type | default | |", "|---|---|---|---|")
            for each in params:
                schema = _given(each["schema"])
                default = "required" if each["required"] else _default(schema)
                yield self._row(each["name"], self._type(schema), default, _description(schema))
            yield ""
        shapes = method["result"]["schema"]
        for shape in shapes.get("oneOf", [shapes]):
            yield from self._result(shape)
        for lines in self._exchanges(method["name"]):
            yield from lines

    def _notifications(self) -> Iterator[str]:
        common = self._schemas["Event"]["properties"]
        yield NOTIFICATIONS_INTRO
        yield from self._members(self._schemas["Event"], common)
        for method, kind in NOTIFICATIONS.items():
            schema = self._schemas[kind.__name__]
            yield from (f"### `{method}`", "")
            if text := " ".join((kind.__dict__.get("__doc__") or "").split()):
                yield from (text, "")
            yield from self._members(schema, schema["properties"].keys() - common.keys())

    def _result(self, shape: dict[str, Any]) -> Iterator[str]:
        if "$ref" not in shape:
            yield from (f"Result: {self._type(shape)}.", "")
            return
        name = shape["$ref"].removeprefix(_REFERENCE)
        if not self._schemas[name]["properties"]:
            yield from ("Result: `{}`.", "")
            return
        yield from self._shape(name, heading=False)

    def _shape(self, name: str, *, heading: bool = True) -> Iterator[str]:
        schema = self._schemas[name]
        text = " ".join(schema.get("description", "").split())
        if heading:
            yield from (f"### {name}", "")
            if text:
                yield from (text, "")
        else:
            yield from (f"Result, `{name}`: {text}".rstrip(": "), "")
        yield from self._members(schema, schema["properties"])

    def _members(self, schema: dict[str, Any], names: Container[str]) -> Iterator[str]:
        yield from ("| member | type | |", "|---|---|---|")
        required = schema.get("required", [])
        for member, inner in schema["properties"].items():
            if member not in names:
                continue
            description = _description(inner)
            if member not in required:
                says_so = "Left out" in description
                rule = "" if says_so else f" Left out if {_shown(inner.get('default'))}."
                description = f"{description}{rule}".strip()
            yield self._row(member, self._type(inner), description)
        yield ""

    def _inner(self) -> set[str]:
        """The names of the types that members and params have."""
        params = [method["params"] for method in self._document["methods"]]
        text = json.dumps([self._schemas, params])
        return set(re.findall(rf'"{re.escape(_REFERENCE)}(\w+)"', text))

    def _row(self, name: str, *cells: str) -> str:
        return f"| `{name}` | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def _type(self, schema: dict[str, Any]) -> str:
        match schema:
            case {"$ref": str(reference)}:
                name = reference.removeprefix(_REFERENCE)
                shown = f"[{name}](#{name.lower()})"
            case {"anyOf": alternatives}:
                shown = " or ".join(self._type(each) for each in alternatives)
            case {"enum": values}:
                shown = ", ".join(_shown(each) for each in values)
            case {"type": "array", "items": items} if items:
                shown = f"array of {self._type(items)}"
            case {"type": "object", "additionalProperties": values} if values not in (
                {},
                True,
                False,
            ):
                shown = f"object of {self._type(values)}"
            case _:
                shown = schema.get("type", "any") + _range(schema)
        return shown


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without null, if null means the same as leaving the param out."""
    alternatives = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if len(alternatives) == 1 and schema.get("default") is None:
        return {"description": _description(schema), **alternatives[0]}
    return schema


def _default(schema: dict[str, Any]) -> str:
    return "" if schema.get("default") is None else _shown(schema["default"])


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", at least {low}"
    if schema.get("minLength"):
        return ", not empty"
    return ""


def _description(schema: dict[str, Any]) -> str:
    found = schema.get("description", "")
    for inner in schema.get("anyOf", []):
        found = found or inner.get("description", "")
    return " ".join(found.split())


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'`"{value}"`'
    return "empty" if value == [] else str(value)


def options() -> str:
    rows: list[str] = []
    for action in option_parser()._actions:
        value = action.metavar or ("{" + ",".join(map(str, action.choices or [])) + "}")
        takes = "" if action.nargs == 0 else f" {value}"
        names = ", ".join(f"`{name}{takes}`" for name in action.option_strings)
        rows.append(f"| {names.replace('|', '&#124;')} | {action.help} |")
    return OPTIONS + "\n".join(rows) + "\n"


def python_api() -> str:
    members = {name: getattr(shelld_client, name) for name in shelld_client.__all__}
    classes = {name: each for name, each in members.items() if isinstance(each, type)}
    lines = [PYTHON_API, "## Methods", ""]
    for name, method in inspect.getmembers(shelld_client.Client, callable):
        if not name.startswith("_"):
            lines += [f"### `{name}`", "", *_call(name, method), "", _text(method), ""]
    lines += [
        "`pid` is the pid of the started process.",
        "",
        *_iterators(classes),
        "## Options",
        "",
    ]
    for name, each in classes.items():
        if issubclass(each, dict):
            lines += [f"### {name}", "", _text(each), "", "| option | type |", "|---|---|"]
            options = each.__annotations__.items()
            lines += [f"| `{option}` | {_cell(_annotation(kind))} |" for option, kind in options]
            lines.append("")
    lines += ["## Results", "", "[The protocol](protocol.md) tells what each member means. In", ""]
    lines[-2] += " Python the names are in snake_case."
    for name, each in classes.items():
        if issubclass(each, msgspec.Struct):
            # If a class has no docstring, `_text` would return the docstring of its base class.
            lines += [
                f"### {name}",
                "",
                *([_text(each), ""] if each.__dict__.get("__doc__") else ()),
            ]
            lines += ["| member | type |", "|---|---|"]
            fields = ((field.name, field.type) for field in msgspec.structs.fields(each))
            lines += [f"| `{member}` | {_cell(_annotation(kind))} |" for member, kind in fields]
            lines.append("")
    lines += ["## Exceptions", "", "| exception | is a | when | attributes |", "|---|---|---|---|"]
    for name, each in classes.items():
        if issubclass(each, Exception):
            bases = ", ".join(f"`{base.__name__}`" for base in each.__bases__)
            lines.append(f"| `{name}` | {bases} | {_text(each)} | {_attributes(each)} |")
    return "\n".join(lines) + "\n"


def _iterators(classes: dict[str, type]) -> Iterator[str]:
    yield from ("## Iterators", "")
    yield (
        "[Events](events.md) shows how to use them. `Client` returns these classes. `AsyncClient` "
        "returns `AsyncEventStream`, `AsyncOutputStream` and `AsyncJob`, which have the same "
        "members and need `async with` and `async for`."
    )
    yield ""
    for name, each in classes.items():
        if name.startswith("Async") or not hasattr(each, "__next__"):
            continue
        yield from (f"### {name}", "", _text(each), "", "| member | |", "|---|---|")
        for member, documented in inspect.getmembers(each):
            if not member.startswith("_"):
                call = "()" if inspect.isfunction(documented) else ""
                yield f"| `{member}{call}` | {_text(documented)} |"
        yield ""


def _call(name: str, method: Any) -> Iterator[str]:
    # If the method has overloads, show the last one, which has all options.
    signature = inspect.signature((get_overloads(method) or [method])[-1])
    shown: list[str] = []
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        stars = "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {_default_shown(each.default)}"
        shown.append(f"{stars}{each.name}: {each.annotation}{default}")
    yield from ("```text", f"{name}({', '.join(shown)}) -> {signature.return_annotation}", "```")


def _default_shown(value: Any) -> str:
    return "..." if value is ... else json.dumps(value) if isinstance(value, str) else str(value)


def _text(documented: Any) -> str:
    """Return a docstring as Markdown, in one line."""
    text = " ".join((inspect.getdoc(documented) or "").split())
    return text.replace("``", "`")


def _annotation(kind: Any) -> str:
    text = getattr(kind, "__forward_arg__", None) or (
        kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", ()) else str(kind)
    )
    text = re.sub(r"Annotated\[(.+?), msgspec\.Meta\(.*?\)\]", r"\1", text)
    return re.sub(r"\b(?:typing|msgspec|shelld_protocol|collections\.abc|os)\.(?:\w+\.)*", "", text)


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _attributes(exception: type) -> str:
    own = [name for name, each in vars(exception).items() if isinstance(each, property)]
    cached = [
        name for name, each in vars(exception).items() if type(each).__name__ == "cached_property"
    ]
    set_ = re.findall(r"self\.(\w+)(?:: [^=]+)? = ", inspect.getsource(exception))
    return ", ".join(f"`{name}`" for name in dict.fromkeys((*own, *cached, *set_)))


def pages() -> dict[Path, str]:
    """Return the text of each generated page."""
    return {
        HERE / "protocol.md": Reference().render(),
        HERE / "options.md": options(),
        HERE / "python-api.md": python_api(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
