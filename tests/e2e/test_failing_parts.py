"""When one part of the daemon fails once, the daemon continues or stops in the usual way."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from leaks import descriptors_beyond, descriptors_of
from sandboxes import why_impossible
from support import is_alive, raw_daemon, running_below, wait_for

# This program runs a daemon in which one function raises at its first call.
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


@pytest.mark.slow
@pytest.mark.skipif(bool(why_impossible()), reason=why_impossible())
@pytest.mark.parametrize(
    "function",
    [
        *("sandbox.sandbox:Sandbox.end", "sandbox.sandbox:Sandbox._end"),
        *("sandbox.sandbox:Sandbox.close", "sandbox.placeholders:Placeholders.close"),
        *("sandbox.sandboxes:Sandboxes._follow", "sandbox.guests:Guests.leave"),
        *(
            "shells.places:Places.left",
            "shells.places:Places._retire",
            "limits.limiter:Limiter.end",
        ),
    ],
)
def test_sandbox_ends_although_one_step_of_its_end_fails(function: str, places: Path) -> None:
    denied, new = places / "denied", places / "new"
    denied.write_text("")
    command = broken_daemon(f"shelld.{function}")
    with raw_daemon("--spare-shells", "0", command=command, stderr_is_silent=False) as daemon:
        box = {"session": "boxed"}
        limits, sandbox = {"processes": 999}, {"deny_read": [str(denied)]}
        daemon.call("configure_session", {**box, "limits": limits, "sandbox": sandbox})
        for _ in range(2):
            assert daemon.bash("true", **box)["exitCode"] == 0
        bubblewraps = running_below(daemon.pid, "bwrap\0")
        # The daemon opens this file soon after its start, and keeps it open.
        wait_for(lambda: "syscall" in descriptors_of(daemon.pid))
        descriptors = descriptors_of(daemon.pid)
        for text in ("two", "three"):
            # When the file is replaced, the sandbox becomes outdated, so the next command gets a
            # new sandbox.
            new.write_text(text)
            os.replace(new, denied)
            daemon.request("bash", {"command": "true", **box})
            daemon.receive()

        def is_one_left() -> bool:
            return len(running_below(daemon.pid, "bwrap\0")) == len(bubblewraps)

        wait_for(is_one_left, "the end of the first two sandboxes")
        wait_for(lambda: not descriptors_beyond(daemon.pid, descriptors), "closed descriptors")


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
