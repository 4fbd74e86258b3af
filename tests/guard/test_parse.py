"""The guard relies on these shapes of the parser's nodes."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shelld.guard import StartState, callees, nodes, parse
from shelld.guard.judgement import judge


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("a b", "program(command(command_name(word) word))"),
        ("a | b", "program(pipeline(command(command_name(word)) command(command_name(word))))"),
        ("a > f", "redirected_statement(command(command_name(word)) file_redirect(word))"),
        (
            "cat <<E | sh\nx\nE\n",
            "heredoc_redirect(heredoc_start pipeline(command(command_name(word))) heredoc_body",
        ),
        ("f() { a; }", "function_definition(word compound_statement(command"),
        ("for i in a; do b; done", "for_statement(variable_name word do_group("),
        ("x=1 a", "command(variable_assignment(variable_name number) command_name(word))"),
        ("a <<< b", "command(command_name(word) herestring_redirect(word))"),
        ("case a in b) c;; esac", "case_statement(word case_item("),
        ("export a=b", "declaration_command(variable_assignment("),
        ("a $(b) <(c)", "command_substitution(command(command_name(word)))"),
        ("a=(1 2)", "variable_assignment(variable_name array("),
        ("f() { a; } > b", "function_definition(word compound_statement(command(command_name("),
        ("f() { a; } > b", "file_redirect(word))"),
        ("f() { a; } <<E\nb\nE\n", "redirected_statement(function_definition(word compound"),
        ("if a; then b; elif c; then d; else e; fi", "elif_clause(command"),
        ("a && b || c", "list(list(command"),
        ("! a", "negated_command(command"),
        ("while a; do b; done", "while_statement(command(command_name(word)) do_group("),
        ("for ((;;)); do a; done", "c_style_for_statement(do_group("),
    ],
)
def test_parser_yields_the_expected_nodes(script: str, kinds: str) -> None:
    def shape(node: parse.Node) -> str:
        inner = " ".join(shape(child) for child in node.named_children)
        return f"{node.type}({inner})" if inner else str(node.type)

    assert kinds in shape(parse.parse(script))


def command_in(script: str) -> parse.Node:
    """Return the last command of a script."""
    commands: list[parse.Node] = []
    todo = [parse.parse(script)]
    while todo:
        node = todo.pop(0)
        todo += node.named_children
        if node.type == "command" and node.parent.type != "process_substitution":
            commands.append(node)
    return commands[-1]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("a b  c", ["a", "b", "c"]),
        ("x=1 a b", ["a", "b"]),
        # The parser splits this word, although it contains no separator.
        ("rm$IFS-rf$IFS/", ["rm$IFS-rf$IFS/"]),
        ("a>b c", ["a"]),
        (">b a c", ["a", "c"]),
        # There is no space between this word and the redirection before it, and no word before the
        # redirection.
        ("m|<b>(c)|", [">(c)"]),
    ],
)
def test_words_of_command_are_whole(script: str, words: list[str]) -> None:
    assert nodes.words_of(command_in(script)) == words


@pytest.mark.parametrize(
    ("script", "body"),
    [
        ("cat <<E\na\nb\nE\n", "a\nb\n"),
        ("cat <<'E' | sh\na\nE\n", "a\n"),
        # The parser treats this body as words.
        ("cat <<E\n\\! a b\nE\n", "\\! a b\n"),
    ],
)
def test_body_of_here_document_is_found(script: str, body: str) -> None:
    todo = [parse.parse(script)]
    while todo[0].type != "heredoc_redirect":
        todo += todo.pop(0).named_children
    assert nodes.heredoc_body(todo[0]) == body


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("while true; do a & done", True),
        ("while true; do a & b & done", True),
        ("while true; do (a &) done", True),
        ("while true; do a; done", False),
        ("while true; do a & wait; done", False),
        ("while true; do (a) done", False),
        ("while true; do\n# no command\na &\ndone", True),
    ],
)
def test_endless_loop_without_wait_is_found(loop: str, expected: bool) -> None:
    (statement,) = parse.parse(loop).named_children
    assert callees.only_starts(statement.named_children[-1]) is expected


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ImportError("no sha512"), MemoryError),
        (AttributeError("no Parser"), MemoryError),
        # These errors say which resource has run out, so they are raised unchanged.
        (OSError(errno.EMFILE, ""), OSError),
        (ImportError(f"binding.so: {os.strerror(errno.EMFILE)}"), ImportError),
    ],
)
def test_parser_that_cannot_be_loaded_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(parse, "_language", fail)
    # Each thread loads a parser of its own, so the new thread calls `fail`. `judge` must raise,
    # because the command must not run without a verdict.
    with ThreadPoolExecutor(1) as thread, pytest.raises(raised):
        thread.submit(judge, "rm -rf /", StartState("/", {})).result()


# This program parses texts of growing length with only 8 MiB of free address space, and prints the
# outcome.
_PARSE_WITHOUT_MEMORY = """
import resource
from pathlib import Path

from shelld.guard import parse

parse.load()
parse.parse("true")
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (8 << 20), resource.RLIM_INFINITY))
refused = 0
for length in range(1_000, 100_000, 500):
    try:
        parse.parse("(" * length)
    except MemoryError:
        refused += 1
print(refused)
"""


def test_parser_without_memory_does_not_crash() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PARSE_WITHOUT_MEMORY],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == 0, ended
    assert 50 < int(ended.stdout) < 198


class Unreadable(bytes):
    def __getitem__(self, _key: object) -> Any:
        raise MemoryError


def test_parser_input_ends_at_the_first_failed_read() -> None:
    reading = parse.Reading(Unreadable(b"ls"), math.inf)
    assert not reading.is_over(0, False)
    assert reading.read(0, None) == b""
    assert isinstance(reading.error, MemoryError)
    assert reading.is_over(0, False)
    assert reading.read(0, None) == b""


@pytest.mark.parametrize("calls", [1, 2, 50])
def test_parsing_stops_if_the_clock_cannot_be_read(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = calls

    def thread_time() -> float:
        nonlocal left
        left -= 1
        if left < 0:
            raise MemoryError
        return 0.0

    with monkeypatch.context() as patch:
        patch.setattr("shelld.guard.parse.time.thread_time", thread_time)
        with pytest.raises(MemoryError):
            parse.parse("echo a; " * 2_000, 1.0)
    assert left == -1
    # The parser has forgotten the text that it failed to parse.
    assert str(parse.parse("ls")) == str(parse.parse("rm"))
