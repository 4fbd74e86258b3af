"""The dialogue that sends shelld to a target, if the target lacks it. No test starts a process."""

from __future__ import annotations

import re

import pytest

from shelld.targets.bootstrap import Bootstrap, Over, command_for
from shelld.targets.bundle import Bundle
from shelld.targets.greeting import MAX_BANNER_BYTES, NoGreetingError
from shelld_protocol.errors import ErrorKind, RpcError

BUNDLE = Bundle(b"the bundle", "c0ffee")


@pytest.mark.parametrize(
    ("argv", "appended"),
    [
        (["ssh", "box"], ["sh"]),
        (["ssh", "-p", "22", "box"], ["sh"]),
        (["docker", "exec", "-i", "box"], ["sh"]),
        (["env", "-i"], ["sh"]),
        (["docker", "exec", "-i", "box", "sh"], []),
        (["/bin/bash", "--norc"], []),
        (["ssh", "box", "python3"], ["-I", "-i", "-q"]),
        (["/opt/python3.11", "-I"], ["-I", "-i", "-q"]),
        (["ssh", "pythonbox"], ["sh"]),
    ],
)
def test_command_line_gets_the_missing_shell_or_options(
    argv: list[str], appended: list[str]
) -> None:
    assert command_for(argv) == [*argv, *appended]


def begun() -> tuple[Bootstrap, bytes]:
    """Return a dialogue, and its marker. Each answer of the target begins with the marker."""
    bootstrap = Bootstrap("box", ["sh"], BUNDLE)
    found = re.search(rb"bootstrap-[0-9a-f]{16}", bootstrap.first)
    assert found is not None
    return bootstrap, found[0]


@pytest.mark.parametrize("size", [1, 1_000])
def test_bundle_is_sent_when_it_is_asked_for(size: int) -> None:
    bootstrap, marker = begun()
    banner = b"Welcome\nno newline"
    asked = banner + b"\n%b send\n" % marker
    pieces = [asked[start : start + size] for start in range(0, len(asked), size)]
    assert b"".join(map(sent, (bootstrap.receive(piece) for piece in pieces))) == BUNDLE.data
    assert bootstrap.text == banner + b"\n"
    assert bootstrap.receive(b"\n%b ready\nrest" % marker) == Over(b"rest")


def sent(step: bytes | Over) -> bytes:
    assert isinstance(step, bytes)
    return step


def test_bundle_that_the_target_has_is_not_sent() -> None:
    bootstrap, marker = begun()
    assert bootstrap.receive(b"\n%b ready\r\n" % marker) == Over(b"")


@pytest.mark.parametrize(
    ("answer", "missing", "hint"),
    [
        (b"none Python 3.8.1", "Python 3.", "Found: Python 3.8.1."),
        (b"none", "Python 3.", "Found: no Python."),
        (b"failed the disk is full", "a place for the bundle", "There, the disk is full."),
    ],
)
def test_error_of_a_refusal_names_what_is_missing(answer: bytes, missing: str, hint: str) -> None:
    bootstrap, marker = begun()
    with pytest.raises(RpcError) as refusal:
        bootstrap.receive(b"%b %b\n" % (marker, answer))
    assert refusal.value.kind is ErrorKind.UNAVAILABLE
    assert refusal.value.data["missing"].startswith(missing)
    assert refusal.value.data["hint"].startswith(hint)


def test_echo_of_the_program_is_no_answer() -> None:
    bootstrap, _ = begun()
    assert bootstrap.receive(bootstrap.first) == b""


def test_too_much_other_text_is_refused() -> None:
    bootstrap, _ = begun()
    with pytest.raises(NoGreetingError):
        bootstrap.receive(b"x" * (MAX_BANNER_BYTES + 1))
