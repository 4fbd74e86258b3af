"""Defines the values of the tool layer: parameters, results, and execution context.

Pure values. Pure. Only `ToolParameter` decides the JSON Schema of a parameter, the values that the
parameter accepts, and the message for a rejected value. If the params of a method are invalid, the
error on the wire has the same message.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from shelld_protocol.encoding import encode

JsonType: TypeAlias = Literal["string", "integer", "number", "boolean", "array", "object"]

_PYTHON_TYPES: Final[dict[JsonType, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


class ToolCategory(enum.StrEnum):
    FILE = "file"
    EXECUTION = "execution"
    WEB = "web"
    TASK = "task"
    NOTEBOOK = "notebook"
    MCP = "mcp"
    OTHER = "other"


class ToolError(Exception):
    """The tool itself is faulty. (A failed execution is a `ToolResult`, not an exception.)"""

    def __init__(self, tool_name: str, message: str) -> None:
        super().__init__(tool_name, message)
        self.tool_name = tool_name
        self.message = message

    def __str__(self) -> str:
        return f"Tool '{self.tool_name}' error: {self.message}"


class ToolParameter(Struct, frozen=True):
    """Describes a parameter. If `default` is None, the parameter has no default.

    `minimum` and `maximum` are for numbers, `min_length` and `max_length` (characters) for strings,
    `items` (a JSON Schema) for arrays. Raises ValueError for an invalid or unsatisfiable
    definition.
    """

    name: str
    type: JsonType
    description: str = ""
    required: bool = True
    default: Any = None
    enum: list[Any] | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    items: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.type not in _PYTHON_TYPES:
            raise ValueError(f"unknown type of {self.name}: {self.type!r}")
        limits = (self.minimum, self.maximum, self.min_length, self.max_length)
        if self.type in ("array", "object", "boolean") and limits != (None,) * 4:
            raise ValueError(f"{self.name} has limits, but the type {self.type} takes none")
        for lower, upper in ((self.minimum, self.maximum), (self.min_length, self.max_length)):
            if lower is not None and upper is not None and lower > upper:
                raise ValueError(f"nothing is within the limits of {self.name}")
        if self.default is not None and (problem := self.problem_with(self.default)) is not None:
            raise ValueError(f"the default of {self.name} is none of its values: {problem}")

    def to_json_schema(self) -> dict[str, Any]:
        """Return the schema of the parameter's value.

        The schema does not say whether the parameter is required. The schema is JSON Schema
        2020-12, and uses only keywords that all model providers support.
        """
        schema: dict[str, Any] = {"type": self.type, "description": self.description}
        for key, value in (
            ("default", self.default),
            ("enum", self.enum),
            ("minimum", self.minimum),
            ("maximum", self.maximum),
            ("minLength", self.min_length),
            ("maxLength", self.max_length),
            ("items", self.items),
        ):
            if value is not None:
                schema[key] = value
        return schema

    def problem_with(self, value: Any) -> str | None:
        """Return a message that says what is wrong with `value`; None if it is valid.

        As in JSON, a boolean is not a number, and 2000.0 is an integer.
        """
        if not _has_type(self.type, value):
            return f"Invalid type for {self.name}: expected {self.type}"
        if self.enum is not None and value not in self.enum:
            return f"Invalid value for {self.name}: must be one of {self.enum}"
        if isinstance(value, (list, tuple)):
            return self._problem_with_items(cast("Sequence[object]", value))
        if isinstance(value, str):
            return self._problem_with_length(len(value))
        return self._problem_with_number(value)

    def _problem_with_number(self, value: Any) -> str | None:
        if self.minimum is not None and value < self.minimum:
            return f"Value for {self.name} is below minimum: {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"Value for {self.name} exceeds maximum: {self.maximum}"
        return None

    def _problem_with_length(self, length: int) -> str | None:
        if self.min_length is not None and length < self.min_length:
            return f"Value for {self.name} is shorter than minimum length: {self.min_length}"
        if self.max_length is not None and length > self.max_length:
            return f"Value for {self.name} exceeds maximum length: {self.max_length}"
        return None

    def _problem_with_items(self, items: Sequence[object]) -> str | None:
        """Check the items against the schema `items`. Models often make mistakes in items."""
        wanted = (self.items or {}).get("type")
        for known in _PYTHON_TYPES:
            if known == wanted and not all(_has_type(known, item) for item in items):
                return f"Invalid type for {self.name}: expected array of {known}s"
        choices = (self.items or {}).get("enum")
        if choices is not None and not all(item in choices for item in items):
            return f"Invalid value for {self.name}: each must be one of {choices}"
        return None


def _has_type(wanted: JsonType, value: object) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON_TYPES[wanted])


class ToolResult(Struct):
    """The outcome of an execution: `output` if it succeeded, the message `error` if it failed."""

    success: bool
    output: Any = None
    error: str | None = None
    metadata: dict[str, Any] = {}

    @classmethod
    def ok(cls, output: Any, **metadata: Any) -> ToolResult:
        return cls(True, output, None, metadata)

    @classmethod
    def fail(cls, error: str, **metadata: Any) -> ToolResult:
        return cls(False, None, error, metadata)

    def to_display(self) -> str:
        """Return the text for a model or a person. Output that is not text becomes JSON."""
        if not self.success:
            return f"Error: {self.error}"
        if isinstance(self.output, str):
            return self.output
        if self.output is None:
            return ""
        try:
            return encode(self.output).decode()
        except (TypeError, ValueError):
            return str(self.output)


class ExecutionContext(Struct):
    """Holds the context of one execution, which the caller sets, not the model.

    Commands run in `working_dir`; an empty text means the session's directory. `session_id` is the
    session, "main" by default. `timeout` is in seconds; infinity means no timeout.
    `max_output_size` is in characters. `agent_id` and `metadata` are for the caller's own use.
    """

    working_dir: str
    session_id: str | None = None
    agent_id: str | None = None
    dry_run: bool = False
    timeout: float = 120
    max_output_size: int = 100_000
    metadata: dict[str, Any] = {}


def without_nulls(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a model has given, without null values, which count as absent."""
    return {name: value for name, value in arguments.items() if value is not None}
