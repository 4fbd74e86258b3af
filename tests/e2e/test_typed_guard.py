"""The guard judges what is typed into a shell.

The rules block a program that does not exist, so a line that gets through does no harm.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support import Json, RawDaemon, altered_daemon, raw_daemon, wait_for
from typing_session import Session

RULES = """
[[block]]
name = "no"
program = "forbidden"
reason = "a test forbids it"
"""

BASH = "PS1='ready> ' PS2='more> ' bash --norc --noprofile -i"
# Dash leaves the editing of a line to the terminal.
DASH = "PS1='ready> ' dash -i"


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("guard") / "rules.toml"
    path.write_text(RULES)
    return str(path)


@pytest.fixture(scope="module")
def guarded(rules: str) -> Iterator[RawDaemon]:
    with raw_daemon("--guard-rules", rules) as daemon:
        yield daemon


@pytest.fixture
def typing(guarded: RawDaemon) -> Session:
    return at_prompt(guarded, BASH)


def at_prompt(daemon: RawDaemon, command: str) -> Session:
    typing = Session(daemon, command)
    typing.until("ready> ")
    return typing


def text(*texts: str) -> list[Json]:
    return [{"text": each} for each in texts]


def keys(*names: str) -> Json:
    return {"keys": list(names)}


def assert_refused(typing: Session, writes: list[Json]) -> None:
    """Check that the last write is refused, and that no other write is."""
    for write in writes[:-1]:
        typing.write(**write)
    error = typing.refused(**writes[-1])
    assert (error["code"], error["data"]["kind"]) == (1002, "blocked"), error


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
        # While bash prepares its prompt, it drops an interrupt, or a key that follows one.
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
        # Bash keeps its line, or a part of it, despite these keys.
        [*text("forbidden"), keys("C-a", "C-u", "Enter")],
        [*text("forbidden"), keys("C-z"), keys("Enter")],
        [*text("forbidden"), keys("C-\\"), keys("Enter")],
        [*text("forbidden"), keys("C-v", "C-c"), keys("Enter")],
        # Readline drops only the first byte if more text follows the interrupt at once.
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
        # M-r drops the line, and with it the open quote.
        text("echo '" + "".join(f"\x1br{each}" for each in range(200)) + "\x1brforbidden\x07;\n"),
        # These keys erase nothing, because of where they are typed.
        [*text("forbidden"), keys("C-a", "C-w", "Enter")],
        [*text("forbidden"), keys("C-a", *["BSpace"] * 10, "Enter")],
        [*text("forbidden;"), keys("C-v", "C-w", "Enter")],
        # The second of these keys is text, and the third erases it.
        [*text("forbx"), keys("C-v", *["BSpace"] * 3), *text("idden"), keys("Enter")],
        # Readline takes the end of a key that it does not know as text.
        text("forb\x1b[15idden\n"),
        # The cursor moves.
        [*text("idden"), keys("C-a"), *text("forb"), keys("Enter")],
        [*text("forbiddxen"), keys("Left", "Left", "BSpace", "Enter")],
        [*text("xforbidden"), keys("Home", "Delete", "Enter")],
        [*text("echo forbidden"), keys(*["Left"] * 1_000, "M-d", "Enter")],
        [*text("FORBIDDEN"), keys("M-b", "M-l", "Enter")],
        # These keys pass on the line without a line end.
        [*text("$(forbidden)"), keys("Escape", "C-e")],
        [*text("forbidden"), keys("C-x", "C-e")],
        [*text("#forbidden"), keys("M-1", "M-#")],
        # An earlier line of the write gives a later one its meaning.
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
def test_key_that_c_q_quotes_does_not_hide_a_forbidden_line(guarded: RawDaemon, key: str) -> None:
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
        # Not every program keeps these lines until the end.
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
        # The shell edits its lines in the same mode in which these programs take keys.
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
    wait = {"bash_id": typing.bash_id, "wait": 20_000, "until": "prompt"}
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
def test_word_of_a_harmless_line_is_typed(typing: Session, writes: list[Json]) -> None:
    for write in writes:
        typing.write(**write)


def test_line_after_a_byte_for_read_is_judged(guarded: RawDaemon) -> None:
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
    # As much as fits, with an interrupt first. The end of the input is one byte too many.
    lines = (b"#" * 1023 + b"\n") * 1024
    too_long = base64.b64encode(b"\x03" + lines[1:]).decode()
    assert typing.refused(base64=too_long, eof=True)["code"] == 1005
    assert typing.refused("$x now\n")["code"] == 1002


def test_dropped_line_does_not_stay_with_the_shell(typing: Session) -> None:
    typing.write("xforbidden")
    typing.write(keys=["C-c"])

    def is_allowed() -> bool:
        # Until bash has certainly handled the interrupt, it may keep the line.
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


@pytest.mark.parametrize(
    "writes",
    [
        text("forbidden \x16\x15\n"),
        text("forbidden \x16\x03\n"),
        text("forbiddem\x7fn\n"),
        text("echo-\x17\x17forbidden\n"),
        [*text("forbidden"), keys("C-d", "C-d")],
    ],
)
def test_line_that_the_terminal_edits_is_judged(guarded: RawDaemon, writes: list[Json]) -> None:
    assert_refused(at_prompt(guarded, DASH), writes)


@pytest.mark.parametrize(
    ("mode", "writes"),
    [
        ("noflsh", [*text("forbidden"), keys("C-\\"), keys("Enter")]),
        ("noflsh", [*text("forbidden"), keys("C-c"), keys("Enter")]),
        ("erase Q", text("echoQQQQforbidden\n")),
        ("werase Q", text("echo Qforbidden\n")),
        ("kill Q", text("echoQforbidden\n")),
        ("eof ^A", [*text("forbidden"), keys("C-a"), keys("C-a")]),
        ("iuclc", text("FORBIDDEN\n")),
        ("igncr", text("forb\ridden\n")),
        ("start x", text("forbxidden\n")),
        ("stop x start y", text("forbxyidden\n")),
        ("rprnt x", text("forbxidden\n")),
        ("noflsh intr x", text("forbxidden\n")),
        (
            "istrip -iutf8",
            [{"base64": base64.b64encode(bytes(c | 128 for c in b"forbidden") + b"\n").decode()}],
        ),
    ],
)
def test_settings_of_the_terminal_do_not_hide_a_line(
    guarded: RawDaemon, mode: str, writes: list[Json]
) -> None:
    assert_refused(at_prompt(guarded, f"stty {mode}; {DASH}"), writes)


# The terminal erases less than readline does, and leaves "forb" and a backslash.
CONTINUED = "forb\\.x\x17\x7f\n"


@pytest.mark.parametrize("writes", [text(CONTINUED, "idden\n"), text(CONTINUED + "idden\n")])
def test_line_that_the_terminal_edits_is_continued(guarded: RawDaemon, writes: list[Json]) -> None:
    assert_refused(at_prompt(guarded, DASH), writes)


def test_line_that_the_terminal_edits_gives_a_later_one_its_meaning(guarded: RawDaemon) -> None:
    assert_refused(at_prompt(guarded, DASH), text("x=forbidden;x\x17\n$x\n"))


def test_interrupt_drops_lines_that_the_terminal_has_edited(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, DASH)
    for write in text(CONTINUED, "\x03idden\n"):
        typing.write(**write)


@pytest.mark.parametrize("params", [{"tty": True}, {"tty": False, "open_stdin": True}])
@pytest.mark.parametrize("command", ["bash --norc --noediting", "exec sh"])
@pytest.mark.parametrize("first", ["written", "given"])
def test_eof_passing_forbidden_line_is_refused(
    guarded: RawDaemon, command: str, params: Json, first: str
) -> None:
    if first == "given":
        typing = Session(guarded, command, **params, stdin="forb")
    else:
        typing = Session(guarded, command, **params)
        typing.write("forb")
    assert typing.refused("idden", eof=True)["code"] == 1002
    if params["tty"]:
        assert typing.refused("idden", keys=["C-d"])["code"] == 1002


def test_long_line_in_pieces_is_judged_as_a_whole(guarded: RawDaemon) -> None:
    typing = Session(guarded, "bash", tty=False, open_stdin=True)
    for _ in range(3):
        typing.write("x" * 10_000)
    assert typing.refused("; forbidden\n")["code"] == 1002


@pytest.mark.parametrize(
    "place", ["forbidden #", "ls; forbidden; x=", "x" * 100_000 + "; forbidden "]
)
def test_beginning_of_a_long_line_is_judged(guarded: RawDaemon, place: str) -> None:
    typing = Session(guarded, "bash", tty=False, open_stdin=True)
    assert typing.refused(place + "x" * 100_000 + "\n")["code"] == 1002
    typing.write("echo " + "x" * 100_000)
    typing.write("\n")


def test_refusal_does_not_quote_a_secret(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, f"stty -echo; {DASH}")
    error = typing.refused("forbidden # swordfish\n", secret=True)
    assert error["code"] == 1002
    assert "swordfish" not in str(error)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # A program that reads a password gets it without its line end.
        ("forbidden --key=swordfish", keys("Enter")),
        # The command continues on the next line.
        ("KEY=swordfish forb\\\n", {"text": "idden\n"}),
    ],
)
def test_later_refusal_does_not_quote_a_secret(
    guarded: RawDaemon, first: str, second: Json
) -> None:
    typing = at_prompt(guarded, f"stty -echo; {DASH}")
    typing.write(first, secret=True)
    error = typing.refused(**second)
    assert error["code"] == 1002
    assert "swordfish" not in str(error)


def test_refusal_after_a_secret_quotes_again(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, f"stty -echo; {DASH}")
    typing.write("echo swordfish\n", secret=True)
    assert "forbidden" in typing.refused("forbidden\n")["data"]["segment"]


# -- the first input of a terminal ------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "stdin"),
    [
        (BASH, "forbidden\n"),
        (BASH, "forbiddenx\x7f\n"),
        (BASH, "idden\x01forb\n"),
        (BASH, "true \x03forbidden\n"),
        (BASH, "echo ) <<X\nforbidden\n"),
        (DASH, "forbidd\x16\x7f\x7fen\n"),
        (DASH, "forbiddenx\x7f\x04\x04"),
        (DASH, CONTINUED + "idden\n"),
        # The terminal erases the first key, and bash follows the second one.
        (BASH, "idden\x06\x7f\x01forb\n"),
        ("export x=forbidden; bash --norc --noediting", "$y\x7fx\n"),
        ('read -r line; eval "$line"', "forbiddenx\x7f\n"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_keys_in_stdin_do_not_hide_a_forbidden_line(
    guarded: RawDaemon, command: str, stdin: str, dry_run: bool
) -> None:
    start = {"command": command, "tty": True, "stdin": stdin, "run_in_background": True}
    error = guarded.fail("bash", {**start, "dry_run": dry_run})
    assert (error["code"], error["data"]["kind"]) == (1002, "blocked"), error


@pytest.mark.parametrize(
    ("stdin", "write"),
    [
        ("forb", "idden\n"),
        ("forbx\x7f", "idden\n"),
        ("forb\\\n", "idden\n"),
        (CONTINUED, "idden\n"),
        ("for x in forbidden; do\n", "$x now\n"),
    ],
)
def test_write_continues_a_line_of_stdin(guarded: RawDaemon, stdin: str, write: str) -> None:
    assert_refused(Session(guarded, DASH, stdin=stdin), text(write))


@pytest.mark.parametrize(
    ("command", "stdin", "write"),
    [
        (BASH, "echo ", "forbidden\n"),
        (BASH, "echo lx\x7fs\n", "ls\n"),
        (DASH, "forb\\\n\x03", "idden\n"),
        ("cat", "forbiddenx\x7f\n", "forbidden\n"),
        ("read -r line", "forbiddenx\x7f\n", None),
    ],
)
def test_harmless_stdin_is_typed(
    guarded: RawDaemon, command: str, stdin: str, write: str | None
) -> None:
    typing = Session(guarded, command, stdin=stdin)
    if command == "cat":
        assert_taken_by_cat(guarded, typing)
    elif write is not None:
        typing.until("ready> ")
        typing.write(write)


# -- which programs read the line -------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "first"),
    [
        (f"sleep 300 & exec {BASH}", ""),
        (f"exec > >(cat); exec {BASH}", ""),
        (BASH, "exec 3> >(cat)\n"),
        (BASH, "coproc cat\n"),
        (BASH, "set +m; sleep 300 &\n"),
    ],
)
def test_shell_with_background_jobs_is_guarded(
    guarded: RawDaemon, command: str, first: str
) -> None:
    typing = Session(guarded, command.replace("PS1='", "env PS1='") if not first else command)
    typing.until("ready> ")
    if first:
        typing.write(first)
        typing.until("ready> ")
    assert typing.refused("forbidden\n")["code"] == 1002


@pytest.mark.parametrize(
    "command", ["bash", "cat | bash", "timeout 300 bash; true", "setsid -w bash; true"]
)
def test_shell_on_a_pipe_is_guarded_too(guarded: RawDaemon, command: str) -> None:
    typing = Session(guarded, command, tty=False, open_stdin=True)
    if command != "cat | bash":
        # Wait until this shell reads input: before that, another shell may be about to start it.
        typing.write("echo ready; sleep 300 &\n")
        typing.until("ready\n")
    for line in ("forbidden\n", "forbidden;\x17\n", "forbidden #" + "\x7f" * 11 + "\n"):
        assert typing.refused(line)["code"] == 1002
    typing.write("echo fine\n")
    typing.until("fine\n")


def test_shell_in_other_session_is_guarded(guarded: RawDaemon) -> None:
    typing = at_prompt(guarded, f"env {DASH.replace('dash', 'setsid -w dash')}")
    assert typing.refused("forbidden\n")["code"] == 1002


@pytest.mark.parametrize("params", [{"tty": True}, {"tty": False, "open_stdin": True}])
@pytest.mark.parametrize("command", ["(bash <&0 &)", "setsid -f bash <&0"])
def test_shell_whose_parent_has_ended_is_guarded(
    guarded: RawDaemon, command: str, params: Json
) -> None:
    typing = Session(guarded, f"{command}; exec sleep 300", **params)
    prompt = wait_for_prompt(typing)
    assert (prompt["certainty"], prompt["program"]) == ("proved", "bash")
    assert typing.refused("forbidden\n")["code"] == 1002


@pytest.mark.parametrize("params", [{"tty": True}, {"tty": False, "open_stdin": True}])
def test_line_is_judged_in_the_directory_of_each_shell_that_may_read_it(
    guarded: RawDaemon, params: Json
) -> None:
    # No line can do harm here.
    command = 'rm() { :; }; PATH=/nonexistent; x=$(cd / && read -r line && eval "$line"); true'
    typing = Session(guarded, command, **params)
    assert wait_for_prompt(typing)["program"] == "bash"
    assert typing.refused("rm -rf *\n")["code"] == 1002


def wait_for_prompt(typing: Session) -> Json:
    wait = {"bash_id": typing.bash_id, "wait": 20_000, "until": "prompt"}
    prompt: Json = typing.daemon.call("bash_output", wait)["prompt"]
    return prompt


RELAY = """python3 -c 'import pty; pty.spawn(["bash", "--norc", "-i"])'; true"""


def test_shell_behind_a_program_that_passes_the_terminal_on_is_guarded(
    guarded: RawDaemon, tmp_path: Path
) -> None:
    typing = Session(guarded, RELAY)
    assert wait_for_prompt(typing)["program"] == "bash"
    assert typing.refused("forbidden\n")["code"] == 1002
    # Its child reads now.
    typing.write(f"touch {tmp_path}/begun; cat\n")
    wait_for((tmp_path / "begun").exists, "the command")
    assert_taken_by_cat(guarded, typing)


@pytest.mark.parametrize(
    "line",
    [
        # The words of the kernel's editor are shorter than those of readline.
        "forb''xx\x17idden\n",
        # It erases a byte with each key.
        "forbidden\u00e9\x7f\x7f\n",
        # It drops the end of a long line.
        "forbidden".rjust(4_095) + "foo\n",
    ],
)
def test_line_that_an_inner_terminal_edits_is_judged(guarded: RawDaemon, line: str) -> None:
    typing = Session(guarded, """python3 -c 'import pty; pty.spawn(["dash"])'; true""")
    assert wait_for_prompt(typing)["program"] == "dash"
    assert typing.refused(line)["code"] == 1002


def test_other_programs_on_a_terminal_get_any_line(guarded: RawDaemon, typing: Session) -> None:
    typing.write("cat\n")
    typing.until("cat\r\n")
    assert_taken_by_cat(guarded, typing)


@pytest.mark.parametrize("command", ["cat; true", "timeout 300 cat; true", "setsid -w cat; true"])
def test_other_programs_on_a_pipe_get_any_line(guarded: RawDaemon, command: str) -> None:
    assert_taken_by_cat(guarded, Session(guarded, command, tty=False, open_stdin=True))


def assert_taken_by_cat(daemon: RawDaemon, typing: Session) -> None:
    def is_written() -> bool:
        # Until cat runs, a shell reads.
        params = {"bash_id": typing.bash_id, "text": "forbidden\n"}
        return "error" not in daemon.answer(daemon.request("write_stdin", params))

    wait_for(is_written, "cat as the reader")
    typing.until("forbidden")


# -- a lot at once ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "\n" * 25_000,
        "echo\n" * 3_000,
        "x='\n" + "y\n" * 250,
        ("a" * 60 + "\x01") * 250 + "\n",
    ],
)
def test_end_of_a_long_text_is_judged_too(rules: str, content: str) -> None:
    with soon_tired(rules) as daemon:
        typing = Session(daemon, "bash", tty=False, open_stdin=True)
        assert typing.refused(content + "forbidden\n")["code"] == 1002


@pytest.mark.slow
@pytest.mark.parametrize("quoted", ["", "x='\n" + "yyyyyyyyy\n" * 150 + "'\n"])
def test_line_after_many_others_continues_a_command(rules: str, quoted: str) -> None:
    with soon_tired(rules) as daemon:
        typing = Session(daemon, "bash", tty=False, open_stdin=True)
        assert typing.refused("echo\n" * 600 + quoted + "forb\\\nidden\n")["code"] == 1002


def soon_tired(rules: str) -> AbstractContextManager[RawDaemon]:
    """Return a daemon with a twentieth of the usual limits: to reach those takes seconds."""
    module = "shelld.methods.typed_lines"
    limits = {f"{module}._MAX_COST": 100_000, f"{module}._MAX_COST_ALONE": 840_000}
    return raw_daemon("--guard-rules", rules, command=altered_daemon(limits))


@pytest.mark.slow
def test_oversized_input_is_refused_unjudged(guarded: RawDaemon) -> None:
    typing = Session(guarded, "stty raw -echo; echo ready; sleep 300")
    typing.until("ready")
    too_much: list[Json] = [
        {"text": "\n" * 5_000_000},
        {"keys": ["a"] * 2_000_000},
        {"base64": base64.b64encode(b"\n" * 5_000_000).decode()},
    ]
    for write in too_much:
        error = typing.refused(**write)
        assert (error["code"], error["data"]["limit"]) == (1005, "stdin")
