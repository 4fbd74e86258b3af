"""Input and output keep bytes that are not valid text, and merged streams keep their order."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Gate, Json, RawDaemon, raw_daemon, wait_for

EVERY_BYTE = bytes(range(256))
WRITE_EVERY_BYTE = r"for i in {0..255}; do printf -v x '\\x%x' $i; printf $x; done"


def bash(daemon: RawDaemon, command: str, **params: Any) -> Json:
    result: Json = daemon.call("bash", {"command": command, **params})
    return result


def read_bytes(daemon: RawDaemon, bash_id: str, **params: Any) -> Json:
    params = {"bash_id": bash_id, "encoding": "base64", **params}
    result: Json = daemon.call("bash_output", params)
    return result


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# -- merged streams -----------------------------------------------------------------------------

BOTH = "for i in {1..300}; do echo out $i; echo error $i >&2; done"
IN_ORDER = "".join(f"out {i}\nerror {i}\n" for i in range(1, 301))


@pytest.mark.parametrize("extra", [{}, {"session": None}, {"stdin": "x"}, {"open_stdin": True}])
def test_merged_streams_keep_their_order(daemon: RawDaemon, extra: Json) -> None:
    result = bash(daemon, BOTH, merge=True, **extra)
    assert (result["stdout"], result["stderr"]) == (IN_ORDER, "")
    assert (result["stdoutBytes"], result["stderrBytes"]) == (len(IN_ORDER), 0)


def test_merged_streams_of_a_background_shell_are_its_stdout(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.background(f"echo a; echo b >&2; {gate.wait}; echo c >&2", merge=True)
    output = ""

    def has(text: str) -> bool:
        nonlocal output
        params = {"bash_id": bash_id, "wait": 1_000}
        result = daemon.call("bash_output", params)
        assert (result["stderr"], result["stderrRange"]["end"]) == ("", 0)
        output += result["stdout"]
        return bool(output == text)

    wait_for(lambda: has("a\nb\n"), "both streams")
    gate.open()
    wait_for(lambda: has("a\nb\nc\n"), "the last line")


def test_merged_command_can_change_its_session(daemon: RawDaemon) -> None:
    bash(daemon, "value=kept; cd /", merge=True, session="merged")
    daemon.wait_for_spare()
    result = bash(daemon, "echo $value $PWD >&2", merge=True, session="merged")
    assert result["stdout"] == "kept /\n"
    # The session's other commands still have two streams.
    result = bash(daemon, "echo $value >&2", session="merged")
    assert (result["stdout"], result["stderr"]) == ("", "kept\n")


def test_leftover_of_a_merged_command_writes_to_stdout(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    result = bash(daemon, f"({gate.wait}; echo late >&2) & echo now >&2", merge=True)
    assert result["stdout"] == "now\n"
    gate.open()
    params = {"bash_id": result["bash_id"], "wait": 60_000}
    wait_for(lambda: daemon.call("bash_output", params)["stdout"] == "late\n", "the late line")


def test_terminal_has_one_stream_with_or_without_merge(daemon: RawDaemon) -> None:
    for merge in (False, True):
        result = bash(daemon, "test -t 2 && echo error >&2", tty=True, merge=merge)
        assert (result["stdout"], result["stderr"]) == ("error\r\n", "")


# -- input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 300_000, 1_000_001])
def test_input_in_base64_arrives_byte_for_byte(daemon: RawDaemon, size: int) -> None:
    data = (EVERY_BYTE * (1 + size // 256))[:size]
    result = bash(daemon, "cat", stdin_base64=encoded(data))
    read = read_bytes(daemon, result["bash_id"], stdout_offset=0)
    assert decoded(read["stdout"]) == data


def test_input_in_base64_can_be_continued(daemon: RawDaemon) -> None:
    bash_id = daemon.background("cat", stdin_base64=encoded(b"\xff\0"), open_stdin=True)
    daemon.call("write_stdin", {"bash_id": bash_id, "base64": encoded(b"\xfe"), "eof": True})
    read = read_bytes(daemon, bash_id, wait=60_000, until="exit", stdout_offset=0)
    assert decoded(read["stdout"]) == b"\xff\0\xfe"


@pytest.mark.parametrize(
    "params", [{"stdin_base64": "a"}, {"stdin_base64": "a\n=="}, {"stdin_base64": "", "stdin": ""}]
)
def test_wrong_input_in_base64_is_refused(daemon: RawDaemon, params: Json) -> None:
    error = daemon.fail("bash", {"command": "cat", **params})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "stdin_base64")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawDaemon]:
    rules = tmp_path_factory.mktemp("guard") / "rules.toml"
    rules.write_text('[[block]]\nname = "no"\nprogram = "forbidden"\n')
    with raw_daemon("--guard-rules", str(rules)) as daemon:
        yield daemon


@pytest.mark.parametrize("extra", [{}, {"tty": True}, {"open_stdin": True}, {"dry_run": True}])
def test_script_in_base64_is_judged(guarded: RawDaemon, extra: Json) -> None:
    params = {"command": "bash", "stdin_base64": encoded(b": \xff\nforbidden\n"), **extra}
    assert guarded.fail("bash", params)["code"] == 1002


# -- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 100, 1_000])
def test_output_in_base64_is_every_byte(daemon: RawDaemon, max_bytes: int) -> None:
    bash_id = bash(daemon, f"{WRITE_EVERY_BYTE}; echo -n error >&2")["bash_id"]
    data, position, more = b"", 0, True
    while more:
        read = read_bytes(daemon, bash_id, stdout_offset=position, max_bytes=max_bytes)
        part, more = decoded(read["stdout"]), read["more"]
        assert read["stdoutRange"] == {"start": position, "end": position + len(part), "dropped": 0}
        assert (read["encoding"], read["stderr"]) == ("base64", "")
        assert len(part) <= max_bytes
        data += part
        position += len(part)
    assert data == EVERY_BYTE
    assert decoded(read_bytes(daemon, bash_id, stderr_offset=0)["stderr"]) == b"error"


def test_output_in_base64_does_not_wait_for_whole_characters(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = daemon.background(rf"printf '\xe2\x82'; {gate.wait}; printf '\xac\033[1m'")
    assert decoded(read_bytes(daemon, bash_id, wait=60_000)["stdout"]) == b"\xe2\x82"
    gate.open()
    rest = read_bytes(daemon, bash_id, wait=60_000, until="exit")
    assert decoded(rest["stdout"]) == b"\xac\033[1m"


def test_reads_in_base64_and_as_text_share_a_position(daemon: RawDaemon) -> None:
    bash_id = daemon.background("echo one; echo two")
    daemon.call(
        "bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit", "max_bytes": 4}
    )
    assert decoded(read_bytes(daemon, bash_id)["stdout"]) == b"two\n"
    assert daemon.call("bash_output", {"bash_id": bash_id})["stdout"] == ""


@pytest.mark.slow
def test_output_in_base64_counts_what_was_dropped() -> None:
    with raw_daemon("--retain-bytes", "200000") as daemon:
        total = 1_000_001
        result = bash(daemon, f"head -c {total} /dev/zero | tr '\\0' x")
        position = read = 0
        dropped = 0
        while position < total:
            answer = read_bytes(daemon, result["bash_id"], stdout_offset=position)
            span = answer["stdoutRange"]
            data = decoded(answer["stdout"])
            assert data == b"x" * (span["end"] - span["start"] - span["dropped"])
            assert span["end"] > position
            read += len(data)
            dropped += span["dropped"]
            position = span["end"]
        assert (read + dropped, dropped > 0) == (total, True)


def test_filter_of_output_in_base64_is_refused(daemon: RawDaemon) -> None:
    bash_id = bash(daemon, "echo one")["bash_id"]
    params = {"bash_id": bash_id, "encoding": "base64", "filter": "one"}
    error = daemon.fail("bash_output", params)
    assert (error["code"], error["data"]["parameter"]) == (-32602, "filter")


@pytest.mark.parametrize(
    ("output", "count"),
    [
        (r"\xff", 1),
        (r"a\xe2\x82b\xff\xfe", 4),
        # The replacement character itself is valid, and so is any other text.
        (r"\xef\xbf\xbd", 0),
        (r"\xef\xbf\xbd\xff", 1),
        (r"caf\xc3\xa9", 0),
    ],
)
def test_bytes_that_are_no_text_are_counted(daemon: RawDaemon, output: str, count: int) -> None:
    result = bash(daemon, f"printf '{output}'; printf '{output}' >&2")
    assert result.get("invalidBytes", 0) == 2 * count
    params = {"bash_id": result["bash_id"], "stdout_offset": 0}
    assert daemon.call("bash_output", params).get("invalidBytes", 0) == count
    assert "invalidBytes" not in daemon.call("bash_output", {**params, "encoding": "base64"})
    # A filtered read also counts the invalid bytes that it has read.
    params = {"bash_id": result["bash_id"], "stdout_offset": 0, "filter": "nothing"}
    assert daemon.call("bash_output", params).get("invalidBytes", 0) == count
