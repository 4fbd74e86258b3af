"""The events that `bash_output` and `write_stdin` can wait for, and the values of `reached`."""

from __future__ import annotations

import shlex
import socket

import pytest

from support import Json, RawDaemon

# This server listens on the address in its argument, and prints the port.
SERVER = """
import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.socket(family)
server.bind((sys.argv[1], 0))
server.listen()
print(server.getsockname()[1], flush=True)
time.sleep(300)
"""
FOREVER = {"wait": 60_000}


def read(daemon: RawDaemon, bash_id: str, **params: object) -> Json:
    result: Json = daemon.call("bash_output", {"bash_id": bash_id, **FOREVER, **params})
    return result


def server(address: str) -> str:
    return f"exec python3 -c {shlex.quote(SERVER)} {address}"


# -- what was reached -------------------------------------------------------------------------


@pytest.mark.slow
def test_wait_reports_that_it_reached_output(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo out; sleep 300")
    result = read(daemon, bash_id)
    assert (result["stdout"], result["reached"]) == ("out\n", "output")


@pytest.mark.parametrize("until", ["output", "exit", "prompt", "match", "quiet", "listening"])
def test_end_of_the_command_ends_every_wait(daemon: RawDaemon, until: str) -> None:
    bash_id = daemon.background("sleep 0.2", tty=True)
    pattern = {"pattern": "x"} if until == "match" else {}
    result = read(daemon, bash_id, until=until, quiet_ms=60_000, **pattern)
    assert (result["reached"], result["isRunning"]) == ("exit", False)


@pytest.mark.parametrize("until", ["output", "exit", "prompt", "match", "quiet", "listening"])
@pytest.mark.parametrize("wait", [0, 100])
def test_wait_that_passes_its_deadline_reaches_nothing(
    daemon: RawDaemon, until: str, wait: int
) -> None:
    bash_id = daemon.background("sleep 300", tty=True)
    pattern = {"pattern": "x"} if until == "match" else {}
    result = read(daemon, bash_id, until=until, wait=wait, quiet_ms=60_000, **pattern)
    assert (result["reached"], result["isRunning"]) == (None, True)
    assert "matched" not in result
    assert "listening" not in result


def test_wait_reports_that_it_reached_a_prompt(daemon: RawDaemon) -> None:
    bash_id = daemon.background("read -p 'Name? ' x", tty=True)
    assert read(daemon, bash_id, until="prompt")["reached"] == "prompt"
    # The program already waits for input, so this read returns at once.
    assert read(daemon, bash_id, until="prompt", wait=0)["reached"] == "prompt"


def test_shell_without_input_cannot_reach_a_prompt(daemon: RawDaemon) -> None:
    result = read(daemon, daemon.background("sleep 300"), until="prompt")
    assert (result["reached"], result["reason"]) == (None, "no_input")


@pytest.mark.parametrize("wait", [0, 60_000])
def test_shell_that_closes_its_input_cannot_reach_a_prompt(daemon: RawDaemon, wait: int) -> None:
    bash_id = daemon.background("exec 0<&-; echo closed; sleep 300", open_stdin=True)
    read(daemon, bash_id, until="match", pattern="closed")
    result = read(daemon, bash_id, until="prompt", wait=wait)
    assert (result["reached"], result["reason"]) == (None, "no_input")
    error = daemon.fail("write_stdin", {"bash_id": bash_id, "text": "x"})
    assert error["data"]["reason"] == "closed"


def test_input_stays_open_while_any_process_can_read_it(daemon: RawDaemon) -> None:
    bash_id = daemon.background("exec 3<&0 0<&-; read -r line <&3; echo got $line", open_stdin=True)
    assert read(daemon, bash_id, until="prompt")["reached"] == "prompt"
    daemon.call("write_stdin", {"bash_id": bash_id, "text": "word\n"})
    assert read(daemon, bash_id, until="exit")["stdout"] == "got word\n"


# -- match ------------------------------------------------------------------------------------


def test_match_returns_the_line_and_its_place(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo début; echo 'ready on 80'; echo more; sleep 300")
    result = read(daemon, bash_id, until="match", pattern=r"ready on (\d+)")
    assert result["reached"] == "match"
    matched = {"line": "ready on 80", "stream": "stdout", "start": 7, "end": 18}
    assert result["matched"] == matched
    again = daemon.call("bash_output", {"bash_id": bash_id, "stdout_offset": 7, "max_bytes": 11})
    assert again["stdout"] == "ready on 80"


def test_match_waits_for_its_line(daemon: RawDaemon) -> None:
    bash_id = daemon.background("cat", open_stdin=True)
    waiting = {"bash_id": bash_id, "until": "match", "pattern": "^go", **FOREVER}
    request = daemon.request("bash_output", waiting)
    for line in ("no go\n", "nothing\n", "go on\n"):
        daemon.call("write_stdin", {"bash_id": bash_id, "text": line})
    assert daemon.answer(request)["result"]["matched"]["line"] == "go on"


def test_match_finds_a_line_that_has_not_ended(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo first; printf 'Password: '; sleep 300")
    result = read(daemon, bash_id, until="match", pattern="Password: $")
    assert result["matched"] == {"line": "Password: ", "stream": "stdout", "start": 6, "end": 16}


def test_match_finds_stderr(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo out; echo 'fatal: no' >&2; sleep 300")
    result = read(daemon, bash_id, until="match", pattern="fatal")
    assert result["matched"] == {"line": "fatal: no", "stream": "stderr", "start": 0, "end": 9}


def test_match_searches_what_the_read_covers(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo here; sleep 300")
    assert read(daemon, bash_id, until="match", pattern="here")["reached"] == "match"
    assert read(daemon, bash_id, until="match", pattern="here", wait=50)["reached"] is None
    before = read(daemon, bash_id, until="match", pattern="here", stdout_offset=0)
    assert (before["reached"], before["stdout"]) == ("match", "here\n")
    other = read(daemon, bash_id, until="match", pattern="here", stderr_offset=0, wait=50)
    assert other["reached"] is None


def test_match_in_large_output_is_exact(daemon: RawDaemon) -> None:
    command = "seq -f 'line %.0f' 300000; echo target; seq 300000"
    bash_id = daemon.background(command)
    result = read(daemon, bash_id, until="match", pattern="^target$", max_bytes=100)
    start = sum(len(f"line {number}\n") for number in range(1, 300_001))
    matched = {"line": "target", "stream": "stdout", "start": start, "end": start + 6}
    assert result["matched"] == matched
    assert (len(result["stdout"]), result["more"]) == (100, True)


def test_match_sees_colours_only_if_asked(daemon: RawDaemon) -> None:
    bash_id = daemon.background(r"printf 'a\n\e[32mgreen\e[0m ok\r\n'; sleep 300")
    result = read(daemon, bash_id, until="match", pattern="^green ok$", stdout_offset=0)
    assert result["matched"] == {"line": "green ok", "stream": "stdout", "start": 2, "end": 19}
    raw = {"stdout_offset": 0, "strip_ansi": False, "wait": 50}
    assert read(daemon, bash_id, until="match", pattern="^green", **raw)["reached"] is None


@pytest.mark.parametrize("pattern", [r"(o)\1", "(?=ready)ready", "a" * 2_000 + "|ready"])
def test_match_accepts_the_patterns_of_a_filter(daemon: RawDaemon, pattern: str) -> None:
    bash_id = daemon.background("echo ready foo; sleep 300")
    result = read(daemon, bash_id, until="match", pattern=pattern)
    assert result["matched"]["line"] == "ready foo"


@pytest.mark.slow
def test_wait_that_fails_after_a_write_tells_what_was_written(daemon: RawDaemon) -> None:
    bash_id = daemon.background("cat", open_stdin=True)
    line = "a" * 40 + "b\n"
    params = {"bash_id": bash_id, "text": line, "until": "match", "pattern": r"^(a+)+\1$"}
    error = daemon.fail("write_stdin", {**params, **FOREVER})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "pattern")
    assert error["data"]["written"] == len(line)
    assert read(daemon, bash_id)["stdout"] == line
    # If the daemon refuses the pattern before it writes, it writes nothing.
    error = daemon.fail("write_stdin", {**params, "pattern": "("})
    assert "written" not in error["data"]


def test_match_is_found_in_the_output_of_an_ended_shell(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo one; printf two")
    read(daemon, bash_id, until="exit", stderr_offset=0)
    assert read(daemon, bash_id, until="match", pattern="two")["matched"]["start"] == 4


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"until": "match"}, "pattern"),
        ({"until": "match", "pattern": "("}, "pattern"),
        ({"until": "match", "pattern": "x" * 10_001}, "pattern"),
        ({"until": "match", "pattern": 1}, "pattern"),
        ({"pattern": "x"}, "pattern"),
        ({"until": "exit", "pattern": "x"}, "pattern"),
        ({"until": "quiet", "port": 80}, "port"),
        ({"until": "listening", "port": 0}, "port"),
        ({"until": "listening", "port": 65_536}, "port"),
        ({"until": "quiet", "quiet_ms": 0}, "quiet_ms"),
        ({"until": "quiet", "quiet_ms": 600_001}, "quiet_ms"),
        ({"until": "silence"}, "until"),
    ],
)
@pytest.mark.parametrize("method", ["bash_output", "write_stdin"])
def test_params_that_do_not_fit_are_invalid(
    daemon: RawDaemon, method: str, params: Json, parameter: str
) -> None:
    bash_id = daemon.background("cat", open_stdin=True)
    text = {"text": "x\n"} if method == "write_stdin" else {}
    error = daemon.fail(method, {"bash_id": bash_id, **text, **params})
    assert (error["code"], error["data"]["parameter"]) == (-32602, parameter)
    # The refused call has also written nothing to the shell.
    assert read(daemon, bash_id, wait=0)["stdoutRange"]["end"] == 0


# -- quiet ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quiet_waits_until_output_stops(daemon: RawDaemon) -> None:
    bash_id = daemon.background("for i in {1..5}; do echo $i; sleep 0.1; done; sleep 300")
    result = read(daemon, bash_id, until="quiet", quiet_ms=2_000)
    assert (result["reached"], result["stdout"]) == ("quiet", "1\n2\n3\n4\n5\n")


def test_quiet_counts_from_the_last_output(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo out; sleep 300")
    read(daemon, bash_id, until="match", pattern="out")
    read(daemon, bash_id, until="quiet", quiet_ms=300)
    # The output has already been quiet for 300 ms.
    assert read(daemon, bash_id, until="quiet", quiet_ms=300, wait=0)["reached"] == "quiet"


@pytest.mark.slow
def test_quiet_after_a_write_has_the_answer(daemon: RawDaemon) -> None:
    answers = 'echo ready; while read x; do sleep 0.2; echo "<$x>"; done'
    bash_id = daemon.background(answers, open_stdin=True)
    read(daemon, bash_id, until="match", pattern="ready")
    params = {"bash_id": bash_id, "text": "a\n", "until": "quiet", "quiet_ms": 2_000, **FOREVER}
    result = daemon.call("write_stdin", params)
    assert (result["reached"], result["stdout"]) == ("quiet", "<a>\n")


# -- listening --------------------------------------------------------------------------------


def test_listening_names_port_and_process(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 0.2; " + server("127.0.0.1"))
    result = read(daemon, bash_id, until="listening")
    [listener] = result["listening"]
    assert result["reached"] == "listening"
    assert (listener["address"], listener["program"]) == ("127.0.0.1", "python3")
    output = result["stdout"] or read(daemon, bash_id)["stdout"]
    assert listener["port"] == int(output)
    socket.create_connection(("127.0.0.1", listener["port"])).close()


@pytest.mark.parametrize("address", ["0.0.0.0", "::1", "::"])
def test_listening_has_the_usual_form_of_an_address(daemon: RawDaemon, address: str) -> None:
    if ":" in address and not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6 here")
    bash_id = daemon.background(server(address))
    [listener] = read(daemon, bash_id, until="listening")["listening"]
    assert listener["address"] == address


def test_listening_finds_a_process_that_bash_has_left(daemon: RawDaemon) -> None:
    command = f"(setsid bash -c {shlex.quote(server('127.0.0.1'))} &); sleep 300"
    bash_id = daemon.background(command)
    assert len(read(daemon, bash_id, until="listening")["listening"]) == 1


def test_listening_ignores_ports_of_others(daemon: RawDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = mine.getsockname()[1]
        bash_id = daemon.background("exec sleep 300")
        result = read(daemon, bash_id, until="listening", port=port, wait=300)
        assert result["reached"] is None
        client = f"s = socket.create_connection(('127.0.0.1', {port}))"
        script = f"import socket, time; {client}; print(1, flush=True); time.sleep(300)"
        connected = daemon.background(f"exec python3 -c {shlex.quote(script)}")
        assert read(daemon, connected)["stdout"].startswith("1")
        assert read(daemon, connected, until="listening", wait=0)["reached"] is None


# This server listens on one port immediately. It prints the number of another port, and listens on
# that port once it has read a line.
LATE_SERVER = """
import socket, time
first, second = socket.create_server(("127.0.0.1", 0)), socket.socket()
second.bind(("127.0.0.1", 0))
print(second.getsockname()[1], flush=True)
input()
second.listen()
time.sleep(300)
"""


def test_listening_waits_for_its_port(daemon: RawDaemon) -> None:
    bash_id = daemon.background(f"exec python3 -c {shlex.quote(LATE_SERVER)}", open_stdin=True)
    assert len(read(daemon, bash_id, until="listening")["listening"]) == 1
    port = int(read(daemon, bash_id, until="match", pattern=".", stdout_offset=0)["stdout"])
    waiting = {"bash_id": bash_id, "until": "listening", "port": port}
    assert daemon.call("bash_output", {**waiting, "wait": 0})["reached"] is None
    request = daemon.request("bash_output", {**waiting, **FOREVER})
    daemon.call("write_stdin", {"bash_id": bash_id, "text": "\n"})
    [listener] = daemon.answer(request)["result"]["listening"]
    assert listener["port"] == port


def test_children_that_share_a_socket_count_once(daemon: RawDaemon) -> None:
    forks = SERVER.replace("print(", "import os; os.fork(); print(")
    bash_id = daemon.background(f"exec python3 -c {shlex.quote(forks)} 127.0.0.1")
    assert len(read(daemon, bash_id, until="listening")["listening"]) == 1


# -- several waits at once --------------------------------------------------------------------


def test_waits_for_one_shell_run_at_the_same_time(daemon: RawDaemon) -> None:
    bash_id = daemon.background("cat", open_stdin=True)
    waits = [
        daemon.request("bash_output", {"bash_id": bash_id, "until": "match", **FOREVER, **more})
        for more in ({"pattern": "1", "stdout_offset": 0}, {"pattern": "2", "stdout_offset": 0})
    ]
    daemon.call("write_stdin", {"bash_id": bash_id, "text": "2\n"})
    assert daemon.answer(waits[1])["result"]["matched"]["line"] == "2"
    daemon.call("write_stdin", {"bash_id": bash_id, "text": "1\n"})
    assert daemon.answer(waits[0])["result"]["matched"]["line"] == "1"


def test_cancelled_wait_consumes_no_output(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo kept; sleep 300")
    params = {"bash_id": bash_id, "until": "match", "pattern": "never", **FOREVER}
    request = daemon.request("bash_output", params)
    daemon.notify("$/cancelRequest", {"id": request})
    assert daemon.answer(request)["error"]["code"] == -32800
    assert read(daemon, bash_id)["stdout"] == "kept\n"


def test_tools_have_the_same_waits(daemon: RawDaemon) -> None:
    arguments = {
        "command": server("127.0.0.1"),
        "run_in_background": True,
        "until": "listening",
        **FOREVER,
    }
    result = daemon.call("call_tool", {"name": "Bash", "arguments": arguments})
    assert "[python3 listens on 127.0.0.1 port " in result["output"]
    found = {
        "bash_id": result["metadata"]["bash_id"],
        "until": "match",
        "pattern": "no",
        "wait": 50,
    }
    missed = daemon.call("call_tool", {"name": "BashOutput", "arguments": found})
    assert "[No line matched the pattern within 50ms]" in missed["output"]
