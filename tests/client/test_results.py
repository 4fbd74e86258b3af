"""Results from a daemon of another version. They may have fields that the client does not know, and
may lack other fields.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from importlib.metadata import version
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import shelld
import shelld_client
from shelld_client import (
    AsyncClient,
    BashOutputResult,
    BashResult,
    Client,
    CommandFailed,
    CommandTimedOut,
    DaemonExited,
    JobEnded,
    KillShellResult,
    MessageTooLarge,
    OutputRange,
    ServerInfoResult,
    SessionLost,
    ShellError,
    ShellInfo,
    SpawnFailed,
    Usage,
    WaitTimedOut,
)
from shelld_client.results import decode_event, decode_output, decode_result
from shelld_protocol.event_methods import OutputEvent
from shelld_protocol.shell_methods import ListShellsResult

EXAMPLE = BashOutputResult(
    bash_id="shell_1",
    command="make",
    stdout="out\nlast\n",
    stderr="",
    status="running",
    is_running=True,
    exit_code=None,
    signal=None,
    duration_ms=5,
    stdout_range=OutputRange(0, 9, 0),
    stderr_range=OutputRange(0, 0, 0),
    dropped_bytes=0,
    more=False,
    prompt=None,
    reached=None,
)
RESULT: dict[str, Any] = {
    "bash_id": "shell_1",
    "command": "make",
    "stdout": "out",
    "stderr": "",
    "exitCode": None,
    "signal": "SIGKILL",
    "status": "killed",
    "durationMs": 5,
    "truncated": False,
    "stdoutBytes": 3,
    "stderrBytes": 0,
    "cwd": "/",
    "leftover": [7],
    "usage": {"userMs": 1, "systemMs": 2, "maxRssBytes": 3},
}


def bash_result(**members: Any) -> BashResult:
    return decode_result(BashResult, msgspec.json.encode({**RESULT, **members}))


def test_unknown_members_are_dropped() -> None:
    assert bash_result(prompt={"certainty": "proved"}) == bash_result()


def test_unknown_values_are_kept() -> None:
    result = bash_result(reason="prompt", status="suspended", later=1)
    assert (result.reason, result.status, result.stdout) == ("prompt", "suspended", "out")
    assert result.usage == Usage(user_ms=1, system_ms=2, max_rss_bytes=3)
    assert result.leftover == [7]


def test_unknown_values_in_lists_are_kept() -> None:
    info = {name: RESULT[name] for name in ("bash_id", "command", "exitCode", "signal", "status")}
    info |= {"session": None, "isRunning": False, "pid": 1, "cwd": "/", "startedAt": "now"}
    info |= {"durationMs": 1, "unreadBytes": 0, "leftover": [], "description": None}
    info["prompt"] = None
    shells = msgspec.json.encode({"shells": [info, {**info, "reason": "idle"}]})
    first, second = decode_result(ListShellsResult, shells).shells
    assert isinstance(second, ShellInfo)
    assert (first.reason, second.reason) == (None, "idle")


@pytest.mark.parametrize(
    "members",
    [
        {"stdout": 1},
        {"stdout": None},
        {"leftover": ["x"]},
        {"leftover": None},
        {"usage": {}},
        {"usage": 1},
        {"reason": 1},
        {"exitCode": "1"},
        {"truncated": 0},
    ],
)
def test_a_member_of_another_type_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(msgspec.DecodeError):
        bash_result(**{"reason": "new", **members})


def test_a_result_without_a_member_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_result(KillShellResult, msgspec.json.encode(RESULT))


def test_a_timeout_carries_the_whole_result() -> None:
    error = CommandTimedOut("late", data={**RESULT, "status": "timeout", "kind": "timeout"})
    assert error.result == bash_result(status="timeout")
    assert (error.stdout, error.stderr) == ("out", "")


@pytest.mark.parametrize("data", [{}, {"stdout": 1, "usage": {"userMs": 1}, "leftover": "x"}])
def test_a_timeout_with_incomplete_data_has_a_result(data: dict[str, Any]) -> None:
    result = CommandTimedOut("late", data=data).result
    assert isinstance(result, BashResult)
    assert (result.stdout, result.status, result.leftover) == ("", "timeout", [])
    assert result.usage.user_ms == 0


def test_timeout_result_keeps_the_valid_data() -> None:
    result = CommandTimedOut("late", data={"stderr": "e", "bash_id": "shell_1", "cwd": 3}).result
    assert (result.bash_id, result.stderr, result.cwd) == ("shell_1", "e", "")


def test_results_of_timeouts_are_not_shared() -> None:
    CommandTimedOut("late").result.leftover.append(1)
    assert CommandTimedOut("late").result.leftover == []


def pickled(error: Exception) -> Any:
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize("copied", [copy.copy, pickled])
def test_exceptions_can_be_copied(copied: Any) -> None:
    error = copied(DaemonExited("ended", stderr="words", exit_code=3))
    assert (str(error), error.stderr, error.exit_code) == ("ended\nwords", "words", 3)
    error = copied(SpawnFailed("no", code=1004, data={"errno": "ENOENT"}))
    assert (str(error), error.code, error.errno) == ("no", 1004, "ENOENT")


EXCEPTIONS = [
    each
    for each in vars(shelld_client).values()
    if isinstance(each, type) and issubclass(each, ShellError)
]


@pytest.mark.parametrize("copied", [copy.copy, pickled])
@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_every_exception_survives_copy_and_pickle(copied: Any, kind: Any) -> None:
    arguments: dict[Any, tuple[Any, ...]] = {
        MessageTooLarge: (5, 3),
        CommandFailed: (bash_result(),),
        JobEnded: ("text", EXAMPLE),
        WaitTimedOut: ("text", EXAMPLE),
        SessionLost: ("main", "it ended"),
    }
    error: ShellError = kind(*arguments.get(kind, ("text",)))
    error.data = {"kind": "any"}
    error.add_note("where it was")
    other = copied(error)
    assert (type(other), str(other), vars(other)) == (kind, str(error), vars(error))


def types_in(annotation: Any) -> set[type]:
    inner = {each for member in get_args(annotation) for each in types_in(member)}
    return inner | ({annotation} if isinstance(annotation, type) else set())


# Methods that return types of other packages.
FOREIGN = ("langchain_tools", "openai_agents_tools", "pydantic_ai_tools")


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_type_in_a_signature_is_exported(client: type) -> None:
    named: set[type] = set()
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_") and name not in FOREIGN:
            for annotation in get_type_hints(method).values():
                named |= types_in(annotation)
    # Also add the type of each field in these structs.
    for struct in list(named):
        if issubclass(struct, msgspec.Struct):
            for field in msgspec.structs.fields(struct):
                named |= types_in(field.type)
    ours = {each.__name__ for each in named if each.__module__.startswith("shelld")}
    assert {"BashResult", "Usage", "ToolResult", "ExecutionContext", "Limits"} < ours
    assert ours <= set(shelld_client.__all__)


def test_every_exported_name_exists() -> None:
    assert all(hasattr(shelld_client, name) for name in shelld_client.__all__)
    assert list(shelld_client.__all__) == sorted(shelld_client.__all__)
    assert ServerInfoResult.__name__ in shelld_client.__all__


def test_the_version_is_that_of_the_distribution() -> None:
    assert shelld_client.__version__ == shelld.__version__ == version("shelld")


OUTPUT = OutputEvent(
    subscription="sub_1",
    seq=1,
    bash_id="x",
    session=None,
    request_id=7,
    stream="stdout",
    text='a "line"\n' + 10_000 * "é",
    start=0,
    end=20_009,
    dropped=0,
    skipped=0,
)
PARAMS = msgspec.json.encode(OUTPUT)


def test_output_is_decoded_in_one_step() -> None:
    message = b'{"jsonrpc":"2.0","method":"shell/output","params":' + PARAMS + b"}"
    assert decode_output(message) == decode_event("shell/output", PARAMS) == OUTPUT


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","method":"shell/exited","params":' + PARAMS + b"}",
        b'{"jsonrpc":"2.0","method":"shell/output","params":' + PARAMS + b',"more":1}',
        b'{"jsonrpc":"2.0","method":"shell/output","params":{"text":"x"}}',
        b'{"jsonrpc":"2.0","method":"shell/output","params":',
        b'{"jsonrpc": "2.0", "method": "shell/output", "params": ' + PARAMS + b"}",
    ],
)
def test_other_messages_are_left_to_the_full_decoder(message: bytes) -> None:
    assert decode_output(message) is None
