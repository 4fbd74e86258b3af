"""``read_screen`` over the wire."""

from __future__ import annotations

import os
import signal

import pytest

from screen_user import ScreenUser
from support import Json, RawDaemon, is_alive, running_below, wait_for

CURSES = """
import curses, sys
def main(screen):
    curses.curs_set(0)
    rows, cols = screen.getmaxyx()
    screen.addstr(0, 0, f"{rows}x{cols}")
    while True:
        screen.refresh()
        key = screen.getch()
        if key == curses.KEY_RESIZE:
            rows, cols = screen.getmaxyx()
            screen.clear()
            screen.addstr(0, 0, f"{rows}x{cols}")
        elif key == ord("q"):
            return
        else:
            screen.addstr(2, 4, f"key {key}")
curses.wrapper(main)
"""


@pytest.mark.slow
def test_screen_shows_what_a_program_draws(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, f"python3 -c '{CURSES}'; echo done", rows=5, cols=40)
    # The program has drawn everything once it waits for a key.
    shown = screen.read(wait=600_000, until="prompt")
    assert (shown["rows"], shown["cols"], shown["lines"]) == (5, 40, ["5x40", "", "", "", ""])
    assert (shown["altScreen"], shown["isRunning"]) == (True, True)
    assert shown["cursor"]["visible"] is False
    screen.type("x")
    changed = screen.read(since=shown["version"], wait=600_000, until="change")
    assert (changed["changed"], changed["lines"]) == ([2], ["    key 120"])
    size = {"bash_id": screen.bash_id, "rows": 7, "cols": 30}
    daemon.call("resize_shell", size)
    assert screen.until_line("7x30")["rows"] == 7
    screen.type("q")
    ended = screen.until_line("done")
    assert (ended["altScreen"], ended["cursor"]["visible"]) == (False, True)


def test_screen_outlives_its_command(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "printf 'one\\ntwo'; exit 3", rows=3)
    shown = screen.read(wait=600_000, quiet_ms=60_000)
    assert shown["lines"] == ["one", "two", ""]
    assert (shown["exitCode"], shown["signal"]) == (3, None)


def test_screen_change_ends_the_wait(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "stty -echo; printf ready; read; echo later; sleep 300")
    before = screen.until_line("ready")["version"]
    waiting = daemon.request(
        "read_screen",
        {"bash_id": screen.bash_id, "wait": 60_000, "until": "change", "since": before},
    )
    screen.type("\n")
    changed = daemon.answer(waiting)["result"]
    assert changed["version"] > before
    assert changed["lines"] == ["readylater"]


def test_new_width_of_a_screen_ends_a_wait_for_a_change(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "stty -echo; printf ready; sleep 300", rows=3, cols=20)
    before = screen.until_line("ready")
    daemon.call("resize_shell", {"bash_id": screen.bash_id, "rows": 3, "cols": 30})
    changed = screen.read(since=before["version"], wait=600_000, until="change")
    assert (changed["cols"], changed["changed"]) == (30, [])
    assert changed["version"] > before["version"]


def test_earlier_change_ends_wait_immediately(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "echo ready; sleep 300")
    screen.until_line("ready")
    shown = screen.read(wait=600_000, until="change", since=0)
    assert shown["lines"][0] == "ready"


def test_wait_for_a_stable_screen_ends(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "echo ready; sleep 300")
    assert screen.read(wait=600_000, quiet_ms=1_000)["lines"][0] == "ready"


def test_prompt_ends_the_wait(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "sleep 0.2; echo hello; read -rp 'Name? ' name; sleep 300")
    shown = screen.read(wait=600_000, until="prompt")
    assert shown["lines"][:2] == ["hello", "Name?"]
    prompt = shown["prompt"]
    assert (prompt["certainty"], prompt["program"], prompt["text"]) == ("proved", "bash", "Name?")
    # A read that does not wait also returns the prompt, until somebody answers it.
    assert screen.read()["prompt"]["pid"] == prompt["pid"]
    screen.type("me\n")
    wait_for(lambda: screen.read()["prompt"] is None, "the end of the prompt")


@pytest.mark.parametrize("until", ["change", "stable", "prompt"])
def test_end_of_the_command_ends_the_wait(daemon: RawDaemon, until: str) -> None:
    screen = ScreenUser(daemon, "stty -echo; echo ready; read; exit 3")
    version = screen.until_line("ready")["version"]
    params = {"bash_id": screen.bash_id, "wait": 600_000, "until": until, "quiet_ms": 60_000}
    waiting = daemon.request("read_screen", {**params, "since": version})
    screen.type("\n")
    assert daemon.answer(waiting)["result"]["exitCode"] == 3


def test_scrollback_comes_before_the_screen(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "seq 1 50; sleep 300", rows=3)
    screen.until_line("50")
    assert screen.read(scrollback=2)["lines"] == ["47", "48", "49", "50", ""]
    assert len(screen.read(scrollback=10_000)["lines"]) == 51
    assert screen.read()["lines"] == ["49", "50", ""]


def test_killed_helper_is_replaced(daemon: RawDaemon) -> None:
    screen = ScreenUser(daemon, "echo one; sleep 300")
    before = screen.until_line("one")
    for pid in running_below(daemon.pid, "screens/main.py"):
        os.kill(pid, signal.SIGKILL)
    after = screen.read(since=before["version"])
    assert after["lines"] == before["lines"]
    assert after["version"] > before["version"]


def test_helper_ends_with_the_command(daemon: RawDaemon) -> None:
    # If an earlier test read a screen after the end of its command, the helper for that screen may
    # still run.
    others = running_below(daemon.pid, "screens/main.py")
    screen = ScreenUser(daemon, "stty -echo; echo one; read; echo two")
    screen.until_line("one")
    (helper,) = set(running_below(daemon.pid, "screens/main.py")) - set(others)
    screen.type("\n")
    daemon.call("bash_output", {"bash_id": screen.bash_id, "wait": 600_000, "until": "exit"})
    wait_for(lambda: not is_alive(helper), "the end of the helper")
    assert screen.read()["lines"][:2] == ["one", "two"]


def test_program_learns_where_its_cursor_is(daemon: RawDaemon) -> None:
    ask = r"printf 'ab\033[6n\033[5n'; IFS= read -rsn 10 answer; echo ${answer@Q}"
    shown = daemon.bash(f"stty -echo; {ask}", tty=True)
    assert shown["stdout"].endswith(r"$'\E[1;3R\E[0n'" + "\r\n")


def test_many_questions_about_the_cursor_do_no_harm(daemon: RawDaemon) -> None:
    shown = daemon.bash(
        r"""stty -echo; for n in {1..20000}; do printf '\033[6n'; done; echo done""", tty=True
    )
    assert shown["stdout"].endswith("done\r\n")


def test_shell_without_terminal_has_no_screen(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    error = daemon.fail("read_screen", {"bash_id": bash_id})
    assert (error["code"], error["data"]["kind"]) == (1009, "not_possible")
    assert daemon.fail("read_screen", {"bash_id": "shell_0"})["code"] == 1003


@pytest.mark.parametrize(
    "bad",
    [
        {"since": 1_000_000},
        {"since": -1},
        {"scrollback": 10_001},
        {"scrollback": -1},
        {"quiet_ms": 0},
        {"until": "quiet"},
        {"wait": -1},
    ],
)
def test_bad_params_are_refused(daemon: RawDaemon, bad: Json) -> None:
    screen = ScreenUser(daemon, "sleep 300")
    assert daemon.fail("read_screen", {"bash_id": screen.bash_id, **bad})["code"] == -32602
