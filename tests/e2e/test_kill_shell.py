"""``kill_shell``, with the real daemon and processes that resist."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import pytest

from support import Gate, RawDaemon, descendants, is_alive, raw_daemon, wait_for


def running_after(daemon: RawDaemon, command: str, ready: Path) -> str:
    """Start a command in the background and wait for the file that marks it as ready."""
    bash_id = daemon.background(f"{{ {command}\n}} & touch {ready}; wait")
    wait_for(ready.exists, "the command to be ready")
    return bash_id


def family_of(daemon: RawDaemon, bash_id: str) -> list[int]:
    (pid,) = [s["pid"] for s in daemon.call("list_shells")["shells"] if s["bash_id"] == bash_id]
    return [pid, *descendants(pid)]


def test_kill_tells_how_the_shell_ended(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    result = daemon.call("kill_shell", {"shell_id": bash_id})
    assert result.pop("durationMs") >= 0
    assert result == {
        "shell_id": bash_id,
        "command": "sleep 300",
        "status": "killed",
        "alreadyStopped": False,
        "exitCode": None,
        "signal": "SIGTERM",
        "survivors": [],
        "message": f"Shell {bash_id} terminated",
    }


def test_killing_an_ended_shell_changes_nothing(daemon: RawDaemon) -> None:
    bash_id = daemon.bash("exit 3")["bash_id"]
    result = daemon.call("kill_shell", {"bash_id": bash_id})
    assert result["alreadyStopped"] is True
    assert (result["status"], result["exitCode"]) == ("failed", 3)
    assert result["message"] == f"Shell {bash_id} already stopped"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & sleep 300 & sleep 300",
        "setsid sleep 300 & (setsid sleep 300 &) ; sleep 300",
        "nohup sleep 300 >/dev/null 2>&1 & disown; sleep 300",
        "(env -i setsid sh -c 'sleep 300 & sleep 300' </dev/null >/dev/null 2>&1 &); sleep 300",
        "set -m; sleep 300 & sleep 300",
        "trap '' TERM HUP INT; sleep 300",
        "sleep 300 & kill -STOP $!; sleep 300",
        "kill -STOP $BASHPID",
        "for i in $(seq 30); do setsid sleep 300 & done; sleep 300",
        "cat <(sleep 300) & coproc sleep 300; sleep 300",
    ],
)
def test_kill_leaves_no_process(daemon: RawDaemon, tmp_path: Path, command: str) -> None:
    bash_id = running_after(daemon, command, tmp_path / "ready")
    family = family_of(daemon, bash_id)
    before = set(descendants(daemon.pid))
    result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 200})
    assert result["survivors"] == []
    assert (result["status"], result["alreadyStopped"]) == ("killed", False)
    assert not [pid for pid in family if is_alive(pid)]
    # If a process escapes from bash, it stays a descendant of the daemon. So if no process has
    # escaped, the daemon has no new descendants.
    after = {pid for pid in descendants(daemon.pid) if is_alive(pid)}
    assert after <= before - set(family)
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in after}
    assert names <= {"shelld-keeper", "shelld-runner"}


def test_signal_and_grace_are_honoured(daemon: RawDaemon) -> None:
    bash_id = daemon.background(
        "trap 'echo int; exit 5' INT; echo set; while :; do sleep 0.01; done"
    )
    assert daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})["stdout"] == "set\n"
    result = daemon.call("kill_shell", {"shell_id": bash_id, "signal": "INT", "grace": 60_000})
    assert (result["status"], result["exitCode"], result["signal"]) == ("killed", 5, None)
    assert daemon.call("bash_output", {"bash_id": bash_id})["stdout"] == "int\n"


def test_stopped_process_is_continued_to_clean_up(new_daemon: RawDaemon) -> None:
    command = "trap 'echo cleaned; exit 3' TERM; echo set; kill -STOP $$; sleep 300"
    bash_id = new_daemon.background(command)
    new_daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})
    (shell,) = new_daemon.call("list_shells")["shells"]
    status = Path(f"/proc/{shell['pid']}/status")
    wait_for(lambda: "(stopped)" in status.read_text(), "the command to stop itself")
    result = new_daemon.call("kill_shell", {"shell_id": bash_id, "grace": 60_000})
    assert (result["exitCode"], result["signal"]) == (3, None)
    assert new_daemon.call("bash_output", {"bash_id": bash_id})["stdout"] == "cleaned\n"


def test_sigkill_follows_when_the_grace_is_over(daemon: RawDaemon) -> None:
    bash_id = daemon.background("trap '' TERM; echo set; while :; do sleep 0.01; done")
    daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})
    result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 300})
    assert result["signal"] == "SIGKILL"


def test_kill_signal_needs_no_grace(daemon: RawDaemon) -> None:
    bash_id = daemon.background("trap '' TERM; sleep 300")
    result = daemon.call("kill_shell", {"shell_id": bash_id, "signal": "KILL", "grace": 60_000})
    assert result["signal"] == "SIGKILL"


def test_two_kills_at_once_are_both_answered(daemon: RawDaemon) -> None:
    bash_id = daemon.background("trap '' TERM; echo set; while :; do sleep 0.01; done")
    daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})
    slow = daemon.request("kill_shell", {"shell_id": bash_id, "grace": 60_000})
    fast = daemon.request("kill_shell", {"shell_id": bash_id, "grace": 50})
    for request_id in (slow, fast):
        result = daemon.answer(request_id)["result"]
        assert (result["status"], result["survivors"]) == ("killed", [])


def test_output_can_be_read_after_kill(new_daemon: RawDaemon) -> None:
    bash_id = new_daemon.background("echo before; printf unfinished; sleep 300")
    wait_for(
        lambda: new_daemon.call("list_shells")["shells"][0]["unreadBytes"] == 17,
        "the command's output",
    )
    new_daemon.call("kill_shell", {"shell_id": bash_id})
    read = new_daemon.call("bash_output", {"bash_id": bash_id})
    assert (read["stdout"], read["status"]) == ("before\nunfinished", "killed")


def is_in_state(pid: int, state: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == state


@pytest.mark.slow
def test_kill_counts_leftovers_of_a_bash_just_ended(new_daemon: RawDaemon, tmp_path: Path) -> None:
    """The daemon learns of the kill and of bash's end at the same time."""
    gate = Gate(tmp_path / "gate")
    bash_id = new_daemon.background(f"setsid sleep 300 & {gate.wait}")
    bash = family_of(new_daemon, bash_id)[0]
    wait_for(lambda: len(descendants(bash)) > 0, "the leftover")
    (leftover,) = descendants(bash)
    os.kill(new_daemon.pid, signal.SIGSTOP)
    try:
        request = new_daemon.request("kill_shell", {"shell_id": bash_id})
        gate.open()
        wait_for(lambda: not is_alive(bash), "the end of bash")
    finally:
        os.kill(new_daemon.pid, signal.SIGCONT)
    result = new_daemon.answer(request)["result"]
    assert (result["alreadyStopped"], result["survivors"]) == (False, [])
    assert not is_alive(leftover)


def test_stopped_leftover_stays_listed(new_daemon: RawDaemon) -> None:
    result = new_daemon.bash("sleep 300 &")
    (pid,) = result["leftover"]
    for number, state in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "S")) * 3:
        os.kill(pid, number)
        wait_for(functools.partial(is_in_state, pid, state), "the change of state")
        # By the time the runner has run another command, it has noticed the change.
        new_daemon.bash("true")
        listed = {s["bash_id"]: s["leftover"] for s in new_daemon.call("list_shells")["shells"]}
        assert listed[result["bash_id"]] == [pid]
    killed = new_daemon.call("kill_shell", {"shell_id": result["bash_id"]})
    assert (killed["alreadyStopped"], killed["survivors"]) == (False, [])
    assert not is_alive(pid)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"shell_id": "a", "bash_id": "b"},
        {"shell_id": "a", "signal": "NOPE"},
        {"shell_id": "a", "grace": -1},
        {"shell_id": "a", "grace": 60_001},
        {"shell_id": 1},
    ],
)
def test_bad_params_are_refused(daemon: RawDaemon, params: object) -> None:
    assert daemon.fail("kill_shell", params)["code"] == -32602


def test_unknown_shell_is_an_error() -> None:
    with raw_daemon() as daemon:
        assert daemon.fail("kill_shell", {"shell_id": "../../x"})["data"]["expired"] is False


@pytest.mark.slow
def test_hundreds_of_shells_start_and_end_together() -> None:
    # These are more requests than the keeper takes at a time, and the shells need more files than
    # the usual limit allows.
    with raw_daemon("--max-shells", "400") as daemon:
        ids = [
            daemon.request("bash", {"command": "sleep 300", "run_in_background": True})
            for _ in range(400)
        ]
        assert daemon.call("ping") == {}
        assert all("result" in daemon.answer(request_id) for request_id in ids)
        family = descendants(daemon.pid)
        assert len(family) >= 800
        threads = len(list(Path(f"/proc/{daemon.pid}/task").iterdir()))
        # One thread runs the event loop, one writes the answers, and one has loaded a module.
        assert threads <= 3
        daemon.end_input()
        assert daemon.wait() == 0
    wait_for(lambda: not any(map(is_alive, family)), "the end of all of them")
