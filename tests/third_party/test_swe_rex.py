"""The example's runtime does what SWE-ReX's own runtime does, for the same requests.

SWE-ReX's `LocalRuntime` also passes these tests, on a machine that is not busy. On a busy machine
it may fail, because it waits only a tenth of a second for some prompts.
"""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("swerex", reason="SWE-ReX is not installed")

from swerex.exceptions import (
    CommandTimeoutError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

from shelld_client import AsyncClient

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "swe_rex.py"
# Load the example only once, because each load makes another class.
SHELLD_RUNTIME: Any = runpy.run_path(str(EXAMPLE))["ShelldRuntime"]


@pytest.fixture
async def runtime() -> AsyncIterator[AbstractRuntime]:
    async with AsyncClient.spawn() as shell:
        found: AbstractRuntime = SHELLD_RUNTIME(shell)
        yield found
        await found.close()


async def test_session_keeps_its_state(runtime: AbstractRuntime, tmp_path: Path) -> None:
    assert await runtime.is_alive()
    startup = tmp_path / "startup"
    startup.write_text("greeting=hello\n")
    await runtime.create_session(CreateBashSessionRequest(startup_source=[str(startup)]))
    await runtime.run_in_session(BashAction(command="cd /tmp"))
    found = await runtime.run_in_session(BashAction(command="echo $greeting; pwd"))
    assert found.output.split() == ["hello", "/tmp"]
    assert found.exit_code == 0
    with pytest.raises(SessionExistsError):
        await runtime.create_session(CreateBashSessionRequest())
    await runtime.create_session(CreateBashSessionRequest(session="other"))
    other = await runtime.run_in_session(BashAction(command="echo [$greeting]", session="other"))
    assert other.output.strip() == "[]"
    await runtime.close_session(CloseBashSessionRequest())
    with pytest.raises(SessionDoesNotExistError):
        await runtime.run_in_session(BashAction(command="true"))
    with pytest.raises(SessionDoesNotExistError):
        await runtime.close_session(CloseBashSessionRequest())


async def test_failed_command_reports_its_exit_code(runtime: AbstractRuntime) -> None:
    await runtime.create_session(CreateBashSessionRequest())
    with pytest.raises(NonZeroExitCodeError, match="it broke"):
        await runtime.run_in_session(BashAction(command="(exit 3)", error_msg="it broke"))
    silent = await runtime.run_in_session(
        BashAction(command="echo out; echo err >&2; (exit 3)", check="silent")
    )
    assert (silent.output.split(), silent.exit_code) == (["out", "err"], 3)
    ignored = await runtime.run_in_session(BashAction(command="(exit 3)", check="ignore"))
    assert ignored.exit_code is None
    with pytest.raises(CommandTimeoutError):
        await runtime.run_in_session(BashAction(command="sleep 300", timeout=1))
    await runtime.run_in_session(BashInterruptAction())
    after = await runtime.run_in_session(BashAction(command="echo after"))
    assert after.output.strip() == "after"


async def test_command_runs_outside_sessions(runtime: AbstractRuntime, tmp_path: Path) -> None:
    found = await runtime.execute(Command(command=["printf", "%s|", "a b", "$HOME"]))
    assert (found.stdout, found.stderr, found.exit_code) == ("a b|$HOME|", "", 0)
    found = await runtime.execute(
        Command(command="pwd; echo $x >&2; exit 4", shell=True, cwd=str(tmp_path), env={"x": "1"})
    )
    assert (found.stdout, found.stderr, found.exit_code) == (f"{tmp_path}\n", "1\n", 4)
    merged = await runtime.execute(
        Command(command="echo out; echo err >&2", shell=True, merge_output_streams=True)
    )
    assert (merged.stdout, merged.stderr) == ("out\nerr\n", "")
    with pytest.raises(NonZeroExitCodeError):
        await runtime.execute(Command(command=["false"], check=True))
    with pytest.raises(CommandTimeoutError):
        await runtime.execute(Command(command=["sleep", "300"], timeout=1))


async def test_runtime_reads_writes_and_uploads_files(
    runtime: AbstractRuntime, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "file with a space"
    content = "one\ntwo\u00e4\nno end"
    await runtime.write_file(WriteFileRequest(path=str(path), content=content))
    assert path.read_text() == content
    assert (await runtime.read_file(ReadFileRequest(path=str(path)))).content == content
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(ReadFileRequest(path=str(tmp_path / "missing")))
    uploads = ((path, tmp_path / "copy"), (path.parent, tmp_path / "folder"))
    for source, target in uploads:
        await runtime.upload(UploadRequest(source_path=str(source), target_path=str(target)))
    assert (tmp_path / "copy").read_text() == content
    assert (tmp_path / "folder" / path.name).read_text() == content


async def test_empty_command_succeeds(runtime: AbstractRuntime) -> None:
    await runtime.create_session(CreateBashSessionRequest())
    found = await runtime.run_in_session(BashAction(command=""))
    assert (found.output, found.exit_code) == ("", 0)


@pytest.mark.parametrize("program", ["if", "A=1", "it's"])
async def test_first_word_is_a_program(runtime: AbstractRuntime, program: str) -> None:
    ended = await runtime.execute(Command(command=[program, "true"]))
    assert ended.exit_code == 127


async def test_file_may_be_named_like_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with AsyncClient.spawn() as shell:
        runtime: AbstractRuntime = SHELLD_RUNTIME(shell)
        for name in ("-", "-n"):
            await runtime.write_file(WriteFileRequest(path=name, content=name))
            assert (await runtime.read_file(ReadFileRequest(path=name))).content == name
