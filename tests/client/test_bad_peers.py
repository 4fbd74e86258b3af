"""The peers of these tests greet like a daemon, and then misbehave. Each call returns or raises an
exception. Leaving the client also succeeds or raises an exception.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from both_clients import ASYNC_ONLY, Shell, Spawn, peer
from shelld_client import (
    AnswerTooLarge,
    AsyncClient,
    Client,
    DaemonExited,
    ProtocolError,
    ShellError,
)
from shelld_client.child import PIPE_BYTES
from support import Gate, is_alive, wait_for

pytestmark = pytest.mark.slow

PONG = '{"jsonrpc":"2.0","id":2,"result":{}}'


async def test_an_answer_before_garbage_arrives(spawn: Spawn) -> None:
    # Use `env printf`, because bash's own printf would write the two lines separately.
    script = rf"read -r; env printf '%s\nno json\n' '{PONG}'; cat > /dev/null"
    async with spawn(peer(script)) as shell:
        await shell.ping()
        with pytest.raises(ProtocolError, match="not a JSON-RPC message"):
            await shell.ping()


async def test_garbage_fails_all_calls_in_flight(spawn: Spawn) -> None:
    failed: list[str] = []

    async def call(shell: Shell) -> None:
        with pytest.raises(ProtocolError):
            await shell.ping()
        failed.append("ping")

    script = "read -r; read -r; read -r; echo no json; cat > /dev/null"
    async with spawn(peer(script)) as shell, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(call, shell)
    assert len(failed) == 3


async def test_each_failed_call_gets_its_own_exception(spawn: Spawn) -> None:
    errors: list[ShellError] = []
    async with spawn(peer("read -r; exit 3")) as shell:
        for _ in range(3):
            with pytest.raises(DaemonExited) as raised:
                await shell.ping()
            errors.append(raised.value)
    assert len(set(map(id, errors))) == 3
    assert [str(error) for error in errors] == ["the daemon exited with code 3"] * 3


@pytest.mark.parametrize("script", [f"read -r; printf '%s' '{PONG}'", "read -r; printf '{'"])
async def test_daemon_dying_within_a_message_has_exited(spawn: Spawn, script: str) -> None:
    async with spawn(peer(f"{script}; kill -SEGV $$")) as shell:
        with pytest.raises(DaemonExited) as error:
            await shell.ping()
    assert error.value.signal == "SIGSEGV"


async def test_daemon_closing_its_output_has_exited(spawn: Spawn, impatient: None) -> None:
    async with spawn(peer("read -r; exec >&-; exec sleep 300")) as shell:
        with pytest.raises(DaemonExited, match="the daemon closed its output") as error:
            await shell.ping()
        assert (error.value.exit_code, error.value.signal) == (None, None)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs an event for a process's end")
async def test_dead_daemon_is_noticed_while_others_hold_its_output(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    script = rf"({gate.wait}) & read -r; printf '%s\nrest' '{PONG}'; exit 4"
    async with spawn(peer(script)) as shell:
        await shell.ping()
        with pytest.raises(DaemonExited) as error:
            await shell.ping()
        assert error.value.exit_code == 4
    gate.open()


@ASYNC_ONLY
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs an event for a process's end")
async def test_last_answer_of_a_dead_daemon_arrives_whole(
    anyio_backend: str, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    # The answer fills the pipe, and a child of the peer keeps the pipe open.
    answer = f'printf \'{{"jsonrpc":"2.0","id":2,"result":{{"more":"%0{PIPE_BYTES - 100}d"}}}}\\n\''
    script = f"({gate.wait}) & read -r; {answer}"
    async with AsyncClient.spawn(peer(script)) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.ping)
        await anyio.wait_all_tasks_blocked()
        # The event loop does not run during this wait.
        wait_for(lambda: not is_alive(client.pid), "the end of the peer")
    gate.open()


async def test_daemon_flooding_stderr_still_answers(spawn: Spawn) -> None:
    script = f"read -r; head -c 3000000 /dev/zero | tr '\\0' e >&2; echo '{PONG}'; read -r; exit 5"
    async with spawn(peer(script)) as shell:
        await shell.ping()
        with pytest.raises(DaemonExited) as error:
            await shell.ping()
        assert error.value.stderr == "e" * 8192


async def test_leaving_while_a_peer_floods_returns(spawn: Spawn, impatient: None) -> None:
    async with spawn(peer("(exec yes >&2) & p=$!; cat > /dev/null; kill $p; wait")) as shell:
        pid = shell.pid
    assert not is_alive(pid)


async def test_leaving_fails_calls_blocked_on_sending(spawn: Spawn, impatient: None) -> None:
    failed: list[ShellError] = []

    async def call(shell: Shell) -> None:
        with pytest.raises(DaemonExited) as error:
            await shell.bash("cat", stdin="x" * 3_000_000)
        failed.append(error.value)

    async with anyio.create_task_group() as tasks, spawn(peer("exec sleep 300")) as shell:
        for _ in range(3):
            tasks.start_soon(call, shell)
        with anyio.move_on_after(0.1):
            await shell.ping()
    assert len(failed) == 3


async def test_call_waits_for_stopped_daemon(spawn: Spawn) -> None:
    outputs: list[str] = []

    async def call(shell: Shell, size: int) -> None:
        outputs.append((await shell.bash("wc -c", stdin="x" * size)).stdout)

    async with spawn() as shell:
        os.kill(shell.pid, signal.SIGSTOP)
        try:
            async with anyio.create_task_group() as tasks:
                for size in (300_000, 10, 200_000, 0):
                    tasks.start_soon(call, shell, size)
                await anyio.wait_all_tasks_blocked()
                assert outputs == []
                os.kill(shell.pid, signal.SIGCONT)
        finally:
            os.kill(shell.pid, signal.SIGCONT)
    assert sorted(map(int, outputs)) == [0, 10, 200_000, 300_000]


def kill_and_reap(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


async def test_leaving_a_peer_that_takes_no_signals_returns(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    monkeypatch.setattr("shelld_client.child.KILL_TIMEOUT_S", 0.1)
    monkeypatch.setattr("shelld_client.child.BLOCKED_S", 0.1)

    def refuse(process: subprocess.Popen[bytes], number: int) -> None:
        # `send_signal` raises this error if the peer has changed to another user.
        refused.append((process, number))
        raise PermissionError

    refused: list[tuple[subprocess.Popen[bytes], int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "send_signal", refuse)
        async with spawn(peer("exec sleep 300")) as shell:
            pid = shell.pid
    assert [number for _, number in refused[:2]] == [signal.SIGTERM, signal.SIGKILL]
    assert is_alive(pid)
    kill_and_reap(refused[0][0])


async def test_a_stopped_daemon_is_ended(spawn: Spawn, impatient: None) -> None:
    async with spawn() as shell:
        pid = shell.pid
        os.kill(pid, signal.SIGSTOP)
    assert not is_alive(pid)


@pytest.mark.slow
async def test_an_answer_of_200_megabytes_arrives(spawn: Spawn) -> None:
    script = """
import os, sys
sys.stdin.buffer.readline()
os.write(1, b'{"jsonrpc":"2.0","id":1,"result":{}}\\n')
sys.stdin.buffer.readline()
sys.stdout.write('{"jsonrpc":"2.0","id":2,"result":{"success":true,"output":"')
for _ in range(200):
    sys.stdout.write("x" * 1_000_000)
print('"}}', flush=True)
sys.stdin.buffer.read()
"""
    async with spawn([sys.executable, "-c", script]) as shell:
        result = await shell.call_tool("Bash")
        assert len(result.output) == 200_000_000


async def test_answer_over_the_limit_is_protocol_error(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    monkeypatch.setattr("shelld_client.connection.MAX_ANSWER_BYTES", 100_000)
    async with spawn(peer("read -r; exec tr '\\0' x < /dev/zero")) as shell:
        with pytest.raises(ProtocolError, match="size limit"):
            await shell.ping()


LARGE = r"""
read -r line; echo '{"jsonrpc":"2.0","id":2,"result":{}}'
read -r line; read -r line
printf '{"jsonrpc":"2.0","id":3,"result":"'; head -c 200000 /dev/zero | tr '\0' x; printf '"}\n'
echo '{"jsonrpc":"2.0","id":4,"result":{}}'
read -r line; echo '{"jsonrpc":"2.0","id":5,"result":{}}'; cat > /dev/null
"""


async def test_answer_over_the_limit_fails_only_its_call(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.connection.MAX_ANSWER_BYTES", 100_000)
    ends: list[str] = []

    async def call(shell: Shell) -> None:
        try:
            await shell.ping()
        except AnswerTooLarge as error:
            ends.append(str(error))
        else:
            ends.append("answered")

    async with spawn(peer(LARGE)) as shell:
        await shell.ping()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, shell)
            tasks.start_soon(call, shell)
        await shell.ping()
    assert sorted(ends) == ["answered", "the answer has more than 100000 bytes"]


@pytest.mark.parametrize(
    "start", ['{"jsonrpc":"2.0","result":"', '{"jsonrpc":"2.0","id":null,"result":"', "[", "x"]
)
async def test_large_answer_without_id_ends_all_calls(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr("shelld_client.connection.MAX_ANSWER_BYTES", 100_000)
    # The client stops reading at the limit. The unread part of the answer fits into the pipe, so
    # the peer does not block while it writes, and can end when the client asks it to end.
    script = f"read -r; printf %s '{start}'; head -c 120000 /dev/zero | tr '\\0' x; cat > /dev/null"
    async with spawn(peer(script)) as shell:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="size limit"):
                await shell.ping()


async def test_large_unexpected_answer_is_skipped(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.connection.MAX_ANSWER_BYTES", 100_000)
    start = '{"jsonrpc": "2.0", "id": 7, "result":"'
    script = f"read -r; printf %s '{start}'; head -c 200000 /dev/zero; echo; echo '{PONG}'"
    async with spawn(peer(f"{script}; cat > /dev/null")) as shell:
        await shell.ping()


@pytest.mark.parametrize("result", [r'"\377"', r'{"stdout":"\377"}', r'{"\377":1}'])
async def test_result_with_invalid_utf_8_is_protocol_error(spawn: Spawn, result: str) -> None:
    answer = f'{{"jsonrpc":"2.0","id":2,"result":{result}}}'
    async with spawn(peer(f"read -r; printf '{answer}\\n'; cat >/dev/null")) as shell:
        with pytest.raises(ProtocolError, match=r"BashResult|BackgroundResult"):
            await shell.bash("true", on_timeout="background")


async def test_result_of_wrong_shape_is_protocol_error(spawn: Spawn) -> None:
    script = 'read -r; echo \'{"jsonrpc":"2.0","id":2,"result":[]}\'; cat >/dev/null'
    async with spawn(peer(script)) as shell:
        with pytest.raises(ProtocolError, match="BashResult"):
            await shell.bash("true")


@pytest.mark.parametrize("calls", [1, 3])
async def test_daemon_closing_its_input_has_exited(
    spawn: Spawn, tmp_path: Path, calls: int, impatient: None
) -> None:
    ends: list[str] = []

    async def call(shell: Shell) -> None:
        with pytest.raises(DaemonExited) as error:
            await shell.bash("true", stdin="x" * 100_000)
        ends.append(str(error.value))

    async with spawn(peer("exec <&-; echo deaf >&2; exec sleep 300")) as shell:
        async with anyio.create_task_group() as tasks:
            for _ in range(calls):
                tasks.start_soon(call, shell)
        with pytest.raises(DaemonExited, match="the daemon closed its input"):
            await shell.ping()
    assert ends == ["the daemon closed its input\ndeaf"] * calls


@pytest.mark.timeout(method="thread")
def test_call_fails_when_daemon_closes_its_input(impatient: None) -> None:
    # The peer closes its input once the request has arrived.
    script = "IFS= read -r -n 1; exec <&-; exec sleep 300"
    refused = pytest.raises(DaemonExited, match="the daemon closed its input")
    with Client.spawn(peer(script)) as client, refused:
        client.ping()


WITHOUT_SIGPIPE = """
import signal, sys
import anyio
import shelld_client.child
from shelld_client import AsyncClient, Client, DaemonExited
shelld_client.child.CLOSE_TIMEOUT_S = 0.1
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
kind, *command = sys.argv[1:]
def call():
    with Client.spawn(command) as shell:
        shell.bash("true", stdin="x" * 1_000_000)
async def call_async():
    async with AsyncClient.spawn(command) as shell:
        await shell.bash("true", stdin="x" * 1_000_000)
try:
    call() if kind == "sync" else anyio.run(call_async, backend=kind)
except DaemonExited as error:
    print(error)
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.sigpending())
"""


def test_default_sigpipe_does_not_end_the_program(kind: str) -> None:
    # The peer closes its input once part of the request has arrived.
    script = "IFS= read -r -n 1; exec <&-; exec sleep 300"
    program = subprocess.run(
        [sys.executable, "-c", WITHOUT_SIGPIPE, kind, *peer(script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert program.stdout == "the daemon closed its input\nset() set()\n"
    assert program.returncode == 0


async def test_answers_arrive_after_daemon_closes_its_input(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.pump.POST_MORTEM_S", 20)
    monkeypatch.setattr("shelld_client.transport.POST_MORTEM_S", 20)
    gate, ends = Gate(tmp_path / "gate"), list[str]()

    async def call(shell: Shell) -> None:
        with pytest.raises(DaemonExited) as error:
            await shell.bash("true", stdin="x" * 100_000)
        ends.append(str(error.value))

    script = f"read -r; exec <&-; {gate.wait}; echo '{PONG}'; read -r < {tmp_path}/end; exit 3"
    end = Gate(tmp_path / "end")
    async with spawn(peer(script)) as shell, anyio.create_task_group() as tasks:

        async def ping() -> None:
            await shell.ping()
            ends.append("pong")
            end.open()

        tasks.start_soon(ping)
        while os.path.exists(f"/proc/{shell.pid}/fd/0"):  # noqa: ASYNC240
            await anyio.sleep(0.005)
        tasks.start_soon(call, shell)
        await anyio.wait_all_tasks_blocked()
        gate.open()
    assert ends == ["pong", "the daemon exited with code 3"]
