"""Tests of the pool against a real Ray. `tests/client/test_ray_pool.py` runs them.

They share one local Ray and one pool, and run in a process of their own, because Ray's threads and
descriptors stay, and its start takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shelld_client import (
    BashResult,
    CommandFailed,
    CommandTimedOut,
    DaemonExited,
    InvalidParams,
    OutputEvent,
    ResourceExhausted,
    SessionLost,
    SessionNotFound,
    SpawnFailed,
)
from shelld_client.ray import Pool
from shelld_client.ray.engine import Needs, room
from support import is_alive

ray: Any = import_module("ray")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pool.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Warnings from Ray and its dependencies do not fail these tests.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def leaks_nothing() -> None:
    """This fixture replaces the check for leaks, because the threads and descriptors of Ray
    stay.
    """


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # The path is short, because Ray puts sockets below it.
    directory = tempfile.mkdtemp(dir="/tmp")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        log_to_driver=False,
        _temp_dir=directory,
    )
    yield
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
async def shared_pool(cluster: None) -> AsyncIterator[Pool]:
    # Each daemon takes half a processor, so that there is room for two more daemons.
    async with Pool(2, num_cpus=0.5) as pool:
        yield pool


@pytest.fixture
async def pool(shared_pool: Pool) -> AsyncIterator[Pool]:
    yield shared_pool
    await until(lambda: len(shared_pool.loads) == 2)


async def until(condition: Any) -> None:
    """Wait until a condition is true."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("the condition did not become true within 30 s")


async def daemon_of(pool: Pool, session: str) -> int:
    """Return the pid of the daemon that has a session."""
    return (await pool.session(session).server_info()).pid


def parent_of(pid: int) -> int:
    """Return the pid of an actor, given the pid of its daemon."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_session_keeps_its_state_and_its_daemon(pool: Pool) -> None:
    await pool.bash("cd /tmp; x=1", session="state")
    assert (await pool.bash("echo $PWD $x", session="state")).stdout == "/tmp 1\n"
    assert (await pool.session("state").bash("echo $x")).stdout == "1\n"
    assert len({await daemon_of(pool, "state") for _ in range(4)}) == 1
    # A call without a session keeps no state.
    assert (await pool.bash("echo [$x]")).stdout == "[]\n"
    await pool.session("state").close_session()


@pytest.mark.long
async def test_new_sessions_go_to_the_daemon_with_the_fewest(pool: Pool) -> None:
    names = [f"even-{number}" for number in range(6)]
    pids = [await daemon_of(pool, name) for name in names]
    assert sorted(map(pids.count, set(pids))) == [3, 3]
    for name in names[:2]:
        await pool.bash("true", session=name)
        await pool.session(name).close_session()
        with pytest.raises(SessionNotFound):
            await pool.session(name).close_session()
    async with pool.session("even-6") as session:
        assert (await session.bash("x=1; echo $x")).stdout == "1\n"
    async with pool.session("even-6") as session:
        assert (await session.bash("echo [$x]")).stdout == "[]\n"
    for name in names[2:]:
        await pool.bash("true", session=name)
        await pool.session(name).close_session()


async def test_session_has_the_methods_of_a_client(pool: Pool) -> None:
    session = pool.session("methods")
    other = pool.session("other")
    async with session, other:
        await other.bash("true")
        heard: list[str] = []
        async with session.stream("echo one; echo two >&2; exit 3") as stream:
            async for item in stream:
                if isinstance(item, OutputEvent):
                    heard.append(item.text)
        assert sorted(heard) == ["one\n", "two\n"]
        assert isinstance(stream.result, BashResult)
        assert stream.result.exit_code == 3
        async with session.start("read line; echo got $line", open_stdin=True) as job:
            await job.write("it\n")
            assert (await job.wait_for("got", timeout=30)).line == "got it"
        started = await session.bash("echo ready; sleep 300", run_in_background=True)
        assert (await session.bash_output(started.bash_id, wait=5_000)).stdout == "ready\n"
        assert [shell.bash_id for shell in await session.list_shells()][-1] == started.bash_id
        assert {shell.session for shell in await session.list_shells()} == {"methods"}
        await session.kill_shell(started.bash_id)
        assert (await session.call_tool("Bash", {"command": "cd /usr; pwd"})).success
        assert (await session.get_session()).cwd == "/usr"
        assert [each.session for each in await session.list_sessions()] == ["methods"]
        texts: list[str] = []
        await pool.bash(
            "seq 3", session="methods", on_output=lambda event: texts.append(event.text)
        )
        assert "".join(texts) == "1\n2\n3\n"
        with pytest.raises(InvalidParams, match="session 'methods'"):
            await session.bash("true", session="other")
        with pytest.raises(CommandFailed):
            await session.bash("false", check=True)
        with pytest.raises(CommandTimedOut) as caught:
            await session.bash("echo so far; sleep 300", timeout=1_000)
        assert caught.value.stdout == "so far\n"


@pytest.mark.long
async def test_answers_arrive_whole(pool: Pool) -> None:
    sizes = [10_000 * number for number in range(1, 40)]
    results = await pool.map(f"head -c {size} /dev/zero | tr '\\0' x" for size in sizes)
    assert [result.stdout_bytes for result in results] == sizes
    assert [len(result.stdout) for result in results] == sizes


async def test_map_returns_results_in_order(pool: Pool) -> None:
    commands = [f"sleep 0.{9 - number}; echo {number}" for number in range(8)]
    assert [result.stdout async for result in pool.map(commands)] == [f"{n}\n" for n in range(8)]
    found = await pool.map(["echo 1", "sleep 300", "exit 2"], return_exceptions=True, timeout=1_000)
    one, timed_out, two = found
    assert isinstance(one, BashResult)
    assert isinstance(timed_out, CommandTimedOut)
    assert isinstance(two, BashResult)
    assert (one.stdout, two.exit_code) == ("1\n", 2)
    with pytest.raises(CommandTimedOut):
        await pool.map(["echo 1", "sleep 300"], timeout=1_000)


async def test_leaving_a_map_begins_no_more_commands(pool: Pool, tmp_path: Path) -> None:
    asked: list[int] = []

    def commands() -> Iterator[str]:
        while True:
            asked.append(len(asked))
            yield f"echo {len(asked)}; [ {len(asked)} -eq 1 ] || exec sleep 300"

    results = pool.map(commands())
    iteration = aiter(results)
    assert (await anext(iteration)).stdout == "1\n"
    await iteration.aclose()
    count = len(asked)
    # Two daemons run up to 64 commands each. After the end of the first command, one more command
    # may have started.
    assert count <= 2 * 64 + 1
    assert (await pool.bash("echo after")).stdout == "after\n"
    assert len(asked) == count
    await until(lambda: all(load.commands == 0 for load in pool.loads))


@pytest.mark.long
async def test_cancelled_call_kills_its_command(pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    call = asyncio.create_task(pool.bash(f"echo $$ > {file}; exec sleep 300", session="cancel"))
    await until(lambda: file.exists() and file.read_text())
    pid = int(file.read_text())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not is_alive(pid))
    await pool.session("cancel").close_session()


@pytest.mark.parametrize("victim", [pytest.param("daemon", marks=pytest.mark.long), "actor"])
async def test_death_concerns_only_the_sessions_there(pool: Pool, victim: str) -> None:
    names = [f"{victim}-{number}" for number in range(4)]
    homes = {name: await daemon_of(pool, name) for name in names}
    lost = [name for name in names if homes[name] == homes[names[0]]]
    spared = [name for name in names if name not in lost]
    for name in names:
        await pool.bash(f"x={name}", session=name)
    waiting = {
        name: asyncio.create_task(pool.bash("read -t 2 < <(sleep 300); echo $x", session=name))
        for name in names
    }
    async with pool.session(lost[0]).stream("sleep 300") as stream:
        following = asyncio.create_task(anext(stream))
        await until(lambda: sum(load.commands for load in pool.loads) == 5)
        pid = homes[lost[0]]
        os.kill(pid if victim == "daemon" else parent_of(pid), signal.SIGKILL)
        with pytest.raises(SessionLost):
            await following
    for name in lost:
        with pytest.raises(SessionLost) as caught:
            await waiting[name]
        assert caught.value.session == name
    # Later calls raise the same error, because the state of the session is gone.
    with pytest.raises(SessionLost, match=repr(lost[0])):
        await pool.bash("true", session=lost[0])
    for name in spared:
        assert (await waiting[name]).stdout == f"{name}\n"
        assert (await pool.bash("echo $x", session=name)).stdout == f"{name}\n"
    # The pool replaces the daemon. Once the program acknowledges the loss, it can use the name
    # again.
    await until(lambda: len(pool.loads) == 2)
    for name in names:
        assert (await pool.session(name).close_session()).session == name
    assert (await pool.bash("echo [$x]", session=lost[0])).stdout == "[]\n"
    await pool.session(lost[0]).close_session()
    await until(lambda: not is_alive(pid))


@pytest.mark.long
async def test_loss_is_acknowledged_while_other_calls_of_the_session_fail(pool: Pool) -> None:
    session = pool.session("several")
    failed: list[SessionLost] = []

    async def work() -> str:
        try:
            await session.bash("sleep 300")
        except SessionLost as error:
            failed.append(error)
        if len(failed) > 1:
            return ""
        # The other tasks have not got their errors yet.
        await session.close_session()
        return (await session.bash("echo new")).stdout

    working = [asyncio.create_task(work()) for _ in range(3)]
    await until(lambda: sum(load.commands for load in pool.loads) == 3)
    os.kill(await daemon_of(pool, "several"), signal.SIGKILL)
    assert sorted(await asyncio.gather(*working)) == ["", "", "new\n"]
    await session.close_session()
    await until(lambda: len(pool.loads) == 2)


@pytest.mark.long
async def test_resize_while_in_use(pool: Pool) -> None:
    async def work(name: str) -> list[str]:
        async with pool.session(name) as session:
            await session.bash("n=0")
            return [(await session.bash("echo $((n += 1))")).stdout for _ in range(5)]

    working = [asyncio.create_task(work(f"resize-{number}")) for number in range(8)]
    await until(lambda: any(load.commands for load in pool.loads))
    await pool.resize(3)
    assert pool.size == 3
    working += [asyncio.create_task(work(f"later-{number}")) for number in range(4)]
    await pool.resize(2)
    for each in working:
        assert await each == [f"{number}\n" for number in range(1, 6)]
    # Sessions that do not end by themselves are lost after the timeout.
    await pool.resize(3)
    names = [f"stays-{number}" for number in range(3)]
    homes = {name: await daemon_of(pool, name) for name in names}
    assert len(set(homes.values())) == 3
    for name in names:
        await pool.bash("true", session=name)
    await pool.resize(2, timeout=0.1)
    lost: list[str] = []
    for name in names:
        try:
            await pool.bash("true", session=name)
        except SessionLost as error:
            assert "removed from the pool" in str(error)
            lost.append(name)
        await pool.session(name).close_session()
    assert len(lost) == 1
    await until(lambda: not is_alive(homes[lost[0]]))


@pytest.mark.long
async def test_more_calls_than_places_wait_for_their_turn(cluster: None) -> None:
    arguments = ["--max-shells", "3", "--spare-shells", "0"]
    async with Pool(1, daemon_args=arguments, max_in_flight=3) as pool:
        results = await asyncio.gather(*(pool.bash(f"echo {n}") for n in range(30)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(30)]
        # Calls that run no command do not count for `max_in_flight`, so they do not wait.
        session = pool.session("a")
        jobs = [asyncio.create_task(session.bash("sleep 300")) for _ in range(4)]
        await until(lambda: pool.loads[0].commands == 4)
        while len(await session.list_shells()) < 3:
            await asyncio.sleep(0.01)
        await session.close_session()
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        with suppress(SessionNotFound):
            await session.close_session()
        await pool.resize(0)
        with pytest.raises(DaemonExited, match="resized to no daemons"):
            await pool.bash("true")
    with pytest.raises(DaemonExited, match="the pool is closed"):
        await pool.bash("true", session="a")
    with pytest.raises(RuntimeError):
        await pool.resize(1)


async def test_pool_waits_for_room_in_the_cluster_then_names_the_lack(
    cluster: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shelld_client.ray.starting.NOTICE_S", 0.1)
    caplog.set_level(logging.WARNING, "shelld_client.ray")
    with pytest.raises(ResourceExhausted) as caught:
        async with Pool(1, num_cpus=0, resources={"gold": 2}, start_timeout=0.5):
            pytest.fail("there is no room")
    assert caught.value.limit == "cluster"
    assert "1 of 1 daemons have not started, each of which needs 2 gold" in str(caught.value)
    assert "up to 0.5 s" in caplog.text


def test_size_fits_the_room_of_each_node(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"a": {"CPU": 3.0, "GPU": 1.0}, "b": {"CPU": 3.0}, "c": {"gold": 1.0}}
    monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: nodes)
    assert room(Needs(2, {}, {})) == 2
    assert room(Needs(1.5, {}, {})) == 4
    assert room(Needs(1, {}, {"num_gpus": 0.5})) == 2
    assert room(Needs(1, {"gold": 1}, {})) == 0
    assert str(Needs(0, {}, {"num_gpus": 1, "memory": 2**30})) == "1 GPU, 1.07374e+09 memory"


def test_size_fits_the_whole_cluster_if_ray_does_not_tell_of_nodes(
    cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("ray._private.state.available_resources_per_node")
    monkeypatch.setattr("ray.available_resources", lambda: {"CPU": 6.0})
    assert room(Needs(2, {}, {})) == 3


@pytest.mark.long
async def test_default_size_fills_the_room_of_the_cluster(cluster: None) -> None:
    # Every cluster has one unit of this resource.
    async with Pool(num_cpus=0, resources={"node:__internal_head__": 0.5}) as pool:
        assert (pool.size, len(pool.loads)) == (2, 2)
    assert pool.size == 0


@pytest.mark.long
async def test_drained_pool_finishes_its_sessions(cluster: None) -> None:
    async with Pool(2, num_cpus=0.25) as pool:
        session = pool.session("a")
        await session.bash("x=1")
        draining = asyncio.create_task(pool.resize(0))
        await until(lambda: pool.size == 0)
        with pytest.raises(DaemonExited, match="resized to no daemons"):
            await pool.bash("true", session="new")
        assert (await session.bash("echo $x")).stdout == "1\n"
        assert not draining.done()
        await session.close_session()
        await draining
        await pool.resize(1)
        assert (await pool.bash("echo again", session="new")).stdout == "again\n"
        running = asyncio.create_task(pool.bash("sleep 300", session="new"))
        await until(lambda: pool.loads[0].commands == 1)
    with pytest.raises(DaemonExited, match="the pool is closed"):
        await running


@pytest.mark.long
async def test_session_is_closed_although_its_block_is_cancelled_twice(pool: Pool) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with pool.session("twice") as session:
            await session.bash("x=1")
            entered.set()
            await asyncio.sleep(300)

    working = asyncio.create_task(work())
    await entered.wait()
    working.cancel()
    # The first cancellation ends the block, and the second one interrupts the end of the block.
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await until(lambda: not any(load.sessions for load in pool.loads))
    assert (await pool.bash("echo [$x]", session="twice")).stdout == "[]\n"
    await pool.session("twice").close_session()


@pytest.mark.long
async def test_session_that_is_used_while_it_closes_stays_on_its_daemon(pool: Pool) -> None:
    session = pool.session("again")
    await session.bash("trap '' TERM; while :; do sleep 1; done", run_in_background=True)
    before = await daemon_of(pool, "again")
    closing = asyncio.create_task(session.close_session())
    # This command starts the session again, while `close_session` waits for the old process.
    await asyncio.sleep(0)
    await session.bash("x=1")
    # Let the daemon of the session have more sessions than the other daemon.
    beside = [name for name in ("b", "c", "d") if await daemon_of(pool, name) == before]
    for name in {"b", "c", "d"} - {*beside}:
        await pool.session(name).bash("true")
        await pool.session(name).close_session()
    await closing
    assert (await session.bash("echo $x")).stdout == "1\n"
    for name in ("again", *beside):
        await pool.bash("true", session=name)
        await pool.session(name).close_session()
    assert not any(load.sessions for load in pool.loads)


@pytest.mark.long
async def test_closed_pool_refuses_to_grow_further(cluster: None) -> None:
    async with Pool(1, num_cpus=0.25) as pool:
        growing = asyncio.create_task(pool.resize(2))
        # Leave the block while the second daemon starts.
        await asyncio.sleep(0)
    with pytest.raises(DaemonExited, match="the pool is closed"):
        await growing
    with pytest.raises(DaemonExited, match="the pool is closed"):
        await pool.bash("true")


async def test_map_shows_a_progress_bar(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(await pool.map(["true"] * 3, progress=True)) == 3
    assert "3/3" in capsys.readouterr().err


@pytest.mark.long
def test_pool_refuses_another_event_loop(cluster: None) -> None:
    pools: list[Pool] = []

    async def enter() -> None:
        pool = await Pool(1, num_cpus=0).__aenter__()
        await pool.bash("true", session="a")
        pools.append(pool)

    asyncio.run(enter())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(pools[0].bash("true", session="a"))


@pytest.mark.long
async def test_pool_reports_a_daemon_that_cannot_start(cluster: None) -> None:
    with pytest.raises(DaemonExited, match="--nonsense"):
        async with Pool(1, daemon_args=["--nonsense"], num_cpus=0):
            pytest.fail("there is no such option")
    with pytest.raises(SpawnFailed, match="Ray refuses the actor"):
        async with Pool(1, actor_options={"nonsense": 1}):
            pytest.fail("there is no such option")


@pytest.mark.long
async def test_error_names_the_module_that_a_node_lacks(cluster: None, tmp_path: Path) -> None:
    package = tmp_path / "shelld_client"
    package.mkdir()
    (package / "__init__.py").write_text("import lacking_module")
    environment = {"env_vars": {"PYTHONPATH": str(tmp_path)}}
    with pytest.raises(SpawnFailed, match="actor: ModuleNotFoundError: No module named 'lacking_"):
        async with Pool(1, num_cpus=0, actor_options={"runtime_env": environment}):
            pytest.fail("the actor cannot be imported")


async def test_commands_without_a_session_refuse_what_needs_one(pool: Pool) -> None:
    options: list[dict[str, Any]] = [
        {"run_in_background": True},
        {"on_timeout": "background"},
        {"on_prompt": "background"},
        {"idempotency_key": "key"},
    ]
    for each in options:
        with pytest.raises(TypeError, match=f"a command with {next(iter(each))}.* needs a session"):
            await pool.bash("true", **each)


@pytest.mark.parametrize("options", [{"num_cpus": 2}, {"resources": {"disk": 1}}])
def test_pool_takes_its_own_parameters_only_directly(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"give {next(iter(options))} to the pool itself"):
        Pool(1, actor_options=options)


async def test_commands_of_call_tool_take_turns(pool: Pool) -> None:
    async with pool.session("tool") as session:
        running = asyncio.create_task(session.call_tool("Bash", {"command": "sleep 300"}))
        await until(lambda: sum(load.commands for load in pool.loads) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.long
def test_calls_fail_after_the_shutdown_of_ray(cluster: None) -> None:
    address = ray.get_runtime_context().gcs_address
    script = f"""
import asyncio, ray
from shelld_client import SessionLost
from shelld_client.ray import Pool
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
async def work():
    async with Pool(1, num_cpus=0) as pool:
        call = asyncio.create_task(pool.bash("sleep 300", session="a"))
        while not pool.loads[0].commands:
            await asyncio.sleep(0.01)
        ray.shutdown()
        for each in call, pool.session("a").ping():
            try:
                await each
            except SessionLost as error:
                print(error.reason, flush=True)
    # Nothing has started Ray again.
    print(ray.is_initialized())
asyncio.run(work())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.stdout == "Ray was shut down\nRay was shut down\nFalse\n", ended.stderr


@pytest.mark.long
def test_pool_works_inside_a_task(cluster: None) -> None:
    # A worker cannot import this module, so the function uses nothing from it.
    def in_task() -> tuple[str, int]:
        async def work() -> tuple[str, int]:
            async with Pool(1, num_cpus=0) as pool:
                result = await pool.bash("echo hello", session="a")
                return result.stdout, (await pool.session("a").server_info()).pid

        return asyncio.run(work())

    text, pid = ray.get(ray.remote(in_task).options(num_cpus=0).remote())
    assert text == "hello\n"
    assert not is_alive(pid)


@pytest.mark.long
def test_end_of_the_driver_ends_its_daemons(cluster: None) -> None:
    address = ray.get_runtime_context().gcs_address
    script = f"""
import asyncio, os, ray
from shelld_client.ray import Pool
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
async def work():
    async with Pool(1, num_cpus=0) as pool:
        job = await pool.session("a").bash("exec sleep 300", run_in_background=True)
        print((await pool.session("a").server_info()).pid, job.pid, flush=True)
        os._exit(1)
asyncio.run(work())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 1, ended.stderr
    pids = [int(word) for word in ended.stdout.split()]
    assert len(pids) == 2
    asyncio.run(until(lambda: not any(map(is_alive, pids))))


async def test_session_whose_name_no_daemon_takes_is_no_load(pool: Pool) -> None:
    with pytest.raises(InvalidParams, match="must not contain lone surrogates"):
        await pool.bash("true", session="\udc80")
    assert not any(load.sessions for load in pool.loads)


async def test_pool_cannot_be_pickled(pool: Pool) -> None:
    for each in (pool, pool.session("a")):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(each)


@pytest.mark.parametrize("text", PYTHON_BLOCK.findall(PAGE.read_text()))
def test_block_of_the_page_runs(cluster: None, text: str) -> None:
    exec(compile(text, PAGE.name, "exec"), {"__name__": "__main__"})


def test_manifest_describes_a_cluster_with_the_installed_version_of_ray(cluster: None) -> None:
    yaml: Any = import_module("yaml")
    cluster_manifest = yaml.safe_load((ROOT / "examples" / "kuberay" / "pool.yaml").read_text())
    assert (cluster_manifest["apiVersion"], cluster_manifest["kind"]) == (
        "ray.io/v1",
        "RayCluster",
    )
    spec = cluster_manifest["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    [workers] = spec["workerGroupSpecs"]
    # Ray passes the value through a shell, which removes the outer quotes.
    [resources] = shlex.split(workers["rayStartParams"]["resources"])
    assert json.loads(resources) == {"shelld": 8}
    for group in (spec["headGroupSpec"], workers):
        for option in group["rayStartParams"]:
            assert option in {
                name.removeprefix("--")
                for parameter in import_module("ray.scripts.scripts").start.params
                for name in parameter.opts
            }
        [container] = group["template"]["spec"]["containers"]
        assert container["image"].endswith(":" + spec["rayVersion"])
