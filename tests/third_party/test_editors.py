"""The editor examples, in real editors, used as a person would use them."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Literal, Protocol

import pytest

import vscode_example
from installed import node, program
from screen_user import ScreenUser
from support import DAEMON_COMMAND, Json, RawDaemon, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"

# Asks the terminal two questions, and the user one. Each must be answered once.
ASKING = r"""
stty -echo
printf '\e[c\e[5n'
read -rsd c type
read -rsd n state
stty echo
read -rp 'Your name: ' name
echo "Hello ${name@Q}: ${type@Q} ${state@Q}"
columns=$(tput cols)
until (( $(tput cols) > columns )); do sleep 0.1; done
echo resized
"""

# Runs until somebody writes to the pipe `gate`.
WAITING = "exec 3<>gate; echo first; touch begun; read -r line <&3; echo $line"

How = Literal["terminal", "foreground", "foreground that may ask"]


class Editor(Protocol):
    """Returns the command that starts the editor in a folder, and what runs `script` there."""

    def __call__(self, folder: Path, how: How, script: str) -> tuple[str, str]: ...


def neovim(folder: Path, how: How, script: str) -> tuple[str, str]:
    options = "--cmd 'let g:shelld_command = json_decode($DAEMON)'"
    command = (
        f"{program('nvim')} -u NONE -i NONE {options} -c 'luafile $EXAMPLES/neovim/shelld.lua'"
    )
    names: dict[How, str] = {
        "terminal": "ShelldTerminal",
        "foreground": "Shelld",
        "foreground that may ask": "Shelld!",
    }
    return command, f":{names[how]} bash {script}\n"


def emacs(folder: Path, how: How, script: str) -> tuple[str, str]:
    setting = '(setq shelld-command (append (json-parse-string (getenv "DAEMON")) nil))'
    options = f"-l $EXAMPLES/emacs/shelld.el --eval '{setting}'"
    keys: dict[How, str] = {
        "terminal": "\x1bxshelld-terminal\n",
        "foreground": "\x1bxshelld-run\n",
        "foreground that may ask": "\x15\x1bxshelld-run\n",
    }
    start = f"{keys[how]}bash {script}\n"
    # `shelld-run` shows its window, but does not select it.
    return f"{program('emacs')} -nw -Q {options}", start + ("" if how == "terminal" else "\x18o")


def vscode_jsonrpc(folder: Path, how: How, script: str) -> tuple[str, str]:
    vscode_example.install_in(folder)
    name = "run.mjs" if how == "terminal" else "foreground.mjs"
    return f"SHELLD={shlex.quote(' '.join(DAEMON_COMMAND))} {node()} {name} 'bash {script}'", ""


def use(daemon: RawDaemon, folder: Path, editor: Editor, how: How, script: str) -> ScreenUser:
    """Start the editor, and run the script `script` in it."""
    command, start = editor(folder, how, script)
    env = {"DAEMON": json.dumps(DAEMON_COMMAND), "EXAMPLES": str(EXAMPLES), "LC_ALL": "C.UTF-8"}
    # Emacs compiles its own files there in the background.
    env |= {"HOME": str(folder), "TMPDIR": str(folder)}
    place: Json = {"cwd": str(folder), "env": env, "session": None}
    screen = ScreenUser(daemon, command, rows=24, cols=80, **place)
    if start:
        # Until then, the system would take C-u as an order to delete the line.
        wait_for(lambda: screen.read(wait=100)["altScreen"], "the editor")
        screen.type(start)
    return screen


def open_gate(folder: Path) -> None:
    """Let the script `waiting` end. Raises `OSError` if it does not run."""
    gate = os.open(folder / "gate", os.O_WRONLY | os.O_NONBLOCK)
    os.write(gate, b"second\n")
    os.close(gate)


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
    wait_for((tmp_path / "begun").exists, "the command in the foreground")
    screen.type(keys)
    screen.until_text("continues in the background]")
    screen.until_text("first")
    screen.type(keys)
    screen.until_text("nothing runs in the foreground")
    open_gate(tmp_path)
    screen.until_text("second")
    screen.until_text("exit code 0")


@pytest.mark.parametrize(("editor", "keys"), [(neovim, "\\b"), (emacs, "\x03\x02")])
def test_terminal_that_is_handed_over_is_shown(
    daemon: RawDaemon, tmp_path: Path, editor: Editor, keys: str
) -> None:
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "waiting").write_text(WAITING)
    screen = use(daemon, tmp_path, editor, "foreground that may ask", "waiting")
    wait_for((tmp_path / "begun").exists, "the command in the foreground")
    screen.type(keys)
    screen.until_text("continues in the background")
    screen.until_line("first")
    open_gate(tmp_path)
    screen.until_line("second")


@pytest.mark.parametrize("editor", [neovim, emacs, vscode_jsonrpc])
def test_command_that_waits_for_input_says_so_and_can_be_answered(
    daemon: RawDaemon, tmp_path: Path, editor: Editor
) -> None:
    (tmp_path / "asking").write_text("read -rp 'Your name: '; echo \"Hello $REPLY\"")
    screen = use(daemon, tmp_path, editor, "foreground that may ask", "asking")
    screen.until_text("waits for input")
    screen.until_text("Your name:")
    screen.type("iAda\n" if editor is neovim else "Ada\n")
    screen.until_text("Your name: Ada")
    screen.until_text("Hello Ada")
