"""Writes what is known from the code: protocol.md from the types, options.md from the parser.

Usage: python docs/generate.py; `make docs` does so, and a test tells if that was forgotten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shelld.cli.parser import option_parser
from shelld_protocol.errors import ErrorKind
from shelld_protocol.schemas import openrpc_document

HERE = Path(__file__).parent
_REFERENCE = "#/components/schemas/"
# Of an object whose members can be anything.
_FREE: tuple[Any, ...] = ({}, True, False)

PROTOCOL = """\
# The protocol

Generated from the types that the daemon validates with. `rpc.discover` returns the same as an
OpenRPC document.

JSON-RPC 2.0: one JSON value a line, or with `Content-Length` headers as in LSP; the first byte
decides, and answers are framed alike. Params are given by name or, in this order, by position. Null
is the same as leaving an optional param out, but for `session`, where it means none. Requests run
at the same time, and are answered as they end. `$/cancelRequest` (`id`) and `$/cancel_request`
(`requestId`) end a request, which is answered with `cancelled`; `notifications/cancelled`
(`requestId`) ends it without an answer. A batch has at most 10,000 members. MCP's methods, on the
same stream, are as [its specification](https://modelcontextprotocol.io) has them.

A newer daemon may send members and values that are not listed here; clients ignore what they do not
know. `protocol` in the result of `server_info` rises only with a change that breaks clients.
"""

OPTIONS = """\
# Options of the daemon

Generated from the command line's parser, which `shelld --help` shows, too. A SIZE is a number of
bytes, or of KiB, MiB or GiB with `K`, `M` or `G` behind it: `--retain-bytes 64M`.

| option | |
|---|---|
"""


class Reference:
    """Renders the schemas of an OpenRPC document."""

    def __init__(self) -> None:
        self._document = openrpc_document("")
        self._schemas: dict[str, Any] = self._document["components"]["schemas"]

    def render(self) -> str:
        lines = [PROTOCOL]
        for method in self._document["methods"]:
            lines += self._method(method)
        lines += ["## What results are made of", ""]
        for name in sorted(self._inner()):
            lines += self._shape(name)
        lines += ["## Errors", "", "`error.data.kind` is the name; the code is", ""]
        lines += ["| kind | code |", "|---|---|"]
        lines += [f"| `{kind.value}` | {kind.code} |" for kind in ErrorKind]
        return "\n".join(lines) + "\n"

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
        yield from ("| member | type | |", "|---|---|---|")
        required = schema.get("required", [])
        for member, inner in schema["properties"].items():
            description = _description(inner)
            if member not in required:
                description = f"{description} Left out if {_shown(inner.get('default'))}.".strip()
            yield self._row(member, self._type(inner), description)
        yield ""

    def _inner(self) -> set[str]:
        """The types that are members of others."""
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
    """Return the schema of a param that may be left out without the null that says the same."""
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


def pages() -> dict[Path, str]:
    """Return what the generated pages are to contain."""
    return {HERE / "protocol.md": Reference().render(), HERE / "options.md": options()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
