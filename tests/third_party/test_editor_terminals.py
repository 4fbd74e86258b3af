"""The terminals of the editor examples, in real editors, used as a person would use them."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from installed import NODE_MODULES, node, npm_package, program
from screen_user import ScreenUser
from support import DAEMON_COMMAND, Json, RawDaemon

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


def neovim(_: Path) -> tuple[str, str]:
    options = "--cmd 'let g:shelld_command = json_decode($DAEMON)'"
    command = (
        f"{program('nvim')} -u NONE -i NONE {options} -c 'luafile $EXAMPLES/neovim/shelld.lua'"
    )
    return command, ":ShelldTerminal bash asking\n"


def emacs(_: Path) -> tuple[str, str]:
    setting = '(setq shelld-command (append (json-parse-string (getenv "DAEMON")) nil))'
    options = f"-l $EXAMPLES/emacs/shelld.el --eval '{setting}'"
    return f"{program('emacs')} -nw -Q {options}", "\x1bxshelld-terminal\nbash asking\n"


def vscode_jsonrpc(directory: Path) -> tuple[str, str]:
    npm_package("vscode-jsonrpc")
    (directory / "node_modules").symlink_to(NODE_MODULES)
    shutil.copy(EXAMPLES / "vscode-jsonrpc" / "run.mjs", directory)
    return f"SHELLD={shlex.quote(' '.join(DAEMON_COMMAND))} {node()} run.mjs 'bash asking'", ""


@pytest.mark.parametrize("editor", [neovim, emacs, vscode_jsonrpc])
def test_person_types_into_a_terminal_of_the_editor(
    daemon: RawDaemon, tmp_path: Path, editor: Callable[[Path], tuple[str, str]]
) -> None:
    (tmp_path / "asking").write_text(ASKING)
    command, start = editor(tmp_path)
    env = {"DAEMON": json.dumps(DAEMON_COMMAND), "EXAMPLES": str(EXAMPLES), "LC_ALL": "C.UTF-8"}
    # Emacs compiles its own files there in the background.
    env |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    place: Json = {"cwd": str(tmp_path), "env": env, "session": None}
    screen = ScreenUser(daemon, command, rows=24, cols=80, **place)
    if start:
        screen.type(start)
    screen.until_text("Your name:")
    screen.type("A", "d", "a", "\n")
    screen.until_text("Your name: Ada")
    screen.until_text(r"Hello 'Ada': $'\E[?1;2' $'\E[0'")
    daemon.call("resize_shell", {"bash_id": screen.bash_id, "rows": 30, "cols": 100})
    screen.until_text("resized")
