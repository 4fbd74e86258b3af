"""Limits on the resources that a session's commands use. Either cgroups enforce the limits, or the
daemon watches the commands and enforces the limits itself.

No command here takes more than 300 MiB of memory, or starts more than 30 processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shelld.keeper.own_cgroups import own_cgroups
from shelld.limits.cgroups import KINDS, find_parents
from support import (
    DAEMON_COMMAND,
    Json,
    RawDaemon,
    altered_daemon,
    is_alive,
    raw_daemon,
    running_below,
    wait_for,
)

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
PYTHON = f"{sys.executable} -S -c"
# This program allocates 300 MiB of memory, and keeps it for a while.
HOG = f"{PYTHON} 'import time; taken = bytearray(300 << 20); time.sleep(60)'"
# This program starts 30 processes, one after the other. It ends with 1 as soon as the system
# refuses a process.
CROWD = f"""{PYTHON} 'import os, time
for _ in range(30): os.posix_spawn("/bin/sleep", ["sleep", "300"], {{}})
time.sleep(60)'"""

# This daemon cannot make a cgroup, because the directory above the cgroup does not exist.
WATCHING_DAEMON = altered_daemon({"shelld.limits.cgroups.PREFIX": "missing/"})


def parents() -> list[Path]:
    found = find_parents(own_cgroups(), under_systemd=os.path.exists("/run/systemd/system"))
    return [Path(parent.directory) for parent in found.values()] if len(found) == len(KINDS) else []


def cgroups_of(pid: int) -> list[Path]:
    return [path for parent in parents() for path in parent.glob(f"shelld-{pid}-*")]


def is_unused(cgroup: Path) -> bool:
    """Remove the cgroups of ended commands; return whether no command is left in a cgroup."""
    with contextlib.suppress(OSError):
        for path in cgroup.glob("command-*"):
            path.rmdir()
        return True
    return False


def command_of(mechanism: str) -> list[str]:
    if mechanism == "watch":
        return WATCHING_DAEMON
    if not parents():
        pytest.skip("needs a writable cgroup with the controllers for memory and processes")
    return DAEMON_COMMAND


@pytest.fixture(scope="module", params=[pytest.param("cgroup", marks=pytest.mark.slow), "watch"])
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def daemon(mechanism: str) -> Iterator[RawDaemon]:
    with raw_daemon(command=command_of(mechanism)) as running:
        yield running
        # No cgroup of a closed session is left.
        wait_for(lambda: not cgroups_of(running.pid), "the removal of all cgroups")


@pytest.fixture
def session(daemon: RawDaemon, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    yield name
    daemon.call("close_session", {"session": name})


def limit(daemon: RawDaemon, session: str, **limits: int) -> Json:
    answer: Json = daemon.call("configure_session", {"session": session, "limits": limits})
    return answer


def outcome(result: Json) -> tuple[Any, ...]:
    return result["status"], result.get("reason")


# -- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [HOG, f"{HOG}; exit $?", f"setsid {HOG} & wait $!", f"{HOG}; sleep 60"]
)
def test_command_that_takes_too_much_memory_is_ended(
    daemon: RawDaemon, session: str, mechanism: str, command: str
) -> None:
    limit(daemon, session, memory_bytes=64 * MIB)
    for _ in range(2):
        result = daemon.bash(command, session=session)
        assert result["limits"]["memory"] == mechanism
        assert result["reason"] == "memory"
        assert result["status"] in ("killed", "failed")
        assert result["leftover"] == []
        assert daemon.bash("echo next", session=session)["stdout"] == "next\n"
    # Other sessions have no limit.
    assert "limits" not in daemon.bash("true")


def test_memory_of_a_session_counts_together(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, memory_bytes=96 * MIB)
    modest = (
        f"{PYTHON} 'import time; taken = bytearray(40 << 20); print(1, flush=True); time.sleep(60)'"
    )
    first = daemon.background(modest, session=session)
    daemon.call("bash_output", {"bash_id": first, "wait": 60_000})
    # Each command alone stays below the limit. Both commands together exceed the limit, and the
    # daemon or the kernel ends the larger command.
    larger = modest.replace("40 <<", "80 <<")
    assert daemon.bash(larger, session=session)["reason"] == "memory"
    assert daemon.call("bash_output", {"bash_id": first})["isRunning"]


def test_memory_that_processes_share_counts_once(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, memory_bytes=128 * MIB)
    family = (
        f"{PYTHON} 'import os, time\n"
        "taken = bytearray(60 << 20)\n"
        "for _ in range(4):\n"
        "    if not os.fork(): time.sleep(1); os._exit(0)\n"
        "while True:\n"
        "    try: os.wait()\n"
        "    except ChildProcessError: break'"
    )
    assert outcome(daemon.bash(family, session=session)) == ("completed", None)


# -- processes --------------------------------------------------------------------------------


def test_command_that_starts_too_many_processes_fails(
    daemon: RawDaemon, session: str, mechanism: str
) -> None:
    limit(daemon, session, processes=10)
    result = daemon.bash(CROWD, session=session)
    assert result["limits"]["processes"] == mechanism
    # A cgroup refuses the fork, so the program fails. Without a cgroup, the daemon notices the
    # processes and kills the command.
    assert outcome(result) == ("failed" if mechanism == "cgroup" else "killed", "processes")
    assert len(result["leftover"]) < 10
    daemon.call("kill_shell", {"shell_id": result["bash_id"], "signal": "KILL"})
    assert outcome(daemon.bash("sleep 0 | sleep 0", session=session)) == ("completed", None)


def test_processes_of_several_commands_count_together(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, processes=2)
    # Each command is one process, and starts no other.
    shells = [daemon.background("exec sleep 300", session=session) for _ in range(5)]

    def read() -> list[Json]:
        return [daemon.call("bash_output", {"bash_id": shell}) for shell in shells]

    wait_for(lambda: sum(each["isRunning"] for each in read()) <= 2, "the end of the others")
    # The two oldest commands still run.
    assert list(map(outcome, read())) == [("running", None)] * 2 + [("killed", "processes")] * 3


def test_refused_fork_is_no_reason_unless_the_command_fails() -> None:
    with raw_daemon(command=command_of("cgroup")) as daemon:
        limit(daemon, "main", processes=10)
        result = daemon.bash(f"{CROWD} || exit 0")
        assert outcome(result) == ("completed", None)
        # The command `exit 3` fails, but not because of a refused fork.
        daemon.call("kill_shell", {"shell_id": result["bash_id"], "signal": "KILL"})
        assert outcome(daemon.bash("exit 3")) == ("failed", None)


# -- processor time, files --------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"cpu_seconds": 1}, {"memory_bytes": 64 * MIB}])
def test_limit_holds_in_the_grace_of_a_kill(
    daemon: RawDaemon, session: str, limits: dict[str, int]
) -> None:
    limit(daemon, session, **limits)
    stubborn = (
        f"exec {PYTHON} 'import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); "
        "print(1, flush=True); signal.sigwait([15]); taken = bytearray(300 << 20)\n"
        "while True: pass'"
    )
    shell = daemon.background(stubborn, session=session)
    daemon.call("bash_output", {"bash_id": shell, "wait": 60_000})
    daemon.call("kill_shell", {"shell_id": shell, "signal": "TERM", "grace": 60_000})
    read = daemon.call("bash_output", {"bash_id": shell})
    assert outcome(read) == ("killed", "cpu" if "cpu_seconds" in limits else "memory")


@pytest.mark.parametrize(
    "command",
    [
        "while :; do :; done",
        # The limit counts the processor time of ended processes, whoever has reaped them.
        "while :; do (for ((i = 0; i < 9999; i++)); do :; done); done",
        "for ((i = 0; i < 99; i++)); do (setsid $BASH -c 'for ((j = 99999; j; j--)); do :; done' &)"
        "; done; sleep 60",
    ],
)
def test_command_that_takes_too_much_processor_time_is_ended(
    daemon: RawDaemon, session: str, command: str
) -> None:
    limit(daemon, session, cpu_seconds=1)
    result = daemon.bash(command, session=session)
    assert result["limits"]["cpu"] == "watch"
    assert outcome(result) == ("killed", "cpu")
    # The limit on processor time applies to each command separately.
    assert outcome(daemon.bash("true", session=session)) == ("completed", None)


def test_time_without_work_is_no_processor_time(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, cpu_seconds=1)
    assert outcome(daemon.bash("sleep 1.5", session=session)) == ("completed", None)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("head -c 2000 /dev/zero > {}", "failed"),
        ("exec head -c 2000 /dev/zero > {}", "failed"),
        ("printf %2000d > {}", "failed"),
        ("head -c 2000 /dev/zero > {}; true", "completed"),
        ("head -c 1000 /dev/zero > {}", "completed"),
    ],
)
def test_file_cannot_become_too_large(
    daemon: RawDaemon, session: str, tmp_path: Path, command: str, status: str
) -> None:
    limit(daemon, session, file_bytes=1_000)
    result = daemon.bash(command.format(tmp_path / "file"), session=session)
    assert outcome(result) == (status, "file_size" if status == "failed" else None)
    assert (tmp_path / "file").stat().st_size <= 1_000
    # The limit does not apply to pipes.
    assert daemon.bash("printf %2000d", session=session)["stdoutBytes"] == 2_000


def test_exit_code_of_a_limit_alone_is_no_reason(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, cpu_seconds=10)
    for command in ("exit 153", "kill -XFSZ $$", "exit 137", "kill -9 $$"):
        assert outcome(daemon.bash(command, session=session)) == ("failed", None)


@pytest.mark.parametrize("file_bytes", [0, 1, 200])
def test_state_above_the_file_limit_is_reported_as_lost(
    daemon: RawDaemon, session: str, file_bytes: int
) -> None:
    limit(daemon, session, file_bytes=file_bytes)
    for number in range(4):
        # The first command writes a short report of its state, and the second writes a full report.
        for command in (f"x={number}", f"f() {{ echo {number}; }}; f"):
            result = daemon.bash(command, session=session)
            assert outcome(result) == ("completed", None)
            if "stateKept" in result:
                assert result["stateReason"] in ("missing", "incomplete")
            # A full report is above the limit, so the state is lost.
            assert command.startswith("x=") or result["stateKept"] is False
    assert daemon.bash("type f", session=session)["exitCode"] == 1
    long = "true " + "x" * 200_000
    assert outcome(daemon.bash(long, session=session)) == ("completed", None)
    assert daemon.bash("cat", session=session, stdin="given")["stdout"] == "given"


@pytest.mark.parametrize("file_bytes", [0, 1, 200])
@pytest.mark.parametrize("options", [{"env": {"A": "b" * 300}}, {"tty": True}])
def test_file_limit_does_not_end_a_command_before_its_start(
    daemon: RawDaemon, session: str, file_bytes: int, options: Json
) -> None:
    limit(daemon, session, file_bytes=file_bytes)
    for command, written in (("f() { echo $1; }; f one", "one"), ("trap; y=2; echo $y", "2")):
        result = daemon.bash(command, session=session, **options)
        assert (outcome(result), result["stdout"].split()) == (("completed", None), [written])
        assert result["stateReason"] in ("missing", "incomplete")
    # If the command itself gets the signal, the command ends as usual.
    result = daemon.bash("y=1; kill -XFSZ $$", session=session, **options)
    assert (result["status"], result["signal"]) == ("failed", "SIGXFSZ")


def test_generous_file_limit_does_not_disturb_the_state(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, file_bytes=MIB, open_files=16)
    for command in ("x=1; f() { echo $x; }", "cd /; y=2", "f"):
        assert "stateKept" not in daemon.bash(command, session=session)
    assert daemon.bash("f; pwd; echo $y", session=session)["stdout"] == "1\n/\n2\n"


@pytest.mark.parametrize("options", [{}, {"tty": True}, {"open_stdin": True}, {"env": {"A": "b"}}])
def test_limits_of_files_hold_from_the_start(
    daemon: RawDaemon, session: str, options: Json
) -> None:
    limit(daemon, session, file_bytes=8_192, open_files=20)
    look = "ulimit -Sn; ulimit -Sf; ulimit -Hn; ulimit -Hf"
    for _ in range(2):
        result = daemon.bash(look, session=session, **options)
        assert result["stdout"].split() == ["20", "8", "20", "8"]
        assert result["limits"]["fileSize"] == result["limits"]["openFiles"] == "rlimit"


# -- sessions ---------------------------------------------------------------------------------


def test_session_shows_its_limits(daemon: RawDaemon, session: str, mechanism: str) -> None:
    limits = {"memory_bytes": 64 * MIB, "open_files": 100}
    assert limit(daemon, session, **limits) == {"session": session, "limits": limits}
    assert daemon.call("get_session", {"session": session})["limits"] == limits
    # Until the first command, a client can replace the limits.
    limits = {"processes": 50}
    assert limit(daemon, session, **limits)["limits"] == limits
    enforced = {"memory": "none", "processes": mechanism, "cpu": "none"}
    enforced |= {"fileSize": "none", "openFiles": "none"}
    assert daemon.bash("true", session=session)["limits"] == enforced
    started = daemon.bash("sleep 300", session=session, run_in_background=True)
    assert started["limits"] == enforced
    read = daemon.call("bash_output", {"bash_id": started["bash_id"]})
    assert read["limits"] == enforced
    error = daemon.fail("configure_session", {"session": session, "limits": {}})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "session")
    daemon.call("close_session", {"session": session})
    assert "limits" not in daemon.bash("true", session=session)
    assert "limits" not in daemon.call("get_session", {"session": session})


def test_limits_hold_beside_rules_for_the_environment(daemon: RawDaemon, session: str) -> None:
    both = {"env": {"remove": ["PATH"]}, "limits": {"open_files": 64}}
    answer = daemon.call("configure_session", {"session": session, **both})
    assert (answer["removed"], answer["limits"]) == (["PATH"], {"open_files": 64})
    assert daemon.bash("ulimit -n", session=session)["stdout"] == "64\n"


@pytest.mark.parametrize(
    ("limits", "parameter"),
    [
        ({"memory_bytes": 16 * MIB - 1}, "limits.memory_bytes"),
        ({"processes": 1}, "limits.processes"),
        ({"cpu_seconds": 0}, "limits.cpu_seconds"),
        ({"file_bytes": -1}, "limits.file_bytes"),
        ({"open_files": 15}, "limits.open_files"),
        ({"open_files": 2**53}, "limits.open_files"),
        ({"open_files": 10**30}, "limits.open_files"),
        ({"open_files": "16"}, "limits.open_files"),
        ({"open_files": True}, "limits.open_files"),
        ({"disk_bytes": 1}, "limits.disk_bytes"),
        ([], "limits"),
    ],
)
def test_wrong_limits_are_invalid_params(daemon: RawDaemon, limits: Any, parameter: str) -> None:
    error = daemon.fail("configure_session", {"session": "wrong", "limits": limits})
    assert (error["code"], error["data"].get("parameter")) == (-32602, parameter)
    assert daemon.fail("get_session", {"session": "wrong"})["code"] == 1007


def test_leftover_that_exceeds_a_limit_later_is_ended(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, memory_bytes=64 * MIB)
    # The command leaves two processes: a sleep, and the hog.
    result = daemon.bash(f"sleep 300 & {HOG} &", session=session)
    shown = {"bash_id": result["bash_id"]}
    wait_for(lambda: daemon.call("bash_output", shown).get("reason") == "memory", "the reason")
    listed = daemon.call("list_shells", {"session": session})["shells"]
    wait_for(lambda: not any(is_alive(pid) for pid in listed[0]["leftover"]), "the end of all")


# -- the daemon's limits ----------------------------------------------------------------------


@pytest.fixture
def limited(mechanism: str) -> Iterator[RawDaemon]:
    options = ("--limit", "memory_bytes=64M", "--limit", "open_files=64", "--limit", "processes=99")
    with raw_daemon(*options, command=command_of(mechanism)) as daemon:
        yield daemon
    assert not cgroups_of(daemon.pid)


def test_option_limits_every_command(limited: RawDaemon, mechanism: str) -> None:
    for session in ("main", "other", None):
        result = limited.bash("ulimit -n", session=session)
        assert (result["stdout"], result["limits"]["memory"]) == ("64\n", mechanism)
        assert limited.bash(HOG, session=session)["reason"] == "memory"
    expected = {"memory_bytes": 64 * MIB, "open_files": 64, "processes": 99}
    assert limited.call("get_session")["limits"] == expected


def test_session_can_only_lower_the_limits_of_the_option(limited: RawDaemon) -> None:
    for name, value in (("memory_bytes", 65 * MIB), ("open_files", 65)):
        error = limited.fail("configure_session", {"session": "new", "limits": {name: value}})
        assert error["message"].startswith(f"Value for limits.{name} exceeds maximum: ")
        assert (error["code"], error["data"]["parameter"]) == (-32602, f"limits.{name}")
    # The other limits stay.
    answer = limit(limited, "new", open_files=32, cpu_seconds=100, memory_bytes=64 * MIB)
    expected = {"memory_bytes": 64 * MIB, "open_files": 32, "processes": 99, "cpu_seconds": 100}
    assert answer["limits"] == expected
    assert limited.bash("ulimit -n", session="new")["stdout"] == "32\n"


def test_commands_without_a_session_count_alone(limited: RawDaemon) -> None:
    # The memory of two of these commands together would be above the limit.
    modest = f"{PYTHON} 'import time; taken = bytearray(40 << 20); time.sleep(1)'"
    requests = [limited.request("bash", {"command": modest, "session": None}) for _ in range(3)]
    for request in requests:
        assert outcome(limited.answer(request)["result"]) == ("completed", None)


def test_spare_shells_have_the_limits(limited: RawDaemon, mechanism: str) -> None:
    def used() -> int:
        return int(limited.call("server_info")["counters"]["sparesUsed"])

    def runs_in_spare_shells(session: str, before: int, found: set[str]) -> bool:
        result = limited.bash("cat /proc/self/limits /proc/self/cgroup", session=session)
        assert re.search(r"^Max open files +64 +64 ", result["stdout"], re.MULTILINE)
        assert result["limits"]["memory"] == mechanism
        found |= set(re.findall(rf"shelld-{limited.pid}-\d+-limits-\d+", result["stdout"]))
        return used() >= before + 3

    # No command here changes the state of its session.
    limited.bash("true", session=None)
    cgroups: list[set[str]] = []
    for session in ("main", "other"):
        # Wait until there is a spare shell. A faulty daemon could let the session take the spare
        # shell of another session.
        limited.wait_for_spare()
        found: set[str] = set()
        before = used()

        wait_for(partial(runs_in_spare_shells, session, before, found), "spare shells")
        cgroups.append(found)
    # Each session has a cgroup of its own.
    assert [len(found) for found in cgroups] == [mechanism == "cgroup"] * 2
    assert not cgroups[0] & cgroups[1]


def test_spare_shells_take_nothing_from_a_limit(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, processes=2)
    for _ in range(6):
        # One or two spare shells also wait or start. The limit does not count them: it counts only
        # the bash and the `sleep` of this command.
        assert outcome(daemon.bash("sleep 0.01; true", session=session)) == ("completed", None)
    if daemon.bash("true", session=session)["limits"]["processes"] == "cgroup":
        crowd = f"{PYTHON} 'import os; os.fork(); os.fork()'; exit $?"
        assert outcome(daemon.bash(crowd, session=session)) == ("failed", "processes")


def test_starting_spare_shell_takes_nothing_from_a_limit(daemon: RawDaemon, session: str) -> None:
    limit(daemon, session, processes=2)
    # The commands follow one another at once, so spare shells start all the time. No spare shell
    # suits a call with `env`.
    for params in ({}, {"env": {"NAME": "value"}}) * 12:
        result = daemon.bash("text=$(echo sub); exit 3", session=session, **params)
        assert (outcome(result), result["stderr"]) == (("failed", None), "")


def test_shared_spare_shell_is_not_for_a_limited_session(daemon: RawDaemon, session: str) -> None:
    daemon.bash("true")
    shared = daemon.wait_for_spare()
    limit(daemon, session, cpu_seconds=100)
    assert daemon.bash("echo $$", session=session)["stdout"] != f"{shared}\n"


# -- failures ---------------------------------------------------------------------------------


def test_nothing_is_left_of_a_killed_daemon() -> None:
    command_of("cgroup")
    with raw_daemon(stderr_is_silent=False) as daemon:
        limit(daemon, "main", memory_bytes=64 * MIB, processes=10)
        daemon.bash("sleep 300 &")
        assert cgroups_of(daemon.pid)
        daemon.process.send_signal(signal.SIGKILL)
        wait_for(lambda: not cgroups_of(daemon.pid), "the removal by the keeper")


def test_cgroups_of_killed_daemons_are_removed() -> None:
    command_of("cgroup")
    namespace = os.stat("/proc/self/ns/pid").st_ino
    stale = [parent / f"shelld-999999999-{namespace}-limits-1" for parent in parents()]
    for path in stale:
        path.mkdir()
        (path / "command-1").mkdir()
    with raw_daemon() as daemon:
        limit(daemon, "main", processes=10)
        daemon.bash("true")
        assert not any(path.exists() for path in stale)


def test_watch_takes_the_place_of_a_cgroup_that_vanishes() -> None:
    command_of("cgroup")
    with raw_daemon("--spare-shells", "0") as daemon:
        limit(daemon, "main", memory_bytes=64 * MIB)
        assert daemon.bash("true")["limits"]["memory"] == "cgroup"
        for path in cgroups_of(daemon.pid):
            wait_for(partial(is_unused, path), "the removal of the cgroup of the command")
            path.rmdir()
        result = daemon.bash(HOG)
        assert (result["limits"]["memory"], result["reason"]) == ("watch", "memory")


def test_ordinary_user_is_watched(unprivileged: dict[str, Any]) -> None:
    with raw_daemon(**unprivileged) as daemon:
        limit(daemon, "main", memory_bytes=64 * MIB, open_files=20)
        result = daemon.bash(HOG.replace(sys.executable, unprivileged["command"][0]))
        assert (result["limits"]["memory"], result["reason"]) == ("watch", "memory")
        assert daemon.bash("ulimit -Hn")["stdout"] == "20\n"


def test_session_continues_after_a_limited_command_loses_its_runner(
    daemon: RawDaemon, session: str
) -> None:
    limit(daemon, session, memory_bytes=64 * MIB, cpu_seconds=100)
    assert daemon.bash("kill -9 $PPID; sleep 300", session=session)["reason"] == "lost"
    assert outcome(daemon.bash("true", session=session)) == ("completed", None)
    assert not running_below(daemon.pid, "sleep 300")
