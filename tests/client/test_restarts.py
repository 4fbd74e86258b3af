"""`AsyncClient.spawn(restart=True)` with real daemons that die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import ASYNC_ONLY
from shelld_client import (
    AsyncClient,
    BashOptions,
    BashResult,
    CommandTimedOut,
    DaemonExited,
    InvalidParams,
    OutputEvent,
    Restart,
    SessionNotFound,
    ShellNotFound,
    SpawnFailed,
    TargetLost,
)
from shelld_protocol import EnvironmentRules, ResourceLimits
from support import is_alive, wait_for

pytestmark = [pytest.mark.slow, ASYNC_ONLY]


def kill(shell: AsyncClient) -> None:
    os.kill(shell.pid, signal.SIGKILL)


async def has_failed(shell: AsyncClient) -> None:
    """Wait until the client has noticed the death of its daemon."""
    with anyio.fail_after(60):
        while vars(shell)["_failure"] is None:
            await anyio.sleep(0.01)


async def test_next_call_starts_another_daemon() -> None:
    restarts: list[Restart] = []
    async with AsyncClient.spawn(restart=True, on_restart=restarts.append) as shell:
        await shell.bash("cd /usr")
        failed, before = list[DaemonExited](), shell.pid

        async def in_flight() -> None:
            try:
                await shell.bash("sleep 300")
            except DaemonExited as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_flight)
            await shell.ping()
            kill(shell)
        assert len(failed) == 1
        await has_failed(shell)
        assert restarts == []
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(shell.bash, "true")
        assert shell.pid != before
        (restart,) = restarts
        assert (restart.cause.signal, restart.directories) == ("SIGKILL", {})
        assert (await shell.bash("pwd")).stdout != "/usr\n"


async def test_calls_go_on_although_on_restart_fails(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_restart: Restart) -> None:
        raise ZeroDivisionError

    async with AsyncClient.spawn(restart=True, on_restart=fail) as shell:
        for count in (1, 2):
            kill(shell)
            await has_failed(shell)
            assert (await shell.bash("echo on")).stdout == "on\n"
            assert [record.name for record in caplog.records] == ["shelld_client"] * count
    assert "ZeroDivisionError" in caplog.text


async def test_sessions_directories_are_kept_on_request(tmp_path: Path) -> None:
    restarts: list[Restart] = []
    options: dict[str, Any] = {"restart": True, "keep_directories": True}
    async with AsyncClient.spawn(on_restart=restarts.append, **options) as shell:
        (tmp_path / "gone").mkdir()
        await shell.bash("cd /usr")
        await shell.bash("cd / && x=1", session="other")
        await shell.bash(f"cd {tmp_path}/gone", session="gone")
        await shell.bash("cd /usr", session="closed")
        await shell.close_session("closed")
        (tmp_path / "gone").rmdir()
        kill(shell)
        await has_failed(shell)
        assert (await shell.bash("pwd")).stdout == "/usr\n"
        assert (await shell.bash("echo $PWD $x", session="other")).stdout == "/\n"
        assert restarts[0].directories == {"main": "/usr", "other": "/"}


async def test_many_slow_directories_prevent_no_restart(tmp_path: Path) -> None:
    restarts: list[Restart] = []
    env = _with_function("cd", 'sleep 2.5; builtin cd "$@"', tmp_path)
    options: dict[str, Any] = {"restart": True, "keep_directories": True, "start_timeout": 8}
    async with AsyncClient.spawn(env=env, on_restart=restarts.append, **options) as shell:
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(partial(shell.bash, "cd /usr", session=f"s{number}"))
        kill(shell)
        await has_failed(shell)
        await shell.ping()
        assert restarts[0].directories == {f"s{number}": "/usr" for number in range(4)}


async def test_directory_that_hangs_prevents_no_restart(tmp_path: Path) -> None:
    restarts: list[Restart] = []
    hangs = tmp_path / "hangs"
    body = f'if [[ $2 == /usr && -e {hangs} ]]; then sleep 300; fi; builtin cd "$@"'
    env = _with_function("cd", body, tmp_path)
    options: dict[str, Any] = {"restart": True, "keep_directories": True, "start_timeout": 8}
    async with AsyncClient.spawn(env=env, on_restart=restarts.append, **options) as shell:
        await shell.bash("cd /usr", session="hung")
        await shell.bash("cd /", session="other")
        hangs.touch()
        kill(shell)
        await has_failed(shell)
        assert (await shell.bash("pwd", session="other")).stdout == "/\n"
        assert restarts[0].directories == {"other": "/"}


def _with_function(name: str, body: str, tmp_path: Path) -> dict[str, str]:
    """Return an environment in which every bash has a function."""
    definitions = tmp_path / "functions"
    definitions.write_text(f"{name}() {{ {body}; }}\n")
    return {**os.environ, "BASH_ENV": str(definitions)}


async def test_last_command_of_a_session_counts_even_if_the_reader_of_a_stream_is_slow() -> None:
    restarts: list[Restart] = []
    options: dict[str, Any] = {"restart": True, "keep_directories": True}
    async with AsyncClient.spawn(on_restart=restarts.append, **options) as shell:
        async with shell.stream("cd /usr; echo out; read -t 0.2 < <(sleep 60)") as stream:
            first = await anext(stream)
            assert isinstance(first, OutputEvent)
            await shell.bash_output(first.bash_id, wait=60_000, until="exit")
            await shell.bash("cd /")
            assert isinstance([item async for item in stream][-1], BashResult)
        kill(shell)
        await has_failed(shell)
        await shell.ping()
        assert restarts[0].directories == {"main": "/"}


async def test_sessions_keep_their_configuration() -> None:
    restarts: list[Restart] = []
    options: dict[str, Any] = {"restart": True, "keep_directories": True}
    async with AsyncClient.spawn(on_restart=restarts.append, **options) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        await shell.add_target("gone", ["/nowhere"])
        await shell.remove_target("gone")
        for session, target in (("few", None), ("there", "box"), ("closed", None)):
            limits = ResourceLimits(open_files=77)
            await shell.configure_session(session, limits=limits, target=target)
            await shell.bash("cd /usr", session=session)
        await shell.close_session("closed")
        kill(shell)
        await has_failed(shell)
        for session, limit in (("few", "77"), ("there", "77")):
            result = await shell.bash("ulimit -n", session=session)
            assert result.stdout == f"{limit}\n"
        assert (await shell.bash("ulimit -n", session="closed")).stdout != "77\n"
        assert result.bash_id.startswith("box:")
        assert restarts[0].directories == {"few": "/usr"}


async def test_only_the_last_configuration_of_a_session_is_kept() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        for count in range(70, 80):
            await shell.configure_session("few", limits=ResourceLimits(open_files=count))
        limits = ResourceLimits(open_files=79)
        await shell.configure_session("there", limits=limits, target="box")
        memory = vars(shell)["_memory"]
        assert len(memory.configured) == 3
        kill(shell)
        await has_failed(shell)
        assert (await shell.bash("ulimit -n", session="few")).stdout == "79\n"
        await shell.remove_target("box")
        assert len(memory.configured) == 1
        kill(shell)
        await has_failed(shell)
        await shell.ping()


async def test_session_stays_at_its_target_if_a_later_configuration_names_none() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        limits = ResourceLimits(open_files=76)
        await shell.configure_session("there", limits=limits, target="box")
        await shell.configure_session("there", limits=ResourceLimits(open_files=77))
        kill(shell)
        await has_failed(shell)
        result = await shell.bash("ulimit -n", session="there")
        assert (result.bash_id.partition(":")[0], result.stdout) == ("box", "77\n")


@pytest.mark.parametrize("way", ["bash", "start", "stream"])
async def test_session_that_a_command_has_begun_at_a_target_stays_there(way: str) -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        place: BashOptions = {"session": "there", "target": "box"}
        if way == "start":
            async with shell.start("true", **place) as job:
                await job.wait()
        elif way == "stream":
            async with shell.stream("true", **place) as stream:
                assert [item async for item in stream]
        else:
            await shell.bash("true", **place)
        kill(shell)
        await has_failed(shell)
        assert (await shell.bash("true", session="there")).bash_id.startswith("box:")
        await shell.close_session("there")
        # Another session may have the same name.
        assert ":" not in (await shell.bash("true", session="there")).bash_id


@pytest.mark.parametrize("way", ["cancelled", "killed at its timeout", "stream", "not started"])
async def test_session_stays_at_the_target_of_a_first_command_that_has_failed(way: str) -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        if way == "cancelled":

            async def begin() -> None:
                await shell.bash("sleep 300", session="there", target="box")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(begin)
                await wait_for_session(shell, "there", target="box")
                tasks.cancel_scope.cancel()
        elif way == "killed at its timeout":
            with pytest.raises(CommandTimedOut):
                await shell.bash("sleep 300", timeout=1_000, session="there", target="box")
        elif way == "stream":
            with pytest.raises(CommandTimedOut):
                async with shell.stream(
                    "sleep 300", timeout=1_000, session="there", target="box"
                ) as stream:
                    assert [item async for item in stream] == []
        else:
            with pytest.raises(SpawnFailed):
                await shell.bash("true", cwd="/no/such/directory", session="there", target="box")
        kill(shell)
        await has_failed(shell)
        assert (await shell.bash("true", session="there")).bash_id.startswith("box:")


async def wait_for_session(shell: AsyncClient, session: str, *, target: str) -> None:
    """Wait until a session has begun at a target."""
    with anyio.fail_after(60):
        while True:
            with suppress(SessionNotFound):
                await shell.get_session(session, target=target)
                return
            await anyio.sleep(0.01)


async def test_call_that_begins_no_session_at_a_target_leaves_the_session_here() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        await shell.add_target("nowhere", ["false"])
        with pytest.raises(InvalidParams):
            await shell.bash("true", session="one", target="unknown")
        with pytest.raises(TargetLost):
            await shell.bash("true", session="two", target="nowhere")
        await shell.bash("true", session="three", target="box", dry_run=True)
        await shell.bash("true", target="box", idempotency_key="key")
        await shell.bash(
            "true", session="four", target="box", idempotency_key="key", key_must_exist=True
        )
        for session in ("one", "two", "three", "four"):
            assert ":" not in (await shell.bash("true", session=session)).bash_id


async def test_session_that_its_target_does_not_know_any_more_may_begin_elsewhere() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.add_target("box", [sys.executable, "-P", "-m", "shelld"])
        await shell.bash("true", session="there", target="box")
        kill(shell)
        await has_failed(shell)
        with pytest.raises(SessionNotFound):
            await shell.close_session("there")
        assert ":" not in (await shell.bash("true", session="there")).bash_id


async def test_session_of_another_type_is_refused_by_the_daemon() -> None:
    wrong: Any = ["there"]
    async with AsyncClient.spawn(restart=True) as shell:
        with pytest.raises(InvalidParams):
            await shell.bash("true", session=wrong)


async def test_targets_behind_a_removed_target_do_not_prevent_a_restart() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        for name in ("box", "box2", "box:inner", "box:inner:innermost"):
            await shell.add_target(name, [sys.executable, "-P", "-m", "shelld"])
        await shell.remove_target("box")
        kill(shell)
        await has_failed(shell)
        assert [each.name for each in await shell.list_targets()] == ["box2"]


async def test_configuration_is_kept_as_it_was_given() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        names = ["HIDDEN"]
        await shell.configure_session("s", env=EnvironmentRules(remove=names))
        names.clear()
        vars(shell)["_env"] = {**os.environ, "HIDDEN": "1"}
        kill(shell)
        await has_failed(shell)
        assert (await shell.bash("echo ${HIDDEN-none}", session="s")).stdout == "none\n"


async def test_no_command_runs_without_the_configuration_of_its_session() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        await shell.configure_session("few", limits=ResourceLimits(open_files=77))
        vars(shell)["_command"] += ["--limit", "open_files=20"]
        kill(shell)
        await has_failed(shell)
        for _ in range(2):
            with pytest.raises(InvalidParams, match="open_files"):
                await shell.bash("true", session="few")


async def test_directories_of_streamed_commands_are_kept() -> None:
    restarts: list[Restart] = []
    options: dict[str, Any] = {"restart": True, "keep_directories": True}
    async with AsyncClient.spawn(on_restart=restarts.append, **options) as shell:
        assert [each async for each in shell.stream("cd /usr")]
        await shell.bash("cd /etc", session="heard", on_output=lambda _: None)
        await shell.bash("cd /", session=None)
        kill(shell)
        await has_failed(shell)
        await shell.ping()
        assert restarts[0].directories == {"main": "/usr", "heard": "/etc"}


async def test_streams_and_jobs_run_on_the_new_daemon() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        async with shell.start("sleep 300") as job:
            kill(shell)
            await has_failed(shell)
            *_, result = [item async for item in shell.stream("echo new")]
            assert isinstance(result, BashResult)
            assert result.stdout == "new\n"
            with pytest.raises(ShellNotFound):
                await job.output()
        kill(shell)
        await has_failed(shell)
        async with shell.start("echo again") as job:
            assert (await job.wait()).stdout == "again\n"


async def test_start_that_fails_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "shelld"
    program.symlink_to("/bin/bash")
    command: list[str | Path] = [program, "-c", f"exec {sys.executable} -P -m shelld"]
    restarts: list[Restart] = []
    client = AsyncClient.spawn(command, restart=True, on_restart=restarts.append)
    async with client as shell:
        kill(shell)
        await has_failed(shell)
        program.unlink()
        for _ in range(2):
            with pytest.raises(SpawnFailed):
                await shell.ping()
        assert restarts == []
        program.symlink_to("/bin/bash")
        await shell.ping()
        assert len(restarts) == 1


SILENT: Sequence[str] = ["/bin/bash", "-c", "sleep 300"]


@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_client_can_be_left_during_a_start_that_hangs(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.child.TERMINATE_TIMEOUT_S", 0.1)
    client = AsyncClient.spawn(restart=True, start_timeout=None)
    ends: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def call(scope: anyio.CancelScope) -> None:
            with scope:
                try:
                    await client.ping()
                except DaemonExited:
                    ends.append("raised")

        async with client as shell:
            kill(shell)
            await has_failed(shell)
            vars(client)["_command"] = list(SILENT)
            scope = anyio.CancelScope()
            tasks.start_soon(call, scope)
            with anyio.fail_after(60):
                while vars(client)["_child"].process.args != SILENT:
                    await anyio.sleep(0.01)
            if way == "cancel":
                scope.cancel()
    assert ends == ([] if way == "cancel" else ["raised"])
    wait_for(lambda: not is_alive(client.pid))


async def test_client_that_was_left_or_does_not_restart_starts_nothing() -> None:
    async with AsyncClient.spawn(restart=True) as shell:
        pass
    with pytest.raises(DaemonExited, match="closed"):
        await shell.ping()
    async with AsyncClient.spawn() as shell:
        kill(shell)
        await has_failed(shell)
        with pytest.raises(DaemonExited):
            await shell.ping()
    with pytest.raises(TypeError, match="need restart=True"):
        AsyncClient.spawn(keep_directories=True)
    for unfit in (has_failed, 5):
        with pytest.raises(TypeError, match="must be a plain function"):
            AsyncClient.spawn(restart=True, on_restart=unfit)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
