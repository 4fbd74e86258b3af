"""Many clients use a lasting daemon, one after the other, and none of its resources grows."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest

from lasting import Lasting, daemon_pid, kill_attach, lasting_user, wait_for_end
from leaks import descriptors_beyond, descriptors_of
from support import descendants, wait_for

pytestmark = pytest.mark.slow

# Caches, retained shells and the used part of the heap may change the daemon's memory by this much.
ALLOWANCE_MB = 12.0


@pytest.fixture
def user(tmp_path: Path) -> Generator[Lasting]:
    with lasting_user(tmp_path) as user:
        yield user


class Size(NamedTuple):
    """How much of each resource a daemon uses. The use could grow with each client."""

    threads: int
    processes: int
    resident_mb: float


def size_of(pid: int) -> Size:
    text = Path(f"/proc/{pid}/status").read_text()
    status = dict(line.split(":", 1) for line in text.splitlines())
    resident_mb = int(status["VmRSS"].split()[0]) / 1024
    return Size(int(status["Threads"]), len(descendants(pid)), resident_mb)


def run_client(user: Lasting, number: int) -> None:
    """Attach, do some work, and leave in one of three ways."""
    with user.attach("--name", "work", "--", "--max-retained", "8") as client:
        client.bash("seq 1000", session="kept")
        job = client.background("echo ready; sleep 300")
        client.call("subscribe", {"events": ["exit"], "bash_id": job})
        client.call("kill_shell", {"shell_id": job, "grace": 0})
        if number % 3 == 0:
            client.request("bash_output", {"bash_id": job, "until": "match", "pattern": "never"})
            kill_attach(client)
        elif number % 3 == 1:
            client.process.send_signal(signal.SIGTERM)
            assert client.wait() == 0
        else:
            client.end_input()
            assert client.wait() == 0


def soak(user: Lasting, *, warm_up: int, rounds: int) -> None:
    for number in range(warm_up):
        run_client(user, number)
    with user.attach("--name", "work") as client:
        pid = daemon_pid(client)
    wait_for(lambda: user.list()[0]["client"] is None)
    before, descriptors = size_of(pid), descriptors_of(pid)
    for number in range(rounds):
        run_client(user, number)
    with user.attach("--name", "work") as client:
        assert daemon_pid(client) == pid
        attachment = client.call("server_info")["attachment"]
        assert attachment["generation"] == warm_up + rounds + 2
    wait_for(lambda: user.list()[0]["client"] is None)
    wait_for(lambda: not descriptors_beyond(pid, descriptors), "descriptors as before")
    wait_for(lambda: size_of(pid).threads <= before.threads + 2, "threads as before")
    wait_for(lambda: size_of(pid).processes <= before.processes + 4, "processes as before")
    assert size_of(pid).resident_mb <= before.resident_mb + ALLOWANCE_MB
    assert user.run("stop", "work").returncode == 0
    wait_for_end(pid)
    assert not os.path.exists(user.socket_of("work"))


def test_few_clients_leave_no_trace_in_the_daemon(user: Lasting) -> None:
    soak(user, warm_up=1, rounds=3)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_2000_clients_leave_no_trace_in_the_daemon(user: Lasting) -> None:
    soak(user, warm_up=50, rounds=2_000)
