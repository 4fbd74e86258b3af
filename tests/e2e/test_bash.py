"""``bash`` in the foreground, with the real daemon."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support import Gate, Mark, RawDaemon, altered_daemon, is_alive, raw_daemon, wait_for


def test_result_has_every_member(daemon: RawDaemon) -> None:
    result = daemon.bash("echo out; echo err >&2; exit 3", description="say both")
    assert result.pop("bash_id").startswith("shell_")
    assert result.pop("durationMs") >= 0
    usage = result.pop("usage")
    assert set(usage) == {"userMs", "systemMs", "maxRssBytes"}
    assert usage["maxRssBytes"] > 100_000
    assert result == {
        "command": "echo out; echo err >&2; exit 3",
        "stdout": "out\n",
        "stderr": "err\n",
        "exitCode": 3,
        "signal": None,
        "status": "failed",
        "truncated": False,
        "stdoutBytes": 4,
        "stderrBytes": 4,
        "cwd": os.getcwd(),
        "sessionCwd": os.getcwd(),
        "leftover": [],
        "description": "say both",
    }


def test_description_is_left_out_unless_given(daemon: RawDaemon) -> None:
    assert "description" not in daemon.bash("true")


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 137, 143, 255])
def test_exit_code_is_never_taken_for_a_signal(daemon: RawDaemon, code: int) -> None:
    result = daemon.bash(f"exit {code}")
    assert (result["exitCode"], result["signal"]) == (code, None)
    assert result["status"] == ("completed" if code == 0 else "failed")


@pytest.mark.parametrize("name", ["TERM", "INT", "KILL", "SEGV", "HUP", "PIPE", "USR1"])
def test_death_by_own_signal_names_the_signal(daemon: RawDaemon, name: str) -> None:
    result = daemon.bash(f"kill -{name} $$; sleep 30")
    assert (result["exitCode"], result["signal"]) == (None, f"SIG{name}")
    assert result["status"] == "failed"


def test_unknown_command_has_bash_message(daemon: RawDaemon) -> None:
    result = daemon.bash("no_such_command_here")
    assert result["exitCode"] == 127
    assert result["stderr"] == "bash: line 1: no_such_command_here: command not found\n"


def test_permission_denied_is_a_result(daemon: RawDaemon, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    result = daemon.bash("./script", cwd=str(tmp_path))
    assert result["exitCode"] == 126
    assert "Permission denied" in result["stderr"]


def test_syntax_error_is_a_result(daemon: RawDaemon) -> None:
    result = daemon.bash("if true; fi")
    assert result["exitCode"] == 2
    assert result["stderr"].startswith("bash: -c: line 1: syntax error")


def test_command_runs_as_under_bash_c(daemon: RawDaemon) -> None:
    result = daemon.bash('echo "$0:$#:$-"')
    assert result["stdout"] == "bash:0:hBc\n"


def test_stdin_is_empty_and_not_the_protocol(daemon: RawDaemon) -> None:
    first = daemon.request("bash", {"command": "cat; wc -c"})
    second = daemon.request("ping")
    assert daemon.answer(second)["result"] == {}
    assert daemon.answer(first)["result"]["stdout"] == "0\n"


def test_stdin_is_given_and_then_ends(daemon: RawDaemon) -> None:
    text = "line\u2028one\nümlaut" * 10_000
    result = daemon.bash("cat", stdin=text)
    assert result["stdout"] == text


@pytest.mark.slow
def test_env_adds_variables_and_null_removes_them() -> None:
    with raw_daemon(env={**os.environ, "KEPT": "kept", "GONE": "gone"}) as daemon:
        env = {"NEW": "n=1\n", "GONE": None}
        result = daemon.bash('echo "$KEPT|${GONE-unset}|$NEW"', env=env)
        assert result["stdout"] == "kept|unset|n=1\n\n"
        again = daemon.bash('echo "$KEPT|$GONE|${NEW-unset}"')
        assert again["stdout"] == "kept|gone|unset\n"


@pytest.mark.slow
def test_environment_gains_no_variables() -> None:
    env = {"PATH": os.environ["PATH"], "ONLY": "this"}
    with raw_daemon(env=env) as daemon:
        names = set(daemon.bash("env")["stdout"].splitlines())
    # Bash sets PWD, SHLVL and _ itself.
    own = {line.partition("=")[0] for line in names} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert own == {"PATH", "ONLY"}


def test_cwd_is_for_this_command_only(daemon: RawDaemon, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    result = daemon.bash("pwd", cwd=str(tmp_path / "below"))
    assert result["stdout"] == f"{tmp_path}/below\n"
    assert result["cwd"] == f"{tmp_path}/below"
    assert daemon.bash("pwd")["stdout"] == os.getcwd() + "\n"


@pytest.mark.slow
def test_relative_cwd_starts_from_session_directory(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with raw_daemon(cwd=tmp_path) as daemon:
        assert daemon.bash("pwd", cwd="below")["stdout"] == f"{tmp_path}/below\n"


@pytest.mark.slow
def test_commands_run_in_deleted_daemon_directory(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with raw_daemon(cwd=here) as daemon:
        daemon.call("ping")
        here.rmdir()
        result = daemon.bash("echo still here")
        assert result["stdout"] == "still here\n"


@pytest.mark.slow
def test_answer_ignores_grandchild_holding_the_pipes(new_daemon: RawDaemon) -> None:
    result = new_daemon.bash("sleep 300 & echo first; exit 7")
    assert (result["stdout"], result["exitCode"]) == ("first\n", 7)
    (pid,) = result["leftover"]
    assert is_alive(pid)
    (shell,) = new_daemon.call("list_shells")["shells"]
    assert shell["leftover"] == [pid]
    killed = new_daemon.call("kill_shell", {"shell_id": result["bash_id"]})
    assert killed["alreadyStopped"] is False
    assert killed["status"] == "failed"
    assert killed["survivors"] == []
    assert not is_alive(pid)


def test_bash_output_is_complete_beside_writing_grandchild(
    daemon: RawDaemon,
) -> None:
    result = daemon.bash("yes noise >/dev/null & head -c 500000 /dev/zero | tr '\\0' x")
    assert result["stdout"] == "x" * 500_000
    assert len(result["leftover"]) == 1


@pytest.mark.slow
def test_process_substitution_gets_a_moment_to_finish() -> None:
    # On a busy machine, the usual `OUTPUT_GRACE_S` may be too short for cat.
    with raw_daemon(command=altered_daemon({"shelld.shells.life.OUTPUT_GRACE_S": 60.0})) as daemon:
        for _ in range(20):
            assert daemon.bash("exec > >(cat); echo through cat")["stdout"] == "through cat\n"


@pytest.mark.slow
def test_ended_leftover_leaves_the_list(new_daemon: RawDaemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    result = new_daemon.bash(f"cat {gate} & disown; setsid cat {gate} & echo x")
    assert len(result["leftover"]) == 2

    # Each time the test opens the gate, the processes that wait for it continue.
    def gone() -> bool:
        with contextlib.suppress(OSError):
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return _leftover(new_daemon) == []

    wait_for(gone, "an empty list of leftovers")


def _leftover(daemon: RawDaemon) -> list[int]:
    (shell,) = daemon.call("list_shells")["shells"]
    leftover: list[int] = shell["leftover"]
    return leftover


def test_leftover_output_is_read_by_shell_id(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    result = daemon.bash(f"(cat {gate}; echo later) & echo now")
    assert result["stdout"] == "now\n"
    gate.write_text("")
    texts: list[str] = []

    def said_later() -> bool:
        texts.append(daemon.call("bash_output", {"bash_id": result["bash_id"]})["stdout"])
        return "".join(texts) == "later\n"

    wait_for(said_later, "the leftover's output")


def test_timeout_error_has_output_so_far(daemon: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    command = f"echo so far; {mark.touch}; sleep 300"
    error = mark.in_time(partial(daemon.fail, "bash", {"command": command, "timeout": 1000}))
    assert (error["code"], error["message"]) == (1001, "Command timed out after 1000ms")
    data = error["data"]
    assert data["kind"] == "timeout"
    assert data["timeout_ms"] == 1000
    assert data["stdout"] == "so far\n"
    assert data["status"] == "timeout"
    assert (data["exitCode"], data["signal"]) == (None, "SIGTERM")
    assert "survivors" not in data


@pytest.mark.slow
def test_timeout_answer_follows_death_of_the_tree(new_daemon: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    command = "trap '' TERM; setsid sleep 300 & sleep 301 & echo $! ; "
    command += f"{mark.touch}; wait; sleep 302"
    error = mark.in_time(partial(new_daemon.fail, "bash", {"command": command, "timeout": 1000}))
    assert error["data"]["signal"] == "SIGKILL"
    assert not is_alive(int(error["data"]["stdout"]))
    shells = new_daemon.call("list_shells")["shells"]
    assert not any(shell["leftover"] for shell in shells)


@pytest.fixture
def lenient() -> Iterator[RawDaemon]:
    """A daemon whose grace period lets commands end by themselves, even on a busy machine."""
    with raw_daemon("--grace", "20000") as daemon:
        yield daemon


@pytest.mark.slow
def test_grace_lets_a_trap_finish(lenient: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    command = "trap 'echo cleaning; sleep 0.2; echo clean; exit 9' TERM; "
    command += f"{mark.touch}; sleep 300 & wait"
    error = mark.in_time(partial(lenient.fail, "bash", {"command": command, "timeout": 1000}))
    assert error["data"]["stdout"] == "cleaning\nclean\n"
    assert error["data"]["exitCode"] == 9
    assert error["data"]["status"] == "timeout"


@pytest.mark.slow
def test_sigterm_reaches_each_process_of_the_group_once(lenient: RawDaemon, tmp_path: Path) -> None:
    log, mark = tmp_path / "log", Mark(tmp_path)
    script = f": > {log}; trap 'echo term >> {log}' TERM; {mark.touch}; "
    script += "for i in $(seq 60); do sleep 0.05; done"
    command = f'bash -c "{script.replace("$", chr(92) + "$")}" & wait'
    mark.in_time(partial(lenient.fail, "bash", {"command": command, "timeout": 1000}))
    assert log.read_text() == "term\n"


def test_timeout_to_background_answers_like_background_start(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    command = f"echo one; {gate.wait}; echo two"
    result = daemon.bash(command, timeout=1000, on_timeout="background")
    assert result["status"] == "running"
    assert result["message"] == f"Started background shell {result['bash_id']}"
    assert is_alive(result["pid"])
    gate.open()
    read = daemon.call(
        "bash_output", {"bash_id": result["bash_id"], "wait": 60_000, "until": "exit"}
    )
    assert (read["stdout"], read["status"]) == ("one\ntwo\n", "completed")


def test_silent_command_times_out(daemon: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    params = {"command": f"echo out; {mark.touch}; sleep 300", "idle_timeout": 1000}
    error = mark.in_time(partial(daemon.fail, "bash", params))
    assert (error["code"], error["message"]) == (
        1001,
        "Command timed out after 1000ms without output",
    )
    assert error["data"].items() >= {
        "kind": "timeout",
        "timeout_ms": 1000,
        "reason": "idle",
        "status": "timeout",
        "stdout": "out\n",
        "signal": "SIGTERM",
    }.items()  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["", ">&2"])
def test_output_resets_the_idle_timeout(daemon: RawDaemon, stream: str) -> None:
    # This command is silent for longer than the limit in total, but never for long at a time.
    command = f"for i in {{1..30}}; do sleep 0.2; echo -n x {stream}; done"
    result = daemon.bash(command, idle_timeout=5500)
    assert (result["stdout"] + result["stderr"], result["status"]) == ("x" * 30, "completed")
    assert "reason" not in result


def test_silence_moves_a_command_to_the_background(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    command = f"echo one; {gate.wait}; echo two"
    result = daemon.bash(command, idle_timeout=1000, on_timeout="background")
    assert (result["status"], result["reason"]) == ("running", "idle")
    gate.open()
    read = daemon.call(
        "bash_output", {"bash_id": result["bash_id"], "wait": 60_000, "until": "exit"}
    )
    assert (read["stdout"], read["status"]) == ("one\ntwo\n", "completed")
    assert "reason" not in read


def test_timeout_applies_beside_idle_timeout(daemon: RawDaemon) -> None:
    command = "while :; do echo x; sleep 0.1; done"
    params = {"command": command, "idle_timeout": 3_600_000, "timeout": 1000}
    error = daemon.fail("bash", params)
    assert error["message"] == "Command timed out after 1000ms"
    assert "reason" not in error["data"]


def test_a_silent_background_shell_times_out(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo out; sleep 300", idle_timeout=1000)
    read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    assert (read["status"], read["reason"]) == ("timeout", "idle")


def test_given_timeout_applies_to_background_shell(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300", timeout=1000)
    read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    assert (read["status"], read["signal"]) == ("timeout", "SIGTERM")


@pytest.mark.slow
def test_default_timeout_can_be_set() -> None:
    with raw_daemon("--default-timeout", "1000") as daemon:
        assert daemon.fail("bash", {"command": "sleep 300"})["data"]["timeout_ms"] == 1000
        bash_id = daemon.background("sleep 1.3; echo not killed")
        read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
        assert read["stdout"] == "not killed\n"


def test_rest_of_long_output_can_be_read(daemon: RawDaemon) -> None:
    result = daemon.bash("seq 300000; seq 300000 >&2")
    whole = "".join(f"{number}\n" for number in range(1, 300_001))
    limit = 1_048_576
    for name in ("stdout", "stderr"):
        assert len(result[name]) == limit
        assert result[name].endswith("... (truncated)")
        assert result[f"{name}Bytes"] == len(whole)
    assert result["truncated"] is True
    head = result["stdout"].removesuffix("... (truncated)")
    rest = daemon.call("bash_output", {"bash_id": result["bash_id"]})
    assert head + rest["stdout"] == whole
    assert rest["more"] is False


def test_colours_are_stripped_unless_asked_for(daemon: RawDaemon) -> None:
    command = r"printf '\e[31mred\e[0m \e]8;;http://x\e\\link\e]8;;\a'"
    assert daemon.bash(command)["stdout"] == "red link"
    raw = daemon.bash(command, strip_ansi=False)["stdout"]
    assert raw == "\x1b[31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07"


def test_invalid_bytes_are_replaced_and_control_characters_kept(
    daemon: RawDaemon,
) -> None:
    result = daemon.bash(r"printf 'a\0b\xffc\r\n\x7f'")
    assert result["stdout"] == "a\0b\ufffdc\r\n\x7f"
    assert result["stdoutBytes"] == 8


@pytest.mark.slow
def test_dry_run_runs_nothing(new_daemon: RawDaemon, tmp_path: Path) -> None:
    command = f"touch {tmp_path}/ran"
    result = new_daemon.bash(command, dry_run=True)
    assert result["dryRun"] is True
    assert result["command"] == command
    assert result["stdout"].startswith("[Dry Run] ")
    assert result["verdict"] in {"allow", "unresolved"}
    assert new_daemon.call("list_shells")["shells"] == []
    assert not (tmp_path / "ran").exists()


def test_each_command_leads_its_own_session_and_group(daemon: RawDaemon) -> None:
    result = daemon.bash("cat /proc/$$/stat; true")
    fields = result["stdout"].rpartition(")")[2].split()
    group, session, terminal = fields[2:5]
    assert group == session == result["stdout"].split()[0]
    assert terminal == "0"


def test_commands_start_with_clean_descriptors_and_signals(tmp_path: Path) -> None:
    extra = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(extra, True)
    ignoring = [signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTTOU]
    before = [signal.signal(number, signal.SIG_IGN) for number in ignoring]
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])
    try:
        with raw_daemon(pass_fds=(extra,)) as daemon:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)
            for number, handler in zip(ignoring, before, strict=True):
                signal.signal(number, handler)
            listed = daemon.bash("ls /proc/$$/fd; true")["stdout"].split()
            mask = daemon.bash("grep -E 'Sig(Blk|Ign)' /proc/$$/status")["stdout"].split()
        assert listed == ["0", "1", "2"]
        blocked, ignored = int(mask[1], 16), int(mask[3], 16)
        assert blocked == 0
        # Bits 31 and 32 stand for signals of the C library. No process can set these bits.
        assert ignored & ~0x180000000 == 0
    finally:
        os.close(extra)


def test_yes_into_head_ends_by_sigpipe(daemon: RawDaemon) -> None:
    assert daemon.bash("yes | head -1; echo ${PIPESTATUS[0]}")["stdout"] == "y\n141\n"


def test_commands_run_at_the_same_time(daemon: RawDaemon, tmp_path: Path) -> None:
    # Each command waits until all 20 commands have started.
    command = f"touch {tmp_path}/$$; until set -- {tmp_path}/*; [ $# = 20 ]; do sleep 0.05; done"
    ids = [daemon.request("bash", {"command": command}) for _ in range(20)]
    assert {daemon.answer(request_id)["result"]["exitCode"] for request_id in ids} == {0}


def test_command_of_any_length_runs(daemon: RawDaemon) -> None:
    filler = "#" * 3_000_000
    result = daemon.bash(f'echo "$0:$#"; ls /proc/$$/fd; exit 5\n{filler}')
    assert result["exitCode"] == 5
    assert result["stdout"] == "bash:0\n0\n1\n2\n"


def test_environment_over_the_systems_limit_is_spawn_failed(daemon: RawDaemon) -> None:
    error = daemon.fail("bash", {"command": "true", "env": {"BIG": "x" * 200_000}})
    assert (error["code"], error["data"]["kind"]) == (1004, "spawn_failed")
    assert error["data"]["errno"] == "E2BIG"
    assert daemon.bash("echo fine")["stdout"] == "fine\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "errno"),
    [
        ("missing", "ENOENT"),
        ("file", "ENOTDIR"),
        ("loop", "ELOOP"),
        ("x" * 300, "ENAMETOOLONG"),
    ],
)
def test_cwd_that_cannot_be_used_is_spawn_failed(
    new_daemon: RawDaemon, tmp_path: Path, name: str, errno: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    error = new_daemon.fail("bash", {"command": "pwd", "cwd": str(tmp_path / name)})
    assert error["code"] == 1004
    assert error["data"] == {"kind": "spawn_failed", "errno": errno}
    assert new_daemon.call("list_shells")["shells"] == []


@pytest.mark.slow
def test_bash_removed_after_the_start_is_spawn_failed(tmp_path: Path) -> None:
    bash = tmp_path / "bash"
    bash.symlink_to("/bin/bash")
    with raw_daemon("--bash", str(bash)) as daemon:
        daemon.call("ping")
        bash.unlink()
        error = daemon.fail("bash", {"command": "true"})
        assert error["data"] == {"kind": "spawn_failed", "errno": "ENOENT"}
        assert daemon.fail("bash", {"command": "true", "run_in_background": True})["code"] == 1004
