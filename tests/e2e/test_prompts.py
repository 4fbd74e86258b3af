"""`prompt`, `until: "prompt"` and `isStopped` show what a running command waits for."""

from __future__ import annotations

import shutil

import pytest

from support import Json, RawDaemon, wait_for

# Each of these commands reads its terminal. The value is the name of the program that reads.
WAITING = {
    "cat": "cat",
    "read x": "bash",
    "read -s x": "bash",
    "read -t 300 x": "bash",
    "env cat": "cat",
    "timeout 300 cat": "cat",
    "cat | sort": "cat",
    "cat < /dev/tty": "cat",
    "xargs -o cat < /dev/null": "cat",
    "setsid -w cat": "cat",
    "sleep 300 & cat": "cat",
    "bash --norc -i": "bash",
    "exec bash -c 'read x; echo'": "bash",
    "python3 -c 'input()'": "python3",
    "python3 -c 'import getpass; getpass.getpass()'": "python3",
    "python3 -c 'import select; select.select([0], [], [])'": "python3",
    "python3 -c 'import pty; pty.spawn(\"cat\")'": "cat",
    # This program works in one thread and waits for a key in another, as a media player does.
    "python3 -c 'import os, threading, time; threading.Thread(target=time.sleep, args=(300,))"
    ".start(); os.read(0, 1)'": "python3",
}
# A thread of this program reads the terminal, as if to pass the input to another program. The other
# program does not read.
RELAY = """python3 -c '
import os, pty, threading
pid, master = pty.fork()
if pid == 0:
    os.execvp("sleep", ["sleep", "300"])
threading.Thread(target=os.read, args=(0, 1)).start()
print("ready", flush=True)
os.read(master, 1)
'"""
# Commands that do not read their terminal, whatever they print. First, they write "ready".
BUSY = [
    "echo ready; sleep 300",
    "echo ready; printf 'Password: '; sleep 300",
    "echo ready; printf 'Continue? [y/N] '; exec sleep 300",
    "read x < /dev/null; echo ready; sleep 300",
    "cat & echo ready; sleep 300",
    "echo ready; sleep 300 | cat",
    "echo ready; exec tail -f /dev/null",
    "echo ready; while :; do :; done",
    "python3 -c 'import time; print(\"ready\", flush=True); time.sleep(300)'",
    "python3 -c 'import os; r, _ = os.pipe(); print(\"ready\", flush=True); os.read(r, 1)'",
    'python3 -c \'import pty; pty.spawn(["sh", "-c", "echo ready; sleep 300"])\'',
    RELAY,
]


def until_prompt(daemon: RawDaemon, bash_id: str) -> Json:
    params = {"bash_id": bash_id, "wait": 30_000, "until": "prompt"}
    result: Json = daemon.call("bash_output", params)
    return result


def listed(daemon: RawDaemon) -> dict[str, Json]:
    return {shell["bash_id"]: shell for shell in daemon.call("list_shells")["shells"]}


@pytest.mark.parametrize("command", WAITING)
def test_program_that_reads_its_terminal_is_proved(daemon: RawDaemon, command: str) -> None:
    for program in ("setsid", "xargs", "timeout"):
        if command.startswith(program) and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    prompt = until_prompt(daemon, daemon.background(command, tty=True))["prompt"]
    assert (prompt["certainty"], prompt["program"]) == ("proved", WAITING[command])
    assert prompt["blocking"] is ("-t" not in command)


def test_program_that_does_not_read_has_no_prompt(daemon: RawDaemon) -> None:
    waiting = daemon.background("printf 'Name? '; read -r x", tty=True)
    busy = {daemon.background(command, tty=True): command for command in BUSY}
    for bash_id in busy:
        ready = {"bash_id": bash_id, "wait": 60_000, "filter": "ready"}
        assert daemon.call("bash_output", ready)["stdout"]
    for _ in range(3):
        # While this call waits for a moment, the busy commands continue.
        assert until_prompt(daemon, waiting)["prompt"] is not None
        shells = listed(daemon)
        found = {command: shells[bash_id]["prompt"] for bash_id, command in busy.items()}
        assert [command for command, prompt in found.items() if prompt is not None] == []


def test_prompt_describes_the_question(daemon: RawDaemon) -> None:
    bash_id = daemon.background(r"printf 'one\n\e[1mYour name? \e[0m'; read -r name", tty=True)
    prompt = until_prompt(daemon, bash_id)["prompt"]
    assert prompt.pop("sinceMs") >= 0
    assert prompt == {
        "certainty": "proved",
        "blocking": True,
        "lineMode": True,
        "echo": True,
        "pid": listed(daemon)[bash_id]["pid"],
        "program": "bash",
        "text": "Your name?",
    }


def test_prompt_has_the_end_of_a_long_line(daemon: RawDaemon) -> None:
    command = "printf 'first\n%0600d' 7; printf '%495s' 'Name? '; read -r name"
    prompt = until_prompt(daemon, daemon.background(command, tty=True))["prompt"]
    assert prompt["text"] == "000007" + " " * 489 + "Name?"
    assert len(prompt["text"]) == 500


def test_prompt_for_a_secret_has_no_echo(daemon: RawDaemon) -> None:
    prompt = until_prompt(daemon, daemon.background("read -rs secret", tty=True))["prompt"]
    assert (prompt["lineMode"], prompt["echo"]) == (True, False)


@pytest.mark.parametrize(("least", "blocking"), [(0, False), (1, True)])
def test_read_with_a_time_limit_is_not_blocking(
    daemon: RawDaemon, least: int, blocking: bool
) -> None:
    # With `min 0`, a read of dd ends after 25 s although nothing is typed. With `min 1`, the read
    # waits until somebody types.
    command = f"stty -icanon -echo min {least} time 250; while :; do dd bs=1 count=1; done"
    prompt = until_prompt(daemon, daemon.background(command, tty=True))["prompt"]
    assert (prompt["certainty"], prompt["program"]) == ("proved", "dd")
    assert prompt["blocking"] is blocking


def test_prompt_beside_output_that_does_not_stop_is_found(daemon: RawDaemon) -> None:
    program = "import select\nwhile not select.select([0], [], [], 0.05)[0]: pass"
    command = f"while echo tick; do sleep 0.03; done & exec python3 -c '{program}'"
    read = until_prompt(daemon, daemon.background(command, tty=True))
    assert (read["reached"], read["prompt"]["program"]) == ("prompt", "python3")


def test_open_stdin_has_no_modes(daemon: RawDaemon) -> None:
    bash_id = daemon.background("cat", open_stdin=True)
    prompt = until_prompt(daemon, bash_id)["prompt"]
    assert (prompt["certainty"], prompt["program"]) == ("proved", "cat")
    assert (prompt["lineMode"], prompt["echo"], prompt["text"]) == (None, None, "")


def test_answered_program_waits_no_more(daemon: RawDaemon) -> None:
    bash_id = daemon.background('read -r x; echo "<$x>"; exec sleep 300', tty=True)
    until_prompt(daemon, bash_id)
    answer = {"bash_id": bash_id, "text": "yes\n"}
    output = daemon.call("write_stdin", answer)["stdout"]
    while "<yes>" not in output:
        output += daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})["stdout"]
    assert daemon.call("bash_output", {"bash_id": bash_id})["prompt"] is None


def test_each_answer_leads_to_the_next_prompt(daemon: RawDaemon) -> None:
    bash_id = daemon.background(
        'for n in {1..20}; do sleep 0.0$n; read -rp "$n? " x; done; exec cat', tty=True
    )
    output = until_prompt(daemon, bash_id)["stdout"]
    for number in range(1, 21):
        assert output.endswith(f"{number}? ")
        answer = {"bash_id": bash_id, "text": "y\n", "wait": 30_000, "until": "prompt"}
        result = daemon.call("write_stdin", answer)
        assert result["prompt"] is not None
        output = result["stdout"]


@pytest.mark.parametrize("command", ["true", "exit 3"])
def test_end_of_the_command_ends_the_wait_for_a_prompt(daemon: RawDaemon, command: str) -> None:
    result = until_prompt(daemon, daemon.background(command, tty=True))
    assert (result["isRunning"], result["prompt"]) == (False, None)


def test_wait_for_a_prompt_returns_at_once_without_input(daemon: RawDaemon) -> None:
    result = until_prompt(daemon, daemon.background("sleep 300"))
    assert (result["isRunning"], result["prompt"]) == (True, None)


@pytest.mark.parametrize("params", [{}, {"tty": True}, {"open_stdin": True}])
def test_stopped_command_is_reported(daemon: RawDaemon, params: Json) -> None:
    bash_id = daemon.background("kill -STOP $$; exec sleep 300", **params)
    read = {"bash_id": bash_id}

    def is_stopped() -> bool:
        stopped: bool = daemon.call("bash_output", read).get("isStopped", False)
        return stopped

    wait_for(is_stopped, "the stop")
    assert listed(daemon)[bash_id].get("isStopped")
    assert daemon.call("bash_output", read)["prompt"] is None
    daemon.call("kill_shell", {"shell_id": bash_id})
    assert not is_stopped()


def test_stopped_foreground_of_a_terminal_is_reported(daemon: RawDaemon) -> None:
    # The program in the foreground is not bash, and leads a process group of its own.
    command = (
        "exec python3 -c 'import os, signal; pid = os.fork(); os.setpgid(pid, pid);"
        " signal.signal(signal.SIGTTOU, signal.SIG_IGN); os.tcsetpgrp(0, pid or os.getpid());"
        " os.kill(0, signal.SIGSTOP) if pid == 0 else signal.pause()'"
    )
    bash_id = daemon.background(command, tty=True)
    wait_for(lambda: bool(listed(daemon)[bash_id].get("isStopped")), "the stop")
