"""One part of the daemon fails once: the daemon continues, or stops in order."""

from __future__ import annotations

import signal
import sys

import pytest

from support import is_alive, raw_daemon, wait_for

# Runs a daemon in which one function raises at its first call.
_BROKEN = """
import importlib, sys
module, _, path = sys.argv.pop(1).partition(":")
owner = importlib.import_module(module)
*names, name = path.split(".")
for each in names:
    owner = getattr(owner, each)
real, calls = getattr(owner, name), iter([1])
def fail_first(*args, **options):
    if next(calls, None):
        raise ValueError("unforeseen")
    return real(*args, **options)
fail_first.__name__ = name
setattr(owner, name, fail_first)
from shelld.__main__ import main
sys.exit(main())
"""


def broken_daemon(function: str) -> list[str]:
    """Return the command line of a daemon in which `function` (module:name) fails once."""
    return [sys.executable, "-c", _BROKEN, function]


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        *("shelld.app:_watch_signals", "shelld.app:_watch_output", "shelld.app:_watch_children"),
        "shelld.app:give_back_regularly",
        *("shelld.app:load_soon", "shelld.mcp.toolbox:Toolbox.preload"),
        "shelld.shells.manager:Manager._sweep",
    ],
)
def test_daemon_survives_a_background_task_that_fails(function: str) -> None:
    with raw_daemon(command=broken_daemon(function), stderr_is_silent=False) as daemon:
        counters = daemon.call("server_info")["counters"]
        assert counters["internalErrors"] == 1
        assert daemon.bash("echo on")["stdout"] == "on\n"
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0


@pytest.mark.parametrize("function", ["Server.drain", "Manager.kill_all"])
def test_stop_continues_after_failed_stage(function: str) -> None:
    module = "shelld.server.serve" if function.startswith("Server") else "shelld.shells.manager"
    command = broken_daemon(f"{module}:{function}")
    with raw_daemon(command=command, stderr_is_silent=False) as daemon:
        started = daemon.bash("sleep 300", run_in_background=True)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0
        wait_for(lambda: not is_alive(started["pid"]), "the end of the command")


# A flood of signals delays each of the first three calls of `clean_up`. The last flood includes a
# signal that must stop the daemon.
_FLOODED_DAEMON = """
import signal, sys
from shelld.keeper.pool import RunnerPool
from shelld.__main__ import main
number = int(sys.argv.pop(1))
clean_up, floods = RunnerPool.clean_up, [[number], [], []]
def flooded(pool):
    if floods:
        for each in [signal.SIGCHLD] * 1_000 + floods.pop():
            signal.raise_signal(each)
    return clean_up(pool)
RunnerPool.clean_up = flooded
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_flood_of_child_signals_leaves_stderr_silent(number: signal.Signals) -> None:
    command = [sys.executable, "-W", "error", "-c", _FLOODED_DAEMON, str(int(number))]
    with raw_daemon(command=command) as daemon:
        assert daemon.wait() == 0
