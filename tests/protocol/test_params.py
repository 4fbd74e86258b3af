"""JSON becomes params. The protocol accepts some deviations, and refuses all others.

These tests cover the rules. e2e/test_protocol.py tests the messages over the wire.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld_protocol.errors import RpcError
from shelld_protocol.methods import METHODS
from shelld_protocol.parameters import parameters_of
from shelld_protocol.params import decode_params
from shelld_protocol.shell_methods import BashOutputParams, BashParams, KillShellParams
from shelld_protocol.structs import Params
from shelld_protocol.tool_methods import CallContext, CallToolParams


def refusal(params_type: type[Params], value: object) -> str:
    with pytest.raises(RpcError) as caught:
        decode_params(params_type, json.dumps(value).encode())
    return caught.value.message


def test_defaults_match_the_specification() -> None:
    params = decode_params(BashParams, b'{"command":"x"}')
    assert msgspec.to_builtins(params) == {
        "command": "x",
        "description": None,
        "timeout": None,
        "run_in_background": False,
        "cwd": None,
        "env": None,
        "session": "main",
        "stdin": None,
        "strip_ansi": True,
        "dry_run": False,
        "on_timeout": "kill",
        "idle_timeout": None,
        "tty": False,
        "rows": 30,
        "cols": 120,
        "open_stdin": False,
        "on_prompt": "wait",
        "notify": None,
        "merge": False,
        "stdin_base64": None,
        "idempotency_key": None,
        "key_must_exist": False,
        "target": None,
        "sandbox": None,
        "on_disconnect": "background",
    }


@pytest.mark.parametrize(
    ("notify", "problem"),
    [
        (["exit", 5], "Invalid type for notify: expected array of strings"),
        (["exit", "end"], "Invalid value for notify: each must be one of "),
        ("exit", "Invalid type for notify: expected array"),
    ],
)
def test_choices_in_lists_are_checked(notify: object, problem: str) -> None:
    message = refusal(BashParams, {"command": "x", "notify": notify})
    assert message.startswith(problem)


def test_null_is_absent_except_for_session() -> None:
    params = decode_params(BashParams, b'{"command":"x","session":null,"strip_ansi":null}')
    assert (params.session, params.strip_ansi) == (None, True)


def test_trailing_nulls_of_positional_params_are_absent() -> None:
    params = decode_params(BashParams, b'["x",null,null,null,null,null,null,null]')
    assert params.session == "main"


def test_positional_null_before_value_stays_null() -> None:
    names = list(BashParams.__struct_fields__)
    values: list[Any] = [None] * len(names)
    values[0] = "x"
    values[names.index("stdin")] = "in"
    params = decode_params(BashParams, json.dumps(values).encode())
    assert (params.session, params.stdin) == (None, "in")


def test_positional_and_named_params_are_the_same() -> None:
    named = {"bash_id": "a", "filter": "f", "wait": 5, "until": "exit"}
    by_name = decode_params(BashOutputParams, json.dumps(named).encode())
    by_position = decode_params(BashOutputParams, json.dumps(list(named.values())).encode())
    assert by_name == by_position


def test_too_many_positional_params_are_refused() -> None:
    assert refusal(KillShellParams, ["a", "TERM", 1, 2]) == (
        "Too many positional parameters: at most 3"
    )


def test_an_alias_stands_for_its_parameter() -> None:
    assert decode_params(KillShellParams, b'{"bash_id":"a"}').shell_id == "a"
    assert decode_params(KillShellParams, b'{"bash_id":"a","shell_id":"a"}').shell_id == "a"
    message = refusal(KillShellParams, {"bash_id": "a", "shell_id": "b"})
    assert message == "Invalid value for bash_id: must equal shell_id"


def test_null_under_an_alias_is_absent() -> None:
    assert decode_params(KillShellParams, b'{"bash_id":"a","shell_id":null}').shell_id == "a"
    assert decode_params(KillShellParams, b'{"bash_id":null,"shell_id":"a"}').shell_id == "a"
    for nulls in ({"bash_id": None}, {"bash_id": None, "shell_id": None}):
        assert refusal(KillShellParams, nulls) == "Invalid type for shell_id: expected string"


@pytest.mark.parametrize("value", [2000.0, 2000])
def test_an_integral_number_is_an_integer(value: float) -> None:
    params = decode_params(BashParams, json.dumps({"command": "x", "timeout": value}).encode())
    assert params.timeout == 2000
    assert type(params.timeout) is int


@pytest.mark.parametrize("value", [True, False, "2000", 2000.5, [], {}, 1e308])
def test_invalid_integers_are_refused(value: object) -> None:
    message = refusal(BashParams, {"command": "x", "timeout": value})
    assert message.startswith(("Invalid type for timeout: expected integer", "Value for timeout"))


def test_integer_too_large_for_float_is_refused() -> None:
    message = refusal(CallToolParams, {"name": "x", "context": {"timeout": 10**400}})
    assert message == "Invalid type for context.timeout: expected number"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            '{"name":"Bash","arguments":{"timeout":1e400}}',
            "Invalid value for arguments: a number in it is too large",
        ),
        (
            '{"name":"Bash","arguments":[1e400]}',
            "Invalid type for arguments: expected object",
        ),
        (
            '{"name":"Bash","context":{"timeout":1e400}}',
            "Invalid type for context.timeout: expected number",
        ),
        (
            '{"name":"Bash","context":{"metadata":{"a":1e400}}}',
            "Invalid value for context.metadata: a number in it is too large",
        ),
    ],
)
def test_refusal_names_the_value_with_a_number_that_is_too_large(params: str, message: str) -> None:
    with pytest.raises(RpcError) as caught:
        decode_params(CallToolParams, params.encode())
    assert caught.value.message == message


def test_a_long_unknown_name_is_not_echoed_whole() -> None:
    assert len(refusal(BashParams, {"command": "x", "y" * 10_000: 1})) < 200


def test_missing_parameter_is_named_before_unknown_one() -> None:
    assert refusal(BashParams, {"foo": 1}) == "Missing required parameter: command"


members = st.sampled_from([*BashParams.__struct_fields__, "foo"])
values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(), st.text(), max_size=2)
)


@given(st.dictionaries(members, values, max_size=5))
def test_any_params_give_a_struct_or_a_refusal(given_params: dict[str, object]) -> None:
    try:
        data = json.dumps(given_params, allow_nan=False).encode()
    except ValueError:
        return
    try:
        params = decode_params(BashParams, data)
    except RpcError as error:
        assert error.data["parameter"] in {*BashParams.__struct_fields__, "foo"}
    else:
        assert params.command
        assert msgspec.convert(msgspec.to_builtins(params), BashParams) == params


@pytest.mark.parametrize("method", METHODS)
def test_invalid_params_of_every_method_are_refused(method: str) -> None:
    params_type = METHODS[method].params
    for name in params_type.__struct_fields__:
        with pytest.raises(RpcError):
            decode_params(params_type, json.dumps({name: [1]}).encode())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"command": "x", "env": {"A": 1}}, "Invalid type for env: expected object of strings"),
        ({"command": "x", "env": ["A"]}, "Invalid type for env: expected object"),
    ],
)
def test_an_environment_holds_strings(params: dict[str, Any], message: str) -> None:
    with pytest.raises(RpcError) as caught:
        decode_params(BashParams, json.dumps(params).encode())
    assert caught.value.message == message


def test_nested_values_are_read_leniently() -> None:
    raw = b'{"name": "Bash", "arguments": {"a": [1, null]}, "context": {"max_output_size": 5.0}}'
    params = decode_params(CallToolParams, raw)
    assert params.arguments == {"a": [1, None]}
    assert params.context == CallContext(max_output_size=5)
    with pytest.raises(RpcError) as caught:
        decode_params(CallToolParams, b'{"name": "Bash", "context": {"timeout": "1"}}')
    assert caught.value.message == "Invalid type for context.timeout: expected number"
    assert caught.value.data["parameter"] == "context.timeout"


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["/a"] * 101, "Too many items in sandbox.write: at most 100"),
        (["/a", ""], "Value for an item of sandbox.write is shorter than minimum length: 1"),
        (["/a", 1], "Invalid type for sandbox.write: expected array of strings"),
    ],
)
def test_limits_of_lists_are_checked(paths: list[object], message: str) -> None:
    raw = json.dumps({"command": "x", "sandbox": {"write": paths}}).encode()
    with pytest.raises(RpcError) as caught:
        decode_params(BashParams, raw)
    assert caught.value.message == message
    assert caught.value.data["parameter"] == "sandbox.write"


def test_parameters_are_described_as_their_fields_are() -> None:
    parameters = parameters_of(BashParams)
    assert parameters["command"].model.description.startswith("The command, run with")
    shown = parameters["description"].model.description
    assert shown == "What the command does; echoed in results."
    assert parameters["timeout"].model.minimum == 1_000
    assert parameters["on_timeout"].model.enum == ["kill", "background"]
    assert parameters["session"].null_is_a_value
    assert not parameters["stdin"].null_is_a_value
