"""A call whose message exceeds the daemon's limit fails, and affects nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Spawn, peer
from shelld_client import MessageTooLarge
from shelld_client.command_lines import message_limit
from shelld_client.connection import Connection
from shelld_protocol.framing import DEFAULT_MAX_MESSAGE_BYTES
from support import Gate

LIMIT = 2_000


@pytest.mark.slow
async def test_a_message_over_the_limit_is_not_sent(spawn: Spawn) -> None:
    # This peer ends at the first line that it receives.
    async with spawn(peer("read -r; exit 1")) as shell:
        with pytest.raises(MessageTooLarge) as refused:
            await shell.bash("x" * 70_000_000)
        assert (refused.value.size > 70_000_000, refused.value.limit) == (True, 64 * 1024 * 1024)
        with pytest.raises(MessageTooLarge):
            await shell.call_tool("Bash", {"command": "x" * 70_000_000})


@pytest.mark.slow
@pytest.mark.parametrize("is_told", [True, False], ids=["known", "unknown"])
async def test_oversized_message_leaves_other_calls(
    spawn: Spawn, tmp_path: Path, is_told: bool
) -> None:
    args = ["--max-message-bytes", str(LIMIT)]
    command = [sys.executable, "-P", "-m", "shelld"]
    if not is_told:
        # Here, a bash script sets the limit. The client does not search scripts for the limit.
        command, args = ["/bin/bash", "-c", f"exec {' '.join([*command, *args])}"], []
    gate = Gate(tmp_path / "gate")
    outputs: list[str] = []
    async with spawn(command, args=args) as shell:

        async def call_beside() -> None:
            outputs.append((await shell.bash(f"{gate.wait}; echo made it")).stdout)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_beside)
            await shell.ping()
            for _ in range(2):
                with pytest.raises(MessageTooLarge, match=f"the daemon takes {LIMIT}"):
                    await shell.bash("true", stdin="x" * LIMIT)
            await anyio.to_thread.run_sync(gate.open)
    assert outputs == ["made it\n"]


@pytest.mark.slow
async def test_higher_daemon_limit_allows_larger_messages(spawn: Spawn) -> None:
    size = DEFAULT_MAX_MESSAGE_BYTES + 1
    async with spawn(args=[f"--max-message-bytes={size * 2}"]) as shell:
        result = await shell.bash("wc -c", stdin="x" * size)
        assert int(result.stdout) == size


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], DEFAULT_MAX_MESSAGE_BYTES),
        (["--max-message-bytes", "5000"], 5000),
        (["--max-message-bytes=5000"], 5000),
        (["--max-message-bytes", "1", "--max-message-bytes", "2"], 2),
        (["--max-message-bytes"], DEFAULT_MAX_MESSAGE_BYTES),
        (["--max-message-bytes", "--stdio"], DEFAULT_MAX_MESSAGE_BYTES),
        (["--max-message-bytes=many"], DEFAULT_MAX_MESSAGE_BYTES),
        (["--max-message-bytes=-5"], DEFAULT_MAX_MESSAGE_BYTES),
        (["--max-message-bytes", "200M"], 200 * 2**20),
        (["--max-message-bytes=8k"], 8 * 2**10),
        (["--max-message-bytes=1G"], 2**30),
    ],
)
def test_a_limit_is_read_off_the_command_line(arguments: list[str], expected: int) -> None:
    assert message_limit(["ssh", "host", "shelld", *arguments]) == expected


def test_a_message_of_exactly_the_limit_is_sent() -> None:
    size = len(Connection[str]().call(1, "bash", {"command": "x"}, "call")) - 1
    connection: Connection[str] = Connection(size)
    with pytest.raises(MessageTooLarge) as refused:
        connection.call(1, "bash", {"command": "xx"}, "larger")
    assert (refused.value.size, refused.value.limit) == (size + 1, size)
    assert json.loads(connection.call(2, "bash", {"command": "x"}, "call"))["method"] == "bash"


def test_refusal_without_id_fails_all_large_messages() -> None:
    connection: Connection[str] = Connection()
    for name, size in (("first", 5_000), ("small", 10), ("second", 5_000)):
        connection.call(connection.new_id(), "bash", {"command": "x" * size}, name)
    data: dict[str, Any] = {"kind": "invalid_request", "max_message_bytes": LIMIT}
    error = {"code": -32600, "message": "too large", "data": data}
    refusal = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode() + b"\n"
    answered = list(connection.receive(refusal))
    assert [(call, type(error)) for call, error in answered] == [
        ("first", MessageTooLarge),
        ("second", MessageTooLarge),
    ]
    assert list(connection.receive(refusal)) == []
    assert connection.take_pending() == ["small"]
