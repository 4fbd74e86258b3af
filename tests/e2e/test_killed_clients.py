"""The test kills clients of a lasting daemon at random points of a session, with both framings.

After each kill, the next client finds every shell again, and reads every byte once by offset. The
daemon reports the end of each shell exactly once, and starts no command twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from lasting import Lasting, daemon_pid, lasting_user, wait_for_end
from support import RawDaemon, wait_for

pytestmark = pytest.mark.slow

# This harness starts `shelld attach` as its child, and sends requests without end, one after the
# other. It writes a line to its stdout before each request. When the test kills the harness, the
# harness cleans up nothing.
HARNESS = """
import json, os, subprocess, sys

framing, log, first, *command = sys.argv[1:]
attach = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(attach.pid, flush=True)
number = 0


def send(method, **params):
    global number
    number += 1
    print(number, flush=True)
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
    if framing == "lines":
        message = body + b"\\n"
    else:
        message = b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body)
    attach.stdin.write(message)
    attach.stdin.flush()


def receive():
    line = attach.stdout.readline()
    if framing == "lines":
        return json.loads(line)
    length = int(line.split(b":")[1])
    attach.stdout.readline()
    return json.loads(attach.stdout.read(length))


def call(method, **params):
    send(method, **params)
    while True:
        answer = receive()
        if answer.get("id") == number:
            return answer["result"]


for key in range(int(first), 1_000_000):
    name = f"key {key}"
    command = f"echo {key} >> '{log}'; for i in {{1..20}}; do echo {key} $i; done"
    params = dict(command=command, session=None, idempotency_key=name)
    call("bash", **params, run_in_background=key % 2 == 0)
    shell = call("bash", **params)["bash_id"]
    call("bash_output", bash_id=shell, stdout_offset=0)
    call("list_shells")
"""


@pytest.fixture
def user(tmp_path: Path) -> Generator[Lasting]:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime) as user:
        yield user


class Kills:
    """This object kills harnesses, which are clients of one lasting daemon. After each kill, it
    checks the shells that the harness has left.
    """

    def __init__(self, user: Lasting, directory: Path, chance: random.Random) -> None:
        self.user = user
        self.log = directory / "started"
        self.log.touch()
        self.chance = chance
        self.next_key = 0
        self.subscription = ""
        # These are the sequence numbers of all events so far, and, for each shell, how many times
        # its end was reported.
        self.seqs: list[int] = []
        self.ends: dict[str, int] = {}

    def begin(self) -> int:
        """Start the daemon; return its pid."""
        with self.user.attach("--name", "work") as client:
            follow = client.call("subscribe", {"events": ["exit"]})
            self.subscription = follow["subscription"]
            return daemon_pid(client)

    def kill_one(self, framing: str) -> None:
        """Start a harness, and kill it and its `attach` at a random point, in a random order."""
        command = [sys.executable, "-W", "error", "-P", "-m", "shelld", "attach", "--name=work"]
        harness = subprocess.Popen(
            [sys.executable, "-c", HARNESS, framing, str(self.log), str(self.next_key), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.user.env,
        )
        assert harness.stdout is not None
        with harness, harness.stdout as lines:
            attach = int(lines.readline())
            for _ in range(self.chance.randint(0, 12)):
                assert lines.readline(), "the harness has ended by itself"
            # Spin for a random part of the time that one request takes, so that the kill can cut
            # the request at any point.
            spin = self.chance.randrange(200_000)
            while spin:
                spin -= 1
            victims = [harness.pid, attach]
            self.chance.shuffle(victims)
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
        wait_for_end(attach)

    def check(self) -> None:
        """Attach as the next client, and check all shells and events."""
        with self.user.attach("--name", "work", "--steal") as client:
            started = [int(line) for line in self.log.read_text().split()]
            assert len(started) == len(set(started)), "a command was started twice"
            # `check_shell` repeats a harness's call. If the harness has started the command, the
            # call finds the shell. Otherwise, the call starts the command.
            for key in range(self.next_key, max([self.next_key - 1, *started]) + 1):
                self.check_shell(client, key)
                self.next_key = key + 1
            self._follow(client)

    def check_shell(self, client: RawDaemon, key: int) -> None:
        # Each key always comes with the same command.
        command = f"echo {key} >> '{self.log}'; for i in {{1..20}}; do echo {key} $i; done"
        params = {"command": command, "session": None, "idempotency_key": f"key {key}"}
        result = client.call("bash", params)
        expected = "".join(f"{key} {i}\n" for i in range(1, 21))
        offset, read = 0, ""
        while offset < len(expected):
            upto = self.chance.randint(1, len(expected))
            options = {"bash_id": result["bash_id"], "stdout_offset": offset, "max_bytes": upto}
            part: Any = client.call("bash_output", options)
            assert part["stdout"], "bytes were lost"
            read += part["stdout"]
            offset = part["stdoutRange"]["end"]
        assert read == expected
        assert result["exitCode"] == 0
        found = {each["bash_id"] for each in client.call("list_shells")["shells"]}
        assert result["bash_id"] in found
        self.ends.setdefault(result["bash_id"], 0)

    def _follow(self, client: RawDaemon) -> None:
        """Read the events since the last known event.

        The end of each shell must have been reported once.
        """
        past = self.seqs[-1] if self.seqs else 0
        client.call("subscribe", {"subscription": self.subscription, "from_seq": past})

        def all_have_ended() -> bool:
            client.call("ping")
            for event in client.unclaimed:
                if event.get("method") == "shell/exited":
                    self.seqs.append(event["params"]["seq"])
                    bash_id = event["params"]["bash_id"]
                    self.ends[bash_id] = self.ends.get(bash_id, 0) + 1
            client.forget_answers()
            return all(self.ends.values())

        wait_for(all_have_ended, "the end of every shell")
        assert set(self.ends.values()) <= {1}
        assert self.seqs == list(range(1, len(self.seqs) + 1))


def kill_many(user: Lasting, directory: Path, framing: str, rounds: int) -> None:
    seed = random.randrange(2**32)
    kills = Kills(user, directory, random.Random(seed))
    pid = kills.begin()
    try:
        for _ in range(rounds):
            kills.kill_one(framing)
            kills.check()
    except BaseException as error:
        error.add_note(f"seed: {seed}")
        raise
    with user.attach("--name", "work") as client:
        assert daemon_pid(client) == pid
        # The last harness may have sent one more command, which had not begun when `check` read the
        # log.
        kills.check_shell(client, kills.next_key)
        assert len(kills.log.read_text().split()) == kills.next_key + 1


@pytest.mark.parametrize("framing", ["lines", "headers"])
def test_killed_client_loses_and_doubles_nothing(
    user: Lasting, tmp_path: Path, framing: str
) -> None:
    kill_many(user, tmp_path, framing, 2)


@pytest.mark.long
@pytest.mark.parametrize("framing", ["lines", "headers"])
def test_clients_killed_at_200_points_lose_and_double_nothing(
    user: Lasting, tmp_path: Path, framing: str
) -> None:
    kill_many(user, tmp_path, framing, 200)
