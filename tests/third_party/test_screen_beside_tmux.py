"""The screen that ``read_screen`` returns is the one that tmux shows.

Each program runs in tmux and in shelld at the same size, and gets the same keys. After each step,
the rows and the cursor have to be the same.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shelld.terminals.pty import Size
from support import RawDaemon, wait_for

pytestmark = pytest.mark.slow

SIZES = [
    Size(24, 80),
    pytest.param(Size(10, 40), marks=pytest.mark.long),
    pytest.param(Size(50, 132), marks=pytest.mark.long),
]

LETTERS = str.maketrans(
    "\u2518\u2510\u250c\u2514\u253c\u2500\u251c\u2524\u2534\u252c\u2502", "jklmnqtuvwx"
)

CURSES = """
import curses
def main(screen):
    rows, cols = screen.getmaxyx()
    screen.border()
    screen.addstr(1, 2, "a box", curses.A_REVERSE)
    window = screen.subwin(rows - 4, cols // 2, 2, 2)
    window.box()
    window.addstr(1, 1, "inside")
    while True:
        screen.refresh()
        key = screen.getkey()
        window.addstr(2, 1, "key " + key)
        window.refresh()
curses.wrapper(main)
"""


class Step(NamedTuple):
    """Keys by tmux's names, and a text that the screen shows once the program has handled them."""

    shows: str
    keys: tuple[str, ...] = ()


class Program(NamedTuple):
    name: str
    command: str
    steps: tuple[Step, ...]

    @property
    def needs(self) -> str:
        """The program that must be installed."""
        return next(word for word in self.command.split() if word.isalnum())


def drawing(name: str, output: str) -> Program:
    """Return a program that only writes. `output` is a format of `printf`."""
    return Program(name, f"printf '{output}'; printf END; cat", (Step("END"),))


PROGRAMS = [
    Program(
        "vim",
        "vim -n -u NONE -i NONE -N lines",
        (Step("line 1"), Step("line 300", ("G",)), Step("INSERT", ("i", "x"))),
    ),
    Program("vim windows", "vim -n -u NONE -i NONE -N -o lines words", (Step("words"),)),
    Program("less", "less lines", (Step("line 1"), Step("line 300", ("G",)))),
    Program("less search", "less -N words", (Step("alpha"), Step("/omega", ("/", *"omega")))),
    Program("python", "python3 -q", (Step(">>>"), Step("42", (*"6*7", "Enter")))),
    Program("node", "NODE_REPL_HISTORY= node", (Step(">"), Step("42", (*"6*7", "Enter")))),
    Program("sqlite3", "sqlite3", (Step("sqlite>"), Step("42", (*"select 6*7;", "Enter")))),
    Program("gdb", "gdb -q -nx", (Step("(gdb)"), Step("= 42", (*"print 6*7", "Enter")))),
    Program(
        "bash",
        "PS1='$ ' bash --norc --noprofile -i",
        (Step("$"), Step("100", (*"seq 100", "Enter")), Step("seq 10", ("Up", "BSpace"))),
    ),
    Program("curses", f"python3 -c '{CURSES}'", (Step("inside"), Step("key x", ("x",)))),
    Program("nano", "nano -I lines", (Step("line 1"), Step("x", ("x", "Down", "Enter")))),
    Program(
        "dialog",
        'dialog --menu "A menu" 0 0 0 1 one 2 two',
        (Step("A menu"), Step("two", ("Down",))),
    ),
    Program("whiptail", 'whiptail --yesno "Sure" 8 30', (Step("Sure"), Step("No", ("Tab",)))),
    drawing("scroll region", r"\033[3;6r\033[6;1H" + r"a\nb\nc\nd\ne\033[r\033[9;1H"),
    drawing("lines", r"a\r\nb\r\nc\r\n\033[2;1H\033[2L\033[1;1Hx\033[4;1H\033[M\033[8;1H"),
    drawing("characters", r"abcdefgh\r\033[3@\033[7G\033[2P\033[9G\033[2X\r\n"),
    drawing("tabs", r"a\tb\r\n\ta\bc\r\n\033[3g\033[9G\033H\r\ta"),
    drawing("overwritten line", r"10%%\r20%%\r100%%\033[K\r\n"),
    drawing("colours", r"\033[31ma\033[38;5;200mb\033[48;2;1;2;3mc\033[0;1;4;7md\033[m\r\n"),
    drawing("wide characters", "\u6f22\u5b57 e\u0301 \u00e9\\r\\n\u6f22\u5b57\\033[1Gx\\r\\n"),
    drawing("line drawing", r"\033(0lqqk\r\nx  x\r\nmqqj\033(B\r\n"),
    drawing("saved cursor", r"\0337\033[5;5Ha\0338b\033[s\033[7;7Hc\033[ud\033[9;1H"),
    drawing("alternate screen", r"before\033[?1049h\033[Hinside\033[?1049l after\r\n"),
    drawing("erasures", r"a\r\nb\r\nc\r\nd\033[2;1H\033[K\033[3;1H\033[1J\033[4;1H\033[J"),
]


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    tmux = Tmux(tmp_path)
    yield tmux
    tmux.end()


class Tmux:
    """A tmux server of the test, which shows programs without a status line."""

    def __init__(self, folder: Path) -> None:
        settings = folder / "tmux.conf"
        settings.write_text("set -g status off\nset -g default-terminal xterm-256color\n")
        self._command = ["tmux", "-S", str(folder / "socket"), "-f", str(settings), "-u"]

    def run(self, *words: str) -> str:
        command = [*self._command, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def end(self) -> None:
        """End the server, if there is one."""
        subprocess.run([*self._command, "kill-server"], check=False, capture_output=True)

    def start(self, rows: int, cols: int, folder: Path, command: str) -> None:
        size = ("-x", str(cols), "-y", str(rows))
        # A program prefers the size in its environment, but that is not the size of its terminal.
        plain = f"unset LINES COLUMNS; {command}"
        self.run("new-session", "-d", *size, "-c", str(folder), plain)

    def screen(self, rows: int) -> Any:
        lines = self.run("capture-pane", "-p").split("\n")[:rows]
        row, col = self.run("display", "-p", "#{cursor_y} #{cursor_x}").split()
        return _letters([*lines, *[""] * (rows - len(lines))]), (int(row), int(col))

    def type(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            # A semicolon at the end of a word separates commands of tmux.
            word = key.replace(";", "\\;")
            self.run("send-keys", *(() if len(key) > 1 else ("-l",)), "--", word)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.rows}x{size.cols}")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_screen_is_that_of_tmux(
    daemon: RawDaemon, tmux: Tmux, tmp_path: Path, program: Program, size: Size
) -> None:
    if shutil.which(program.needs) is None:
        pytest.skip(f"{program.needs} is not installed")
    rows, cols = size
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(1, 301)))
    (tmp_path / "words").write_text("alpha\n" * 60 + "omega words\n" * 60)
    command = program.command
    tmux.start(rows, cols, tmp_path, command)
    env = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    params = {"tty": True, "rows": rows, "cols": cols, "cwd": str(tmp_path), "session": None}
    bash_id = daemon.background(command, **params, env={**env, "TERM": "xterm-256color"})
    for step in program.steps:
        tmux.type(step.keys)
        if step.keys:
            daemon.call("write_stdin", {"bash_id": bash_id, "keys": list(step.keys)})
        seen: list[Any] = []

        def is_the_same(shows: str = step.shows, seen: list[Any] = seen) -> bool:
            read = daemon.call("read_screen", {"bash_id": bash_id, "wait": 100})
            ours = _letters(read["lines"]), (read["cursor"]["row"], read["cursor"]["col"])
            seen[:] = [ours, tmux.screen(rows)]
            return ours == seen[1] and any(shows in line for line in ours[0])

        try:
            wait_for(is_the_same, step.shows)
        except AssertionError:
            ours, theirs = seen
            raise AssertionError(f"{step}: {ours[1]} {theirs[1]}\n{_both(ours, theirs)}") from None
    daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})


def _letters(lines: list[str]) -> list[str]:
    """Return lines as tmux shows them, with letters in place of some box-drawing characters."""
    return [line.translate(LETTERS) for line in lines]


def _both(ours: Any, theirs: Any) -> str:
    rows = zip(ours[0], theirs[0], strict=True)
    return "\n".join(f"{'  ' if a == b else '! '}{a!r} | {b!r}" for a, b in rows)
