"""A call in the keeper or a runner fails once; every request is answered, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_daemon import SharedDaemon
from support import RawDaemon, children, descendants, raw_daemon, running_below, wait_for

pytestmark = pytest.mark.slow

PEER = Path(__file__).parents[1] / "peers" / "failing_keeper.py"

LIMITS = ["EMFILE", "ENFILE", "ENOMEM"]
ODD = ["EACCES", "EPERM", "EIO", "ESRCH", "ENOENT"]
OURS = ["MemoryError", "RecursionError", "ValueError"]

# Each row names a process, a function that fails in this process, and the errors that the function
# raises.
TABLE: list[tuple[str, str, list[str]]] = [
    ("keeper", "os.fork", ["EAGAIN", "ENOMEM", *OURS]),
    ("keeper", "os.waitpid", ["EINTR", *OURS]),
    ("keeper", "os.kill", ["EPERM", "ESRCH", *OURS]),
    ("keeper", "os.open", [*LIMITS, *ODD, *OURS]),
    ("keeper", "os.read", ["EIO", "ESRCH", "ENOMEM", *OURS]),
    ("keeper", "os.listdir", [*LIMITS, *ODD, *OURS]),
    ("keeper", "os.close", ["EIO", "EINTR", *OURS]),
    ("keeper", "select.poll", ["EINTR", "ENOMEM", *OURS]),
    ("keeper", "socket.socket.recvmsg", ["ENOMEM", "ENOBUFS", "EINTR", "EIO", *OURS]),
    ("keeper", "socket.socket.send", ["ENOMEM", "ENOBUFS", "EAGAIN", "EPIPE", *OURS]),
    ("keeper", "marshal.loads", ["EIO", *OURS]),
    ("keeper", "marshal.dumps", OURS),
    ("keeper", "time.monotonic", OURS),
    ("runner", "signal.set_wakeup_fd", OURS),
    ("runner", "resource.setrlimit", ["EPERM", "EINVAL", *OURS]),
    ("runner", "os.pipe", [*LIMITS, *OURS]),
    ("runner", "os.posix_spawn", ["EAGAIN", "ENOMEM", "EACCES", *OURS]),
    ("runner", "os.wait4", ["EINTR", *OURS]),
    ("runner", "os.kill", ["EPERM", "ESRCH", *OURS]),
    ("runner", "os.killpg", ["EPERM", "ESRCH", *OURS]),
    ("runner", "os.open", [*LIMITS, *ODD, *OURS]),
    ("runner", "os.read", ["EIO", "ESRCH", "ENOMEM", *OURS]),
    ("runner", "os.listdir", [*LIMITS, *ODD, *OURS]),
    ("runner", "os.chdir", ["EACCES", "ENOMEM", *OURS]),
    ("runner", "os.fchdir", ["EACCES", "EIO", *OURS]),
    ("runner", "os.close", ["EIO", "EINTR", *OURS]),
    ("runner", "select.poll", ["EINTR", "ENOMEM", *OURS]),
    ("runner", "socket.socket.recvmsg", ["ENOMEM", "ENOBUFS", "EINTR", "EIO", *OURS]),
    ("runner", "socket.socket.send", ["ENOMEM", "ENOBUFS", "EAGAIN", "EPIPE", *OURS]),
    ("runner", "marshal.loads", OURS),
    ("runner", "marshal.dumps", OURS),
    ("runner", "time.monotonic", OURS),
]


def use_everything(daemon: RawDaemon, directory: Path) -> None:
    """Run commands that leave processes behind, and kill the shells of these commands. For one more
    command, kill the runner. Every request must be answered.
    """
    # Kill the idle runners, so that new ones are needed.
    for keeper in children(daemon.pid):
        for runner in children(keeper):
            with contextlib.suppress(ProcessLookupError):
                os.kill(runner, signal.SIGKILL)
    asked = [
        daemon.request(
            "bash", {"command": "setsid sleep 300 & exit 3", "cwd": str(directory), "session": None}
        )
        for _ in range(3)
    ]
    shells = [
        answer["result"] for request in asked if "result" in (answer := daemon.answer(request))
    ]
    for shell in shells:
        assert shell["status"] in ("failed", "killed"), shell
        params = {"shell_id": shell["bash_id"], "grace": 100}
        assert daemon.call("kill_shell", params)["survivors"] == []
    if shell := started(daemon, "setsid sleep 300 & sleep 300"):
        killed = daemon.call("kill_shell", {"shell_id": shell["bash_id"], "grace": 0})
        assert (killed["status"], killed["survivors"]) == ("killed", [])
    if shell := started(daemon, "sleep 300"):
        # Kill the runner of the command, unless the runner is already gone.
        for pid in descendants(daemon.pid):
            if shell["pid"] in children(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_for_end = {"bash_id": shell["bash_id"], "wait": 60_000, "until": "exit"}
        assert daemon.call("bash_output", wait_for_end)["status"] == "killed"


def started(daemon: RawDaemon, command: str) -> dict[str, Any] | None:
    """Return the result of a background command, or None if it could not be started."""
    params = {"command": command, "run_in_background": True, "session": None}
    result: dict[str, Any] | None = daemon.answer(daemon.request("bash", params)).get("result")
    return result


class Failing:
    """A daemon in which each function of `TABLE` can fail. The files in `directory` arm the
    failures.
    """

    def __init__(self, process: str, directory: Path) -> None:
        functions = ",".join(row[1] for row in TABLE if row[0] == process)
        command = [sys.executable, str(PEER), process, functions, str(directory)]
        self.directory = directory
        self.shared = SharedDaemon(command=command)


@pytest.fixture(scope="module")
def failing_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Failing]]:
    """Yield the daemons for both kinds of process at once, because pytest would end a parametrized
    fixture after each test.
    """
    found = {kind: Failing(kind, tmp_path_factory.mktemp(kind)) for kind in ("keeper", "runner")}
    for failing in found.values():
        failing.shared.get()
    yield found
    for failing in found.values():
        failing.shared.close()


def arm(directory: Path, function: str, failure: str) -> None:
    (directory / "new").write_text(f"{function} {failure}")
    os.rename(directory / "new", directory / "armed")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("process", "function", "failures"), TABLE, ids=[f"{row[0]}-{row[1]}" for row in TABLE]
)
def test_a_failing_call_costs_at_most_its_command(
    failing_processes: dict[str, Failing], process: str, function: str, failures: list[str]
) -> None:
    failing = failing_processes[process]
    directory, daemon = failing.directory, failing.shared.get()
    try:
        daemon.bash("true")
        for failure in failures:
            arm(directory, function, failure)
            for _ in range(5):
                # The keeper and the runner call some functions only for a process that has not
                # ended yet. Whether such a process exists depends on the timing, so try several
                # times.
                if not (directory / "fired").exists():
                    use_everything(daemon, directory)
            assert (directory / "fired").exists(), f"nothing has called {function}"
            (directory / "fired").unlink()
            wait_for(lambda: not running_below(daemon.pid, "sleep\0"), "the end of all")
            assert daemon.bash("echo next")["stdout"] == "next\n"
            listed = daemon.call("list_shells")["shells"]
            assert not [shell for shell in listed if shell["isRunning"] or shell["leftover"]]
    except BaseException:
        # This test may have damaged the daemon, so give the next test a new one.
        for name in ("armed", "fired"):
            (directory / name).unlink(missing_ok=True)
        failing.shared.close()
        failing.shared.get()
        raise


@pytest.mark.parametrize(
    ("process", "function"), [("keeper", "os.fork"), ("runner", "os.posix_spawn")]
)
def test_filter_without_process_is_reported(tmp_path: Path, process: str, function: str) -> None:
    command = [sys.executable, str(PEER), process, function, str(tmp_path)]
    with raw_daemon("--spare-shells", "0", command=command) as daemon:
        shell = daemon.bash("echo ab; echo b", session=None)
        (keeper,) = children(daemon.pid)
        if process == "keeper":
            # The keeper forks a runner only if no runner is idle, so kill the idle runners.
            for runner in children(keeper):
                os.kill(runner, signal.SIGKILL)
            wait_for(lambda: not children(keeper), "the end of the runners")
        arm(tmp_path, function, "EAGAIN")
        # Only the backtracking engine supports the lookbehind in this filter. This engine runs in a
        # process of its own.
        read = {"bash_id": shell["bash_id"], "stdout_offset": 0, "filter": "(?<=a)b"}
        error = daemon.fail("bash_output", read)
        assert (tmp_path / "fired").exists()
        assert error["code"] == 1005
        assert error["data"] == {"kind": "resource_exhausted", "limit": "processes"}
        assert daemon.call("bash_output", read)["stdout"] == "ab\n"


def test_keeper_failing_after_wakeup_checks_children_again(tmp_path: Path) -> None:
    reap = "shelld.keeper.keeper.Keeper._reap"
    command = [sys.executable, str(PEER), "keeper", reap, str(tmp_path)]
    with raw_daemon("--spare-shells", "0", command=command) as daemon:
        shell = started(daemon, "sleep 300")
        assert shell is not None
        (keeper,) = children(daemon.pid)
        (runner,) = [pid for pid in children(keeper) if shell["pid"] in children(pid)]
        arm(tmp_path, reap, "ValueError")
        # The death of the runner wakes the keeper only once, and the keeper's call of `_reap` then
        # fails.
        os.kill(runner, signal.SIGKILL)
        wait_for((tmp_path / "fired").exists, "the failure")
        wait_for_end = {"bash_id": shell["bash_id"], "wait": 60_000, "until": "exit"}
        assert daemon.call("bash_output", wait_for_end)["status"] == "killed"
