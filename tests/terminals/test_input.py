"""The bytes that the daemon writes to a real terminal while the terminal's program runs."""

from __future__ import annotations

import os
import tty
from collections.abc import Iterator

import pytest

from shelld.terminals import input as input_module
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.line_editor import MAX_KEPT
from shelld.terminals.pty import NEW_MODES, Pty, Size, open_pty
from shelld.terminals.typed import TypedLine

ASK = b"\x1b[c"
ANSWER = b"\x1b[?1;2c"


@pytest.fixture
def pty() -> Iterator[Pty]:
    pty = open_pty(Size(24, 80))
    yield pty
    for descriptor in pty:
        os.close(descriptor)


def raise_memory_error(_descriptor: int) -> None:
    raise MemoryError


def ask(target: TerminalInput, count: int) -> None:
    """Send `count` questions to the terminal, like a program that never reads the answers."""
    for _ in range(count):
        target.see(memoryview(ASK))


def test_answers_leave_room_in_line(pty: Pty) -> None:
    target = TerminalInput(pty.master, Size(24, 80))
    ask(target, 700)
    answers = target.typed.kernel_line.text
    assert 900 < len(answers) <= 1_024
    assert answers == ANSWER * (len(answers) // len(ANSWER))
    target.write(b"x\n")
    assert os.read(pty.slave, 10_000) == answers + b"x\n"


def test_answers_are_among_the_keys_of_the_line(pty: Pty) -> None:
    target = TerminalInput(pty.master, Size(24, 80))
    target.typed = TypedLine(b"ls", starts=(1,))
    ask(target, 1)
    assert (target.typed.keys, target.typed.starts) == (b"ls" + ANSWER, (1,))
    kept = b"x" * (MAX_KEPT - len(ANSWER))
    target.typed = TypedLine(b"ls" + kept, starts=(1, 5))
    ask(target, 1)
    assert (target.typed.keys, target.typed.starts) == (kept + ANSWER, (3,))


def test_bytes_count_as_untaken_until_program_has_all(pty: Pty) -> None:
    target = TerminalInput(pty.master, Size(24, 80))
    target.write(b"one\n")
    target.write(b"two\n")
    assert target.untaken_bytes(NEW_MODES) == 8
    os.read(pty.slave, 100)
    # The kernel does not tell which line the program has read.
    assert target.untaken_bytes(NEW_MODES) == 8
    os.read(pty.slave, 100)
    assert target.untaken_bytes(NEW_MODES, enough=8) == 8
    assert target.untaken_bytes(NEW_MODES) == 0


def test_line_that_is_being_typed_counts_as_untaken(pty: Pty) -> None:
    target = TerminalInput(pty.master, Size(24, 80))
    ask(target, 2)
    assert target.untaken_bytes(NEW_MODES) == 2 * len(ANSWER)


def test_written_bytes_count_as_untaken_at_once(pty: Pty) -> None:
    # The kernel counts written bytes only after a short delay.
    tty.setraw(pty.slave)
    target = TerminalInput(pty.master, Size(24, 80))
    now = target.modes()
    for _ in range(100):
        target.write(b"x" * 40)
        assert target.untaken_bytes(now) == 40
        os.read(pty.slave, 100)
        assert target.untaken_bytes(now) == 0


def test_terminal_question_that_fails_loses_only_its_own_answer(pty: Pty) -> None:
    def fail() -> None:
        raise MemoryError

    target = TerminalInput(pty.master, Size(24, 80))
    target.ask_position = fail
    target.see(memoryview(b"\x1b[6n"))
    target.ask_position = lambda: None
    target.see(memoryview(ASK + b"\x1b[6n"))
    assert target.questions == [11]
    target.tell_position(11, (0, 0))
    target.write(b"\n")
    assert os.read(pty.slave, 100) == ANSWER + b"\x1b[1;1R\n"


def test_sizes_without_output_between_them_count_as_one(pty: Pty) -> None:
    target = TerminalInput(pty.master, Size(24, 80))
    target.resize(Size(10, 20), 7)
    for cols in range(1, 1_001):
        target.resize(Size(10, cols), 9)
    assert [(each.offset, each.size) for each in target.sizes] == [
        (0, Size(24, 80)),
        (7, Size(10, 20)),
        (9, Size(10, 1_000)),
    ]
    # Each size gets a number, even if a later size replaces it. So the newest size has the highest
    # number, and a screen with a lower number knows that it must take the newest size.
    assert [each.number for each in target.sizes] == [1, 2, 1_002]


def test_pipe_is_closed_by_a_second_call_if_the_first_call_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    target = PipeInput(writer)
    with monkeypatch.context() as patch:
        patch.setattr(input_module, "close_pipe", raise_memory_error)
        with pytest.raises(MemoryError):
            target.close("closed")
    target.close("ended")
    # No writer is left, so the read finds the end of the pipe.
    assert os.read(reader, 1) == b""
    # Give the pipe's descriptor number to another file. `close` must not close this file.
    os.dup2(reader, writer)
    target.close("ended")
    os.close(writer)
    os.close(reader)
