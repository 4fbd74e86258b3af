"""Real programs that talk back, driven with ``write_stdin`` as a person would drive them.

A step waits until the screen shows a text, and then types. The last text proves that the program
has understood.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from installed import program
from mount_namespace import run_after
from screen_user import ScreenUser
from shared_daemon import SharedDaemon
from support import Json, RawDaemon, wait_for

pytestmark = pytest.mark.slow


class Step(NamedTuple):
    """The text to wait for on the screen, and the input to type then, as text or as a list of
    keys.
    """

    shows: str
    types: str | list[str]


class Program(NamedTuple):
    """`needs` is the program that must be installed. `shows` is text on the screen at the end."""

    needs: str
    command: str
    steps: tuple[Step, ...]
    shows: str
    setup: str = ""


PROGRAMS = {
    "cat": Program("cat", "echo ready; cat", (Step("ready", "one\n"), Step("one", ["C-d"])), "END"),
    "bash": Program(
        "bash",
        "PS1='$ ' bash --norc -i",
        (Step("$", "echo $((6 * 7))\n"), Step("42", "exit\n")),
        "END",
    ),
    "read -s": Program(
        "bash",
        "read -s -p 'Password: ' word; echo; echo ${#word}",
        (Step("Password:", "swordfish\n"),),
        "9",
    ),
    "python": Program(
        "python3", "python3 -q", (Step(">>>", "6 * 7\n"), Step("42", "exit()\n")), "END"
    ),
    "pdb": Program(
        "python3",
        "python3 -m pdb program.py",
        (Step("(Pdb)", "next\n"), Step("(Pdb)", "p answer\n"), Step("42", "quit\n")),
        "END",
        "echo 'answer = 42' > program.py; echo 'print(answer)' >> program.py",
    ),
    "node": Program("node", "node", (Step(">", "6 * 7\n"), Step("42", ".exit\n")), "END"),
    "sqlite3": Program(
        "sqlite3", "sqlite3", (Step("sqlite>", "select 6 * 7;\n"), Step("42", ".quit\n")), "END"
    ),
    "gdb": Program(
        "gdb", "gdb -q -nx", (Step("(gdb)", "print 6 * 7\n"), Step("= 42", "quit\n")), "END"
    ),
    "less": Program("less", "less lines", (Step("line 1", ["G"]), Step("line 300", ["q"])), "END"),
    "vim": Program(
        "vim",
        "vim -n -u NONE -i NONE text; cat text",
        (Step("~", "ihello"), Step("hello", ["Escape"]), Step("hello", ":wq\n")),
        "hello",
    ),
    "nano": Program(
        "nano",
        "nano -I text; cat text",
        (Step("GNU nano", "hello"), Step("hello", ["C-o", "Enter"]), Step("Wrote", ["C-x"])),
        "END",
    ),
    "top": Program("top", "top", (Step("PID", ["q"]),), "END"),
    "ssh-keygen": Program(
        "ssh-keygen",
        "ssh-keygen -q -t ed25519 -f key; ls",
        (Step("Enter passphrase", "swordfish\n"), Step("Enter same", "swordfish\n")),
        "key.pub",
    ),
    "git add -p": Program(
        "git",
        "git add -p; git diff --cached --stat",
        (Step("Stage this hunk", "y\n"),),
        "1 insertion",
        "git init -q; echo one > file; git add file; git commit -qm one; echo two >> file",
    ),
    "git rebase -i": Program(
        "vim",
        "GIT_SEQUENCE_EDITOR='vim -n -u NONE -i NONE' git rebase -i HEAD~2; git log --oneline",
        (Step("pick", ["j", "d", "d"]), Step("pick", ":wq\n")),
        "two",
        "git init -q; for n in one two three; do echo $n > $n; git add $n; git commit -qm $n; done",
    ),
    "dialog": Program(
        "dialog",
        "dialog --menu Choose 0 0 0 1 first 2 second 2> choice; clear; cat choice",
        (Step("second", ["Down", "Enter"]),),
        "2",
    ),
    "whiptail": Program(
        "whiptail",
        "whiptail --yesno Sure 8 30; echo code $?",
        (Step("Sure", ["Tab", "Enter"]),),
        "code 1",
    ),
    "tmux": Program(
        "tmux",
        "tmux -S socket -f /dev/null new 'PS1=inner: sh'",
        (Step("inner:", "echo $((6 * 7))\n"), Step("42", "exit\n")),
        "END",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_can_be_driven(daemon: RawDaemon, tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    if shutil.which(program.needs) is None:
        pytest.skip(f"{program.needs} is not installed")
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(1, 301)))
    who = {
        f"GIT_{role}_{what}": "t" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    env = {**who, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "GIT_PAGER": "cat"}
    place: Json = {"cwd": str(tmp_path), "env": env, "session": None}
    assert daemon.bash(program.setup or "true", **place)["exitCode"] == 0
    screen = ScreenUser(daemon, f"{program.command}; echo END", **place)
    for shows, types in program.steps:
        screen.until_text(shows)
        screen.type(types)
    screen.until_text(program.shows)
    assert screen.end()["exitCode"] == 0
    assert "swordfish" not in "".join(screen.read(scrollback=1_000)["lines"])
    if name == "tmux":
        subprocess.run(
            ["tmux", "-S", str(tmp_path / "socket"), "kill-server"],
            check=False,
            capture_output=True,
        )


# -- passwords of users -----------------------------------------------------------------------

USER, UID, PASSWORD = "tester", 64_998, "swordfish"
HASH = (
    "$6$shelld$RaDy6y25AfoAYeLhBXY9I1.UavOV33fWP45.oi7ri7rA6z4bJpoOZXluE/"
    "zgdFNxVK30bMGLFWWyv0Xp8cOf3/"
)
# This script adds a user with a password to /etc. Empty directories cover the directories to which
# the programs write.
MOUNTS = """
for file in passwd shadow group sudoers pam.d/su pam.d/sudo; do
    mount --bind "$1/$file" "/etc/$file" || exit
done
for folder in /run /var/log; do mount -t tmpfs none "$folder" || exit; done
mkdir -m 755 /run/sshd"""
PAM = "auth required pam_unix.so\naccount required pam_unix.so\nsession required pam_unix.so\n"


@pytest.fixture
def other_users(tmp_path: Path) -> list[str]:
    """The beginning of a command line. It runs the rest on a machine that also has the user
    `USER`.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root, to run programs as other users")
    for name in ("unshare", "setpriv", "sshd", "ssh", "su", "sudo"):
        program(name)
    etc = tmp_path / "etc"
    (etc / "pam.d").mkdir(parents=True)
    for name, line in {
        "passwd": f"{USER}:x:{UID}:{UID}::/:/bin/sh",
        "shadow": f"{USER}:{HASH}:19000:0:99999:7:::",
        "group": f"{USER}:x:{UID}:",
    }.items():
        (etc / name).write_text(Path("/etc", name).read_text().rstrip("\n") + f"\n{line}\n")
    (etc / "sudoers").write_text(f"Defaults lecture=never\n{USER} ALL=(ALL) ALL\n")
    for name in ("shadow", "sudoers"):
        (etc / name).chmod(0o440)
    for name in ("su", "sudo"):
        (etc / "pam.d" / name).write_text(PAM)
    return run_after(MOUNTS.strip(), str(etc))


@pytest.fixture
def daemon_of_users(other_users: list[str]) -> Iterator[RawDaemon]:
    shared = SharedDaemon(prefix=other_users)
    yield shared.get()
    shared.close()


@pytest.fixture
def ssh(other_users: list[str], tmp_path: Path) -> Iterator[str]:
    """Run a server that accepts passwords. Yield the command that connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    key, pid_file, known = (tmp_path / name for name in ("host_key", "pid", "known_hosts"))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = tmp_path / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {key}\nPidFile {pid_file}\n"
        f"AllowUsers {USER}\nPasswordAuthentication yes\nUsePAM no\nPrintMotd no\n"
    )
    log = tmp_path / "log"
    server = subprocess.Popen(
        [*other_users, program("sshd"), "-D", "-f", str(config), "-E", str(log)],
        stdin=subprocess.DEVNULL,
    )
    try:
        # The server listens before it writes this file.
        wait_for(lambda: pid_file.exists() or server.poll() is not None, "the start of sshd")
        assert server.poll() is None, log.read_text()
        yield (
            f"ssh -F none -p {port} -o UserKnownHostsFile={shlex.quote(str(known))} "
            f"-o PubkeyAuthentication=no {USER}@127.0.0.1"
        )
    finally:
        server.terminate()
        server.wait()


def type_password(screen: ScreenUser, password: str) -> None:
    screen.until_text("assword")
    what = {"bash_id": screen.bash_id, "text": f"{password}\n", "secret": True}
    screen.daemon.call("write_stdin", what)


def assert_password_was_never_shown(screen: ScreenUser) -> None:
    read = {"bash_id": screen.bash_id, "stdout_offset": 0}
    assert PASSWORD not in screen.daemon.call("bash_output", read)["stdout"]
    assert PASSWORD not in "".join(screen.read(scrollback=1_000)["lines"])


AS_USER = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
ENGLISH = {"LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize(
    ("command", "proof"),
    [(f"su {USER} -c", f"42 {USER}"), ("sudo sh -c", "42 root")],
    ids=["su", "sudo"],
)
def test_password_of_a_user_is_taken(daemon_of_users: RawDaemon, command: str, proof: str) -> None:
    become = f"{AS_USER} {command} 'echo $((6 * 7)) $(id -un)'"
    screen = ScreenUser(daemon_of_users, become, env=ENGLISH)
    type_password(screen, PASSWORD)
    screen.until_text(proof)
    assert screen.end()["exitCode"] == 0
    assert_password_was_never_shown(screen)


def test_wrong_password_is_refused(daemon_of_users: RawDaemon) -> None:
    screen = ScreenUser(daemon_of_users, f"{AS_USER} su {USER} -c 'echo in'", env=ENGLISH)
    type_password(screen, "sardine")
    screen.until_text("Authentication failure")
    assert screen.end()["exitCode"] == 1


def test_ssh_logs_in_with_a_password(daemon_of_users: RawDaemon, ssh: str) -> None:
    screen = ScreenUser(daemon_of_users, ssh)
    screen.until_text("continue connecting")
    screen.type("yes\n")
    type_password(screen, PASSWORD)
    screen.until_text("$")
    screen.type("echo $((6 * 7)) $(id -un)\n")
    screen.until_text(f"42 {USER}")
    screen.type("exit 3\n")
    assert screen.end()["exitCode"] == 3
    assert_password_was_never_shown(screen)
