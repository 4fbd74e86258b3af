"""``shelld doctor`` reports the truth about a machine and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shelld.cli.logout import why_a_logout_kills
from support import DEADLINE_S, Json, altered_daemon, descendants, wait_for

pytestmark = pytest.mark.slow

USER = pwd.getpwuid(os.getuid()).pw_name

CHECKS = [
    *("system", "open files", "processes", "spool", "guard", "ports"),
    *("bash", "sessions", "spare shells", "prompts", "containment", "cgroup", "limits", "sandbox"),
]


def examine(
    *options: str,
    more: Sequence[str] = (),
    program: Sequence[str] = (sys.executable, "-W", "error", "-P", "-m", "shelld"),
) -> tuple[int, dict[str, Json]]:
    """Return the exit code, and the finding of each check. `more` names the checks that the doctor
    reports besides the usual checks.
    """
    command = [*program, "doctor", "--json", "--", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stderr == ""
    found: list[Json] = json.loads(ended.stdout)
    assert [each["check"] for each in found if each["check"] not in more] == CHECKS
    assert {*more} <= {each["check"] for each in found}
    return ended.returncode, {each["check"]: each for each in found}


def problems(found: dict[str, Json]) -> set[str]:
    return {check for check, each in found.items() if each["state"] == "problem"}


def test_doctor_passes_on_a_test_machine() -> None:
    code, found = examine()
    assert code == 0
    assert problems(found) == set()
    assert found["spare shells"]["state"] == "ok"
    assert found["containment"]["found"] == "a kill ends every process of a command"
    assert found["bash"]["found"].startswith("/bin/bash, 5")


def test_doctor_tells_how_limits_hold() -> None:
    # The daemon cannot make a cgroup, because the directory above the cgroup does not exist.
    program = altered_daemon({"shelld.limits.cgroups.PREFIX": "missing/"})
    code, found = examine(program=program)
    assert (code, found["limits"]["state"]) == (0, "note")
    assert found["limits"]["found"] == "no cgroup for a limit on memory and processes"


def test_doctor_reports_and_ends_survivors() -> None:
    code, found = examine("--containment", "process-group", "--spare-shells", "0")
    assert code == 1
    assert problems(found) == {"containment"}
    assert found["spare shells"] == {
        "check": "spare shells",
        "state": "note",
        "found": "off",
        "meaning": "",
    }


def test_doctor_reports_survivors_in_a_sandbox() -> None:
    code, found = examine("--containment", "process-group", "--sandbox", "read-only")
    assert code == 1
    assert problems(found) == {"containment"}
    assert found["containment"]["found"] == "a process escapes"


def test_doctor_reports_a_bash_that_is_no_file(tmp_path: Path) -> None:
    code, found = examine("--bash", str(tmp_path))
    assert code == 1
    affected = {"bash", "sessions", "spare shells", "prompts", "containment"}
    # The doctor reports the sandbox as a problem only on machines that can have sandboxes.
    assert problems(found) - {"sandbox"} == affected
    assert found["bash"]["found"] == f"{tmp_path}: not a file"


def test_doctor_reports_missing_resources() -> None:
    code, found = examine("--max-shells", "1000000")
    assert code == 1
    assert problems(found) <= {"open files", "processes"}
    assert "of 1000000 shells" in found["open files"]["meaning"]


# The system lets root write to /proc, but nobody can make a file there.
LITTLE, NOTHING = "only 64 KiB of each stream are kept", "the daemon does not start"
IN_PROC = LITTLE if os.geteuid() == 0 else NOTHING


@pytest.mark.parametrize(("directory", "meaning"), [("/proc", IN_PROC), ("/none", NOTHING)])
def test_doctor_reports_unwritable_spool_directory(directory: str, meaning: str) -> None:
    code, found = examine("--spool-dir", directory)
    assert code == 1
    assert problems(found) == {"spool"}
    assert found["spool"]["meaning"] == meaning


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "check"),
    [
        ("--audit-log", "audit log"),
        ("--log-file", "log file"),
        ("--guard-rules", "guard rules"),
    ],
)
def test_doctor_reports_unusable_file_options(option: str, check: str) -> None:
    code, found = examine(option, "/proc/nonexistent", more=[check])
    assert code == 1
    assert problems(found) == {check}


def test_doctor_leaves_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    code, _ = examine("--audit-log", str(path), "--log-file", str(path))
    assert code == 0
    assert not path.exists()


@pytest.mark.parametrize("mode", ["off", "warn"])
def test_doctor_reports_a_guard_that_blocks_nothing(mode: str) -> None:
    _, found = examine("--guard", mode)
    assert (found["guard"]["state"], found["guard"]["found"]) == ("note", mode)


def test_doctor_reports_printing_startup_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "startup"
    path.write_text("echo hello\n")
    monkeypatch.setenv("BASH_ENV", str(path))
    code, found = examine(more=["BASH_ENV"])
    assert code == 0
    assert (found["BASH_ENV"]["state"], found["BASH_ENV"]["found"]) == ("note", str(path))


def test_doctor_needs_one_shell_at_a_time() -> None:
    code, found = examine("--max-shells", "1")
    assert code == 0
    assert problems(found) == set()


def test_interrupted_doctor_prints_nothing(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-W", "error", "-P", "-m", "shelld", "doctor"]
    # A process that a script starts in the background ignores SIGINT, and so do its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        wait_for(lambda: descendants(doctor.pid), "the keeper")
        doctor.send_signal(signal.SIGINT)
        assert doctor.communicate(timeout=DEADLINE_S) == (b"", b"")
    assert doctor.returncode == 130


def test_doctor_is_readable_without_json() -> None:
    command = [sys.executable, "-P", "-m", "shelld", "doctor"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(CHECKS) + 1
    assert lines[0].startswith("ok      system        Linux")
    assert lines[-1] == "all checks passed"


def test_doctor_reports_a_test_process_that_cannot_start(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "shelld", "doctor"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "problem containment   cannot start a process for the test\n" in ended.stdout


@pytest.mark.parametrize("arguments", [["nope"], ["--", "--nope"]])
def test_doctor_refuses_bad_arguments(arguments: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "shelld", "doctor", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")


# -- logouts ----------------------------------------------------------------------------------

IN_SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
UNDER_MANAGER = f"0::/user.slice/user-1.slice/user@{os.getuid()}.service/app.slice/term.scope\n"
# With these settings, logind kills each user's processes when the user logs out. Because no user is
# excluded, it also kills the processes of root.
KILLED = "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n"
ETC, LIB = "etc/systemd/logind.conf", "usr/lib/systemd/logind.conf"


def lay_out(root: Path, group: str, files: dict[str, str]) -> None:
    for name, text in {"proc/self/cgroup": group, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("group", "files", "reason"),
    [
        (IN_SESSION, {ETC: KILLED}, "logout kills"),
        (IN_SESSION, {LIB: KILLED}, "logout kills"),
        (IN_SESSION, {LIB: KILLED, ETC: "[Login]\n"}, ""),
        (IN_SESSION, {ETC: KILLED.replace("yes", "no")}, ""),
        (IN_SESSION, {ETC: "#KillUserProcesses=yes\nKillExcludeUsers=\n"}, "logout kills"),
        (IN_SESSION, {ETC: "#KillUserProcesses=yes\n" + KILLED.replace("yes", "no")}, ""),
        (IN_SESSION, {ETC: KILLED, f"{LIB}.d/9.conf": "KillUserProcesses=0\n"}, ""),
        (
            IN_SESSION,
            {ETC: KILLED, f"{LIB}.d/9.conf": "KillUserProcesses=0\n", f"{ETC}.d/9.conf": ""},
            "logout kills",
        ),
        (IN_SESSION, {ETC: KILLED + f"KillExcludeUsers=x {USER}\n"}, ""),
        (IN_SESSION, {ETC: KILLED + "KillOnlyUsers=somebody-else\n"}, ""),
        (IN_SESSION, {ETC: KILLED + f"KillOnlyUsers=x {USER}\n"}, "logout kills"),
        (IN_SESSION, {}, ""),
        ("0::/system.slice/ssh.service\n", {ETC: KILLED}, ""),
        (UNDER_MANAGER, {}, "lingering is off: the last logout"),
        (UNDER_MANAGER, {f"var/lib/systemd/linger/{USER}": ""}, ""),
    ],
)
def test_settings_tell_why_a_logout_kills_processes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    files: dict[str, str],
    reason: str,
) -> None:
    monkeypatch.setattr("shelld.cli.logout.ROOT", f"{tmp_path}")
    lay_out(tmp_path, group, files)
    found = why_a_logout_kills()
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_doctor_warns_if_a_logout_kills_processes(tmp_path: Path) -> None:
    lay_out(tmp_path, IN_SESSION, {ETC: KILLED})
    program = altered_daemon({"shelld.cli.logout.ROOT": f"{tmp_path}"})
    code, found = examine(more=["logout"], program=program)
    assert (code, found["logout"]["state"]) == (0, "note")
