"""The OpenRPC document is complete, and every schema in it is valid."""

from __future__ import annotations

from typing import Any, cast

import jsonschema
import pytest

from shelld_protocol.errors import ErrorKind
from shelld_protocol.methods import METHODS
from shelld_protocol.schemas import openrpc_document

DOCUMENT = openrpc_document("1.2.3")


def test_document_lists_every_method_and_error() -> None:
    assert [method["name"] for method in DOCUMENT["methods"]] == list(METHODS)
    assert DOCUMENT["info"] == {"title": "shelld", "version": "1.2.3"}
    codes = {error["code"] for error in DOCUMENT["components"]["errors"].values()}
    assert codes == {kind.code for kind in ErrorKind}


@pytest.mark.parametrize("method", DOCUMENT["methods"], ids=lambda method: method["name"])
def test_document_schemas_are_valid_and_ordered(method: dict[str, Any]) -> None:
    required = [param["required"] for param in method["params"]]
    assert required == sorted(required, reverse=True)
    schemas = [param["schema"] for param in method["params"]] + [method["result"]["schema"]]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_schema_references_resolve() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, list):
            return [ref for member in cast("list[object]", value) for ref in references(member)]
        if not isinstance(value, dict):
            return []
        members = cast("dict[str, Any]", value)
        found = [str(members["$ref"])] if "$ref" in members else []
        return found + [ref for member in members.values() for ref in references(member)]

    for reference in references(DOCUMENT):
        target: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
        assert target


def test_result_members_are_camel_case_except_ids() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert {"bash_id", "exitCode", "durationMs", "stdoutBytes"} <= set(
        schemas["BashResult"]["properties"]
    )
