"""The daemon reports the processes that it cannot kill, does not wait for them, and forgets
none.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oracles import Cgroup, Freezer
from support import Json, RawDaemon, children, descendants, is_alive, raw_daemon, wait_for

pytestmark = pytest.mark.slow


def start_two_sleeps(daemon: RawDaemon, **params: Any) -> tuple[str, int]:
    """Return the id of the shell and the pid of one of the sleeps."""
    bash_id = daemon.background("sleep 300 & sleep 300", **params)
    (shell,) = daemon.call("list_shells")["shells"]
    wait_for(lambda: len(descendants(shell["pid"])) == 2, "both sleeps")
    return bash_id, descendants(shell["pid"])[0]


def test_uninterruptible_process_is_named_and_delays_nobody(
    new_daemon: RawDaemon, freezer: Freezer
) -> None:
    bash_id, stuck = start_two_sleeps(new_daemon)
    with freezer.holding(stuck):
        result = new_daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
        assert (result["status"], result["survivors"]) == ("killed", [stuck])
        assert result["message"] == f"Shell {bash_id} was signalled, but 1 of its processes survive"
        assert new_daemon.call("list_shells")["shells"][0]["leftover"] == [stuck]
        assert new_daemon.bash("echo others go on")["stdout"] == "others go on\n"
    wait_for(lambda: new_daemon.call("list_shells")["shells"][0]["leftover"] == [], "an empty list")


def test_survivor_of_killed_runner_is_named(new_daemon: RawDaemon, freezer: Freezer) -> None:
    bash_id, stuck = start_two_sleeps(new_daemon)
    (keeper,) = children(new_daemon.pid)
    (runner,) = [pid for pid in children(keeper) if stuck in descendants(pid)]
    with freezer.holding(stuck):
        os.kill(runner, signal.SIGKILL)
        read = new_daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
        assert (read["status"], read["reason"]) == ("killed", "lost")
        assert new_daemon.call("list_shells")["shells"][0]["leftover"] == [stuck]
        # `kill_shell` cannot kill this process either, and reports the same survivor.
        killed = new_daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})
        assert (killed["survivors"], killed["alreadyStopped"]) == ([stuck], False)
        # The stuck process belongs to the first lost command, so the daemon does not report it for
        # the second.
        assert new_daemon.bash("kill -9 $PPID; sleep 300")["leftover"] == []
    wait_for(lambda: new_daemon.call("list_shells")["shells"][0]["leftover"] == [], "an empty list")


def test_survivor_holds_up_no_command_whose_runner_dies_before_its_start(freezer: Freezer) -> None:
    options = ("--containment", "subreaper", "--spare-shells", "0")
    with contextlib.closing(Freezer()) as other_freezer, raw_daemon(*options) as daemon:
        _, stuck = start_two_sleeps(daemon)
        (keeper,) = children(daemon.pid)
        (busy,) = [pid for pid in children(keeper) if stuck in descendants(pid)]
        # When this command has ended, its runner is idle and waits for the next command.
        daemon.bash("true", session=None)
        with freezer.holding(stuck):
            # Freeze the keeper, because it would send SIGCONT to a stopped runner.
            with other_freezer.frozen(keeper):
                idle = [pid for pid in children(keeper) if pid != busy]
                for runner in idle:
                    os.kill(runner, signal.SIGSTOP)
                request = daemon.request("bash", {"command": "echo hi", "session": None})
                wait_for(lambda: len(daemon.call("list_shells")["shells"]) == 3, "the command")
                # When the keeper runs again, it finds all runners dead at once. It cannot tell
                # which of the two commands the survivor belongs to.
                for runner in (busy, *idle):
                    os.kill(runner, signal.SIGKILL)
            result = daemon.answer(request)["result"]
            assert (result["status"], result["reason"]) == ("killed", "lost")
            assert result["leftover"] == [stuck]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["subreaper", "process-group"])
def test_traced_zombie_is_named(mechanism: str) -> None:
    ptrace, seize = ctypes.CDLL(None, use_errno=True).ptrace, 0x4206
    with raw_daemon("--containment", mechanism) as daemon:
        bash_id = daemon.background("exec sleep 300")
        pid = daemon.call("list_shells")["shells"][0]["pid"]
        if ptrace(seize, pid, None, None) != 0:
            pytest.skip(f"no debugger may be attached: {os.strerror(ctypes.get_errno())}")
        try:
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})
            assert (result["status"], result["survivors"]) == ("killed", [pid])
        finally:
            os.waitpid(pid, 0)
        listed = partial(daemon.call, "list_shells")
        wait_for(lambda: listed()["shells"][0]["leftover"] == [], "an empty list")


def test_timeout_names_survivors(freezer: Freezer) -> None:
    with raw_daemon("--grace", "100") as daemon:
        # The process freezes as soon as it enters the freezer, long before the timeout.
        with freezer.freezing_all() as entrance:
            command = f"echo $BASHPID > {entrance}; exec sleep 300"
            error, stuck = Json(), list[int]()
            for _ in range(20):
                params = {"command": f"({command}) & sleep 300", "timeout": 1000}
                error = daemon.fail("bash", params)
                # On a busy machine, the timeout may come before the process is in the freezer.
                if (stuck := freezer.pids()) or "survivors" in error["data"]:
                    break
            assert (error["code"], error["data"].get("survivors")) == (1001, stuck)
            assert len(stuck) == 1
        wait_for(lambda: not is_alive(stuck[0]), "the end of what was held")


@pytest.mark.parametrize(
    ("method", "params"),
    [("bash", {}), ("call_tool", {"name": "Bash"})],
)
def test_cancellation_names_survivors(
    freezer: Freezer, method: str, params: dict[str, Any]
) -> None:
    arguments = {"command": "sleep 300 & sleep 300"}
    with raw_daemon("--grace", "100") as daemon:
        request_id = daemon.request(
            method, {**params, "arguments": arguments} if params else arguments
        )
        wait_for(lambda: daemon.call("list_shells")["shells"], "the command")
        wait_for(lambda: daemon.call("list_shells")["shells"][0]["pid"], "its bash")
        (shell,) = daemon.call("list_shells")["shells"]
        wait_for(lambda: len(descendants(shell["pid"])) == 2, "both sleeps")
        stuck = descendants(shell["pid"])[0]
        with freezer.holding(stuck):
            daemon.notify("$/cancelRequest", {"id": request_id})
            error = daemon.answer(request_id)["error"]
            assert (error["code"], error["data"]["survivors"]) == (-32800, [stuck])


def test_closed_session_names_survivors(freezer: Freezer) -> None:
    with raw_daemon("--grace", "100") as daemon:
        _, stuck = start_two_sleeps(daemon, session="mine")
        with freezer.holding(stuck):
            result = daemon.call("close_session", {"session": "mine"})
            assert result == {"session": "mine", "killed": 1, "survivors": [stuck]}


@pytest.fixture
def sleep_as_root(open_directory: Path) -> Iterator[str]:
    """A command that an ordinary user can start but not kill."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid() != 0:
        pytest.skip("needs root and setpriv, to make a program that changes its user")
    if os.statvfs(open_directory).f_flag & os.ST_NOSUID:
        pytest.skip("the temporary directory is mounted nosuid")
    program = open_directory / "setpriv"
    shutil.copy(setpriv, program)
    program.chmod(0o4755)
    yield f"{program} --reuid=0 --regid=0 --clear-groups sleep 300"
    program.unlink()


def test_a_process_of_another_user_is_named(
    unprivileged: dict[str, Any], sleep_as_root: str
) -> None:
    with raw_daemon(**unprivileged) as daemon:
        bash_id = daemon.background(f"{sleep_as_root} & sleep 300")
        (shell,) = daemon.call("list_shells")["shells"]
        foreign = root_process_below(shell["pid"])
        try:
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
            assert (result["status"], result["survivors"]) == ("killed", [foreign])
            assert is_alive(foreign)
        finally:
            os.kill(foreign, signal.SIGKILL)
        wait_for(lambda: daemon.call("list_shells")["shells"][0]["leftover"] == [], "its end")


def test_delegated_cgroup_kills_stubborn_processes(
    unprivileged: dict[str, Any], sleep_as_root: str
) -> None:
    if not Cgroup.is_possible():
        pytest.skip("needs a cgroup v2 directory that can be divided")
    cgroup = Cgroup()
    for path in (cgroup.path, cgroup.path / "cgroup.procs", cgroup.path / "cgroup.subtree_control"):
        os.chown(path, unprivileged["user"], unprivileged["group"])
    # Enter the cgroup as root, since an ordinary user could not.
    popen = {name: value for name, value in unprivileged.items() if name in ("env", "cwd")}
    become = ["setpriv", f"--reuid={unprivileged['user']}", f"--regid={unprivileged['group']}"]
    prefix = [*cgroup.prefix, *become, "--clear-groups"]
    try:
        with raw_daemon(prefix=prefix, command=unprivileged["command"], **popen) as daemon:
            assert daemon.call("server_info")["containment"] == {
                "mechanism": "subreaper",
                "cgroupKill": True,
            }
            bash_id = daemon.background(f"{sleep_as_root} & sleep 300")
            (shell,) = daemon.call("list_shells")["shells"]
            foreign = root_process_below(shell["pid"])
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
            assert (result["status"], result["survivors"]) == ("killed", [])
            assert not is_alive(foreign)
            # The runner has returned to its cgroup, and can again kill the processes in the cgroup
            # through `cgroup.kill`.
            assert daemon.bash("id -u")["stdout"] == f"{unprivileged['user']}\n"
            assert daemon.call("server_info")["containment"]["cgroupKill"] is True
        wait_for(lambda: not cgroup.divisions(), "its cgroups' removal")
    finally:
        cgroup.close()


def root_process_below(pid: int) -> int:
    def found() -> list[int]:
        return [
            below
            for below in descendants(pid)
            if os.stat(f"/proc/{below}").st_uid == 0 and command_of(below) == "sleep"
        ]

    wait_for(found, "a process of root")
    (process,) = found()
    return process


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


# This prefix limits how many processes and threads the user of these tests may have.
LIMITED = ["prlimit", "--nproc=60"]
# This program forks until it meets the limit, and forks again whenever a process or thread of the
# user ends.
FILL = """
import os, time
is_full = False
while True:
    try:
        if os.fork() == 0:
            break
    except BlockingIOError:
        if not is_full:
            print("full", flush=True)
        is_full = True
        time.sleep(0.002)
time.sleep(300)
"""


def statuses(daemon: RawDaemon) -> set[str]:
    return {shell["status"] for shell in daemon.call("list_shells")["shells"]}


@pytest.mark.parametrize("background", [True, False])
def test_shortage_of_processes_is_reported_and_leaves_nothing(
    unprivileged: dict[str, Any], background: bool
) -> None:
    command = [*LIMITED, *unprivileged["command"]]
    user = {name: value for name, value in unprivileged.items() if name != "command"}
    # A user id that no other test uses at the same time.
    user["user"] = 100_000 + os.getpid()
    filler: list[str] = [*LIMITED, unprivileged["command"][0], "-c", FILL]
    # The shortage may also affect a thread of the daemon; the daemon then reports this on stderr.
    daemon_with_limit = raw_daemon(
        "--spare-shells", "0", command=command, stderr_is_silent=False, **user
    )
    with daemon_with_limit as daemon:
        daemon.bash("true")
        others = subprocess.Popen(
            filler, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0, **user
        )
        assert others.stdout is not None
        assert others.stdout.readline() == b"full\n"

        def are_refused(count: int) -> bool:
            """Run `count` commands at once; return whether the daemon refuses all of them. The
            daemon may accept one command if one of its own threads has just ended, because the
            limit on processes also counts threads.
            """
            params = {"command": "true", "run_in_background": background}
            asked = [daemon.request("bash", params) for _ in range(count)]
            errors = [daemon.answer(request_id).get("error") for request_id in asked]
            return [error and error["data"] for error in errors] == [refusal] * count

        refusal = {"kind": "resource_exhausted", "limit": "processes"}
        # Three commands at once need more runners than there are, and the keeper cannot fork
        # another runner.
        for count in (1, 1, 1, 3):
            wait_for(partial(are_refused, count), "refusals")
        wait_for(lambda: statuses(daemon) == {"completed"}, "the end of a command that had room")
        os.killpg(others.pid, signal.SIGKILL)
        # This program has adopted the killed processes. They count toward the limit of processes
        # until this program reaps them.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-others.pid, 0):
                pass
        others.communicate()
        wait_for(
            lambda: "result" in daemon.answer(daemon.request("bash", {"command": "true"})),
            "room for processes",
        )
        assert daemon.bash("echo again")["stdout"] == "again\n"


def test_shortage_of_memory_is_reported_and_leaves_nothing() -> None:
    with raw_daemon("--spare-shells", "0") as daemon:
        daemon.bash("true")
        (keeper,) = children(daemon.pid)
        (runner,) = children(keeper)
        status = Path(f"/proc/{runner}/status").read_text()
        size = int(status.partition("VmSize:")[2].split()[0]) * 1024
        _, hard = resource.prlimit(runner, resource.RLIMIT_AS)
        resource.prlimit(runner, resource.RLIMIT_AS, (size, hard))
        error = daemon.fail("bash", {"command": "true"})
        assert error["data"] == {"kind": "resource_exhausted", "limit": "memory"}
        assert len(daemon.call("list_shells")["shells"]) == 1
        if is_alive(runner):
            resource.prlimit(runner, resource.RLIMIT_AS, (hard, hard))
        assert daemon.bash("echo again")["stdout"] == "again\n"
