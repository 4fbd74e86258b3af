"""The guard refuses a forbidden line that is edited with keys, pasted, or written in pieces."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path

import pytest

from guarded_typing import BASH, DASH, assert_refused, at_prompt, keys, text
from support import Json, RawDaemon, wait_for
from typing_session import Session


@pytest.mark.parametrize(
    "lines",
    [
        ["forbidden\n"],
        ["forb", "idd", "en\r"],
        ["ls; sudo forbidden\n"],
        ["echo harmless\nforbidden\n"],
        ["forb\\\n", "idden\n"],
        ["for x in forbidden; do\n", "$x now\n"],
        ["! {\n", "x=forbidden\n", "$x\n"],
        ["lx\x7fs; forbidden\n"],
        ["forb\tidden\n"],
        ["forb\ti\x7fidden\n"],
        ["\x1b[200~forbidden\x1b[201~\n"],
    ],
)
def test_forbidden_line_is_not_typed_into_a_shell(typing: Session, lines: list[str]) -> None:
    assert_refused(typing, text(*lines))
    typing.output = ""

    def prompts_again() -> bool:
        # While bash prepares its prompt, it drops an interrupt, or a key that follows the
        # interrupt.
        typing.write(keys=["C-c"], wait=200)
        typing.write("echo still $((40 + 2))\n", wait=200)
        return "still 42\r\n" in typing.output

    wait_for(prompts_again, "the shell's answer")
    assert "harmless\r\n" not in typing.output


@pytest.mark.parametrize(
    "writes",
    [
        [*text("cat <<X\n"), keys("C-c"), *text("forbidden\n")],
        text("echo ) <<X\n", "forbidden\n"),
        text("echo ) <<X\n", "forb\\\n", "idden\n"),
        [*text("forb\\\n"), keys("C-u"), *text("idden\n")],
        [*text("ls"), keys("C-w"), *text("forbidden\n")],
        [*text("ls"), keys("C-a", "C-k"), *text("forbidden\n")],
        [keys("Right"), *text("forbidden\n")],
        text("\x1bOC", "forbidden\n"),
        [*text("forbidden"), keys("Enter")],
        [*text("forbidden"), keys("C-o")],
        [*text("forb"), {"base64": base64.b64encode(b"idden\n").decode()}],
        # These keys seem to drop the line, but bash keeps the line or a part of the line.
        [*text("forbidden"), keys("C-a", "C-u", "Enter")],
        [*text("forbidden"), keys("C-z"), keys("Enter")],
        [*text("forbidden"), keys("C-\\"), keys("Enter")],
        [*text("forbidden"), keys("C-v", "C-c"), keys("Enter")],
        # If more text follows the interrupt at once, readline drops only the first byte of the
        # line.
        [*text("xforbidden"), keys("C-c", "Enter")],
        [*text("xforb"), keys("C-c", *"idden", "Enter")],
        [*text("forbidden\x01"), keys("C-c", "x", "Enter")],
        [*text("xforbidden"), keys("C-c", "C-c", "Enter")],
        text("\x03xforbidden\n"),
        [*text("xforbidden"), keys("C-c", ";"), keys("Enter")],
        [*text("xforb\\"), keys("C-c", "Enter"), *text("idden\n")],
        [*text("xforb\\", "\x03\nidden\n")],
        [*text("xfor x in forbidden; do"), keys("C-c", "Enter"), *text("$x now\n")],
        [*text("x\x01" * 1_000 + "forbidden\n")],
        # M-r drops the line, including the open quote.
        text("echo '" + "".join(f"\x1br{each}" for each in range(200)) + "\x1brforbidden\x07;\n"),
        # Here, these keys erase nothing: the cursor is at the beginning of the line, or C-v quotes
        # the key.
        [*text("forbidden"), keys("C-a", "C-w", "Enter")],
        [*text("forbidden"), keys("C-a", *["BSpace"] * 10, "Enter")],
        [*text("forbidden;"), keys("C-v", "C-w", "Enter")],
        # After C-v, the first backspace is inserted as text. The second backspace erases this text,
        # and the third erases the x.
        [*text("forbx"), keys("C-v", *["BSpace"] * 3), *text("idden"), keys("Enter")],
        # If readline does not know a key, it treats the last bytes of the key as text.
        text("forb\x1b[15idden\n"),
        # These keys move the cursor.
        [*text("idden"), keys("C-a"), *text("forb"), keys("Enter")],
        [*text("forbiddxen"), keys("Left", "Left", "BSpace", "Enter")],
        [*text("xforbidden"), keys("Home", "Delete", "Enter")],
        [*text("echo forbidden"), keys(*["Left"] * 1_000, "M-d", "Enter")],
        [*text("FORBIDDEN"), keys("M-b", "M-l", "Enter")],
        # C-d deletes the x, so the last write ends a line that continues the line before it.
        [*text("forb\\\nix"), keys("C-b", "C-d"), *text("dden\n")],
        [*text("forb\\\nix"), keys("C-b", "C-d"), keys("C-d"), *text("d"), *text("den\n")],
        [*text("x='\n';forbix"), keys("C-b", "C-d"), *text("dden\n")],
        [keys("x", "C-b", "C-d", *"forb\\", "Enter", "i"), *text("dden\n")],
        [keys("x", "C-b", "C-d", *"eval forb\\"), *text("\n"), *text("idden\n")],
        # C-o ends the line, so the text after it belongs to the next line.
        [keys("x", "C-b", "C-d", *"forb", "C-l", *"idden", "C-o", "x")],
        [keys("l", "s", "C-o", *"forx", "C-h", "C-l", *"bidden", "Enter")],
        # When bash reads these keys, it expands or runs the line, although none of the keys is a
        # line end.
        [*text("$(forbidden)"), keys("Escape", "C-e")],
        [*text("forbidden"), keys("C-x", "C-e")],
        [*text("#forbidden"), keys("M-1", "M-#")],
        # Each of these writes has two lines. The first line changes the meaning of the second line.
        text("x=forbidden\n$x\n"),
        text("f() { forbidden; }\nf\n"),
    ],
)
def test_keys_do_not_hide_a_forbidden_line(typing: Session, writes: list[Json]) -> None:
    assert_refused(typing, writes)


@pytest.mark.parametrize(
    "line",
    [
        "forbiddene\u0301\x7f\n",
        "forbidden\u0e01\u0e47\x7f\n",
        "forbidden/\u0928\u093e\u092e\x1b\x7f\x7f\n",
    ],
)
def test_marks_that_keys_erase_do_not_hide_a_forbidden_line(typing: Session, line: str) -> None:
    assert_refused(typing, text(line))


@pytest.mark.parametrize("key", ["BSpace", "C-c", "Enter"])
def test_key_quoted_by_ctrl_q_does_not_hide_a_forbidden_line(guarded: RawDaemon, key: str) -> None:
    typing = at_prompt(guarded, f"stty -ixon; {BASH}")
    # Bash erases the quoted key, and the character before it.
    assert_refused(typing, [*text("forbiddenx"), keys("C-q", key, "BSpace", "BSpace", "Enter")])


@pytest.mark.parametrize("shell", [BASH, DASH])
def test_answer_of_the_terminal_does_not_hide_a_forbidden_line(
    guarded: RawDaemon, shell: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    typing = at_prompt(guarded, shell)
    typing.write(f"(read -r _ < {gate}; printf '\\033[5n%sed' ask) &\n")
    typing.until("ready> ")
    typing.write("forbidden")
    gate.write_text("go\n")
    typing.until("asked")
    assert_refused(typing, text("-not\n"))


def paste(text: str, *names: str) -> Json:
    return {"text": text, "paste": True, "keys": list(names)}


@pytest.mark.parametrize(
    "writes",
    [
        [paste("forbiddenx\n"), keys("BSpace", "BSpace", "Enter")],
        [paste("#forbidden\n"), keys("C-a", "C-d", "Enter")],
        [paste("echo forbidden\necho x"), keys("C-a", "M-d", "Enter")],
        [paste("forb\nidden", *["Left"] * 5, "BSpace", "Enter")],
        [paste("forb"), paste("\nidden"), keys(*["Left"] * 5, "BSpace", "Enter")],
        [*text("forbiddenx"), keys("C-v", "C-j"), keys("BSpace", "BSpace", "Enter")],
        # Not every program keeps pasted lines until the paste has ended.
        [paste("echo\nforbidden\n")],
        [paste("x=forbidden\n$x\n")],
    ],
)
def test_keys_after_pasted_lines_do_not_hide_a_forbidden_line(
    typing: Session, writes: list[Json]
) -> None:
    assert_refused(typing, writes)


def test_pasted_lines_continue_earlier_lines(typing: Session) -> None:
    typing.write("for x in forbidden; do\n")
    typing.until("more> ")
    assert_refused(typing, [paste("#$x\n"), keys("C-a", "C-d", "Enter")])


def test_pasted_lines_are_edited(typing: Session) -> None:
    typing.write(**paste("echo harmless\necho forbidden\n", *["BSpace"] * 4, "Enter"))
    typing.until("harmless\r\n")
    typing.until("forbid\r\n")


@pytest.mark.parametrize(
    "command",
    [
        # These programs read keys in the same terminal mode in which the shell edits its lines.
        "seq 1000 | less",
        "read -n1",
        "read -rsn1",
        "python3 -c 'import sys, tty; tty.setraw(0); sys.stdin.read(1)'",
    ],
)
def test_line_after_a_key_for_another_program_is_judged(guarded: RawDaemon, command: str) -> None:
    if "less" in command and shutil.which("less") is None:
        pytest.skip("less is not installed")
    typing = at_prompt(guarded, BASH)
    typing.write(f"{command}; echo taken; stty sane\n")
    wait = {"bash_id": typing.bash_id, "wait": 60_000, "until": "prompt"}
    guarded.call("bash_output", wait)
    typing.output = ""
    typing.write("q")
    typing.until("taken")
    typing.until("ready> ")
    assert_refused(typing, text("forbidden\n"))


@pytest.mark.parametrize(
    "writes",
    [
        text("echo ", "forbidden\n"),
        text("grep ", "forbidden", " file\n"),
        text(*"echo forbidden", "\n"),
    ],
)
def test_harmless_line_may_contain_the_forbidden_word(typing: Session, writes: list[Json]) -> None:
    for write in writes:
        typing.write(**write)


def test_line_after_a_byte_for_the_builtin_read_is_judged(guarded: RawDaemon) -> None:
    typing = Session(guarded, "read -rn1 x; echo taken; bash", tty=False, open_stdin=True)
    typing.write("q")
    typing.until("taken\n")
    assert_refused(typing, text("forbidden\n"))


def test_beginning_of_a_character_does_not_hide_a_forbidden_line(typing: Session) -> None:
    line = base64.b64encode(b"forbidden\xf0\x9f\n").decode()
    assert_refused(typing, [{"base64": line}])


@pytest.mark.slow
def test_refused_write_leaves_the_judgement_unchanged(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, DASH)
    typing.write("for x in forbidden; do\n")
    typing.until("> ")
    # The interrupt and these lines together have the maximum length of one write. `eof` adds one
    # byte, so the write is too long.
    lines = (b"#" * 1023 + b"\n") * 1024
    too_long = base64.b64encode(b"\x03" + lines[1:]).decode()
    assert typing.refused(base64=too_long, eof=True)["code"] == 1005
    assert typing.refused("$x now\n")["code"] == 1002


def test_dropped_line_does_not_stay_with_the_shell(typing: Session) -> None:
    typing.write("xforbidden")
    typing.write(keys=["C-c"])

    def is_allowed() -> bool:
        # The daemon refuses the write as long as it cannot be sure that bash has dropped the line.
        try:
            typing.write("\n")
        except AssertionError:
            return False
        return True

    wait_for(is_allowed, "a line that is not refused")
    typing.write("echo still $((40 + 2))\n")
    typing.until("still 42\r\n")


def test_shell_that_ignores_interrupts_keeps_its_line(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, BASH)
    typing.write("trap '' INT\n")
    typing.until("INT\r\n")
    typing.until("ready> ")
    assert_refused(typing, [*text("forbidden"), keys("C-c"), keys("Enter")])
