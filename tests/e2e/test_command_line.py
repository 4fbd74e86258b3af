"""The command line: options, sizes, and subcommands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shelld.cli.commands import SUBCOMMANDS
from shelld.cli.explain import explain
from shelld.cli.parser import option_parser, parse_options
from shelld_protocol import ResourceLimits
from shelld_protocol.structs import MAX_RESOURCE
from support import DAEMON_COMMAND

# Each numeric option, with a number within its bounds.
NUMERIC_OPTIONS = {
    action.option_strings[0]: str(action.default or 1)
    for action in option_parser()._actions  # pyright: ignore[reportPrivateUsage]
    if getattr(action.type, "__name__", "").startswith(("integer", "size"))
}


# Each subcommand, with arguments that make it write to stdout.
SHOWING = [
    ["--help"],
    ["--version"],
    ["help"],
    ["help", "run"],
    ["run", "--help"],
    ["explain", "ls"],
    ["mcp-config"],
    ["doctor"],
    ["doctor", "--json"],
]


def run_daemon(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*DAEMON_COMMAND, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_usage_shows_each_command_in_80_columns(name: str) -> None:
    usage, _, rest = option_parser().format_help().partition("\n\n")
    assert f"\n       shelld {name} " in usage
    assert f"\n  shelld {name} " in rest
    assert max(map(len, usage.splitlines())) < 80
    shown = run_daemon(name, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"usage: shelld {name} ")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("doctr", "no such command: doctr; did you mean doctor?"),
        ("mcp_config", "no such command: mcp_config; did you mean mcp-config?"),
        ("halp", "no such command: halp; did you mean help?"),
    ],
)
def test_unknown_command_is_refused_and_the_nearest_named(word: str, message: str) -> None:
    ended = run_daemon(word)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == f"shelld: error: {message}"


@pytest.mark.slow
def test_help_command_prints_what_the_help_option_prints() -> None:
    assert run_daemon("help").stdout == run_daemon("--help").stdout
    assert run_daemon("help", "run").stdout == run_daemon("run", "--help").stdout
    refused = run_daemon("help", "doctr")
    assert (refused.returncode, refused.stdout) == (2, "")
    expected = "shelld help: error: no such command: doctr; did you mean doctor?"
    assert refused.stderr.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4K", 4 * 2**10),
        ("64M", 64 * 2**20),
        ("2g", 2 * 2**30),
        ("1024G", 2**40),
    ],
)
def test_sizes_are_bytes_unless_a_unit_follows(text: str, size: int) -> None:
    assert parse_options(["--retain-bytes", text]).retain_bytes == size


@pytest.mark.parametrize("option", NUMERIC_OPTIONS)
def test_numbers_are_written_in_ascii_digits_alone(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    number = NUMERIC_OPTIONS[option]
    parse_options([option, number])
    arabic, full_width = (
        "".join(chr(zero + int(digit)) for digit in number) for zero in (0x660, 0xFF10)
    )
    for text in (arabic, full_width, f"0_{number}", f" {number}", f"{number}\n", f"+{number}"):
        with pytest.raises(SystemExit) as exited:
            parse_options([option, text])
        assert exited.value.code == 2
        assert f"argument {option}" in capsys.readouterr().err


def test_value_of_two_dashes_is_checked_like_any_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = run_daemon("attach", "--name=--", "--no-start")
    assert (result.returncode, result.stderr) == (6, "shelld: the daemon -- does not run\n")
    with pytest.raises(SystemExit):
        parse_options(["--max-shells=--"])
    assert "argument --max-shells: invalid" in capsys.readouterr().err


def test_unit_follows_the_digits_of_a_size_directly() -> None:
    for text in ("4 K", "\u0664M", "4\u212a", "1_0M"):
        with pytest.raises(SystemExit):
            parse_options(["--retain-bytes", text])


@pytest.mark.parametrize("text", ["", "M", "3K", "1025G", "64MB", "1.5M", "-4K"])
def test_sizes_out_of_bounds_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options([f"--retain-bytes={text}"])
    assert ended.value.code == 2
    assert "size from 4096 to 1099511627776 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rm", "-rf", "/"], "rm -rf /"),
        (["--", "rm", "-rf", "/"], "rm -rf /"),
        (["--", "rm -rf /"], "rm -rf /"),
        (["echo", "rm -rf /; x", "-h"], "echo 'rm -rf /; x' -h"),
        (["rm -rf / | cat"], "rm -rf / | cat"),
        (["--", "ls", "--guard-rules", "x"], "ls --guard-rules x"),
    ],
)
def test_explain_joins_words_to_one_command(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = explain(words)
    shown = capsys.readouterr().out
    assert (explain([line]), capsys.readouterr().out) == (code, shown)
    assert code == int(line.startswith("rm"))


def test_explain_works_in_deleted_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert explain(["ls"]) == 0


def test_explain_knows_the_home_directory_without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert explain(["rm -rf ~"]) == 1


def test_no_command_controls_the_terminal_of_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(["rm -rf / '\x1b[2J\x1b[H\rallow\n  ls\t1'"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("block: ")
    assert "allow" in shown
    assert [each for each in shown if each != "\n" and not each.isprintable()] == []


def test_explain_escapes_unprintable_text() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-P", "-m", "shelld", "explain", "rm -rf / # \u4e16"]
    ended = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (1, b"")
    command[-1] = "echo \u4e16"
    ended = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert rb"\u4e16" in ended.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: COMMAND"),
        (["ls", "--guard-rules", "x"], "comes before COMMAND"),
        (["ls", "--guard-rules=x"], "comes before COMMAND"),
        # This is another option, not the beginning of --guard-rules.
        (["--guard", "off", "ls"], "unrecognized arguments: --guard"),
    ],
)
def test_explain_refuses_bad_arguments(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        explain(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("arguments", SHOWING, ids=" ".join)
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")]
)
def test_subcommand_reports_an_unwritable_stdout(
    arguments: list[str], redirection: str, reason: str
) -> None:
    line = shlex.join([*DAEMON_COMMAND, *arguments])
    ended = subprocess.run(
        ["bash", "-c", f"{line} {redirection}"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == f"shelld: cannot write to stdout: {reason}"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_configuration_is_printed_without_stderr(redirection: str) -> None:
    line = shlex.join([*DAEMON_COMMAND, "mcp-config"])
    ended = subprocess.run(
        ["bash", "-c", f"{line} {redirection}"], capture_output=True, check=False
    )
    assert ended.returncode == 0
    assert "mcpServers" in json.loads(ended.stdout)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("arguments", [["--nonsense"], ["explain"]])
def test_usage_needs_no_stderr(arguments: list[str], redirection: str) -> None:
    line = shlex.join([*DAEMON_COMMAND, *arguments])
    command = ["bash", "-c", f"{line} {redirection}"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_limits_are_parsed() -> None:
    given = ["--limit", "memory_bytes=64M", "--limit", "processes=9", "--limit", "processes=10"]
    assert parse_options(given).limits == ResourceLimits(memory_bytes=64 * 2**20, processes=10)
    assert parse_options(["--limit", "file_bytes=0"]).limits == ResourceLimits(file_bytes=0)
    assert parse_options(["--env", "core"]).limits == ResourceLimits()


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("disk_bytes=1", "no such limit: disk_bytes; one of memory_bytes, processes, "),
        (
            "memory_bytes=16777215",
            "memory_bytes takes a number from 16777216 to MAX, not 16777215",
        ),
        ("processes", "processes takes a number from 2 to MAX, not nothing"),
        ("processes=1", "processes takes a number from 2 to MAX, not 1"),
        ("processes=1K", "processes takes a number from 2 to MAX, not 1K"),
        ("cpu_seconds=0", "cpu_seconds takes a number from 1 to MAX, not 0"),
        ("open_files=15", "open_files takes a number from 16 to MAX, not 15"),
        ("file_bytes=-1", "file_bytes takes a number from 0 to MAX, not -1"),
        (f"file_bytes={2**53}", f"file_bytes takes a number from 0 to MAX, not {2**53}"),
    ],
)
def test_wrong_limit_is_refused(limit: str, message: str) -> None:
    ended = run_daemon("--limit", limit)
    assert ended.returncode == 2
    expected = message.replace("MAX", str(MAX_RESOURCE))
    assert f"argument --limit: {expected}" in ended.stderr
