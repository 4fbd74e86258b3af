"""Makes JSON Schemas of the methods and the tools.

Makes the OpenRPC document from the Structs of `methods`, and tool definitions in each provider's
format.

Pure. No module imports this module before the first request for a schema, so it costs no start-up
time.

References: https://spec.open-rpc.org (1.3.2), JSON Schema 2020-12.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from shelld_protocol.errors import ErrorKind
from shelld_protocol.methods import METHODS
from shelld_protocol.tools import JsonType, ToolParameter

OPENRPC_VERSION: Final = "1.3.2"
_REFERENCES: Final = "#/components/schemas/{name}"


def openrpc_document(version: str) -> dict[str, Any]:
    """Return the OpenRPC document of a daemon with this `version`."""
    params = [types.params for types in METHODS.values()]
    shapes = [shape for types in METHODS.values() for shape in types.results]
    all_schemas, components = msgspec.json.schema_components(
        (*params, *shapes), ref_template=_REFERENCES
    )
    shape_schemas = all_schemas[len(params) :]
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
                "params": _content_descriptors(components[types.params.__name__]),
                "result": {"name": "result", "schema": result},
                "errors": [{"$ref": f"#/components/errors/{kind.value}"} for kind in ErrorKind],
            }
        )
    for params_type in params:
        # Each method lists the members of its params, so no part of the document refers to the
        # schema of the params.
        components.pop(params_type.__name__, None)
    errors = {kind.value: {"code": kind.code, "message": kind.value} for kind in ErrorKind}
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {"title": "shelld", "version": version},
        "methods": methods,
        "components": {"schemas": components, "errors": errors},
    }


def _content_descriptors(schema: dict[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {"name": name, "required": name in required, "schema": member}
        for name, member in schema["properties"].items()
    ]


# -- tools ------------------------------------------------------------------------------------


def parameters_schema(parameters: Iterable[ToolParameter]) -> dict[str, Any]:
    """Return the schema of the arguments object."""
    parameters = list(parameters)
    return {
        "type": "object",
        "properties": {each.name: each.to_json_schema() for each in parameters},
        "required": [each.name for each in parameters if each.required],
    }


def openai_tool(name: str, description: str, parameters: Iterable[ToolParameter]) -> dict[str, Any]:
    """Return a member of ``tools`` for OpenAI's Chat Completions API."""
    function = {
        "name": name,
        "description": description,
        "parameters": parameters_schema(parameters),
    }
    return {"type": "function", "function": function}


def anthropic_tool(
    name: str, description: str, parameters: Iterable[ToolParameter]
) -> dict[str, Any]:
    """Return a member of ``tools`` for Anthropic's Messages API."""
    schema = parameters_schema(parameters)
    return {"name": name, "description": description, "input_schema": schema}


def tool_result_schema(output_types: Iterable[JsonType]) -> dict[str, Any]:
    """Return the schema of a ToolResult. Its output has one of these types, or is null on failure.

    The schema has no arrays of types, because some MCP hosts do not understand them.
    """
    return {
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "output": {
                "description": "Null if it failed.",
                "anyOf": [{"type": each} for each in (*output_types, "null")],
            },
            "error": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "metadata": {"type": "object", "additionalProperties": True},
        },
        "required": ["success", "output", "error", "metadata"],
    }


def mcp_tool(
    name: str,
    description: str,
    parameters: Iterable[ToolParameter],
    output_types: Iterable[JsonType],
    annotations: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a member of ``tools`` in the result of the Model Context Protocol's ``tools/list``."""
    tool: dict[str, Any] = {
        "name": name,
        "description": description,
        "inputSchema": parameters_schema(parameters),
        "outputSchema": tool_result_schema(output_types),
    }
    if annotations:
        tool["annotations"] = annotations
    return tool
