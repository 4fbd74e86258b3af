"""Commands with a terminal, and input for running commands, over the wire."""

from __future__ import annotations

import base64
import json
import os
import signal
import termios
from functools import partial
from pathlib import Path

import pytest

from support import Gate, Json, Mark, RawDaemon, descendants, is_alive, raw_daemon, wait_for
from typing_session import Session

# -- the terminal -----------------------------------------------------------------------------


def test_command_has_a_controlling_terminal(daemon: RawDaemon) -> None:
    shown = daemon.bash(
        "tty; stty size; echo $TERM; (echo told > /dev/tty); ps -o tpgid= -p $$", tty=True
    )
    lines = shown["stdout"].replace("\r", "").splitlines()
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:4] == ["30 120", "xterm-256color", "told"]
    assert int(lines[4]) > 0
    assert (shown["exitCode"], shown["leftover"]) == (0, [])


def test_a_terminal_has_one_stream(daemon: RawDaemon) -> None:
    shown = daemon.bash("echo out; echo err >&2; echo more", tty=True)
    assert shown["stdout"].replace("\r", "") == "out\nerr\nmore\n"
    assert (shown["stderr"], shown["stderrBytes"], shown["stdoutBytes"]) == ("", 0, 16)


def test_program_asks_the_terminal_for_its_size(daemon: RawDaemon) -> None:
    daemon.bash("export LINES=5 COLUMNS=7", session="sized")
    show = "env | grep -E '^(LINES|COLUMNS)=' | sort; true"
    assert daemon.bash(show, session="sized")["stdout"] == "COLUMNS=7\nLINES=5\n"
    assert daemon.bash(show, session="sized", tty=True)["stdout"] == ""
    given = daemon.bash(show, session="sized", tty=True, env={"LINES": "9"})
    assert given["stdout"] == "LINES=9\r\n"


def test_size_and_terminal_type_can_be_given(daemon: RawDaemon) -> None:
    shown = daemon.bash("stty size; echo $TERM", tty=True, rows=5, cols=1_000, env={"TERM": "dumb"})
    assert shown["stdout"].split() == ["5", "1000", "dumb"]


@pytest.mark.parametrize("size", [{"rows": 0}, {"cols": 1_001}, {"rows": "30"}, {"cols": 1.5}])
def test_impossible_size_is_invalid(daemon: RawDaemon, size: Json) -> None:
    error = daemon.fail("bash", {"command": "true", "tty": True, **size})
    assert (error["code"], error["data"]["parameter"]) == (-32602, next(iter(size)))


def test_session_is_kept_but_not_the_terminal(daemon: RawDaemon) -> None:
    daemon.bash("export TERM=mine COLUMNS=7")
    daemon.bash("x=1; cd /usr; f() { echo function; }", tty=True)
    shown = daemon.bash("echo $x $PWD $TERM $COLUMNS; f")
    assert shown["stdout"] == "1 /usr mine 7\nfunction\n"


def test_size_of_terminal_is_kept_out_of_exported_variables(daemon: RawDaemon) -> None:
    daemon.bash("export COLUMNS=7 LINES=5", session="exporting")
    # Bash sets both variables after it has run a program.
    size = 'env true; echo "$COLUMNS $LINES"'
    shown = daemon.bash(size, session="exporting", tty=True, rows=9, cols=40)
    assert shown["stdout"] == "40 9\r\n"
    shown = daemon.bash("printenv COLUMNS LINES", session="exporting")
    assert shown["stdout"] == "7\n5\n"
    daemon.bash("env true; export COLUMNS", session="exporting", tty=True, rows=9, cols=40)
    shown = daemon.bash("printenv COLUMNS LINES", session="exporting")
    assert shown["stdout"] == "40\n5\n"
    daemon.bash("env true; x=1", session="exporting", tty=True, env={"COLUMNS": "8", "LINES": "6"})
    shown = daemon.bash("printenv COLUMNS LINES; echo $x", session="exporting")
    assert shown["stdout"] == "40\n5\n1\n"


def test_given_stdin_is_typed_first(daemon: RawDaemon) -> None:
    shown = daemon.bash("read a; read b; echo $b-$a", tty=True, stdin="one\ntwo\n")
    assert shown["stdout"].replace("\r", "").endswith("two-one\n")


def test_a_long_output_is_counted_to_the_byte(daemon: RawDaemon) -> None:
    shown = daemon.bash("stty -opost; head -c 3000000 /dev/zero | tr '\\0' x; printf end", tty=True)
    assert (shown["stdoutBytes"], shown["truncated"]) == (3_000_003, True)
    rest = daemon.call("bash_output", {"bash_id": shown["bash_id"], "stdout_offset": 2_999_990})
    assert rest["stdout"] == "x" * 10 + "end"


def test_start_needs_a_free_terminal_in_no_session(daemon: RawDaemon) -> None:
    shown = daemon.bash("tty", tty=True, session=None)
    assert shown["stdout"].startswith("/dev/pts/")


@pytest.mark.parametrize("grace", [0, 500])
def test_killing_a_shell_with_terminal_leaves_no_process(daemon: RawDaemon, grace: int) -> None:
    hidden = "trap '' HUP TERM; setsid sh -c 'trap \"\" HUP TERM; sleep 300' & sleep 300"
    typing = Session(daemon, f"{hidden} & echo ready; wait")
    typing.until("ready")
    below = [pid for pid in descendants(daemon.pid) if b"sleep" in _command(pid)]
    assert below
    done = daemon.call("kill_shell", {"bash_id": typing.bash_id, "grace": grace})
    assert done["survivors"] == []
    assert not any(map(is_alive, below))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_timeout_ends_a_command_with_terminal(daemon: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    params = {"command": f"echo begun; {mark.touch}; cat", "tty": True, "timeout": 1_000}
    error = mark.in_time(partial(daemon.fail, "bash", params))
    assert (error["code"], error["data"]["stdout"]) == (1001, "begun\r\n")


def test_leftover_keeps_its_terminal(daemon: RawDaemon) -> None:
    shown = daemon.bash("trap '' HUP; (sleep 0.3; echo late) & echo now", tty=True)
    assert shown["stdout"] == "now\r\n"
    read = {"bash_id": shown["bash_id"], "wait": 60_000}
    wait_for(lambda: daemon.call("bash_output", read)["stdout"] == "late\r\n", "the late line")


def test_hangup_ends_background_processes(daemon: RawDaemon) -> None:
    shown = daemon.bash("sleep 300 & echo $!", tty=True)
    pid = int(shown["stdout"])
    wait_for(lambda: not is_alive(pid))


def test_stopped_program_can_go_on(daemon: RawDaemon) -> None:
    typing = Session(daemon, "PS1='ready> ' bash --norc -i")
    typing.until("ready> ")
    typing.write("cat\n")
    # While bash edits a line, it switches off the terminal's echo.
    wait_for(lambda: _echoes(daemon, typing.bash_id), "the end of bash's editing")
    typing.write("one\n")
    # Since cat has read the line, the key reaches cat and not bash.
    typing.until("one\r\none\r\n")
    typing.write(keys=["C-z"])
    typing.until("Stopped")
    typing.until("ready> ")
    typing.write("fg\n")
    wait_for(lambda: _echoes(daemon, typing.bash_id), "the end of bash's editing")
    typing.write("echoed\n", keys=["C-d"])
    typing.until("echoed\r\nechoed\r\n")
    typing.write("exit\n")
    assert typing.end()["exitCode"] == 0


def test_programs_get_fixed_answers_only(daemon: RawDaemon) -> None:
    ask = r"printf '\033[c\033]52;c;?\a\033[21t\033[5n'; IFS= read -rsn 11 answer; echo ${answer@Q}"
    assert daemon.bash(f"stty -echo; {ask}", tty=True)["stdout"].endswith(
        r"$'\E[?1;2c\E[0n'" + "\r\n"
    )


# -- writing ----------------------------------------------------------------------------------


def test_answer_to_write_comes_in_one_round_trip(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty -echo; echo ready; while read -r x; do echo got $x; done")
    typing.until("ready\r\n")
    result = typing.write("hello\n", wait=60_000)
    assert result["stdout"] == "got hello\r\n"
    assert (result["written"], result["pendingBytes"], result["isRunning"]) == (6, 0, True)


def test_parts_are_written_in_order(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty -echo; echo ready; cat")
    typing.until("ready\r\n")
    typing.write("text ", keys=["k", "Space"], base64=base64.b64encode(b"b64\n").decode(), eof=True)
    assert typing.end()["exitCode"] == 0
    assert typing.output == "text k b64\r\n"


def test_many_writes_keep_their_order(daemon: RawDaemon) -> None:
    typing = Session(daemon, "cat", tty=False, open_stdin=True)
    lines = [f"line {number}\n" for number in range(300)]
    for line in lines:
        daemon.notify("write_stdin", {"bash_id": typing.bash_id, "text": line})
    typing.write(eof=True)
    typing.end()
    assert typing.output == "".join(lines)


def test_request_id_reaches_a_silent_foreground_command(daemon: RawDaemon) -> None:
    wait = "until [[ $(stty size) == '30 100' ]]; do sleep 0.05; done"
    call = daemon.request("bash", {"command": f"{wait}; read -r x; echo got $x", "tty": True})
    resized = daemon.call("resize_shell", {"request_id": call, "rows": 30, "cols": 100})
    written = daemon.call("write_stdin", {"request_id": call, "text": "hello\n"})
    result = daemon.answer(call)["result"]
    assert result["stdout"].endswith("got hello\r\n")
    assert resized["bash_id"] == written["bash_id"] == result["bash_id"]


@pytest.mark.parametrize("method", ["write_stdin", "resize_shell"])
def test_input_is_for_one_shell_that_exists(daemon: RawDaemon, method: str) -> None:
    more: Json = {"text": "x"} if method == "write_stdin" else {"rows": 30, "cols": 100}
    bash_id = daemon.background("cat", tty=True)
    ended = daemon.request("bash", {"command": "true", "tty": True})
    daemon.answer(ended)
    for name, code in (
        ({}, -32602),
        ({"bash_id": None}, -32602),
        ({"bash_id": bash_id, "request_id": 1}, -32602),
        ({"bash_id": "shell_unknown"}, 1003),
        ({"request_id": ended}, -32602),
        ({"request_id": "unknown"}, -32602),
    ):
        assert daemon.fail(method, {**name, **more})["code"] == code, name


def test_write_that_reads_from_an_offset_consumes_no_output(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo first; cat", open_stdin=True)
    daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "stdout_offset": 0})
    write: Json = {"bash_id": bash_id, "text": "second\n", "eof": True, "stdout_offset": 2}
    written = daemon.call("write_stdin", {**write, "max_bytes": 3})
    assert (written["stdout"], written["written"]) == ("rst", 7)
    read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    assert read["stdout"] == "first\nsecond\n"


def test_write_as_a_notification_consumes_no_output(daemon: RawDaemon) -> None:
    typing = Session(daemon, "echo first; cat", tty=False, open_stdin=True)
    daemon.notify("write_stdin", {"bash_id": typing.bash_id, "text": "second\n", "wait": 60_000})
    typing.until("first\nsecond\n")


def test_pipe_has_stdin_first_and_ends_with_eof(daemon: RawDaemon) -> None:
    typing = Session(daemon, "cat; echo ended", tty=False, open_stdin=True, stdin="given\n")
    typing.write("written\n", eof=True)
    assert typing.end()["exitCode"] == 0
    assert typing.output == "given\nwritten\nended\n"
    error = typing.refused("more")
    assert (error["code"], error["data"]["reason"]) == (1008, "ended")


@pytest.mark.parametrize("params", [{"open_stdin": True}, {"tty": True}])
def test_first_input_that_fills_the_buffer_arrives(daemon: RawDaemon, params: Json) -> None:
    content = "x\n" * 200_000
    command = "stty -echo 2>&-; wc -c"
    bash_id = daemon.background(command, stdin=content, **params)
    write = {"bash_id": bash_id, "eof": True, "wait": 60_000, "until": "exit"}
    ended = daemon.call("write_stdin", write)
    # The terminal echoes the text that was typed before the program could switch off the echo.
    assert (ended["stdout"].rstrip()[-6:], ended["exitCode"]) == ("400000", 0)


@pytest.mark.parametrize("params", [{"open_stdin": True}, {"tty": True}])
def test_first_input_that_nobody_reads_does_no_harm(daemon: RawDaemon, params: Json) -> None:
    ended = daemon.bash("true", stdin="x\n" * 200_000, **params)
    assert (ended["status"], ended["exitCode"]) == ("completed", 0)


def test_eof_accounts_for_terminal_answers(daemon: RawDaemon) -> None:
    typing = Session(daemon, "printf '\\033[cready'; cat; echo END")
    typing.until("ready")
    # The terminal's answer becomes a part of the unfinished line.
    wait_for(lambda: typing.write("", keys=["x"])["pendingBytes"] == 0, "the answer")
    assert typing.write(eof=True)["written"] == 2
    typing.until("END")


def test_eof_after_a_quoting_key_ends_the_input(daemon: RawDaemon) -> None:
    typing = Session(daemon, "echo ready; cat; echo END")
    typing.until("ready\r\n")
    typing.write("\x16")
    typing.write(eof=True)
    typing.until("END")


def test_closed_pipe_takes_nothing_more(daemon: RawDaemon) -> None:
    typing = Session(daemon, "cat; sleep 300", tty=False, open_stdin=True)
    typing.write(eof=True)
    error = typing.refused("more")
    assert (error["code"], error["data"]) == (1008, {"kind": "stdin_closed", "reason": "closed"})


def test_eof_passes_on_a_partial_line(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty -echo; echo ready; cat; echo ended")
    typing.until("ready\r\n")
    typing.write("partial")
    assert typing.write(eof=True)["written"] == 2
    typing.end()
    assert typing.output == "partialended\r\n"


@pytest.mark.parametrize(
    "writes", [[{"text": "abc", "keys": ["C-d"]}], [{"text": "abc\x7f\x7f\x7f"}]]
)
def test_eof_is_typed_once_if_nothing_is_pending(daemon: RawDaemon, writes: list[Json]) -> None:
    typing = Session(daemon, "stty -echo; echo one; cat; echo two; cat; echo three")
    typing.until("one\r\n")
    for write in writes:
        typing.write(**write)
    typing.write(eof=True)
    typing.until("two\r\n")
    # A second end of file would end the second program.
    typing.write("still here\n")
    typing.until("still here\r\n")


def test_input_that_nobody_can_read_is_not_reported_as_written(daemon: RawDaemon) -> None:
    typing = Session(daemon, "exec <&-; echo ready; sleep 300", tty=False, open_stdin=True)
    typing.until("ready\n")
    error = typing.refused("hello")
    assert (error["code"], error["data"]["reason"]) == (1008, "closed")
    assert typing.refused("hello")["data"]["reason"] == "closed"


def test_eof_needs_a_program_that_reads_lines(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty raw; printf ready; sleep 300")
    typing.until("ready")
    error = typing.refused("text", eof=True)
    assert (error["code"], error["data"]["what"]) == (1009, "eof")


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"keys": ["Retrun"]}, "keys"),
        ({"base64": "a"}, "base64"),
        ({"base64": "_-=="}, "base64"),
        ({"wait": -1}, "wait"),
        ({"until": "later"}, "until"),
    ],
)
def test_bad_input_is_refused_and_writes_nothing(
    daemon: RawDaemon, params: Json, parameter: str
) -> None:
    typing = Session(daemon, "cat", tty=False, open_stdin=True)
    error = typing.refused(**params)
    assert (error["code"], error["data"]["parameter"]) == (-32602, parameter)
    typing.write("still\n", eof=True)
    typing.end()
    assert typing.output == "still\n"


def test_shell_without_input_refuses_it(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    error = daemon.fail("write_stdin", {"bash_id": bash_id, "text": "x"})
    assert (error["code"], error["data"]["reason"]) == (1008, "not_open")
    error = daemon.fail("write_stdin", {"bash_id": "shell_unknown", "text": "x"})
    assert error["code"] == 1003


def test_line_too_long_for_a_terminal_is_refused(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty -echo; echo ready; read -r line; echo ${#line}")
    typing.until("ready\r\n")
    assert typing.refused("x" * 4_096)["code"] == -32602
    typing.write("x" * 4_000)
    assert typing.refused("x" * 96 + "\n")["code"] == -32602
    typing.write("x" * 95 + "\n")
    typing.until("4095\r\n")


@pytest.mark.parametrize(
    ("mode", "end"), [("igncr", "\r"), ("-icrnl", "\r"), ("echo", "\x16\x15"), ("noflsh", "\x03")]
)
def test_nonterminating_key_keeps_line_length(daemon: RawDaemon, mode: str, end: str) -> None:
    typing = Session(daemon, f"trap '' INT; stty {mode}; echo ready; cat")
    typing.until("ready\r\n")
    error = typing.refused("a" * 4_000 + end + "b" * 4_000 + "\n")
    assert error["code"] == -32602


def test_line_of_stdin_too_long_for_a_terminal_is_refused(daemon: RawDaemon) -> None:
    params = {"command": "wc -c", "tty": True, "stdin": "x" * 4_096 + "\n"}
    error = daemon.fail("bash", params)
    assert (error["code"], error["data"]["parameter"]) == (-32602, "stdin")


def test_leftover_sees_the_end_of_input(daemon: RawDaemon) -> None:
    shown = daemon.bash("exec 7<&0; cat <&7 & echo $!", open_stdin=True)
    wait_for(lambda: not is_alive(int(shown["stdout"])))


def test_program_that_never_reads_delays_nobody(daemon: RawDaemon) -> None:
    typing = Session(daemon, "sleep 300", tty=False, open_stdin=True)
    megabyte = "x" * 1024 * 1024
    assert typing.write(megabyte[65_536:])["pendingBytes"] > 0
    error = typing.refused(megabyte)
    assert (error["code"], error["data"]["limit"]) == (1005, "stdin")
    assert typing.write("y")["written"] == 1
    daemon.call("ping")
    assert daemon.call("kill_shell", {"bash_id": typing.bash_id})["survivors"] == []


def test_queued_input_arrives_once_it_is_read(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    typing = Session(
        daemon, f"until [ -e {gate} ]; do sleep 0.05; done; wc -c", tty=False, open_stdin=True
    )
    result = typing.write("x" * 900_000, eof=True)
    assert result["pendingBytes"] > 800_000
    gate.touch()
    typing.end()
    assert typing.output.strip() == "900000"


def test_secret_needs_a_terminal_without_echo(daemon: RawDaemon) -> None:
    typing = Session(daemon, "echo ready; read -rs secret; echo ${#secret}")
    typing.until("ready\r\n")
    wait_for(lambda: not _echoes(daemon, typing.bash_id), "the end of echo")
    typing.write("swordfish\n", secret=True)
    typing.until("9\r\n")
    shown = Session(daemon, "cat")
    error = shown.refused("swordfish\n", secret=True)
    assert (error["code"], error["data"]["what"]) == (1009, "secret")
    assert "swordfish" not in json.dumps(error)


def test_secret_is_never_behind_much_unread_input(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    reads = "while read -r line && [ $line != end ]; do :; done"
    typing = Session(daemon, f"stty -echo; echo go; {gate.wait}; stty echo; {reads}; cat")
    typing.until("go\r\n")
    typing.write(("x" * 99 + "\n") * 50)
    error = typing.refused("swordfish\n", secret=True)
    assert (error["code"], error["data"]["what"]) == (1009, "secret")
    gate.open()
    typing.write("end\nshown\n", eof=True)
    typing.end()
    assert "shown\r\n" in typing.output
    assert "swordfish" not in typing.output


def test_secret_longer_than_a_terminal_takes_is_refused(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty -echo; echo go; wc -c")
    typing.until("go\r\n")
    error = typing.refused(("x" * 99 + "\n") * 41, secret=True)
    assert (error["code"], error["data"]["what"]) == (1009, "secret")
    typing.write(("x" * 99 + "\n") * 40, secret=True, eof=True)
    typing.end()
    assert typing.output.split() == ["4000"]


def test_secret_may_follow_line_that_nobody_has_read(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    reads = "while read -r line && [ $line != end ]; do echo got; done"
    then = "read -r user; read -r word; echo ${#word} characters"
    typing = Session(daemon, f"stty -echo; echo go; {reads}; {gate.wait}; {then}")
    typing.until("go\r\n")
    for _ in range(6):
        # These lines do not count toward the limit on unread input, because the program has read
        # them.
        typing.write("x" * 1_000 + "\n")
        typing.until("got\r\n")
    typing.write("end\n")
    typing.write("user\n")
    typing.write("swordfish\n", secret=True)
    gate.open()
    typing.until("9 characters\r\n")


def _echoes(daemon: RawDaemon, bash_id: str) -> bool:
    (shell,) = (s for s in daemon.call("list_shells")["shells"] if s["bash_id"] == bash_id)
    tty = os.readlink(f"/proc/{shell['pid']}/fd/0")
    with Path(tty).open("rb") as terminal:
        return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_paste_is_marked_if_the_program_asked(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty raw -echo; printf 'on\\033[?2004h'; head -c 15 | od -An -c")
    typing.until("on")
    typing.write("a\n\x1b[201~b", paste=True)
    assert "033   [   2   0   0   ~   a  \\n   b 033" in typing.until("b 033")
    plain = Session(daemon, "stty raw -echo; printf on; head -c 3 | od -An -c")
    plain.until("on")
    plain.write("abc", paste=True)
    plain.until("a   b   c")


def test_cursor_keys_follow_the_programs_mode(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty raw -echo; printf 'on\\033[?1h'; head -c 6 | od -An -c")
    typing.until("on")
    typing.write(keys=["Up", "C-c", "F1"])
    typing.until("033   O   A 003 033   O")


def test_audit_log_counts_input_and_hides_it(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with raw_daemon("--audit-log", str(log)) as daemon:
        typing = Session(daemon, "cat", tty=False, open_stdin=True)
        typing.write("swordfish\n", secret=True, eof=True)
        typing.end()
    first = json.loads(log.read_text().splitlines()[0])
    members = {name: first[name] for name in ("event", "bash_id", "bytes", "secret", "session")}
    assert members == {
        "event": "input",
        "bash_id": typing.bash_id,
        "bytes": 10,
        "secret": True,
        "session": "main",
    }
    assert "swordfish" not in log.read_text()


@pytest.mark.slow
def test_debug_log_hides_what_is_secret(tmp_path: Path) -> None:
    log, rules = tmp_path / "log", tmp_path / "rules.toml"
    rules.write_text('[[block]]\nname = "no"\nprogram = "forbidden"\nreason = "a test"\n')
    options = ("--guard-rules", str(rules), "--log-level", "debug", "--log-file", str(log))
    with raw_daemon(*options) as daemon:
        typing = Session(daemon, "stty -echo; echo ready; exec bash --norc --noediting -i 2>&-")
        typing.until("ready\r\n")

        def is_at_prompt() -> bool:
            wait = {"bash_id": typing.bash_id, "wait": 1_000, "until": "prompt"}
            return daemon.call("bash_output", wait)["prompt"] is not None

        secret: Json = {"secret": True}
        encoded = base64.b64encode(b"swordfish\n").decode()
        typing.write("true swordfish\n", **secret)
        typing.write(keys=list("swordfish"), **secret)
        typing.write(base64=encoded, **secret)
        # While a command runs, the guard does not judge the typed text.
        wait_for(is_at_prompt, "the shell's prompt")
        # The daemon refuses each of these inputs, for a different reason.
        typing.refused("forbidden swordfish\n", **secret)
        typing.refused("swordfish" * 500, **secret)
        typing.refused("swordfish", keys=["swordfish"], **secret)
        typing.refused("swordfish", base64="swordfish!", **secret)
        typing.refused("swordfish", secret="swordfish")
        typing.refused("swordfish\0" * 200_000, **secret)
        daemon.notify("write_stdin", {"bash_id": typing.bash_id, "text": "swordfish\n", **secret})
        typing.write("exit\n")
        typing.end()
        typing.refused("swordfish", **secret)
    text = log.read_text()
    assert "write_stdin" in text
    assert "swordfish" not in text
    assert encoded not in text


# -- size -------------------------------------------------------------------------------------


def test_program_learns_its_new_size(daemon: RawDaemon) -> None:
    typing = Session(daemon, "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done")
    typing.until("ready\r\n")
    size = {"bash_id": typing.bash_id, "rows": 7, "cols": 9}
    assert daemon.call("resize_shell", size) == {**size, "isRunning": True}
    typing.until("7 9\r\n")


def test_ended_shell_is_not_resized(daemon: RawDaemon) -> None:
    typing = Session(daemon, "true")
    typing.end()
    size = {"bash_id": typing.bash_id, "rows": 7, "cols": 9}
    assert daemon.call("resize_shell", size) == {**size, "isRunning": False}


def test_shell_without_terminal_has_no_size(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    error = daemon.fail("resize_shell", {"bash_id": bash_id, "rows": 7, "cols": 9})
    assert (error["code"], error["data"]["what"]) == (1009, "tty")
    for bad in ({"rows": 0, "cols": 9}, {"rows": 9, "cols": 1_001}, {"rows": 9}, {"cols": 9}, {}):
        assert daemon.fail("resize_shell", {"bash_id": bash_id, **bad})["code"] == -32602


def test_signals_of_keys_reach_the_foreground(daemon: RawDaemon) -> None:
    typing = Session(daemon, "echo ready; sleep 300")
    typing.until("ready\r\n")
    typing.write(keys=["C-c"])
    assert typing.end()["signal"] == signal.Signals.SIGINT.name
