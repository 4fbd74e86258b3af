"""Both clients have all methods of the protocol, and their results have types."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from shelld_client import AsyncClient, Client
from shelld_protocol.methods import METHODS
from shelld_protocol.tool_methods import ListToolsResult
from shelld_protocol.tools import ToolResult

# Methods of the protocol that have another name in the clients.
NAMES = {
    "list_tools": "tool_schemas",
    "rpc.discover": "discover",
    "subscribe": "events",
    "unsubscribe": "events",
    # The clients need no such methods, because a client ends its daemon when its `with` block ends.
    "shutdown": "spawn",
    "exit": "spawn",
}
# Results of tools, and descriptions of tools and methods, can be any JSON.
ANY_JSON = {ListToolsResult, ToolResult}


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_client_method(method: str, client: Any) -> None:
    found = getattr(client, NAMES.get(method, method))
    assert inspect.getdoc(found)
    assert "return" in get_type_hints(found, localns={"StructuredTool": object})


def structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the Structs in an annotation, and in the fields of these Structs."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
        for each in get_type_hints(annotation).values():
            yield from structs_in(each)
    for each in get_args(annotation):
        yield from structs_in(each)


RESULTS = {
    struct
    for types in METHODS.values()
    for result in types.results
    for struct in structs_in(result)
    if struct not in ANY_JSON
}


@pytest.mark.parametrize("result", sorted(RESULTS, key=str))
def test_every_member_of_a_result_is_a_typed_field(result: type[msgspec.Struct]) -> None:
    for name, annotation in get_type_hints(result).items():
        assert not _has_any(annotation), name


def _has_any(annotation: Any) -> bool:
    return annotation is Any or any(_has_any(each) for each in get_args(annotation))


def test_search_for_result_types_finds_the_known_types() -> None:
    names = {each.__name__ for each in RESULTS}
    assert {"BashResult", "OutputRange", "Prompt", "ServerInfoResult", "ShellInfo"} <= names


def test_client_returns_the_openrpc_document() -> None:
    with Client.spawn() as shell:
        document = shell.discover()
    assert {each["name"] for each in document["methods"]} >= METHODS.keys()
