"""The question that a task asks, and the program that gets the answer."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from shelld.mcp import questions
from shelld.mcp.questions import Questions
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.terminals.pty import Size
from shelld.waits.prompts import prompt_of
from shelld_protocol.structs import Prompt
from support import DEADLINE_S, Gate, Json

# A pause between polls.
POLL_S = 0.02
NAME = "read -p 'Name? ' name"
OVERWRITE = "read -p 'Overwrite? ' answer; echo You said $answer"


class Asked:
    """A client that gets a question when the program of a task waits for input."""

    def __init__(self, manager: Manager, shell: Shell) -> None:
        self.shell = shell
        self.check_turns = manager.check_turns
        self.questions = Questions(manager.check_turns)
        self._context = RequestContext(Daemon(Options(), manager))

    async def question(self) -> tuple[str, str]:
        """Wait until there is a question; return its key and its message."""
        while True:
            message, requests = await self.questions.ask(self.shell, forms_allowed=True)
            if requests is not None:
                assert message is not None
                return next(iter(requests)), message
            await anyio.sleep(POLL_S)

    async def respond(self, key: str, response: Json) -> None:
        await self.questions.answer(self._context, self.shell, {key: response})

    async def answer(self, key: str, text: str) -> None:
        await self.respond(key, {"action": "accept", "content": {"answer": text}})


Ask = Callable[[str], Awaitable[Asked]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """Start a command on a terminal."""
    async with Manager() as manager:

        async def start(command: str) -> Asked:
            request = StartRequest(command, terminal=Size(30, 120))
            return Asked(manager, await manager.start(request))

        with anyio.fail_after(DEADLINE_S):
            yield start


async def test_checks_for_questions_take_turns(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = await ask(NAME)
    await asked.question()
    checks: list[Prompt | None] = []

    def check(shell: Shell) -> Prompt | None:
        checks.append(prompt_of(shell))
        return checks[-1]

    monkeypatch.setattr(questions, "settled_prompt_of", check)
    async with anyio.create_task_group() as tasks, asked.check_turns.turn():
        tasks.start_soon(asked.question)
        await anyio.wait_all_tasks_blocked()
        assert not checks
    assert checks


async def test_pauses_between_checks_grow_with_their_cost(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(shell: Shell) -> Prompt | None:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        return prompt_of(shell)

    monkeypatch.setattr(questions, "settled_prompt_of", check)
    asked = await ask(NAME)
    await asked.question()
    assert asked.questions.pauses.shortest >= 0.3


async def test_a_question_is_closed_while_its_answer_is_on_its_way(ask: Ask) -> None:
    asked = await ask(NAME)
    key, _ = await asked.question()
    target = asked.shell.input
    assert target is not None
    async with anyio.create_task_group() as tasks, target.lock:
        tasks.start_soon(asked.answer, key, "World")
        await anyio.wait_all_tasks_blocked()
        assert await asked.questions.ask(asked.shell, forms_allowed=True) == (None, None)
        assert asked.questions.seen is None
    await asked.shell.wait_until(lambda: asked.shell.has_ended)


async def test_a_line_of_another_process_does_not_close_a_question(
    ask: Ask, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "lines")
    asked = await ask(f"cat {tmp_path}/lines & {NAME}; echo Hello $name")
    store = asked.shell.stdout.store
    with (tmp_path / "lines").open("w") as lines:
        key, _ = await asked.question()
        lines.write("\na line\n")
        lines.flush()
        await asked.shell.wait_until(lambda: b"a line" in store.read(0, 1_000).data)
        await asked.answer(key, "World")
    await asked.shell.wait_until(lambda: asked.shell.has_ended)
    assert b"Hello World" in store.read(0, 1_000).data


async def answer_late(asked: Asked, key: str, text: str, other: bytes) -> str:
    """Write `other` to the terminal as an answer to a question, and then try to answer the same
    question with `text`. Return the next question.
    """
    target = asked.shell.input
    assert target is not None
    message = ""
    async with anyio.create_task_group() as tasks, target.lock:
        tasks.start_soon(asked.answer, key, text)
        await anyio.wait_all_tasks_blocked()
        target.write(other)
        _, message = await asked.question()
    return message


async def test_an_answer_that_comes_second_does_not_reach_the_next_prompt(ask: Ask) -> None:
    asked = await ask(f"{NAME}; {OVERWRITE}")
    key, _ = await asked.question()
    message = await answer_late(asked, key, "y", b"World\n")
    assert message == 'bash waits for input: "Overwrite?"'
    # The daemon has not typed the late answer, so the next question is still open.
    assert await asked.question() == ("prompt_2", message)
    await asked.answer("prompt_2", "n")
    await asked.shell.wait_until(lambda: asked.shell.has_ended)
    assert asked.shell.stdout.store.read(0, 1_000).data.endswith(b"You said n\r\n")


async def test_an_answer_that_comes_second_is_no_error(ask: Ask) -> None:
    asked = await ask("bash --norc --noediting")
    key, _ = await asked.question()
    # This disk does not exist, so the command would do no harm even if it ran.
    await answer_late(asked, key, "dd if=/nonexistent of=/dev/sdzz9/nothing", b"echo World\n")
    assert (await asked.question())[0] == "prompt_2"


async def test_output_of_another_process_leaves_a_question_open(ask: Ask, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    asked = await ask(f"( {gate.wait}; echo noise; sleep 300 ) & {NAME}")
    key, message = await asked.question()
    assert "Name?" in message
    gate.open()
    while "noise" not in message:
        again, message = await asked.question()
        assert again == key


async def test_question_stays_open_while_jobs_end_and_write(ask: Ask, tmp_path: Path) -> None:
    gates = [Gate(tmp_path / name) for name in ("first", "second")]
    jobs = " ".join(
        f"( {gate.wait}; echo {name} ) &" for gate, name in zip(gates, "ab", strict=True)
    )
    asked = await ask(f"{jobs} {NAME}")
    key, message = await asked.question()
    for gate, name in zip(gates, "ab", strict=True):
        gate.open()
        # When a job ends, the bash that waits for input wakes up, too.
        while not message.endswith(f'{name}"'):
            again, message = await asked.question()
            assert again == key
