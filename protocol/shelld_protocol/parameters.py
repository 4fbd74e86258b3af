"""Describes the fields of a params Struct as parameters with a name, a type and limits.

Pure. A Struct defines the parameters of a method or a tool. This module derives validation, schemas
and the descriptions for models from the Struct, so that they always agree.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect

from shelld_protocol.structs import Params
from shelld_protocol.tools import JsonType, ToolParameter


class Parameter(NamedTuple):
    """Describes one parameter.

    `model` holds everything that JSON Schema can express about the parameter, except null. If
    `null_is_a_value` is true, null does not mean the same as an absent parameter. If
    `holds_strings` is true, the value is an object; each member is a string or null. If `struct` is
    set, the value is an object with the members of this Struct. `other_type` is a second type that
    the value may have; the limits hold for the first type. `max_items` limits a list, and
    `min_item_length` each text in it.
    """

    model: ToolParameter
    null_is_a_value: bool
    holds_strings: bool
    struct: type[Params] | None
    other_type: JsonType | None = None
    max_items: int | None = None
    min_item_length: int | None = None

    def problem_with(self, value: Any) -> str | None:
        """Return a message that says what is wrong with `value`, or None if it is valid."""
        problem = self.model.problem_with(value)
        if problem is not None or not isinstance(value, list):
            return problem
        items, name = cast("list[object]", value), self.model.name
        if self.max_items is not None and len(items) > self.max_items:
            return f"Too many items in {name}: at most {self.max_items}"
        least = self.min_item_length or 0
        if any(len(item) < least for item in items if isinstance(item, str)):
            return f"Value for an item of {name} is shorter than minimum length: {least}"
        return None


@cache
def parameters_of(params_type: type[Params]) -> dict[str, Parameter]:
    """Return the parameters by name, in field order."""
    return {field.encode_name: _parameter(field) for field in msgspec.structs.fields(params_type)}


_JSON_TYPES: Final[dict[type[inspect.Type], JsonType]] = {
    inspect.StrType: "string",
    inspect.LiteralType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.ListType: "array",
    inspect.DictType: "object",
    inspect.StructType: "object",
}


def _parameter(field: msgspec.structs.FieldInfo) -> Parameter:
    outer, description = _unwrapped(inspect.type_info(field.type))
    info, nullable = outer, False
    other_type: JsonType | None = None
    if isinstance(outer, inspect.UnionType):
        nullable = outer.includes_none
        info, *others = (m for m in outer.types if not isinstance(m, inspect.NoneType))
        for other in others:
            other_type = _JSON_TYPES[type(_unwrapped(other)[0])]
        info, inner_description = _unwrapped(info)
        description = description or inner_description
    default = None if field.default is msgspec.NODEFAULT else field.default
    limits: dict[str, Any] = {}
    min_item_length: int | None = None
    match info:
        case inspect.StrType():
            limits = {"min_length": info.min_length, "max_length": info.max_length}
        case inspect.IntType() | inspect.FloatType():
            limits = {"minimum": info.ge, "maximum": info.le}
        case inspect.LiteralType():
            # Take the choices from the annotation, because msgspec.inspect sorts them.
            limits = {"enum": list(_literal_choices(field.type))}
        case inspect.ListType(item_type=inspect.StrType(min_length=min_item_length)):
            limits = {"items": {"type": "string"}}
        case inspect.ListType(item_type=inspect.LiteralType(values=values)):
            limits = {"items": {"type": "string", "enum": list(values)}}
        case _:
            pass
    model = ToolParameter(
        name=field.encode_name,
        type=_JSON_TYPES[type(info)],
        description=description,
        required=field.required,
        default=default,
        **limits,
    )
    holds_strings = isinstance(info, inspect.DictType) and not isinstance(
        info.value_type, inspect.AnyType
    )
    struct = None
    if isinstance(info, inspect.StructType):
        assert issubclass(info.cls, Params)
        struct = info.cls
    null_is_a_value = nullable and default is not None
    max_items = info.max_length if isinstance(info, inspect.ListType) else None
    return Parameter(
        model, null_is_a_value, holds_strings, struct, other_type, max_items, min_item_length
    )


def _unwrapped(info: inspect.Type) -> tuple[inspect.Type, str]:
    if isinstance(info, inspect.Metadata):
        schema = cast("dict[str, str] | None", cast("Any", info).extra_json_schema)
        return info.type, (schema or {}).get("description", "")
    return info, ""


def _literal_choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _literal_choices(get_args(annotation)[0])
    if get_origin(annotation) is Union:
        choices = [_literal_choices(each) for each in get_args(annotation)]
        return next((each for each in choices if each), ())
    return ()
