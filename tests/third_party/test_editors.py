"""The tests use the editor examples in real editors, as a person would."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import pytest

import vscode_example
from installed import node, program
from lasting import lasting_user
from screen_user import ScreenUser
from support import DAEMON_COMMAND, Gate, Json, RawDaemon, running_below, wait_for

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

# This script asks the terminal two questions, and the user one question. Each question must get one
# answer.
ASKING = r"""
stty -echo
printf '\e[c\e[5n'
read -rsd c type
read -rsd n state
stty echo
columns=$(tput cols)
read -rp 'Your name: ' name
echo "Hello ${name@Q}: ${type@Q} ${state@Q}"
until (( $(tput cols) > columns )); do sleep 0.1; done
echo resized
"""

# This command runs until somebody writes to the pipe `gate`.
WAITING = "exec 3<>gate; echo first; touch begun; read -r line <&3; echo $line"

# This script writes nothing until its terminal has another size and a line of input. It polls for
# the line, and reads only then.
SILENT = """
stty -echo
columns=$(tput cols)
touch begun
until (( $(tput cols) > columns )) && read -t 0; do sleep 0.1; done
read -r word
echo "got $word"
"""

# This script asks a question once somebody writes to the pipe $1.
ASKING_LATER = """
exec 3<>$1
touch $1.begun
read -r line <&3
read -rp "Word of $1: " word
echo "$1 says $word" | tee $1.said
"""

BUFFER_HAS_SECRET = (
    '(lambda (each) (with-current-buffer each (string-match-p "quix[o]tic" (buffer-string))))'
)

SECRET = "read -rsp 'Password: ' word; echo; echo \"${#word} characters\"; read -rp 'Name: ' name"

# This script writes more lines than a screen has, before and after somebody writes to the pipe
# `gate`.
LONG = r"""
exec 3<>gate
printf '\e[31mcarmine\e[0m\n'
printf 'line %d\n' {1..40}
read -r line <&3
printf 'line %d\n' {41..80}
touch ended
"""

# This script writes a line each time somebody writes to the pipe `gate`.
IN_STEPS = """
exec 3<>gate
echo first
read -r line <&3; echo "$line 2"
read -r line <&3; echo "$line 3"
"""

How = Literal["terminal", "foreground", "background"]


def daemon_of(folder: Path) -> list[str]:
    """Return the command line of the daemon that the editor starts."""
    return [*DAEMON_COMMAND, "--audit-log", str(folder / "audit")]


class Editor(Protocol):
    """This function returns the command that starts the editor in a folder, and keys to run
    scripts.
    """

    def __call__(self, folder: Path, how: How, *scripts: str) -> tuple[str, str]: ...


def neovim(folder: Path, how: How, *scripts: str) -> tuple[str, str]:
    options = "--cmd 'let g:shelld_command = json_decode($DAEMON)'"
    command = (
        f"{program('nvim')} -u NONE -i NONE {options} -c 'luafile $EXAMPLES/neovim/shelld.lua'"
    )
    names: dict[How, str] = {
        "terminal": "ShelldTerminal",
        "foreground": "Shelld",
        "background": "ShelldFollow",
    }
    return command, "".join(f":{names[how]} bash {script}\n" for script in scripts)


def emacs(folder: Path, how: How, *scripts: str) -> tuple[str, str]:
    setting = '(setq shelld-command (append (json-parse-string (getenv "DAEMON")) nil))'
    options = f"-l $EXAMPLES/emacs/shelld.el --eval '{setting}'"
    names: dict[How, str] = {
        "terminal": "shelld-terminal",
        "foreground": "shelld-run",
        "background": "shelld-follow",
    }
    start = "".join(f"\x1bx{names[how]}\nbash {script}\n" for script in scripts)
    # Emacs selects the window of a terminal, but not of other output.
    return f"{program('emacs')} -nw -Q {options}", start + ("" if how == "terminal" else "\x18o")


def vscode_jsonrpc(folder: Path, how: How, *scripts: str) -> tuple[str, str]:
    vscode_example.install_in(folder)
    name = "foreground.mjs" if how == "foreground" else "run.mjs"
    commands = " ".join(shlex.quote(f"bash {script}") for script in scripts)
    return f"SHELLD={shlex.quote(' '.join(daemon_of(folder)))} {node()} {name} {commands}", ""


def use(daemon: RawDaemon, folder: Path, editor: Editor, how: How, *scripts: str) -> ScreenUser:
    """Start the editor, and run scripts in it."""
    command, start = editor(folder, how, *scripts)
    env = {"DAEMON": json.dumps(daemon_of(folder)), "EXAMPLES": str(EXAMPLES), "LC_ALL": "C.UTF-8"}
    # Emacs compiles its own files in the home directory, in the background.
    env |= {"HOME": str(folder), "TMPDIR": str(folder)}
    place: Json = {"cwd": str(folder), "env": env, "session": None}
    screen = ScreenUser(daemon, command, rows=24, cols=80, **place)
    if start:
        # Wait for the editor, because until then the terminal would take control characters as
        # editing keys.
        wait_for(lambda: screen.read(wait=100)["altScreen"], "the editor")
        screen.type(start)
    return screen


def open_gate(gate: Path) -> None:
    """Let the script that reads the pipe continue. Raise `OSError` if no script reads it."""
    descriptor = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, b"second\n")
    os.close(descriptor)


def until_asked(screen: ScreenUser, question: str, editor: Editor) -> None:
    """Wait for a question. Neovim and Emacs ask on the last line."""
    screen.until_text(question)
    if editor is not vscode_jsonrpc:
        wait_for(lambda: last_line(screen).startswith(question), "the editor's question")


def last_line(screen: ScreenUser) -> str:
    lines: list[str] = screen.read(wait=100)["lines"]
    return lines[-1]


def raw_output(screen: ScreenUser) -> str:
    """Return all that the editor has written to its terminal."""
    params = {"bash_id": screen.bash_id, "stdout_offset": 0, "strip_ansi": False}
    text: str = screen.daemon.call("bash_output", {**params, "max_bytes": 1 << 23})["stdout"]
    return text


@pytest.mark.parametrize("editor", [neovim, emacs, vscode_jsonrpc])
def test_person_types_into_a_terminal_of_the_editor(
    daemon: RawDaemon, tmp_path: Path, editor: Editor
) -> None:
    (tmp_path / "asking").write_text(ASKING)
    screen = use(daemon, tmp_path, editor, "terminal", "asking")
    screen.until_text("Your name:")
    screen.type("A", "d", "a", "\n")
    screen.until_text("Your name: Ada")
    screen.until_text(r"Hello 'Ada': $'\E[?1;2' $'\E[0'")
    daemon.call("resize_shell", {"bash_id": screen.bash_id, "rows": 30, "cols": 100})
    screen.until_text("resized")


@pytest.mark.parametrize(
    ("editor", "keys"), [(neovim, "\\b"), (emacs, "\x03\x02"), (vscode_jsonrpc, "\x02")]
)
def test_a_key_hands_the_command_over_to_the_background(
    daemon: RawDaemon, tmp_path: Path, editor: Editor, keys: str
) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "waiting").write_text(WAITING)
    screen = use(daemon, tmp_path, editor, "foreground", "waiting")
    # The editor shows the output as it comes, while the call has no answer yet.
    screen.until_line("first")
    screen.type(keys)
    screen.until_text("continues in the background")
    screen.type(keys)
    screen.until_text("nothing runs in the foreground")
    open_gate(tmp_path / "gate")
    screen.until_text("second")
    screen.until_text("exit code 0 after")


@pytest.mark.parametrize(
    ("editor", "keys"), [(neovim, "iword\r"), (emacs, "\x03\x13w o r d Enter\n")]
)
def test_command_in_the_foreground_that_has_written_nothing_gets_keys(
    daemon: RawDaemon, tmp_path: Path, editor: Editor, keys: str
) -> None:
    # Only in Neovim does a command in the foreground learn that its window has changed.
    script = SILENT if editor is neovim else SILENT.replace("> columns", ">= columns")
    (tmp_path / "silent").write_text(script)
    screen = use(daemon, tmp_path, editor, "foreground", "silent")
    wait_for((tmp_path / "begun").exists, "the command")
    daemon.call("resize_shell", {"bash_id": screen.bash_id, "rows": 30, "cols": 100})
    screen.type(keys)
    screen.until_text("got word")
    screen.until_text("exit code 0 after")


@pytest.mark.parametrize("editor", [neovim, emacs, vscode_jsonrpc])
def test_command_in_the_foreground_asks_and_is_answered(
    daemon: RawDaemon, tmp_path: Path, editor: Editor
) -> None:
    (tmp_path / "asking").write_text("read -rp 'Your name: '; echo \"Hello $REPLY\"")
    screen = use(daemon, tmp_path, editor, "foreground", "asking")
    until_asked(screen, "Your name:", editor)
    screen.type("Ada\n")
    screen.until_text("Hello Ada")
    screen.until_text("exit code 0 after")


def test_command_in_the_background_says_whose_question_it_is(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "later").write_text(ASKING_LATER.replace("$1", "gate"))
    (tmp_path / "next").write_text("read -rp 'Now: '; echo \"now $REPLY\"")
    screen = use(daemon, tmp_path, vscode_jsonrpc, "foreground", "later", "next")
    wait_for((tmp_path / "gate.begun").exists, "the command in the foreground")
    screen.type("\x02")
    screen.until_text("continues in the background]")
    screen.until_text("Now:")
    open_gate(tmp_path / "gate")
    screen.until_text("waits for input: Word of gate:]")
    screen.type("first\r")
    screen.until_text("| Word of gate: first")
    screen.until_text("| gate says first")
    screen.type("second\r")
    screen.until_text("now second")


@pytest.mark.parametrize("editor", [neovim, emacs])
def test_two_tasks_ask_one_after_the_other(
    daemon: RawDaemon, tmp_path: Path, editor: Editor
) -> None:
    (tmp_path / "later").write_text(ASKING_LATER)
    for name in ("left", "right"):
        os.mkfifo(tmp_path / name)
    screen = use(daemon, tmp_path, editor, "background", "later left", "later right")
    for name in ("left", "right"):
        wait_for((tmp_path / f"{name}.begun").exists, "the task")
        open_gate(tmp_path / name)
    # Either command may ask first.
    wait_for(lambda: last_line(screen).startswith("Word of"), "a question")
    first = last_line(screen).split()[2].rstrip(":")
    second = "right" if first == "left" else "left"
    for name in (first, second):
        until_asked(screen, f"Word of {name}:", editor)
        screen.type(f"word for {name}\n")
        said = tmp_path / f"{name}.said"
        wait_for(lambda said=said: said.exists() and said.read_text(), "what it says")  # type: ignore[misc]
        assert said.read_text() == f"{name} says word for {name}\n"
        if editor is neovim:
            # The editor shows the output while it asks the user the second question. Emacs shows
            # only the output or the question.
            screen.until_text(f"{name} says word for {name}")
    screen.until_text("exit code 0 after")
    questions = ("Word of left:", "Word of right:")
    wait_for(lambda: last_line(screen) not in questions, "no further question")


@pytest.mark.parametrize("editor", [neovim, emacs, vscode_jsonrpc])
def test_secret_is_shown_nowhere(daemon: RawDaemon, tmp_path: Path, editor: Editor) -> None:
    (tmp_path / "secret").write_text(SECRET)
    screen = use(daemon, tmp_path, editor, "foreground", "secret")
    until_asked(screen, "Password:", editor)
    screen.type("quixotic")
    if editor is not vscode_jsonrpc:
        hidden = len("Password: quixotic")
        wait_for(lambda: len(last_line(screen)) == hidden, "signs in place of the secret")
    screen.type("\n")
    screen.until_text("8 characters")
    until_asked(screen, "Name:", editor)
    if editor is neovim:
        # The key Up shows the history of answers.
        screen.type("\x1b[A")
    screen.type("Ada\n")
    screen.until_text("exit code 0 after")
    assert "quix" not in raw_output(screen)
    if editor is emacs:
        # Count the buffers that contain the secret, including buffers with logs.
        screen.type(f"\x1b:(seq-count {BUFFER_HAS_SECRET} (buffer-list))\n")
        screen.until_line(r"0 (#o0, #x0, ?\C-@)")
    records = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    typed = [each["secret"] for each in records if each.get("event") == "input"]
    # The example for VS Code passes on single keys, and the terminal of the command does not show
    # them.
    assert typed == [True, False] or editor is vscode_jsonrpc


@pytest.mark.parametrize(
    ("editor", "start", "end"), [(neovim, "gg", "G"), (emacs, "\x1b<", "\x1b>")]
)
def test_window_follows_coloured_output_unless_its_user_has_scrolled(
    daemon: RawDaemon, tmp_path: Path, editor: Editor, start: str, end: str
) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "long").write_text(LONG)
    screen = use(daemon, tmp_path, editor, "background", "long")
    screen.until_line("line 40")
    screen.type(start)
    screen.until_line("carmine")
    open_gate(tmp_path / "gate")
    wait_for((tmp_path / "ended").exists, "the rest of the output")
    lines = screen.read(wait=1000, until="stable")["lines"]
    assert "carmine" in lines
    assert "line 80" not in lines
    screen.type(end)
    screen.until_line("line 80")
    screen.until_text("exit code 0 after")
    # The colour is 31, 38;5;1, or the nearest of 256 colours.
    assert re.search(r"\x1b\[[0-9;]*3[18][0-9;]*mcarmine", raw_output(screen))


def attached_neovim(folder: Path, script: str) -> tuple[str, str, str]:
    """Return the commands of two successive Neovims, and the keys that run the script."""
    command, start = neovim(folder, "background", script)
    first = f"{command} --cmd 'let g:shelld_attach = \"work\"'"
    return first, f"{first} -c ShelldRejoin", start


def attached_emacs(folder: Path, script: str) -> tuple[str, str, str]:
    command, start = emacs(folder, "background", script)
    first = f"{command} --eval '(setq shelld-attach \"work\")'"
    return first, f"{first} --eval '(shelld-rejoin)'", start


def attached_vscode_jsonrpc(folder: Path, script: str) -> tuple[str, str, str]:
    vscode_example.install_in(folder)
    run = f"SHELLD={shlex.quote(' '.join(DAEMON_COMMAND))} {node()} run.mjs --attach work"
    return f"{run} {shlex.quote(f'bash {script}')}", run, ""


@pytest.mark.parametrize(
    ("editors", "program_name"),
    [(attached_neovim, "nvim"), (attached_emacs, "emacs"), (attached_vscode_jsonrpc, "node")],
)
def test_command_goes_on_while_its_editor_is_replaced(
    daemon: RawDaemon,
    tmp_path: Path,
    editors: Callable[[Path, str], tuple[str, str, str]],
    program_name: str,
) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "in_steps").write_text(IN_STEPS)
    # The first editor ends, but its terminal stays, because it may still have answers for that
    # editor.
    gone = Gate(tmp_path / "gone")
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime):
        first, second, start = editors(tmp_path, "in_steps")
        # The lasting daemon is below this command.
        command = (
            f"{first}; stty sane; tput rmcup; clear; echo gone; {gone.wait}; {second}; sleep 300"
        )
        env = {
            "DAEMON": json.dumps(DAEMON_COMMAND),
            "EXAMPLES": str(EXAMPLES),
            "LC_ALL": "C.UTF-8",
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        place: Json = {"cwd": str(tmp_path), "env": env, "session": None}
        screen = ScreenUser(daemon, command, rows=24, cols=80, **place)
        if start:
            wait_for(lambda: screen.read(wait=100)["altScreen"], "the editor")
            screen.type(start)
        screen.until_line("first")
        shells = {each["bash_id"]: each for each in daemon.call("list_shells")["shells"]}
        for pid in running_below(shells[screen.bash_id]["pid"], program_name):
            os.kill(pid, signal.SIGKILL)
        screen.until_text("gone")
        open_gate(tmp_path / "gate")
        gone.open()
        screen.until_text("second 2")
        open_gate(tmp_path / "gate")
        screen.until_text("second 3")
        screen.until_text("exit code 0 after")
        daemon.call("kill_shell", {"shell_id": screen.bash_id, "grace": 0})
