"""Real programs that talk back, driven with ``write_stdin`` as a person would drive them.

A step waits until the screen shows a text, and then types. The last text proves that the program
has understood.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from screen_user import ScreenUser
from support import Json, RawDaemon


class Step(NamedTuple):
    """What the screen shows, and what is typed then: a text, or keys as a list."""

    shows: str
    types: str | list[str]


class Program(NamedTuple):
    """`needs`: the program that must be installed. `shows`: what the screen shows at the end."""

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
