"""What is written to a terminal while its program runs, with a real terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from shelld.terminals.input import TerminalInput
from shelld.terminals.pty import Pty, Size, open_pty

ASK = b"\x1b[c"
ANSWER = b"\x1b[?1;2c"


@pytest.fixture
def pty() -> Iterator[Pty]:
    pty = open_pty(Size(24, 80))
    yield pty
    for descriptor in pty:
        os.close(descriptor)


def ask(target: TerminalInput, count: int) -> None:
    """Ask the terminal so many questions, as a program does that never reads the answers."""
    for _ in range(count):
        target.see(memoryview(ASK))


def test_answers_leave_room_in_line(pty: Pty) -> None:
    target = TerminalInput(pty.master, Size(24, 80))
    ask(target, 700)
    answers = target.line.text
    assert 900 < len(answers) <= 1_024
    assert answers == ANSWER * (len(answers) // len(ANSWER))
    target.write(b"x\n")
    assert os.read(pty.slave, 10_000) == answers + b"x\n"
