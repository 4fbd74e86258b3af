"""If the process of a client does not answer, entering the client raises an exception that says
why.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from both_clients import Spawn, peer
from shelld_client import AsyncClient, Client, DaemonExited, ProtocolError, SpawnFailed
from shelld_client.link import Link
from shelld_client.pump import Pump
from support import Mark, is_alive, wait_for

# A client waits this many seconds for a peer, which can start in that time even on a busy machine.
PATIENCE_S = 2


async def enter(spawn: Spawn, script: str, **options: Any) -> None:
    async with spawn(peer(script, greets=False), **options):
        raise AssertionError("entered")


async def test_a_peer_that_echoes_is_a_protocol_error(spawn: Spawn) -> None:
    with pytest.raises(ProtocolError, match="echoes our requests"):
        await enter(spawn, "exec cat", start_timeout=None)


@pytest.mark.slow
async def test_silent_peer_is_protocol_error(spawn: Spawn) -> None:
    with pytest.raises(ProtocolError, match="did not answer within 2 s"):
        await enter(spawn, "exec sleep 300", start_timeout=PATIENCE_S)


@pytest.mark.slow
async def test_peer_not_reading_is_protocol_error(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With the usual value of this constant, the client might raise another error, because it would
    # first notice that the peer has closed its input.
    for module in ("pump", "transport"):
        monkeypatch.setattr(f"shelld_client.{module}.POST_MORTEM_S", 20)
    with pytest.raises(ProtocolError, match="did not answer"):
        await enter(spawn, "exec sleep 300 <&-", start_timeout=PATIENCE_S)


@pytest.mark.slow
async def test_a_failed_start_ends_and_reaps_the_peer(
    spawn: Spawn, tmp_path: Any, impatient: None
) -> None:
    mark = Mark(tmp_path)
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; echo ready; {mark.touch}; "
    script += "while :; do sleep 0.05; done"
    errors = list[str]()
    for _ in mark.attempts():
        with pytest.raises(ProtocolError) as error:
            await enter(spawn, script, start_timeout=PATIENCE_S)
        errors.append(str(error.value))
    assert "it wrote 'ready'" in errors[-1]
    pid = int((tmp_path / "pid").read_text())
    # Not even a zombie is left.
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
async def test_error_quotes_text_of_silent_peer(spawn: Spawn, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    script = "echo; printf 'Welcome\\r\\nPassword: '; echo 'cannot read' >&2; "
    script += f"{mark.touch}; exec sleep 300"
    errors = list[str]()
    for _ in mark.attempts():
        with pytest.raises(ProtocolError) as error:
            await enter(spawn, script, start_timeout=PATIENCE_S)
        errors.append(str(error.value))
    assert errors[-1] == (
        "the peer did not answer within 2 s (start_timeout); it wrote 'Welcome Password:'\n"
        "cannot read"
    )


async def test_a_peer_that_exits_is_daemon_exited(spawn: Spawn) -> None:
    with pytest.raises(DaemonExited) as error:
        await enter(spawn, "echo Welcome; echo 'no shelld here' >&2; exit 127")
    assert (error.value.exit_code, error.value.signal) == (127, None)
    assert error.value.stderr == "no shelld here"
    assert str(error.value) == "the daemon exited with code 127; it wrote 'Welcome'\nno shelld here"


async def test_error_names_signal_that_killed_peer(spawn: Spawn) -> None:
    with pytest.raises(DaemonExited) as error:
        await enter(spawn, "kill -KILL $$")
    assert str(error.value) == "the daemon was killed by SIGKILL"
    assert (error.value.exit_code, error.value.signal) == (None, "SIGKILL")


async def test_endlessly_writing_peer_is_protocol_error(spawn: Spawn) -> None:
    with pytest.raises(ProtocolError, match="it wrote 'y y y"):
        await enter(spawn, "exec yes", start_timeout=None)


async def test_another_json_rpc_server_is_a_protocol_error(spawn: Spawn) -> None:
    error = '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Unknown method ping"}}'
    with pytest.raises(ProtocolError, match="not shelld: Unknown method ping"):
        await enter(spawn, f"read -r; echo '{error}'; cat > /dev/null")


async def test_answer_of_wrong_shape_is_protocol_error(spawn: Spawn) -> None:
    answer = '{"jsonrpc":"2.0","id":1,"result":[]}'
    with pytest.raises(ProtocolError, match="the peer's result is not a valid Empty"):
        await enter(spawn, f"read -r; echo '{answer}'; cat > /dev/null")


@pytest.mark.slow
@pytest.mark.parametrize(
    "banner",
    [
        "echo 'Welcome to host'; sleep 0.05; echo; echo '{'",
        "printf 'Password: '; sleep 0.05; printf 'again: '",
        "printf '\\xff\\x00\\x1b[1m\\r\\n'; head -c 60000 /dev/zero",
        """echo '{"motd": "hello"}'; printf 'Connected\\r\\n'""",
    ],
)
async def test_a_banner_before_the_daemon_is_skipped(spawn: Spawn, banner: str) -> None:
    shelld = [sys.executable, "-P", "-m", "shelld"]
    command = ["/bin/bash", "-c", f'{banner}; exec "$@"', "bash", *shelld]
    async with spawn(command) as shell:
        assert (await shell.bash("echo hi")).stdout == "hi\n"


async def test_a_client_is_entered_once(spawn: Spawn, kind: str) -> None:
    client: Any = Client.spawn() if kind == "sync" else AsyncClient.spawn()
    if kind == "sync":
        with client, pytest.raises(RuntimeError, match="once"):
            client.__enter__()
        with pytest.raises(RuntimeError, match="once"):
            client.__enter__()
    else:
        async with client:
            with pytest.raises(RuntimeError, match="once"):
                await client.__aenter__()
        with pytest.raises(RuntimeError, match="once"):
            await client.__aenter__()


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_invalid_start_timeout_is_refused(client: Any, seconds: float) -> None:
    with pytest.raises(ValueError, match="start_timeout"):
        client.spawn(start_timeout=seconds)


@pytest.mark.parametrize("seconds", [None, float("inf"), 1e308])
async def test_a_start_timeout_can_be_without_limit(spawn: Spawn, seconds: float | None) -> None:
    async with spawn(peer("cat > /dev/null"), start_timeout=seconds):
        pass


def test_client_notices_a_peer_that_ends_before_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()

    class Slow(Pump):
        def start(self, timeout: float | None) -> None:
            super().start(timeout)
            assert ended.wait(60)

    class Told(Link):
        def _ended(self, error: ProtocolError | None) -> None:
            super()._ended(error)
            ended.set()

    monkeypatch.setattr("shelld_client.link.Pump", Slow)
    monkeypatch.setattr("shelld_client.sync.Link", Told)
    with pytest.raises(DaemonExited, match="code 3"):
        Client.spawn(peer("exit 3", greets=False), start_timeout=PATIENCE_S).__enter__()


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_failed_thread_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(_pid: int) -> None:
        raise error

    monkeypatch.setattr("shelld_client.pump.exit_handle", fail)
    client = Client.spawn(peer("exec sleep 300", greets=False))
    with pytest.raises(error):
        client.__enter__()
    assert not is_alive(client.pid)


def test_a_shortage_of_descriptors_is_spawn_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("shelld_client.pump.Wakeup", fail)
    client = Client.spawn(peer("exec sleep 300", greets=False))
    with pytest.raises(SpawnFailed, match="cannot get a pipe"):
        client.__enter__()
    assert not is_alive(client.pid)


def test_a_shortage_of_threads_is_spawn_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", fail)
    with pytest.raises(SpawnFailed, match="cannot start a thread"):
        Client.spawn(peer("exec sleep 300", greets=False)).__enter__()


def test_a_program_that_starts_too_late_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start, pids = threading.Event(), list[int]()
    popen = subprocess.Popen

    def start_late(*args: Any, **options: Any) -> Any:
        # `Popen` waits until a pipe is closed. Another child that was forked at the same moment can
        # hold this pipe open. So `Popen` may return late.
        assert may_start.wait(20)
        process = popen(*args, **options)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_late)
    client = Client.spawn(peer("cat > /dev/null"), start_timeout=0.05)
    try:
        with pytest.raises(SpawnFailed, match=r"did not start within 0\.05 s \(start_timeout\)"):
            client.__enter__()
    finally:
        may_start.set()
    wait_for(lambda: bool(pids) and not is_alive(*pids), "the end of the daemon")
    with pytest.raises(DaemonExited):
        client.ping()


async def test_leaving_before_entering_is_a_runtime_error(kind: str) -> None:
    with pytest.raises(RuntimeError, match="not entered"):
        if kind == "sync":
            Client.spawn().__exit__(None, None, None)
        else:
            await AsyncClient.spawn().__aexit__(None, None, None)


async def test_lost_exit_code_stays_unknown(spawn: Spawn) -> None:
    # With this setting, the kernel reaps children and keeps no exit status.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        async with spawn(peer("read -r; exit 3")) as shell:
            with pytest.raises(DaemonExited) as error:
                await shell.ping()
    finally:
        signal.signal(signal.SIGCHLD, handler)
    assert str(error.value) == "the daemon has ended"
    assert (error.value.exit_code, error.value.signal) == (None, None)
