"""Finalisers and signal handlers can use a `Client` without hanging, whatever they interrupt."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from both_clients import ANSWERING, peer, text_of
from shelld_client import BashResult, Client, DaemonExited, ExitEvent, ShellError
from shelld_client.connection import wire_logger
from shelld_client.link import Link
from shelld_client.reentrant import Latch, Wakeup
from support import in_threads, is_alive, wait_for

pytestmark = pytest.mark.timeout(method="thread")


# Code is traced if the path of its file contains one of these texts.
TRACED = ("shelld_client", "shelld_protocol", "/threading.py")


class Interloper:
    """This object calls `work` at the `step`-th interpreter step in traced code."""

    def __init__(self, step: int, work: Callable[[], object]) -> None:
        self.steps_left = step
        self._work = work

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not any(name in frame.f_code.co_filename for name in TRACED):
            return None
        frame.f_trace_opcodes = True
        self.steps_left -= event == "opcode"
        if self.steps_left == 0:
            sys.settrace(None)
            self._work()
            return None
        return self


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "every"),
    [
        (10, 3),
        pytest.param(10, 1, marks=pytest.mark.long),
        pytest.param(10_000, 1, marks=pytest.mark.long),
    ],
)
def test_nested_call_returns_at_every_step(size: int, every: int) -> None:
    with Client.spawn(peer(ANSWERING)) as client:

        def call() -> None:
            # The input of this call differs in size from the input of the interrupted call.
            with pytest.raises(ShellError):
                client.bash("true", stdin="x" * (10_010 - size))

        step, was_within = 0, True
        while was_within:
            step += every
            interloper = Interloper(step, call)
            sys.settrace(interloper)
            try:
                with pytest.raises(ShellError, match="not a valid BashResult"):
                    client.bash("true", stdin="x" * size)
            finally:
                sys.settrace(None)
            was_within = interloper.steps_left <= 0
        assert step > 100


def begin(client: Client, kind: str) -> Any:
    """Return an iterator over a command's output and its end."""
    if kind == "stream":
        return client.stream("echo out")
    if kind == "job":
        return client.start("echo out")
    return client.events(bash_id=client.bash("echo out", run_in_background=True).bash_id)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["events", "job", "stream"])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_nested_iteration_takes_an_item_or_raises_at_every_step(kind: str, every: int) -> None:
    refusals: list[str] = []
    nested: list[Any] = []
    with Client.spawn() as client:
        step, was_within = 0, True
        while was_within:
            step += every
            with begin(client, kind) as items:
                found: list[Any] = []

                def take(items: Any = items, found: list[Any] = found) -> None:
                    try:
                        with suppress(StopIteration):
                            found.append(next(items))
                    except RuntimeError as error:
                        refusals.append(str(error))
                    else:
                        nested.extend(found)

                interloper = Interloper(step, take)
                sys.settrace(interloper)
                try:
                    found += list(items)
                finally:
                    sys.settrace(None)
            was_within = interloper.steps_left <= 0
            # No item is lost, and no item was taken twice.
            assert text_of(found) == "out\n"
            assert sum(isinstance(each, ExitEvent | BashResult) for each in found) == 1
    assert set(refusals) == {"the iteration was interrupted while it took an item"}
    assert nested


def in_pump(monkeypatch: pytest.MonkeyPatch, interlopers: list[Interloper]) -> None:
    """When the pump's thread receives its next message, take an interloper from `interlopers`, and
    make it the thread's trace function.
    """
    receive = Link._receive  # pyright: ignore[reportPrivateUsage]

    def traced(link: Link, data: bytes) -> None:
        if interlopers:
            sys.settrace(interlopers.pop())
        receive(link, data)

    monkeypatch.setattr(Link, "_receive", traced)


@pytest.mark.slow
def test_call_in_client_thread_fails_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interlopers: list[Interloper] = []
    in_pump(monkeypatch, interlopers)
    with Client.spawn(peer(ANSWERING)) as client, Client.spawn(peer(ANSWERING)) as other:
        said: list[str] = []

        def call() -> None:
            for each in (client, other):
                try:
                    each.ping()
                except ShellError as error:
                    said.append(str(error))

        step, was_within = 0, True
        while was_within:
            step += 1
            interloper = Interloper(step, call)
            interlopers.append(interloper)
            client.ping()
            # The pump's thread continues. After two more messages, this thread is no longer traced.
            client.ping()
            client.ping()
            was_within = interloper.steps_left <= 0
        assert step > 100
        assert set(said) == {"ping is sent, but nobody can wait here for the answer"}
        assert len(said) == 2 * (step - 1)


def test_request_from_client_thread_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    interlopers: list[Interloper] = []
    in_pump(monkeypatch, interlopers)
    with Client.spawn() as client:
        job = client.bash("sleep 300", run_in_background=True)

        def kill() -> None:
            with pytest.raises(ShellError, match="kill_shell is sent"):
                client.kill_shell(job.bash_id)

        interlopers.append(Interloper(1, kill))
        client.ping()
        assert client.bash_output(job.bash_id, wait=60_000, until="exit").status == "killed"


def test_iterating_in_client_thread_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    interlopers: list[Interloper] = []
    in_pump(monkeypatch, interlopers)
    refused: list[str] = []
    with Client.spawn() as client, client.stream("echo begun; sleep 300") as stream:
        next(stream)

        def iterate() -> None:
            with pytest.raises(ShellError) as error:
                next(stream)
            refused.append(str(error.value))

        interlopers.append(Interloper(1, iterate))
        client.ping()
        client.ping()
    assert refused == ["nobody can wait here for the next item"]


def test_leaving_in_client_thread_ends_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interlopers: list[Interloper] = []
    in_pump(monkeypatch, interlopers)
    client = Client.spawn(peer("read -r; echo {}; cat > /dev/null"))
    client.__enter__()
    interlopers.append(Interloper(1, lambda: client.__exit__(None, None, None)))
    with pytest.raises(ShellError):
        client.ping()
    wait_for(lambda: not is_alive(client.pid), "the end of the daemon")
    with pytest.raises(ShellError):
        client.ping()
    client.__exit__(None, None, None)


def test_no_client_is_entered_in_client_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    interlopers: list[Interloper] = []
    in_pump(monkeypatch, interlopers)
    refused: list[str] = []

    def enter() -> None:
        with pytest.raises(ShellError, match="a client cannot be entered"):
            Client.spawn().__enter__()
        refused.append("entered")

    with Client.spawn(peer(ANSWERING)) as client:
        interlopers.append(Interloper(1, enter))
        client.ping()
        client.ping()
    assert refused == ["entered"]


def test_leaving_within_leaving_returns_at_every_step() -> None:
    step, was_within = 0, True
    while was_within:
        step += 7
        client = Client.spawn(peer("cat > /dev/null"))
        client.__enter__()

        def leave(client: Client = client) -> None:
            client.__exit__(None, None, None)

        interloper = Interloper(step, leave)
        sys.settrace(interloper)
        try:
            leave()
        finally:
            sys.settrace(None)
        was_within = interloper.steps_left <= 0
        wait_for(lambda pid=client.pid: not is_alive(pid), "the end of the daemon")  # type: ignore[misc]
    assert step > 50


@pytest.mark.slow
def test_calls_during_entering_fail_or_return() -> None:
    step, was_within = 0, True
    while was_within:
        step += 7
        client = Client.spawn(peer(ANSWERING, greets=False))

        def call(client: Client = client) -> None:
            try:
                client.ping()
            except DaemonExited as error:
                assert str(error) == "the client was not entered"

        interloper = Interloper(step, call)
        sys.settrace(interloper)
        try:
            client.__enter__()
        finally:
            sys.settrace(None)
        was_within = interloper.steps_left <= 0
        client.ping()
        client.__exit__(None, None, None)
    assert step > 100


class CallingHandler(logging.Handler):
    """For each record that does not come from the client, this handler makes a call while it holds
    its own lock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.call: Callable[[], object] = list
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == wire_logger.name:
            self.messages.append(record.getMessage())
        else:
            self.call()


@pytest.fixture
def calling_handler() -> Iterator[CallingHandler]:
    handler = CallingHandler()
    loggers = [wire_logger, logging.getLogger("calling")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def test_a_call_in_a_log_handler_returns(calling_handler: CallingHandler) -> None:
    with Client.spawn(peer(ANSWERING)) as client:
        calling_handler.call = client.ping
        logging.getLogger("calling").error("x")
    directions = [message[:2] for message in calling_handler.messages]
    assert directions == ["->", "<-", "->", "<-"]


def test_finaliser_in_client_thread_skips_log_handlers(
    monkeypatch: pytest.MonkeyPatch, calling_handler: CallingHandler
) -> None:
    interlopers: list[Interloper] = []
    in_pump(monkeypatch, interlopers)
    refused: list[str] = []

    with Client.spawn(peer(ANSWERING)) as client:

        def finalise() -> None:
            with pytest.raises(ShellError) as error:
                client.ping()
            refused.append(str(error.value))

        calling_handler.call = client.ping
        interlopers.append(Interloper(1, finalise))
        logging.getLogger("calling").error("x")
    assert refused == ["ping is sent, but nobody can wait here for the answer"]
    # The finaliser must not wait for the handler's lock, so it logs nothing. The message that it
    # sent is logged later, by a thread that is allowed to wait.
    assert any(
        '"id":3,"method":"ping","params":{}' in message for message in calling_handler.messages
    )


GENERATOR = """
from shelld_client import Client
def lines():
    with Client.spawn() as shell:
        try:
            while True:
                yield shell.pid
        finally:
            shell.ping()
generator = lines()
print(next(generator))
class Cycle: pass
cycle = Cycle()
cycle.itself, cycle.generator = cycle, generator
del generator
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "del cycle", "import gc; del cycle; gc.collect()"])
def test_a_program_that_abandons_a_generator_ends(end: str) -> None:
    program = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", GENERATOR.format(end=end)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert program.returncode == 0
    pid = int(program.stdout)
    wait_for(lambda: not is_alive(pid), "the end of the daemon")


AT_EXIT = """
import builtins
from shelld_client import Client, ShellError
def pids():
    with Client.spawn() as shell:
        try:
            yield shell.pid
        finally:
            try:
                shell.bash("true")
            except ShellError as error:
                print(error)
generator = pids()
next(generator)
# This outlives the globals of the module.
builtins.generator = generator
"""


def test_call_at_interpreter_exit_is_not_sent() -> None:
    program = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=100
    )
    assert program.stdout == "bash is not sent: the interpreter is shutting down\n"


def test_latch_releases_all_threads() -> None:
    latch = Latch()
    latch.wait(0.01)

    def work(number: int) -> None:
        if number == 0:
            latch.set()
        latch.wait()

    in_threads(9, work)
    latch.wait()


def test_a_closed_wakeup_writes_to_no_other_file() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    assert os.read(wakeup.descriptor, 10) == b"\0"
    wakeup.close()
    step, was_within = 0, True
    while was_within:
        step += 1
        wakeup = Wakeup()
        others: list[int] = []

        def close(wakeup: Wakeup = wakeup, others: list[int] = others) -> None:
            wakeup.close()
            # The new pipes may reuse the numbers of the closed descriptors.
            others.extend(os.pipe())
            os.set_blocking(others[0], False)

        interloper = Interloper(step, close)
        sys.settrace(interloper)
        try:
            wakeup.wake()
        finally:
            sys.settrace(None)
        was_within = interloper.steps_left <= 0
        if was_within:
            with pytest.raises(BlockingIOError):
                os.read(others[0], 10)
        else:
            wakeup.close()
        for descriptor in others:
            os.close(descriptor)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(wakeup.descriptor)
    assert step > 10
