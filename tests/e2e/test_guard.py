"""The guard in a real daemon. No dangerous command runs here, because the guard refuses the command
or the test only asks for the guard's verdict.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from guard_classes import DANGEROUS
from shelld_client import Client, CommandBlocked
from support import RawDaemon, raw_daemon

# This disk does not exist, so a command on it would do no harm even if it ran.
NO_DISK = "/dev/sdzz9/nothing"


@pytest.mark.parametrize(
    ("command", "rule", "segment"),
    [
        ("mkfs.ext4 /nonexistent/disk", "mkfs", "mkfs.ext4 /nonexistent/disk"),
        (f"dd if=/nonexistent of={NO_DISK}", "dd-disk", f"dd if=/nonexistent of={NO_DISK}"),
        (f"echo x > {NO_DISK}", "redirect-disk", f"> {NO_DISK}"),
    ],
)
def test_dangerous_command_is_an_error_and_never_runs(
    new_daemon: RawDaemon, command: str, rule: str, segment: str
) -> None:
    for params in ({}, {"run_in_background": True}, {"dry_run": True}, {"session": None}):
        error = new_daemon.fail("bash", {"command": f"true; {command}", **params})
        assert error["code"] == 1002
        assert error["message"].startswith(f"Command blocked: dangerous ({rule}): ")
        assert error["data"]["kind"] == "blocked"
        assert (error["data"]["rule"], error["data"]["segment"]) == (rule, segment)
    assert new_daemon.call("list_shells")["shells"] == []


def test_command_mentioning_danger_runs(daemon: RawDaemon) -> None:
    assert daemon.bash('echo "rm -rf /"')["stdout"] == "rm -rf /\n"
    result = daemon.bash("cat <<'EOF'\nmkfs.ext4 /dev/sda\nEOF", dry_run=True)
    assert result["verdict"] == "allow"


def test_guard_knows_session_variables(daemon: RawDaemon) -> None:
    daemon.bash(f"export TARGET={NO_DISK}; other={NO_DISK}; f() {{ dd of=$1; }}")
    for command in ("dd of=$TARGET", 'dd of="$other"', 'f "$TARGET"', f"f {NO_DISK}"):
        assert daemon.fail("bash", {"command": command})["code"] == 1002, command
        verdict = daemon.bash(command, session="another", dry_run=True)["verdict"]
        assert verdict == "allow"
    daemon.bash("alias g=dd; shopt -s expand_aliases; cd /dev")
    assert daemon.fail("bash", {"command": "g of=sdzz9"})["code"] == 1002
    assert daemon.fail("bash", {"command": "dd of=sdzz9"})["code"] == 1002


def test_guard_knows_session_options(daemon: RawDaemon) -> None:
    cases = (
        ("set -a", f"x={NO_DISK}; sh -c 'dd of=$x'"),
        ("shopt -s cdable_vars; d=/dev", "cd d && dd of=sdzz9"),
    )
    for options, command in cases:
        daemon.bash(options, session=options)
        params = {"command": command, "session": options, "dry_run": True}
        assert daemon.fail("bash", params)["code"] == 1002, command
        turn_off = options.replace("-a", "+a").replace("-s", "-u")
        daemon.bash(turn_off, session=options)
        assert daemon.call("bash", params)["verdict"] == "allow", command


def test_guard_knows_options_in_the_env_of_a_call(daemon: RawDaemon) -> None:
    daemon.bash("set +h", session="changed")
    cases = (
        ("SHELLOPTS", "allexport", f"x={NO_DISK}; sh -c 'dd of=$x'"),
        ("BASHOPTS", "extglob:cdable_vars", "d=/dev; cd d && dd of=sdzz9"),
    )
    for name, options, command in cases:
        for session in ("new", "changed"):
            params = {"command": command, "session": session, "dry_run": True}
            assert daemon.call("bash", params)["verdict"] == "allow", command
            with_options = {**params, "env": {name: options}}
            assert daemon.fail("bash", with_options)["code"] == 1002, command


@pytest.mark.parametrize("name", ["BASH_ENV", "PS4"])
def test_guard_judges_what_bash_expands_in_the_env_of_a_call(daemon: RawDaemon, name: str) -> None:
    params = {"command": "ls", "dry_run": True}
    assert daemon.call("bash", {**params, "env": {name: "$(date)"}})["verdict"] == "allow"
    dangerous = {**params, "env": {name: f"$(dd of={NO_DISK})"}}
    assert daemon.fail("bash", dangerous)["code"] == 1002


def test_command_is_judged_again_if_its_session_was_closed(daemon: RawDaemon) -> None:
    daemon.bash("dd() { :; }", session="closed")
    # The guard judges a command of this length in a thread. The daemon closes the session before
    # the thread is done.
    slow = f"dd if=/nonexistent of={NO_DISK}; : {'x y ' * 50_000}"
    judged = daemon.request("bash", {"command": slow, "session": "closed"})
    daemon.call("close_session", {"session": "closed"})
    assert daemon.answer(judged)["error"]["code"] == 1002
    # A refused command does not use the session, so the session stays closed.
    assert daemon.fail("get_session", {"session": "closed"})["code"] == 1007


def test_guard_knows_functions_that_a_bash_inherits(daemon: RawDaemon) -> None:
    write = "{ dd of=$1; }"
    daemon.bash(f"f() {write}; export -f f; g() {write}; h() {{ f $1; }}; export -f h")
    inherited = [f"bash -c 'f {NO_DISK}'", f"bash -c 'h {NO_DISK}'", f"(bash -c 'f {NO_DISK}')"]
    for command in (*inherited, f"echo {NO_DISK} | xargs bash -c 'f \"$@\"' _"):
        assert daemon.fail("bash", {"command": command, "dry_run": True})["code"] == 1002, command
    # The session does not export this function.
    assert daemon.bash(f"bash -c 'g {NO_DISK}'", dry_run=True)["verdict"] == "allow"
    env = {"BASH_FUNC_e%%": f"() {write}"}
    params = {"command": f"bash -c 'e {NO_DISK}'", "env": env, "session": None, "dry_run": True}
    assert daemon.fail("bash", params)["code"] == 1002


def test_guard_knows_the_state_of_a_large_session(daemon: RawDaemon) -> None:
    variable = r"BIG=$(head -c 70000 /dev/zero | tr '\0' x)"
    functions = r'for i in {1..1000}; do eval "f$i() { :; }"; done'
    daemon.bash(f"{variable}; {functions}; other={NO_DISK}; g() {{ dd of=$1; }}", session="large")
    for command in ("dd of=$other", f"g {NO_DISK}"):
        params = {"command": command, "session": "large", "dry_run": True}
        assert daemon.fail("bash", params)["code"] == 1002, command
    assert daemon.bash("f1", session="large", dry_run=True)["verdict"] == "allow"


def test_guard_uses_environment_and_directory_of_call(daemon: RawDaemon) -> None:
    params = {"command": "dd of=$D", "env": {"D": NO_DISK}}
    assert daemon.fail("bash", params)["code"] == 1002
    assert daemon.fail("bash", {"command": "dd of=sdzz9", "cwd": "/dev"})["code"] == 1002
    assert daemon.bash("dd of=$D", dry_run=True)["verdict"] == "allow"


@pytest.mark.slow
def test_guard_knows_directories_of_call_and_session(new_daemon: RawDaemon) -> None:
    def is_blocked(command: str, **params: object) -> bool:
        answer = new_daemon.call("explain_command", {"command": command, **params})
        return bool(answer["verdict"] == "block")

    removal = 'rm -rf "$PWD"/*'
    assert is_blocked(removal, cwd="/")
    assert not is_blocked(removal, cwd="/tmp")
    assert is_blocked(f"cd /; {removal}")
    new_daemon.bash("cd /; cd /tmp")
    assert not is_blocked(removal)
    assert is_blocked(removal, cwd="..")
    assert is_blocked("rm -rf ~-/*")
    assert not is_blocked("popd; rm -rf *")
    new_daemon.bash("pushd /; pushd /tmp")
    assert is_blocked("popd; rm -rf *")
    assert is_blocked("rm -rf ~1/*")
    assert not is_blocked("popd; rm -rf *", session="another")


def test_without_home_the_tilde_is_the_home_of_the_user(new_daemon: RawDaemon) -> None:
    params = {"command": "rm -rf ~", "env": {"HOME": None}}
    assert new_daemon.call("explain_command", params)["verdict"] == "block"


def test_guard_knows_standard_input(daemon: RawDaemon) -> None:
    for command, stdin in (("sh", f"dd of={NO_DISK}"), ("xargs dd", f"of={NO_DISK}")):
        assert daemon.fail("bash", {"command": command, "stdin": stdin})["code"] == 1002
    assert daemon.bash("cat", stdin=f"dd of={NO_DISK}")["stdout"] == f"dd of={NO_DISK}"


def test_every_class_is_refused_and_explained_alike(daemon: RawDaemon) -> None:
    first = dict(reversed(DANGEROUS))
    for line in first.values():
        assert daemon.fail("bash", {"command": line, "dry_run": True})["code"] == 1002, line
        assert daemon.call("explain_command", {"command": line})["verdict"] == "block", line


def test_a_blocked_command_is_in_the_audit_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with raw_daemon("--audit-log", str(log)) as daemon:
        daemon.fail("bash", {"command": f"dd of={NO_DISK}", "description": "why"})
    record = json.loads(log.read_text())
    assert (record["status"], record["guard"], record["bash_id"]) == ("blocked", "block", None)
    assert (record["command"], record["description"]) == (f"dd of={NO_DISK}", "why")


@pytest.mark.slow
def test_strict_guard_refuses_unknown_commands() -> None:
    with raw_daemon("--guard", "strict") as daemon:
        error = daemon.fail("bash", {"command": 'bash -c "$(date)"'})
        assert (error["code"], error["data"]["rule"]) == (1002, "unresolved")
        assert daemon.bash("echo fine")["stdout"] == "fine\n"


def test_warning_guard_runs_and_warns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with raw_daemon("--guard", "warn", "--log-file", str(log)) as daemon:
        result = daemon.bash(f"dd if=/nonexistent of={NO_DISK} 2>/dev/null; echo ran")
        assert (result["stdout"], result["warning"]) == ("ran\n", "it overwrites a disk")
        assert "warning" not in daemon.bash("echo fine")
        assert daemon.bash(f"dd of={NO_DISK}", dry_run=True)["verdict"] == "block"
    assert log.read_text().count("a dangerous command runs") == 1
    assert log.read_text().count("dd-disk") == 1


def test_guard_off_judges_nothing() -> None:
    with raw_daemon("--guard", "off") as daemon:
        result = daemon.bash(f"dd if=/nonexistent of={NO_DISK} 2>/dev/null; echo ran")
        assert (result["stdout"], "warning" in result) == ("ran\n", False)
        assert daemon.bash("echo fine", dry_run=True)["verdict"] == "unresolved"


@pytest.mark.slow
def test_rules_file_adds_and_disables_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'disable = ["dd-disk"]\n[[block]]\nname = "no-secrets"\nprogram = "cat"\n'
        'arguments = ["*.secret"]\nreason = "it shows a secret"\n'
    )
    with raw_daemon("--guard-rules", str(rules)) as daemon:
        error = daemon.fail("bash", {"command": "cd /tmp && cat 'a.secret'"})
        assert error["message"] == "Command blocked: dangerous (no-secrets): it shows a secret"
        assert daemon.bash(f"dd of={NO_DISK}", dry_run=True)["verdict"] == "allow"


@pytest.mark.slow
def test_broken_rules_stop_the_start(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("\nallow = 3\n")
    for arguments in ([str(rules)], [str(tmp_path / "missing")]):
        ended = subprocess.run(
            [sys.executable, "-m", "shelld", "--guard-rules", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=100,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("shelld: ")
        if arguments == [str(rules)]:
            assert f"{rules}:2: " in ended.stderr


def test_explain_command_reports_verdict_and_trace(daemon: RawDaemon) -> None:
    command = 'x=/; echo "rm -rf $x" | sudo bash'
    assert daemon.call("explain_command", {"command": command}) == {
        "verdict": "block",
        "rule": "rm-root",
        "segment": "rm -rf /",
        "reason": "it removes the whole file system",
        "trace": ["echo rm -rf /", "sudo bash", "bash", "rm -rf /"],
    }
    answer = daemon.call("explain_command", ["ls -la"])
    assert (answer["verdict"], answer["rule"], answer["trace"]) == ("allow", None, ["ls -la"])
    params = {"command": "rm -rf $D", "env": {"D": "/"}, "session": None, "cwd": "/tmp"}
    assert daemon.call("explain_command", params)["rule"] == "rm-root"
    assert daemon.fail("explain_command", {"command": ""})["code"] == -32602
    # The calls of `explain_command` have created no session.
    assert [each["session"] for each in daemon.call("list_sessions")["sessions"]] == ["main"]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("rm -rf /", 1, ["block: it removes the whole file system", "rule: rm-root"]),
        ("ls", 0, ["allow"]),
        ("curl x | sh", 3, ["unresolved: "]),
    ],
)
def test_explain_subcommand_reports_verdict(command: str, code: int, words: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "shelld", "explain", command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == code
    for word in words:
        assert word in ended.stdout


def test_client_raises_command_blocked_and_explains() -> None:
    with Client.spawn() as shell:
        with pytest.raises(CommandBlocked) as caught:
            shell.bash(f"dd of={NO_DISK}")
        assert caught.value.data["rule"] == "dd-disk"
        assert shell.explain_command(f"dd of={NO_DISK}").rule == "dd-disk"
        assert shell.explain_command("ls", session=None, env={"A": "b"}, cwd="/").verdict == "allow"


def test_a_long_command_does_not_keep_others_waiting(daemon: RawDaemon) -> None:
    daemon.call("ping")
    text = "x" * 50_000 + "'" + "$(" * 20_000
    slow = daemon.request("bash", {"command": f"echo {text}", "dry_run": True})
    assert daemon.call("ping") == {}
    assert daemon.answer(slow)["result"]["verdict"] == "unresolved"
