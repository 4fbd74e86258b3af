"""If a thread cannot begin because memory is short, only the request that needs it fails."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from support import is_alive, raw_daemon

# In this daemon, each thread ends before it calls its function. Only the first thread, which writes
# the answers, runs.
DAEMON = """
import _thread, sys, threading

start = _thread.start_new_thread

def lose(*args):
    _thread.start_new_thread = threading._start_new_thread = lambda *_: 0
    return start(*args)

_thread.start_new_thread = threading._start_new_thread = lose

from shelld.__main__ import main

try:
    from shelld.eventloop import threads
    threads.CHECK_INTERVAL_S = 0.01
except ImportError:
    pass
sys.exit(main())
"""

# Judging this command takes too long for the event loop, so a thread does it.
LONG = "echo '" + "x" * 200_000 + "'"


def limit_of(answer: Any) -> str:
    limit: str = answer["error"]["data"]["limit"]
    return limit


@pytest.mark.slow
def test_lost_threads_fail_only_their_requests() -> None:
    with raw_daemon(command=[sys.executable, "-c", DAEMON], stderr_is_silent=False) as daemon:
        job = daemon.bash("exec sleep 300", run_in_background=True)
        text = daemon.bash("head -c 100000 /dev/zero | tr '\\0' x", run_in_background=True)
        daemon.call("bash_output", {"bash_id": text["bash_id"], "wait": 60_000, "until": "exit"})
        read = {"bash_id": text["bash_id"], "stdout_offset": 0, "filter": "y+"}
        ids = [
            daemon.request("explain_command", {"command": LONG}),
            daemon.request("bash_output", read),
            daemon.request("list_tools"),
        ]
        answers = {answer["id"]: answer for answer in (daemon.receive() for _ in ids)}
        assert [limit_of(answers[request_id]) for request_id in ids] == ["threads"] * 3
        daemon.call("ping")
        assert daemon.bash("echo on")["stdout"] == "on\n"
        # The state of this session is so long that a thread should parse it. The daemon parses it
        # without a thread.
        defined = daemon.bash('for ((i = 0; i < 5000; i++)); do eval "f$i() { :; }"; done')
        assert "stateReason" not in defined
        daemon.end_input()
        assert daemon.wait() == 0
        assert not is_alive(job["pid"])
