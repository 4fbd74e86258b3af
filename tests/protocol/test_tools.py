"""Parameters, results and contexts of tools: pure values, and the error messages about them."""

from __future__ import annotations

import pickle
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld_protocol import ExecutionContext, ToolCategory, ToolError, ToolParameter, ToolResult
from shelld_protocol.tools import JsonType


@pytest.mark.parametrize(
    ("parameter", "schema"),
    [
        (
            ToolParameter("file_path", "string", "Absolute path to the file to read"),
            {"type": "string", "description": "Absolute path to the file to read"},
        ),
        (
            ToolParameter(
                name="format",
                type="string",
                description="Output format",
                required=False,
                default="openai",
                enum=["openai", "anthropic"],
            ),
            {
                "type": "string",
                "description": "Output format",
                "default": "openai",
                "enum": ["openai", "anthropic"],
            },
        ),
        (
            ToolParameter(
                name="timeout",
                type="integer",
                description="Execution timeout in seconds",
                required=False,
                default=120,
                minimum=1,
                maximum=600,
            ),
            {
                "type": "integer",
                "description": "Execution timeout in seconds",
                "default": 120,
                "minimum": 1,
                "maximum": 600,
            },
        ),
        (
            ToolParameter("content", "string", "File content", min_length=1, max_length=1_000_000),
            {
                "type": "string",
                "description": "File content",
                "minLength": 1,
                "maxLength": 1_000_000,
            },
        ),
        (
            ToolParameter("paths", "array", "Files", items={"type": "string"}),
            {"type": "array", "description": "Files", "items": {"type": "string"}},
        ),
        (
            ToolParameter("force", "boolean", "Overwrite", required=False, default=False),
            {"type": "boolean", "description": "Overwrite", "default": False},
        ),
    ],
)
def test_parameter_becomes_json_schema(parameter: ToolParameter, schema: dict[str, Any]) -> None:
    assert parameter.to_json_schema() == schema


@pytest.mark.parametrize(
    ("json_type", "good", "bad"),
    [
        ("string", ["hello", ""], [123, True, None, ["a"]]),
        ("integer", [42, -1, 0, 3.0], ["42", 3.14, True, False, None, float("inf"), float("nan")]),
        ("number", [42, 3.14, -0.5], ["3.14", True, None]),
        ("boolean", [True, False], ["true", 1, 0, None]),
        ("array", [["a", "b"], []], ["a,b", {"a": 1}, None]),
        ("object", [{"key": "value"}, {}], ["{'key': 'value'}", ["a"], None]),
    ],
)
def test_wrong_type_names_the_expected_one(
    json_type: JsonType, good: list[Any], bad: list[Any]
) -> None:
    parameter = ToolParameter("value", json_type)
    assert [parameter.problem_with(value) for value in good] == [None] * len(good)
    sentence = f"Invalid type for value: expected {json_type}"
    assert [parameter.problem_with(value) for value in bad] == [sentence] * len(bad)


FORMAT = ToolParameter("format", "string", enum=["json", "yaml", "toml"])


@pytest.mark.parametrize(
    ("parameter", "value", "sentence"),
    [
        (FORMAT, "json", None),
        (FORMAT, "xml", "Invalid value for format: must be one of ['json', 'yaml', 'toml']"),
        (ToolParameter("timeout", "integer", minimum=1), 1, None),
        (
            ToolParameter("timeout", "integer", minimum=1),
            0,
            "Value for timeout is below minimum: 1",
        ),
        (ToolParameter("limit", "integer", maximum=1000), 1000, None),
        (
            ToolParameter("limit", "integer", maximum=1000),
            1001,
            "Value for limit exceeds maximum: 1000",
        ),
        (
            ToolParameter("ratio", "number", minimum=0.5),
            0.25,
            "Value for ratio is below minimum: 0.5",
        ),
        (ToolParameter("content", "string", min_length=1), "h", None),
        (
            ToolParameter("content", "string", min_length=1),
            "",
            "Value for content is shorter than minimum length: 1",
        ),
        (ToolParameter("name", "string", max_length=50), "x" * 50, None),
        (
            ToolParameter("name", "string", max_length=50),
            "x" * 51,
            "Value for name exceeds maximum length: 50",
        ),
    ],
)
def test_value_out_of_limits_names_the_limit(
    parameter: ToolParameter, value: Any, sentence: str | None
) -> None:
    assert parameter.problem_with(value) == sentence


VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(-20, 20),
    st.floats(-20, 20),
    st.booleans(),
    st.none(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@st.composite
def parameters(draw: st.DrawFn) -> ToolParameter:
    kind: JsonType = draw(
        st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])
    )
    limits: dict[str, Any] = {}
    if kind in ("integer", "number"):
        limits["minimum"] = draw(st.none() | st.integers(-10, 0))
        limits["maximum"] = draw(st.none() | st.integers(1, 10))
    elif kind == "string":
        limits["min_length"] = draw(st.none() | st.integers(0, 2))
        limits["max_length"] = draw(st.none() | st.integers(3, 6))
        limits["enum"] = draw(st.none() | st.lists(st.text(max_size=2), min_size=1, max_size=3))
    return ToolParameter("p", kind, **limits)


@pytest.mark.slow
@given(parameters(), VALUES)
def test_validation_agrees_with_the_schema(parameter: ToolParameter, value: Any) -> None:
    schema = parameter.to_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator: Any = jsonschema.Draft202012Validator(schema)
    is_valid = validator.is_valid(value)
    assert (parameter.problem_with(value) is None) == is_valid


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "text"},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "string", "min_length": 2, "max_length": 1},
        {"type": "integer", "default": "1"},
        {"type": "string", "default": "c", "enum": ["a", "b"]},
        {"type": "array", "min_length": 1},
    ],
)
def test_impossible_parameter_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="p"):
        ToolParameter("p", **settings)


def test_limits_may_allow_a_single_value() -> None:
    parameter = ToolParameter("p", "integer", minimum=2, maximum=2)
    assert [parameter.problem_with(value) is None for value in (1, 2, 3)] == [False, True, False]


def test_ok_and_fail_set_result_members() -> None:
    result = ToolResult.ok("file content here")
    assert (result.success, result.output, result.error) == (True, "file content here", None)
    assert ToolResult.ok("output", lines=100, bytes=5000).metadata == {"lines": 100, "bytes": 5000}
    failed = ToolResult.fail("Permission denied", path="/etc/shadow", errno=13)
    assert (failed.success, failed.output, failed.error) == (False, None, "Permission denied")
    assert failed.metadata == {"path": "/etc/shadow", "errno": 13}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.ok("Hello World"), "Hello World"),
        (ToolResult.fail("Something went wrong"), "Error: Something went wrong"),
        (ToolResult.ok(None), ""),
        (ToolResult.ok({"a": [1, None]}), '{"a":[1,null]}'),
        (ToolResult.ok(1 + 2j), "(1+2j)"),
    ],
)
def test_a_result_is_shown_as_text(result: ToolResult, text: str) -> None:
    assert result.to_display() == text


def test_results_do_not_share_their_metadata() -> None:
    one, other = ToolResult(True), ToolResult(True)
    one.metadata["a"] = 1
    assert other.metadata == {}


def test_a_context_has_defaults() -> None:
    context = ExecutionContext(working_dir="/home/user/project")
    assert context.working_dir == "/home/user/project"
    assert (context.session_id, context.agent_id, context.dry_run) == (None, None, False)
    assert (context.timeout, context.max_output_size, context.metadata) == (120, 100_000, {})


def test_context_keeps_its_members() -> None:
    given: dict[str, Any] = {
        "working_dir": "/home/user/project",
        "session_id": "sess_abc123",
        "agent_id": "agent_001",
        "dry_run": True,
        "timeout": 60,
        "max_output_size": 50_000,
        "metadata": {"step": 1},
    }
    context = ExecutionContext(**given)
    assert {name: getattr(context, name) for name in given} == given


def test_categories_have_the_specified_values() -> None:
    assert {category.name: category.value for category in ToolCategory} == {
        "FILE": "file",
        "EXECUTION": "execution",
        "WEB": "web",
        "TASK": "task",
        "NOTEBOOK": "notebook",
        "MCP": "mcp",
        "OTHER": "other",
    }


def test_an_error_names_its_tool() -> None:
    for error in (
        ToolError("Read", "File not found"),
        pickle.loads(pickle.dumps(ToolError("Read", "File not found"))),
    ):
        assert (error.tool_name, error.message) == ("Read", "File not found")
        assert str(error) == "Tool 'Read' error: File not found"
