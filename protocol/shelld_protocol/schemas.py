"""The OpenRPC document, generated from the Structs of `methods`.

Pure, and off every hot path: nothing imports this module until ``rpc.discover`` is called.

Reference: https://spec.open-rpc.org (1.3.2)
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shelld_protocol.errors import ErrorKind
from shelld_protocol.methods import METHODS

OPENRPC_VERSION: Final = "1.3.2"
_REFERENCES: Final = "#/components/schemas/{name}"


def openrpc_document(version: str) -> dict[str, Any]:
    """Return the OpenRPC document of a daemon of this `version`."""
    shapes = [shape for types in METHODS.values() for shape in types.results]
    shape_schemas, components = msgspec.json.schema_components(shapes, ref_template=_REFERENCES)
    remaining = iter(shape_schemas)
    methods: list[dict[str, Any]] = []
    for name, types in METHODS.items():
        alternatives = [next(remaining) for _ in types.results]
        if len(alternatives) == 1:
            result = alternatives[0]
        else:
            result = {"oneOf": alternatives} if alternatives else {"type": "null"}
        methods.append(
            {
                "name": name,
                "summary": types.summary,
                "paramStructure": "either",
                "params": _content_descriptors(types.params),
                "result": {"name": "result", "schema": result},
                "errors": [{"$ref": f"#/components/errors/{kind.value}"} for kind in ErrorKind],
            }
        )
    errors = {kind.value: {"code": kind.code, "message": kind.value} for kind in ErrorKind}
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {"title": "shelld", "version": version},
        "methods": methods,
        "components": {"schemas": components, "errors": errors},
    }


def _content_descriptors(params_type: type[Any]) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([params_type], ref_template="{name}")
    schema = components[params_type.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "required": name in required, "schema": member}
        for name, member in schema["properties"].items()
    ]
