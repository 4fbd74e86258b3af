"""The prompts that the daemon reports, and how often it checks the processes of a shell."""

from __future__ import annotations

import math
import os
import time
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from shelld.eventloop.turns import Turns
from shelld.inspection import input_reader
from shelld.inspection.input_reader import Found, Seen
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput
from shelld.waits import pauses as pauses_of_checks
from shelld.waits import prompts
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import (
    PromptIdentity,
    RunState,
    prompt_of,
    run_state_of,
    settled_prompt_of,
    wait_for_prompt,
)
from shelld_protocol.structs import Prompt

PROMPT = Prompt("proved", True, True, True, 1, "program", 500, "text")


class Owner:
    """Owns a shell. Until `catch_up` is called, `data` is still in the shell's pipe."""

    def __init__(self, shell: Shell, data: bytes) -> None:
        self._shell, self._data = shell, data

    def catch_up(self) -> None:
        self._shell.stdout.store.append(self._data)
        self._data = b""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    def prompt_of(_shell: Shell) -> Prompt:
        return PROMPT

    monkeypatch.setattr(prompts, "prompt_of", prompt_of)
    shell = Shell("shell_a")
    shell.started()
    return shell


def owned(shell: Shell, data: bytes) -> Shell:
    owner: Any = Owner(shell, data)
    shell.owner = owner
    return shell


def test_prompt_before_output_under_way_does_not_count(shell: Shell) -> None:
    owned(shell, b"answer\n")
    assert settled_prompt_of(shell) is None
    assert settled_prompt_of(shell) is PROMPT
    assert shell.stdout.store.written == 7


@pytest.mark.parametrize("is_wait", [False, True])
async def test_prompt_contains_the_question_still_in_the_pipe(
    monkeypatch: pytest.MonkeyPatch, is_wait: bool
) -> None:
    def inspect(*_: object) -> Seen:
        return Seen(Found(1, "program", is_blocking=True, is_proved=True), is_stopped=False)

    monkeypatch.setattr(input_reader, "inspect", inspect)
    shell = owned(Shell("shell_a"), b"Really? ")
    shell.started()
    shell.pid = 1
    shell.output.append(shell.stdout, b"Name? ")
    read, write = os.pipe()
    shell.input = PipeInput(write)
    if is_wait:
        found = await wait_for_prompt(shell, anyio.current_time(), Pauses(Turns()))
    else:
        found = run_state_of(shell).prompt
    os.close(read)
    os.close(write)
    assert found is not None
    assert found.text == "Name? Really?"
    assert shell.stdout.store.written == 14


def write_line(shell: Shell) -> None:
    shell.output.append(shell.stdout, b"line\n")
    shell.notify()


async def test_check_does_not_follow_output_after_a_silence_at_once(
    monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    # A check at this moment could find the prompt of a program that waits only briefly, for its
    # terminal's answer.
    silent = anyio.Event()
    found: list[Prompt | None] = []

    def check(_shell: Shell) -> None:
        silent.set()

    def takes_input(_shell: Shell) -> bool:
        return True

    monkeypatch.setattr(prompts, "settled_prompt_of", check)
    monkeypatch.setattr(prompts, "takes_input", takes_input)
    monkeypatch.setattr(prompts, "CHECK_ANYWAY_S", 0.0)
    started_ago(0.1, shell, monkeypatch)

    async def wait() -> None:
        found.append(await wait_for_prompt(shell, math.inf, Pauses(Turns())))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await silent.wait()
        await wait_all_tasks_blocked()
        write_line(shell)
        await wait_all_tasks_blocked()
        assert found == []
        with anyio.fail_after(60):
            while not found:
                write_line(shell)
                await wait_all_tasks_blocked()
        assert found == [PROMPT]


def started_ago(seconds: float, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "_began", time.monotonic() - seconds)


def test_new_input_restarts_the_quiet_time_of_a_silent_shell(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_ago(100, shell, monkeypatch)
    assert shell.silent_s == pytest.approx(100, abs=20)
    assert shell.quiet_s == pytest.approx(100, abs=20)
    written: Any = SimpleNamespace(written_at=time.monotonic() - 1)
    shell.input = written
    assert shell.quiet_s < 50 < shell.silent_s


@pytest.mark.parametrize(("quiet_s", "pause"), [(0, 0.01), (0.8, 0.2), (8, 2), (1_000, 8)])
def test_pause_grows_with_the_quiet(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, quiet_s: float, pause: float
) -> None:
    started_ago(quiet_s, shell, monkeypatch)
    pauses = Pauses(Turns())
    pauses.begin_check()
    assert pauses.next(shell) == pytest.approx(pause, rel=0.5, abs=0.5 * pause + 0.2)


async def test_wait_finds_a_prompt_that_is_older_than_the_wait(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_input(_shell: Shell) -> bool:
        return True

    monkeypatch.setattr(prompts, "takes_input", takes_input)
    monkeypatch.setattr(pauses_of_checks, "_LAST_PAUSE_S", 3_600.0)
    started_ago(100_000, shell, monkeypatch)
    with anyio.fail_after(60):
        assert await wait_for_prompt(shell, math.inf, Pauses(Turns())) is PROMPT


async def test_pause_after_a_slow_check_is_long(shell: Shell) -> None:
    pauses = Pauses(Turns())

    def check(_shell: Shell) -> Prompt | None:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        return None

    assert await pauses.check(check, shell) is None
    assert pauses.next(shell) >= 0.3


# -- checks for results ------------------------------------------------------------------------


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[RunState]:
    """The results of all checks so far. Each check counts as expensive."""
    taken: list[RunState] = []

    def check(_shell: Shell) -> RunState:
        taken.append(RunState(None, is_stopped=bool(len(taken) % 2)))
        return taken[-1]

    monkeypatch.setattr(prompts, "_run_state_of", check)
    monkeypatch.setattr(prompts, "_EXPENSIVE_S", -1.0)
    monkeypatch.setattr(prompts, "_REUSED", 1e9)
    monkeypatch.setattr(prompts, "_LONGEST_REUSE_S", 60.0)
    return taken


def test_several_results_share_one_expensive_check(checks: list[RunState]) -> None:
    shell = Shell("shell_a")
    shell.started()
    assert run_state_of(shell) == run_state_of(shell) == checks[0]
    assert len(checks) == 1


def test_result_after_new_output_needs_a_new_check(checks: list[RunState]) -> None:
    shell = Shell("shell_a")
    shell.started()
    run_state_of(shell)
    shell.output.append(shell.stdout, b"more")
    assert run_state_of(shell) == checks[1]


def test_each_result_has_its_own_cheap_check(
    checks: list[RunState], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "_EXPENSIVE_S", 60.0)
    shell = Shell("shell_a")
    shell.started()
    assert [run_state_of(shell), run_state_of(shell)] == checks


def test_results_in_quick_succession_share_cheap_checks(
    checks: list[RunState], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "_SUCCESSION", 1e9)
    monkeypatch.setattr(prompts, "_EXPENSIVE_S", 0.002)
    shell = Shell("shell_a")
    shell.started()
    last = run_state_of(shell)
    while run_state_of(shell) is not last:
        last = checks[-1]
    assert len(checks) > 1


def test_wait_for_a_prompt_makes_its_own_check(checks: list[RunState]) -> None:
    shell = Shell("shell_a")
    shell.started()
    run_state_of(shell)
    prompt_of(shell)
    assert len(checks) == 2


@pytest.mark.parametrize(
    ("wrote", "text", "is_same"),
    [
        (1, "Name?", True),
        (1, "a line of another process", True),
        (2, "Name?", True),
        (2, "Delete all?", False),
    ],
)
def test_prompt_is_new_if_its_program_has_written_new_text(
    wrote: int, text: str, is_same: bool
) -> None:
    first = PromptIdentity(1, "proved", True, True, 0.0, 1, "Name?")
    assert first._replace(wrote=wrote, text=text).is_same(first) == is_same


def test_question_is_new_although_its_bytes_were_counted_earlier() -> None:
    first = PromptIdentity(1, "proved", True, True, 0.0, 1, "Name?")
    counted = first._replace(wrote=2)
    assert counted.is_same(first)
    arrived = counted._replace(text="Delete all?")
    assert not arrived.is_same(counted.since(first))


def test_lines_of_other_processes_do_not_hide_a_question() -> None:
    first = PromptIdentity(1, "proved", True, True, 0.0, 1, "Name?")
    line = first._replace(text="a line of another process")
    assert line.is_same(first)
    assert not first._replace(wrote=2).is_same(line.since(first))


def test_new_text_makes_a_new_prompt_if_writes_cannot_be_counted() -> None:
    first = PromptIdentity(1, "likely", True, True, 0.0, -1, "Name?")
    assert not first._replace(text="Delete all?").is_same(first)
