"""The commands that functions and loops always start, and the functions that are fork bombs."""

from __future__ import annotations

from typing import Any

import pytest

from shelld.guard.callees import Call, calls_of, only_prints, only_starts
from shelld.guard.fork_bomb import is_fork_bomb, is_fork_bomb_as_file, is_fork_bomb_if_called
from shelld.guard.parse import parse

DEEP = 3_000


def calls(script: str) -> list[Call]:
    return sorted(calls_of(parse(script)))


def body_of(loop: str) -> Any:
    (statement,) = parse(loop).named_children
    return next(each for each in statement.named_children if each.type == "do_group")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a", [Call("a", False)]),
        ("a; b x", [Call("a", False), Call("b", False)]),
        ("a &", [Call("a", True)]),
        ("a & b", [Call("a", True), Call("b", False)]),
        ("a | b", [Call("a", True), Call("b", True)]),
        ("a | b; c", [Call("a", True), Call("b", True), Call("c", False)]),
        ("x=$(a)", [Call("a", False)]),
        ("x <(a)", [Call("a", True), Call("x", False)]),
        ("{ a; } &", [Call("a", True)]),
        ("( a; b ) &", [Call("a", True), Call("b", True)]),
        ("coproc a", [Call("a", True)]),
        ("", []),
        ("x=1", []),
    ],
)
def test_commands_that_a_body_always_runs_are_found(script: str, expected: list[Call]) -> None:
    assert calls(script) == expected


@pytest.mark.parametrize(
    "script",
    [
        *("if x; then a; fi", "if true; then b; else a; fi", "x && a", "x || a"),
        *("case $1 in y) a;; esac", "f() { a; }"),
    ],
)
def test_commands_under_a_condition_do_not_count(script: str) -> None:
    assert "a" not in [each.name for each in calls(script)]


@pytest.mark.parametrize("script", ["if true; then a; fi", "if :; then a; fi"])
def test_commands_under_a_true_condition_count(script: str) -> None:
    assert "a" in [each.name for each in calls(script)]


@pytest.mark.parametrize(
    "script",
    [
        *("for x in 1 2; do a; done", "while :; do a; done", "for ((;;)); do a; done"),
        "until false; do { a; }; done",
    ],
)
def test_commands_in_a_loop_count_twice(script: str) -> None:
    assert Call("a", False, 2) in calls(script)


@pytest.mark.parametrize(
    "command",
    [
        *("a", "exec a", "command a x", "builtin a", "nohup a", "sudo a", "nohup sudo a", '"a"'),
        *("'a' x", "eval a", "bash a", "sh a x", "sudo bash a"),
    ],
)
def test_wrappers_before_the_command_are_skipped(command: str) -> None:
    assert calls(command)[0].name == "a"


@pytest.mark.parametrize(
    "command", ["eval 'a & a'", "bash -c 'a & a'", 'sh -c "a & a"', "eval a '&' a"]
)
def test_nested_scripts_are_followed(command: str) -> None:
    found = [each for each in calls(command) if each.name == "a"]
    assert Call("a", True) in found
    assert len(found) >= 2


@pytest.mark.parametrize("command", ["bash -x a", "bash", "bash -c", "echo 'a & a'"])
def test_options_and_text_are_no_commands(command: str) -> None:
    assert [each.name for each in calls(command)] == [command.split(maxsplit=1)[0]]


def test_deep_nesting_is_followed_without_recursion() -> None:
    assert calls("{ " * DEEP + "a" + "; }" * DEEP) == [Call("a", False)]


@pytest.mark.parametrize(
    "body",
    [
        *("a &", "a & b &", "(a &)", "{ a & }", "a & # text", "(a) &", "a | b &"),
        *("a & disown", "echo x; a &", ": ; a &", "i=1; a &", "setsid -f a", "screen -dmS x a"),
        *("bash -c 'a &'", "eval 'a &'", "systemd-run a", "docker run -d a", "tmux new -d a"),
        "start-stop-daemon -S -b -x a",
    ],
)
def test_loop_that_only_starts_commands_is_recognised(body: str) -> None:
    separator = "\n" if "#" in body or body.endswith("&") else "; "
    assert only_starts(body_of(f"while :; do {body}{separator}done"))


@pytest.mark.parametrize(
    "body",
    [
        *("a", "a & wait", "a & b", "(a)", "{ a; }", "(a & wait)", "a & sleep 1", "echo", "x=1"),
        *("a & break", "a & x=$(b)", "setsid a", "bash -c 'a & wait'", "docker run a"),
        *("systemd-run --wait a", "[ -f x ] && a &\nbreak", "if a; then b & fi"),
    ],
)
def test_loop_that_waits_or_ends_does_more_than_start_commands(body: str) -> None:
    assert not only_starts(body_of(f"while :; do {body}\ndone"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo a", True),
        ("printf x; echo", True),
        ("cat x", True),
        ("echo a; sleep 1", False),
        ("read x; echo", False),
        ("a", False),
    ],
)
def test_loop_that_only_writes_text_is_recognised(body: str, *, expected: bool) -> None:
    assert only_prints(body_of(f"while :; do {body}; done")) == expected


def functions(**bodies: str) -> dict[str, list[Call]]:
    return {name: calls(body) for name, body in bodies.items()}


@pytest.mark.parametrize(
    "bodies",
    [
        {"a": "a | a &"},
        {"a": "a & a"},
        {"a": "a; a &"},
        {"a": "$FUNCNAME & ${FUNCNAME}"},
        {"a": "for x in 1 2; do a & done"},
        {"a": "b & b", "b": "a"},
        {"a": "b; b", "b": "a &"},
        {"a": "a | b &", "b": "a | b &"},
        {"a": "b", "b": "c", "c": "a & a"},
    ],
)
def test_functions_that_multiply_are_fork_bombs(bodies: dict[str, str]) -> None:
    assert is_fork_bomb("a", functions(**bodies))


@pytest.mark.parametrize(
    "bodies",
    [
        {"a": ""},
        {"a": "a"},
        {"a": "a; a"},
        {"a": "a &"},
        {"a": "b & b"},
        {"a": "b & b", "b": "c"},
        {"a": "b", "b": "a &"},
        {"a": "b & c &", "b": "a", "c": "d"},
        {"a": "if x; then a & a; fi"},
        {"a": "echo a & echo a"},
    ],
)
def test_functions_that_do_not_multiply_are_no_fork_bombs(bodies: dict[str, str]) -> None:
    assert not is_fork_bomb("a", functions(**bodies))


def test_functions_that_get_their_own_name_are_fork_bombs() -> None:
    known = functions(a="$1 $1 & $1 $1 &", b="${2} | ${2} &")
    assert is_fork_bomb_if_called(["a", "a"], known)
    assert is_fork_bomb_if_called(["b", "x", "b"], known)
    assert not is_fork_bomb_if_called(["a", "b"], known)
    assert not is_fork_bomb_if_called(["c", "c"], known)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("$0 & $0", True),
        ("bash $0 & bash $0 &", True),
        ("/x/y & /x/y", True),
        ('"$BASH_SOURCE" | "${BASH_SOURCE[0]}"', True),
        ("$0", False),
        ("$0 &", False),
        ("/x/z & /x/z", False),
    ],
)
def test_script_that_multiplies_its_own_file_is_a_fork_bomb(script: str, *, expected: bool) -> None:
    assert is_fork_bomb_as_file("/x/y", calls(script)) == expected
