"""The client refuses each argument that no daemon could accept, and stays usable."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Shell, Spawn, spawn_of
from shelld_client import ExecutionContext, InvalidParams, SpawnFailed
from shelld_protocol.jsonrpc import MAX_LEVELS
from support import Gate


@pytest.fixture(scope="module", params=["sync", "asyncio", "trio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def anyio_backend(kind: str) -> str:
    return "asyncio" if kind == "sync" else kind


@pytest.fixture(scope="module")
async def shell(kind: str) -> AsyncIterator[Shell]:
    """A client that the tests share. Calls with wrong arguments must not change its state."""
    async with spawn_of(kind)() as client:
        yield client


Ask = Callable[[Any, Any], Awaitable[Any]]

# For each parameter name, a function that makes a call and passes a value for that parameter.
NUMBERS: dict[str, Ask] = {
    "timeout": lambda shell, value: shell.bash("true", timeout=value),
    "wait": lambda shell, value: shell.bash_output("x", wait=value),
    "stdout_offset": lambda shell, value: shell.bash_output("x", stdout_offset=value),
    "stderr_offset": lambda shell, value: shell.bash_output("x", stderr_offset=value),
    "max_bytes": lambda shell, value: shell.bash_output("x", max_bytes=value),
    "grace": lambda shell, value: shell.kill_shell("x", grace=value),
    "context.max_output_size": lambda shell, value: shell.call_tool(
        "Bash", {"command": "true"}, context={"max_output_size": value}
    ),
    "context.timeout": lambda shell, value: shell.call_tool(
        "Bash", {"command": "true"}, context=ExecutionContext("", timeout=value)
    ),
}


@pytest.mark.parametrize("value", [math.nan, -math.inf, -1, True, "5", b"5"], ids=repr)
async def test_a_wrong_number_is_invalid_params(shell: Shell, value: Any) -> None:
    for parameter, ask in NUMBERS.items():
        with pytest.raises(InvalidParams) as refused:
            await ask(shell, value)
        assert refused.value.parameter == parameter
        assert isinstance(refused.value, ValueError)
    await shell.ping()


@pytest.mark.parametrize("value", [math.inf, 1.5], ids=repr)
async def test_only_context_timeout_accepts_fractions_and_infinity(
    shell: Shell, value: float
) -> None:
    for parameter, ask in NUMBERS.items():
        if parameter == "context.timeout":
            assert (await ask(shell, value)).success
            continue
        with pytest.raises(InvalidParams) as refused:
            await ask(shell, value)
        assert refused.value.parameter == parameter


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x"], ids=repr)
async def test_tool_arguments_arrive_as_given_or_are_refused(shell: Shell, value: Any) -> None:
    with pytest.raises(InvalidParams) as refused:
        await shell.call_tool("Bash", {"command": "true", "more": [{"deep": value}]})
    assert refused.value.parameter == "arguments.more.deep"


def nested(levels: int, shape: str) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if shape == "list" else {"a": value}
    return value


@pytest.mark.parametrize("shape", ["list", "mapping"])
@pytest.mark.parametrize("levels", [1, 80, 600, 2_000, 100_000])
async def test_deep_arguments_fail_only_their_call(
    shell: Shell, tmp_path: Path, shape: str, levels: int
) -> None:
    gate, outputs = Gate(tmp_path / "gate"), list[str]()
    # The message, its params and the arguments each add one level of nesting.
    deepest = MAX_LEVELS - 3
    async with anyio.create_task_group() as tasks:

        async def call_beside() -> None:
            outputs.append((await shell.bash(f"{gate.wait}; echo made it")).stdout)

        tasks.start_soon(call_beside)
        await shell.ping()
        with pytest.raises(InvalidParams, match=f"at most {MAX_LEVELS} nested levels") as refused:
            await shell.call_tool("Bash", {"command": nested(deepest + levels, shape)})
        assert refused.value.parameter == "arguments"
        taken = await shell.call_tool("Bash", {"command": nested(deepest, shape)})
        assert not taken.success
        await anyio.to_thread.run_sync(gate.open)
    assert outputs == ["made it\n"]


async def test_bytes_as_text_are_refused(shell: Shell) -> None:
    for option in ("cwd", "description"):
        with pytest.raises(InvalidParams, match=f"Invalid type for {option}: bytes are not text"):
            await shell.bash("cat", **{option: b"text"})
    with pytest.raises(InvalidParams) as refused:
        await shell.bash("true", env={"NAME": b"text"})
    assert refused.value.parameter == "env.NAME"


TEXTS: dict[str, Ask] = {
    "command": lambda shell, value: shell.bash(value),
    "cwd": lambda shell, value: shell.bash("true", cwd=Path(value)),
    "env": lambda shell, value: shell.bash("true", env={value: "x"}),
    "stdin": lambda shell, value: shell.bash("cat", stdin=value),
    "session": lambda shell, value: shell.get_session(value),
    "bash_id": lambda shell, value: shell.bash_output(value),
    "filter": lambda shell, value: shell.bash_output("x", filter=value),
    "shell_id": lambda shell, value: shell.kill_shell(value),
    "name": lambda shell, value: shell.call_tool(value, {}),
    "arguments": lambda shell, value: shell.call_tool("Bash", {"command": ["x", value]}),
}


async def test_a_lone_surrogate_is_invalid_params(shell: Shell) -> None:
    for parameter, ask in TEXTS.items():
        with pytest.raises(InvalidParams) as refused:
            # Python decodes a file name that is not valid UTF-8 to a string with a lone surrogate.
            await ask(shell, "x\udcff")
        assert refused.value.parameter == parameter
        assert (
            str(refused.value) == f"Invalid value for {parameter}: must not contain lone surrogates"
        )
    await shell.ping()


@pytest.mark.parametrize("value", [5, "text", ["a"]])
async def test_error_names_argument_that_must_be_mapping(shell: Shell, value: Any) -> None:
    with pytest.raises(TypeError, match="context must be a mapping"):
        await shell.call_tool("Bash", {"command": "true"}, context=value)
    with pytest.raises(TypeError, match="arguments must be a mapping"):
        await shell.call_tool("Bash", value)
    with pytest.raises(TypeError, match="env must be a mapping"):
        await shell.bash("true", env=value)
    await shell.ping()


async def test_a_path_is_accepted_in_place_of_text(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn(cwd=tmp_path) as shell:
        assert (await shell.bash("pwd")).stdout == f"{tmp_path}\n"
        assert (await shell.bash("pwd", cwd=Path("/"))).stdout == "/\n"
        assert (await shell.bash("echo $HERE", env={"HERE": tmp_path})).stdout == f"{tmp_path}\n"
        assert (await shell.explain_command("true", cwd=Path("/"))).verdict == "allow"
        result = await shell.call_tool(
            "Bash", {"command": "pwd"}, context={"working_dir": Path("/")}
        )
        assert result.output == "/\n"


class OfBytes:
    def __fspath__(self) -> bytes:
        return b"/"


@pytest.mark.parametrize("value", [object(), OfBytes(), 1j], ids=lambda value: type(value).__name__)
async def test_values_unknown_to_json_are_type_errors(shell: Shell, value: Any) -> None:
    with pytest.raises(
        TypeError, match=f"of bash cannot be .*: JSON has no {type(value).__name__}"
    ):
        await shell.bash("true", cwd=value)
    with pytest.raises(TypeError, match=f"JSON has no {type(value).__name__}"):
        await shell.call_tool("Bash", {"command": "true"}, context={"metadata": {"a": value}})
    await shell.ping()


async def test_none_as_session_is_refused(shell: Shell) -> None:
    for ask in (shell.get_session, shell.close_session):
        with pytest.raises(
            InvalidParams, match="Invalid type for session: expected string"
        ) as refused:
            await ask(None)
        assert refused.value.parameter == "session"


@pytest.mark.parametrize("name", ["missing", "file"])
async def test_unusable_working_directory_is_named_in_error(
    spawn: Spawn, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpawnFailed, match=f"cannot use the working directory {tmp_path}/{name}:"):
        async with spawn(cwd=tmp_path / name):
            pass


async def test_missing_program_is_named_despite_given_directory(
    spawn: Spawn, tmp_path: Path
) -> None:
    with pytest.raises(SpawnFailed, match="cannot start /missing/shelld:") as failed:
        async with spawn(["/missing/shelld"], cwd=str(tmp_path)):
            pass
    assert failed.value.errno == "ENOENT"


async def test_command_line_as_text_is_refused(spawn: Spawn) -> None:
    for wrong in ({"command": "shelld"}, {"args": "--log-level debug"}):
        with pytest.raises(TypeError, match="must be a list of words"):
            async with spawn(**wrong):
                pass


async def test_words_of_a_command_line_can_be_paths(spawn: Spawn, tmp_path: Path) -> None:
    log = tmp_path / "audit"
    command: Any = [Path(sys.executable), "-P", "-m", "shelld"]
    async with spawn(command, args=["--audit-log", log]) as shell:
        assert (await shell.bash("echo hi")).stdout == "hi\n"
    assert log.exists()


@pytest.mark.parametrize("options", [{}, {"args": ["--audit-log", "x"]}])
async def test_a_command_of_no_words_is_refused(spawn: Spawn, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="command must have at least one word"):
        async with spawn([], **options):
            pass


async def test_a_word_of_bytes_is_refused(spawn: Spawn) -> None:
    wrong: Any = ["shelld", b"x"]
    with pytest.raises(TypeError, match="the words of command must be text or paths, not bytes"):
        async with spawn(wrong):
            pass


async def test_boolean_start_timeout_is_refused(spawn: Spawn) -> None:
    with pytest.raises(TypeError, match="start_timeout"):
        async with spawn(start_timeout=True):
            pass


async def test_bytes_do_not_replace_other_bytes(shell: Any) -> None:
    with pytest.raises(InvalidParams, match="not both") as refused:
        await shell.bash("cat", stdin=b"a", stdin_base64="Yg==")
    assert refused.value.parameter == "stdin_base64"
    with pytest.raises(InvalidParams, match="not both") as refused:
        await shell.write_stdin("x", data=b"a", base64="Yg==")
    assert refused.value.parameter == "base64"
