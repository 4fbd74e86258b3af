"""A /proc that hides processes, shows live processes as zombies, or is missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mount_namespace import run_after
from support import DAEMON_COMMAND, Gate, RawDaemon, children, raw_daemon, wait_for

PEER = Path(__file__).parents[1] / "peers" / "leave_main_thread.py"


def is_running(pid: int) -> bool:
    """Return whether any thread of a process runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in ("Z", "X") or int(fields[17]) > 1


# -- hidden processes ---------------------------------------------------------------------------


class Foreign(NamedTuple):
    """A command that runs a program as another user. `can_be_killed` tells whether the command's
    user may kill that program.
    """

    command: str
    can_be_killed: bool


@pytest.fixture(params=["setuid", "root"])
def foreign(request: pytest.FixtureRequest, open_directory: Path) -> Iterator[Foreign]:
    """A program that runs as root, either by its effective user id only or by all its user ids."""
    program = shutil.which("sleep" if request.param == "setuid" else "setpriv")
    if program is None or os.geteuid() != 0:
        pytest.skip("needs root, to make a program that changes its user")
    if os.statvfs(open_directory).f_flag & os.ST_NOSUID:
        pytest.skip("the temporary directory is mounted nosuid")
    copy = open_directory / "program"
    shutil.copy(program, copy)
    copy.chmod(0o4755)
    if request.param == "setuid":
        yield Foreign(f"{copy} 300", can_be_killed=True)
    else:
        become = f"{copy} --reuid=0 --regid=0 --clear-groups"
        yield Foreign(f"{become} sleep 300", can_be_killed=False)
    copy.unlink()


@pytest.fixture(params=["hidepid=1", "hidepid=2", "subset=pid,hidepid=1"])
def proc_option(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def hidden_daemon(
    unprivileged: dict[str, Any], option: str, *args: str
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return arguments for a `raw_daemon` of an ordinary user, who sees only his own processes."""
    prefix = run_after('mount -t proc -o "$1" proc /proc', option)
    become = ["setpriv", f"--reuid={unprivileged['user']}", f"--regid={unprivileged['group']}"]
    options = {name: value for name, value in unprivileged.items() if name in ("env", "cwd")}
    command = unprivileged["command"]
    return args, {
        "prefix": [*prefix, *become, "--clear-groups"],
        "command": command,
        **options,
    }


def hidden_process(daemon: RawDaemon) -> int:
    """Wait until a process sleeps as root; return its pid."""
    found: list[int] = []

    def look() -> bool:
        shells = daemon.call("list_shells")["shells"]
        below = [pid for shell in shells if shell["pid"] for pid in children(shell["pid"])]
        found[:] = [pid for pid in below if sleeps_as_root(pid)]
        return bool(found)

    wait_for(look, "the program of root")
    (pid,) = found
    return pid


def sleeps_as_root(pid: int) -> bool:
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return arguments[1:] == [b"300", b""] and os.stat(f"/proc/{pid}").st_uid == 0


@contextlib.contextmanager
def killed_in_the_end(pid: int) -> Generator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def leftover_of(
    unprivileged: dict[str, Any], foreign: Foreign, option: str, mechanism: str, path: Path
) -> Generator[tuple[RawDaemon, str, int]]:
    """Yield a daemon, a shell that has ended, and the hidden process that it left behind."""
    gate = Gate(path)
    path.chmod(0o666)
    args, options = hidden_daemon(unprivileged, option, "--containment", mechanism)
    with raw_daemon(*args, **options) as daemon:
        command = f"{foreign.command} & {gate.wait}; exit 3"
        request_id = daemon.request("bash", {"command": command})
        hidden = hidden_process(daemon)
        with killed_in_the_end(hidden):
            gate.open()
            result = daemon.answer(request_id)["result"]
            assert (result["status"], result["exitCode"]) == ("failed", 3)
            assert result["leftover"] == [hidden]
            yield daemon, result["bash_id"], hidden


def has_no_leftover(daemon: RawDaemon) -> bool:
    return not daemon.call("list_shells")["shells"][0]["leftover"]


@pytest.mark.slow
def test_a_hidden_process_is_killed_or_named(
    unprivileged: dict[str, Any], foreign: Foreign, proc_option: str, open_directory: Path
) -> None:
    arguments = (unprivileged, foreign, proc_option, "subreaper", open_directory / "gate")
    with leftover_of(*arguments) as (daemon, bash_id, hidden):
        killed = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
        survivors = [] if foreign.can_be_killed else [hidden]
        assert (killed["alreadyStopped"], killed["survivors"]) == (False, survivors)
        assert is_running(hidden) is not foreign.can_be_killed
        assert daemon.bash("echo next")["stdout"] == "next\n"
        if is_running(hidden):
            os.kill(hidden, signal.SIGKILL)
        wait_for(lambda: has_no_leftover(daemon), "an empty list")


@pytest.mark.slow
def test_a_hidden_process_is_followed_without_subreapers(
    unprivileged: dict[str, Any], foreign: Foreign, open_directory: Path
) -> None:
    arguments = (unprivileged, foreign, "hidepid=1", "process-group", open_directory / "gate")
    with leftover_of(*arguments) as (daemon, _, hidden):
        assert daemon.bash("echo next")["stdout"] == "next\n"
        os.kill(hidden, signal.SIGKILL)
        # The process is now a child of the test. Reap it, because a hidden zombie counts as alive.
        os.waitpid(hidden, 0)
        wait_for(lambda: has_no_leftover(daemon), "an empty list")


@pytest.mark.slow
def test_hidden_process_of_killed_runner_is_named(
    unprivileged: dict[str, Any], foreign: Foreign, proc_option: str
) -> None:
    args, options = hidden_daemon(unprivileged, proc_option, "--containment", "subreaper")
    with raw_daemon(*args, **options) as daemon:
        bash_id = daemon.background(f"{foreign.command} & sleep 300")
        (shell,) = daemon.call("list_shells")["shells"]
        hidden = hidden_process(daemon)
        (keeper,) = children(daemon.pid)
        (runner,) = [pid for pid in children(keeper) if shell["pid"] in children(pid)]
        with killed_in_the_end(hidden):
            os.kill(runner, signal.SIGKILL)
            read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
            assert (read["status"], read["reason"]) == ("killed", "lost")
            left = [] if foreign.can_be_killed else [hidden]
            assert daemon.call("list_shells")["shells"][0]["leftover"] == left
            assert children(daemon.pid) == [keeper]
            assert daemon.bash("echo next")["stdout"] == "next\n"


# -- processes that look dead -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["cgroup", "subreaper", "process-group"])
def test_a_process_without_its_first_thread_is_killed(tmp_path: Path, mechanism: str) -> None:
    pid_file = tmp_path / "pid"
    with raw_daemon("--containment", mechanism) as daemon:
        command = f"{sys.executable} {PEER} {pid_file} & until [ -e {pid_file} ]; do :; done"
        result = daemon.bash(command)
        pid = int(pid_file.read_text())
        try:
            assert result["leftover"] == [pid]
            killed = daemon.call("kill_shell", {"shell_id": result["bash_id"]})
            assert (killed["alreadyStopped"], killed["survivors"]) == (False, [])
            assert not is_running(pid)
        finally:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["cgroup", "subreaper", "process-group"])
def test_process_without_first_thread_ends_with_daemon(tmp_path: Path, mechanism: str) -> None:
    pid_file = tmp_path / "pid"
    with raw_daemon("--containment", mechanism) as daemon:
        daemon.bash(f"{sys.executable} {PEER} {pid_file} & until [ -e {pid_file} ]; do :; done")
        pid = int(pid_file.read_text())
    try:
        wait_for(lambda: not is_running(pid), "its end")
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


# -- /proc is missing, or belongs to another namespace ------------------------------------------


def refusal(prefix: list[str]) -> str:
    run = subprocess.run([*prefix, *DAEMON_COMMAND], input=b"", capture_output=True, check=False)
    assert (run.returncode, run.stdout) == (2, b"")
    return run.stderr.decode()


def test_the_daemon_refuses_to_start_without_proc() -> None:
    prefix = run_after("mount -t tmpfs none /proc")
    sentence = "shelld: the /proc of this PID namespace must be mounted\n"
    assert refusal(prefix) == sentence


def test_the_daemon_refuses_proc_of_another_namespace() -> None:
    prefix = ["unshare", "-m", "--pid", "--fork"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a PID namespace")
    sentence = "shelld: the /proc of this PID namespace must be mounted\n"
    assert refusal(prefix) == sentence


def test_daemon_names_missing_null_device() -> None:
    prefix = run_after("mount -t tmpfs none /dev")
    assert refusal(prefix) == "shelld: cannot open /dev/null: No such file or directory\n"


@pytest.mark.slow
def test_mount_point_with_invalid_bytes_changes_nothing(tmp_path: Path) -> None:
    script = 'd="$1/$(printf \'\\377\\205\\r\')" && mkdir -p "$d" && mount -t tmpfs none "$d"'
    with raw_daemon(prefix=run_after(script, str(tmp_path))) as daemon:
        assert daemon.bash("echo on")["stdout"] == "on\n"
