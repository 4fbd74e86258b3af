"""A command runs in a spare shell only if the spare shell has the right state. Spare shells do not
disturb other commands.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import (
    Gate,
    RawDaemon,
    altered_daemon,
    is_alive,
    raw_daemon,
    spares_of,
    wait_for,
)


@pytest.fixture
def daemon(new_daemon: RawDaemon) -> RawDaemon:
    """A new daemon for each test, because the tests look at its counters and spare shells."""
    return new_daemon


def used(daemon: RawDaemon) -> int:
    """Return how many commands ran in a spare shell so far."""
    return int(daemon.call("server_info")["counters"]["sparesUsed"])


@pytest.mark.slow
def test_spare_shell_runs_the_command(daemon: RawDaemon) -> None:
    daemon.bash("true")
    waiting = daemon.wait_for_spare()
    pid, seconds = daemon.bash("echo $$ $SECONDS")["stdout"].split()
    assert int(pid) == waiting
    # SECONDS grows when the clock reaches a new second. So it may already be 1, even if bash has
    # just started.
    assert seconds in {"0", "1"}
    assert used(daemon) == 1
    assert daemon.wait_for_spare() != waiting


@pytest.mark.slow
def test_spare_shell_accepts_any_seconds_value(daemon: RawDaemon) -> None:
    daemon.bash("true")
    waiting = daemon.wait_for_spare()
    result = daemon.bash("SECONDS=08; echo $$ $((SECONDS >= 8))")
    assert (result["stdout"], result["stderr"]) == (f"{waiting} 1\n", "")


def test_spare_shells_run_background_and_sessionless_commands(daemon: RawDaemon) -> None:
    daemon.bash("true", session=None)
    waiting = daemon.wait_for_spare()
    result = daemon.bash("sleep 300", run_in_background=True, session=None)
    assert result["pid"] == waiting


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({"env": {"A": "a"}}, "a\n"),
        ({"env": {}}, "\n"),
        ({"stdin": "in"}, "\nin"),
        ({"cwd": "/usr"}, "\n"),
    ],
)
def test_differing_call_gets_a_new_bash(
    daemon: RawDaemon, params: dict[str, object], shown: str
) -> None:
    daemon.bash("true")
    waiting = daemon.wait_for_spare()
    assert daemon.bash("echo $A; cat", **params)["stdout"] == shown
    assert is_alive(waiting)
    assert used(daemon) == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["-x echo hi", "--", "-", "+x", "-ic true"])
def test_command_that_bash_takes_as_options_gets_a_new_bash(
    daemon: RawDaemon, command: str
) -> None:
    daemon.bash("true")
    waiting = daemon.wait_for_spare()
    plain = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=False, stdin=subprocess.DEVNULL
    )
    result = daemon.bash(command)
    assert (result["exitCode"], result["stderr"]) == (plain.returncode, plain.stderr.decode())
    assert is_alive(waiting)
    assert used(daemon) == 0


def test_cwd_of_session_still_uses_spare_shell(daemon: RawDaemon) -> None:
    daemon.bash("cd /usr")
    daemon.wait_for_spare()
    assert daemon.bash("pwd", cwd="/usr")["stdout"] == "/usr\n"
    assert used(daemon) == 1


@pytest.mark.parametrize(("length", "uses"), [(4096, 1), (4097, 0)])
def test_long_command_gets_a_new_bash(daemon: RawDaemon, length: int, uses: int) -> None:
    daemon.bash("true")
    daemon.wait_for_spare()
    command = "echo 'ä".ljust(length - 2, "x") + "'"
    assert len(command.encode()) == length
    assert daemon.bash(command)["stdout"] == command[6:-1] + "\n"
    assert used(daemon) == uses


def test_older_spare_shell_gets_the_newer_state(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    # With two spare shells, either could run the next command.
    with raw_daemon("--spare-shells", "1") as daemon:
        daemon.bash("x=1")
        slow = daemon.request("bash", {"command": f"{gate.wait}; x=2; cd {tmp_path}; set -u"})
        daemon.bash("true")
        waiting = daemon.wait_for_spare()
        gate.open()
        daemon.answer(slow)
        shown = daemon.bash("echo $x $PWD $- $$")
        assert shown["stdout"] == f"2 {tmp_path} huBc {waiting}\n"
        assert shown["cwd"] == str(tmp_path)


@pytest.mark.slow
def test_spare_shell_that_cannot_be_told_the_state_ends(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    daemon.bash("x=1")
    slow = daemon.request("bash", {"command": f"{gate.wait}; f() {{ echo 2; }}"})
    daemon.bash("true")
    waiting = daemon.wait_for_spare()
    gate.open()
    daemon.answer(slow)
    assert daemon.bash("f; echo $$")["stdout"].split()[0] == "2"
    wait_for(lambda: not is_alive(waiting), "its end")


def test_new_sessions_share_spare_shells(daemon: RawDaemon) -> None:
    daemon.bash("true", session=None)
    waiting = daemon.wait_for_spare()
    assert daemon.bash("x=1; echo $$", session="a")["stdout"] == f"{waiting}\n"
    daemon.bash("true", session=None)
    waiting = daemon.wait_for_spare()
    assert daemon.bash("echo $x $$", session="a")["stdout"].startswith("1 ")


@pytest.mark.slow
def test_sessions_do_not_see_the_environment_of_others(daemon: RawDaemon) -> None:
    # A faulty daemon could send the state of "b" to a spare shell of "a".
    daemon.bash("x=1", session="b")
    daemon.bash("export SECRET=abc", session="a")
    daemon.bash("true", session="a")
    wait_for(lambda: any(b"SECRET" in environment_of(pid) for pid in spares_of(daemon)), "a's own")
    for session in ("b", None):
        # With `cat` alone, bash would replace itself with cat.
        shown = daemon.bash("cat /proc/$$/environ; true", session=session)
        assert "PATH=" in shown["stdout"]
        assert "SECRET" not in shown["stdout"]
    assert any(b"SECRET" in environment_of(pid) for pid in spares_of(daemon))


@pytest.mark.slow
def test_spare_shell_in_a_deleted_directory_serves_nobody_elsewhere(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with raw_daemon(cwd=gone) as daemon:
        daemon.call("ping")
        gone.rmdir()
        daemon.bash("cd /usr")
        daemon.wait_for_spare()
        # The first spare shell started in the deleted directory, and its bash printed errors. These
        # errors must not be in the result.
        result = daemon.bash("pwd")
        assert (result["stdout"], result["stderr"]) == ("/usr\n", "")


def environment_of(pid: int) -> bytes:
    """Return the environment with which a process started; b"" if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


@pytest.mark.slow
def test_command_enters_replaced_directory(daemon: RawDaemon, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    daemon.bash(f"cd {place}")
    daemon.wait_for_spare()
    place.rename(tmp_path / "elsewhere")
    place.mkdir()
    daemon.bash("touch here")
    assert (place / "here").exists()
    assert daemon.bash("rmdir ../nothing; pwd")["stdout"] == f"{place}\n"


def reading_spare(daemon: RawDaemon) -> int:
    """Return the pid of a spare shell that has opened the pipe on which it waits."""
    waiting = daemon.wait_for_spare()

    def has_opened_the_pipe() -> bool:
        # At first, this descriptor is the startup file of bash. Bash closes the file before it
        # opens the pipe.
        try:
            return "pipe:" in os.readlink(f"/proc/{waiting}/fd/3")
        except FileNotFoundError:
            return False

    wait_for(has_opened_the_pipe, "its wait")
    return waiting


@pytest.mark.slow
@pytest.mark.parametrize("descriptors", [3, 4, 5, 6])
def test_spare_shell_short_of_descriptors_keeps_state(daemon: RawDaemon, descriptors: int) -> None:
    daemon.bash("set -e")
    waiting = reading_spare(daemon)
    resource.prlimit(waiting, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    result = daemon.bash("echo START; false; echo NOT_REACHED")
    assert (result["exitCode"], result["stdout"]) == (1, "START\n")
    assert used(daemon) == 1


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "its end")


def test_stuck_spare_shell_is_not_used(daemon: RawDaemon) -> None:
    daemon.bash("set -e")
    waiting = reading_spare(daemon)
    # Each quote becomes four characters, so the lines for the spare shell do not fit into the pipe.
    with open(f"/proc/{waiting}/fd/3", "rb") as pipe:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4_096)
    os.kill(waiting, signal.SIGSTOP)
    result = daemon.bash(": ''; echo before; false; echo after #" + "'" * 4_000)
    assert (result["stdout"], result["exitCode"]) == ("before\n", 1)
    assert used(daemon) == 0


@pytest.mark.slow
def test_killed_spare_shell_is_replaced(daemon: RawDaemon) -> None:
    daemon.bash("x=1")
    kill(daemon.wait_for_spare())
    assert daemon.bash("echo $x")["stdout"] == "1\n"
    assert used(daemon) == 0
    waiting = daemon.wait_for_spare()
    assert daemon.bash("echo $x $$")["stdout"] == f"1 {waiting}\n"


def open_waiting(daemon: RawDaemon) -> int:
    """Return a pidfd of a spare shell. Skip a spare shell that is gone because its session was
    closed.
    """
    while True:
        with contextlib.suppress(ProcessLookupError):
            return os.pidfd_open(daemon.wait_for_spare())


@pytest.mark.slow
def test_dying_spare_shell_costs_at_most_its_command(
    daemon: RawDaemon,
) -> None:
    for number in range(50):
        session = str(number)
        used_before = used(daemon)

        def one_was_used_and_one_waits(session: str = session, before: int = used_before) -> bool:
            # The daemon counts unusable spare shells as failures until a command uses a spare
            # shell. On a busy machine, it can happen that no spare shell is ready in time. The
            # daemon then starts no new one for a while.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if used(daemon) > before and spares_of(daemon):
                    return True
            daemon.bash("true", session=session)
            return False

        wait_for(one_was_used_and_one_waits)
        waiting = open_waiting(daemon)
        request = daemon.request("bash", {"command": "echo on", "session": session})
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(waiting, signal.SIGKILL)
        os.close(waiting)
        result = daemon.answer(request)["result"]
        assert (result["stdout"], result["exitCode"]) == ("on\n", 0) or (
            result["signal"] == "SIGKILL"
        )
        daemon.call("close_session", {"session": session})


def next_spares(daemon: RawDaemon) -> list[int]:
    """Return the next spare shells, or an empty list if no spare shell has come for five
    seconds.
    """
    give_up_at = time.monotonic() + 5
    while not (found := spares_of(daemon)) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return found


@pytest.mark.slow
def test_repeated_deaths_end_spare_shells(daemon: RawDaemon) -> None:
    daemon.bash("true")
    daemon.wait_for_spare()
    # The test cannot see how many deaths the daemon has counted. If the daemon never gave up, this
    # loop would not end.
    while spares := next_spares(daemon):
        for pid in spares:
            kill(pid)
        assert daemon.bash("echo on")["stdout"] == "on\n"
    before = used(daemon)
    for _ in range(3):
        assert daemon.bash("echo on")["stdout"] == "on\n"
    assert used(daemon) == before


def test_spare_shells_that_die_together_are_replaced(daemon: RawDaemon) -> None:
    def three_wait() -> bool:
        for session in ("a", "b", "c"):
            # Because of the function, each session gets spare shells of its own.
            daemon.bash("f() { :; }", session=session)
        return len(spares_of(daemon)) >= 3

    wait_for(three_wait)
    for pid in spares_of(daemon):
        kill(pid)
    before = used(daemon)

    def one_is_used() -> bool:
        daemon.bash("f", session="a")
        return used(daemon) > before

    wait_for(one_is_used)


@pytest.mark.slow
def test_stopped_spare_shell_is_not_used(daemon: RawDaemon) -> None:
    daemon.bash("x=1")
    waiting = daemon.wait_for_spare()
    os.kill(waiting, signal.SIGSTOP)
    wait_for(lambda: not is_alive(waiting), "its end")
    assert daemon.bash("echo $x")["stdout"] == "1\n"
    assert used(daemon) == 0


@pytest.mark.slow
def test_a_command_that_stops_itself_is_not_ended(daemon: RawDaemon) -> None:
    shell = daemon.background("kill -STOP $$; echo on")
    pid = daemon.call("list_shells")["shells"][0]["pid"]
    stat = Path(f"/proc/{pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "its stop")
    os.kill(pid, signal.SIGCONT)
    read = daemon.call("bash_output", {"bash_id": shell, "wait": 60_000, "until": "exit"})
    assert (read["stdout"], read["status"]) == ("on\n", "completed")


def test_closed_session_leaves_no_spare_shell(daemon: RawDaemon) -> None:
    # The function keeps other sessions from using the spare shell.
    daemon.bash("f() { :; }", session="short")
    waiting = daemon.wait_for_spare()
    daemon.call("close_session", {"session": "short"})
    wait_for(lambda: not is_alive(waiting), "its end")
    assert daemon.bash("echo on", session="short")["stdout"] == "on\n"


@pytest.mark.slow
def test_last_closed_session_leaves_no_shared_spare_shell(daemon: RawDaemon) -> None:
    daemon.bash("true", session="a")
    daemon.bash("true", session="b")
    waiting = daemon.wait_for_spare()
    daemon.call("close_session", {"session": "a"})
    assert daemon.bash("echo $$", session="b")["stdout"] == f"{waiting}\n"
    daemon.wait_for_spare()
    daemon.call("close_session", {"session": "b"})
    wait_for(lambda: spares_of(daemon) == [], "their end")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 2])
def test_spare_shells_stay_within_the_limit(limit: int) -> None:
    with raw_daemon("--spare-shells", str(limit)) as daemon:
        for number in range(4):
            daemon.bash(f"f() {{ echo {number}; }}", session=str(number))
        wait_for(lambda: len(spares_of(daemon)) == limit, "those that may wait")
        for number in range(4):
            assert daemon.bash("f", session=str(number))["stdout"] == f"{number}\n"
        assert used(daemon) == limit


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "shown", "uses"),
    [
        ("cd() { builtin cd / && echo moved; }", "cd /usr", "moved\n", 1),
        ("exec() { echo mine; }", "exec true", "mine\n", 0),
        ("shopt -s expand_aliases; alias set=:", "set -u; echo $-", "hBc\n", 1),
        ("set -e", "echo $-; false; echo no", "ehBc\n", 1),
        ("set -x", "echo a", "a\n", 1),
        ("set -o posix", "set -o | grep posix", "posix          \ton\n", 1),
        ("IFS=x; x=1xx2", "echo $x", "1  2\n", 1),
        ("set -u; set -f", "echo * ${_+set}", "* set\n", 1),
        ("export BASH_ENV=/nonexistent", "echo $BASH_ENV", "/nonexistent\n", 1),
        ("export POSIXLY_CORRECT=1", "echo $POSIXLY_CORRECT", "1\n", 1),
        ("trap 'echo bye' EXIT", "trap 'echo by' EXIT", "by\n", 1),
        ("shopt -s expand_aliases; alias trap='trap --'", "trap 'echo bye' EXIT", "bye\n", 0),
    ],
)
def test_spare_shell_honours_session_options(
    daemon: RawDaemon, before: str, after: str, shown: str, uses: int
) -> None:
    daemon.bash(before)
    if uses:
        daemon.wait_for_spare()
    assert daemon.bash(after)["stdout"] == shown
    assert used(daemon) == uses


@pytest.mark.slow
def test_posix_mode_costs_no_command(daemon: RawDaemon) -> None:
    daemon.bash("POSIXLY_CORRECT=1; readonly POSIXLY_CORRECT; export POSIXLY_CORRECT")
    for _ in range(2):
        result = daemon.bash("trap 'echo bye' INT; echo kept")
        assert (result["stdout"], result["exitCode"], result["stderr"]) == ("kept\n", 0, "")


def test_an_alias_named_trap_costs_no_state(daemon: RawDaemon) -> None:
    daemon.bash("shopt -s expand_aliases; alias trap='trap --'")
    daemon.bash("trap 'echo bye' EXIT; x=5")
    assert daemon.bash("echo $x")["stdout"] == "5\n"


@pytest.mark.slow
def test_startup_file_runs_with_the_command(
    tmp_path: Path,
) -> None:
    startup = tmp_path / "startup"
    startup.write_text("echo $((++n)); date +%s%N >> times\n")
    environment = {**os.environ, "BASH_ENV": str(startup)}
    with raw_daemon(env=environment, cwd=tmp_path) as daemon:
        for count in (1, 2, 3):
            daemon.bash("true")
            assert len((tmp_path / "times").read_text().splitlines()) == count
        assert used(daemon) == 0


def counting(number: int) -> str:
    """Return a command that changes the state."""
    return f"test $((n++)) = {number} && echo $n"


def telling(number: int) -> str:
    """Return a command that obviously does not change the state."""
    return f"echo {number + 1}"


@pytest.mark.slow
@pytest.mark.parametrize("command", [counting, telling])
def test_hundreds_of_commands_run_in_order(
    daemon: RawDaemon, command: Callable[[int], str]
) -> None:
    daemon.bash("n=0")
    for number in range(300):
        assert daemon.bash(command(number))["stdout"] == f"{number + 1}\n"
    # If no spare shell was ready when a command came, the command started a bash of its own.
    assert used(daemon) > 0


@pytest.mark.slow
def test_background_child_does_not_delay_spare_shell() -> None:
    # If the daemon waited for more output, it would not answer before the test ends.
    command = altered_daemon({"shelld.shells.life.OUTPUT_GRACE_S": 600})
    with raw_daemon(command=command) as daemon:
        daemon.bash("true")
        daemon.wait_for_spare()
        for _ in range(10):
            result = daemon.bash("sleep 300 >/dev/null 2>&1 & echo on")
            assert (result["stdout"], len(result["leftover"])) == ("on\n", 1)


@pytest.mark.slow
def test_state_shows_no_trace_of_spare_shells(daemon: RawDaemon) -> None:
    # Skip the variables that docs/sessions.md lists, and variables that differ between any two
    # bashes.
    listing = (
        "declare -p | grep -vE"
        " ' (SECONDS|BASH_ARGC|PIPESTATUS|_|PPID|BASHPID|S?RANDOM|EPOCH.*|PYTEST.*)(=|$)'"
    )
    expected = subprocess.run(
        ["bash", "-c", listing], executable="/bin/bash", capture_output=True, text=True, check=True
    ).stdout
    daemon.bash("true", session=None)
    daemon.wait_for_spare()
    shown = daemon.bash(listing, session=None)["stdout"]
    assert used(daemon) == 1
    assert shown == expected


@pytest.mark.slow
def test_commands_find_their_state_on_busy_machine(daemon: RawDaemon) -> None:
    for _ in range(6):
        daemon.background("while :; do :; done", session="busy")
    home = os.environ["HOME"]
    for number in range(20):
        session = str(number)
        daemon.bash("kept=1", session=session)
        shown = daemon.bash('echo "$kept $HOME"', session=session)
        assert (shown["stdout"], shown["stderr"]) == (f"1 {home}\n", "")
        daemon.call("close_session", {"session": session})


@pytest.mark.slow
def test_concurrent_commands_never_share_a_spare_shell(daemon: RawDaemon) -> None:
    daemon.bash("x=1")
    asked = [daemon.request("bash", {"command": "echo $x $$"}) for _ in range(50)]
    shown = [daemon.answer(request)["result"]["stdout"].split() for request in asked]
    assert {x for x, _ in shown} == {"1"}
    assert len({pid for _, pid in shown}) == 50
