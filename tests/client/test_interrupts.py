"""KeyboardInterrupt in the clients, at every point where Python can raise it."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from both_clients import ANSWERING, peer
from shelld_client import AsyncClient, BashResult, Client, OutputStream, ShellError
from shelld_protocol.event_methods import MAX_SUBSCRIPTIONS
from support import is_alive, wait_for


@pytest.fixture(autouse=True)
def interrupts_are_exceptions() -> Iterator[None]:
    # A process that was started in the background may ignore SIGINT.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Collect the garbage of earlier tests now. Otherwise, its finalisers could run during this
    # test, and the test would interrupt them, too.
    gc.collect()
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True)
def finalisers_may_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not report an interrupt that Python raises in a finaliser, where nobody can catch it.

    An answer that comes early can make the interrupted code drop the last reference to an object.
    """
    report = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            report(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", hook)


class Interrupter:
    """This object sends SIGINT to this thread at the n-th interpreter step in the client's code.

    Like Python's signal handler in C, it only marks the signal as received. The interpreter raises
    KeyboardInterrupt when it next checks for signals, and it does not check at every step.
    """

    def __init__(self, step: int) -> None:
        self.steps_left = step

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if "shelld_client" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        self.steps_left -= event == "opcode"
        if self.steps_left == 0:
            self.steps_left = -1
            sys.settrace(None)
            # Make no call here, because the interpreter would check for signals right after a call.
            [_] = map(_thread.interrupt_main, [signal.SIGINT])
        return self


def interrupted_at(step: int, work: Callable[[], object]) -> bool:
    """Call `work`, and interrupt it at the `step`-th step. Return whether `work` has that many
    steps.
    """
    interrupter = Interrupter(step)
    sys.settrace(interrupter)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return interrupter.steps_left < 0


def bash(client: Client, size: int) -> None:
    with suppress(ShellError):
        client.bash("true", stdin="x" * size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 10_000])
def test_a_call_can_be_interrupted_at_every_step(size: int) -> None:
    with Client.spawn(peer(ANSWERING)) as client:
        step = 1
        while interrupted_at(step, lambda: bash(client, size)):
            # The client is intact: it holds no lock, has sent no partial message, and has mixed up
            # no answers.
            client.ping()
            step += 1
        assert step > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 12))
def test_entering_can_be_interrupted_at_every_step(first: int) -> None:
    def enter() -> None:
        with Client.spawn(peer("cat > /dev/null")):
            sys.settrace(None)

    threads = len(os.listdir("/proc/self/task"))
    step = first
    while interrupted_at(step, enter):
        wait_for(lambda: len(os.listdir("/proc/self/task")) <= threads, "the thread's end")
        step += 11
    assert step > 100


# This peer accepts only whole messages. When it gets a ping, it fails unless every call of `bash`
# has been cancelled.
STRICT = """
import json, sys
running = set()
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "bash":
        running.add(message["id"])
    elif message["method"] == "$/cancelRequest":
        running.discard(message["params"]["id"])
    else:
        assert not running
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_interrupt_at_every_step_of_sending_cancels(anyio_backend: str, size: int) -> None:
    # The program sets the signal handler itself, so asyncio does not know this handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    async with AsyncClient.spawn([sys.executable, "-c", STRICT]) as client:

        def begin() -> None:
            call = client.bash("true", stdin="x" * size)
            try:
                # Run the call until it waits for its answer.
                call.send(None)
            finally:
                sys.settrace(None)
                call.close()

        step = 1
        while interrupted_at(step, begin):
            await client.ping()
            step += 1
        assert step > 100


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 100_000])
def test_trio_interrupts_reach_the_main_task(size: int) -> None:
    async def main() -> int:
        interrupts = 0
        async with AsyncClient.spawn([sys.executable, "-c", STRICT]) as client:
            step, was_interrupted = 1, True
            while was_interrupted:
                interrupter = Interrupter(step)
                sys.settrace(interrupter)
                try:
                    # The peer's answer has the wrong shape.
                    with suppress(ShellError):
                        await client.explain_command("x" * size)
                    await anyio.lowlevel.checkpoint()
                except KeyboardInterrupt:
                    interrupts += 1
                finally:
                    sys.settrace(None)
                was_interrupted = interrupter.steps_left < 0
                assert interrupts == step - (not was_interrupted)
                await client.ping()
                step += 1
        return interrupts

    assert anyio.run(main, backend="trio") > 100


def main_thread_sleeps() -> bool:
    """Return whether the main thread sleeps in code outside this file.

    A signal that arrives just before a blocking system call does not interrupt the call. Only the
    next signal interrupts it.
    """
    main = threading.main_thread()
    assert main.ident is not None
    frame = sys._current_frames()[main.ident]  # pyright: ignore[reportPrivateUsage]
    stat = Path(f"/proc/self/task/{main.native_id}/stat").read_text()
    return frame.f_code.co_filename != __file__ and stat.rpartition(")")[2].split()[0] == "S"


def interrupt_soon(waits: Callable[[], bool] = lambda: True) -> threading.Thread:
    """Send SIGINT to the main thread once it sleeps and `waits` is true."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        wait_for(lambda: waits() and main_thread_sleeps())
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_call_to_stopped_daemon_can_be_interrupted() -> None:
    with Client.spawn() as client:
        os.kill(client.pid, signal.SIGSTOP)
        sent = threading.Event()
        thread = interrupt_soon(sent.is_set)
        try:
            with pytest.raises(KeyboardInterrupt):
                sent.set()
                client.bash("cat", stdin="x" * 3_000_000)
        finally:
            os.kill(client.pid, signal.SIGCONT)
        thread.join()
        # The daemon reads the whole request, and then the cancellation of this request.
        client.ping()
        wait_for(lambda: not any(info.is_running for info in client.list_shells()))


def test_entering_a_stopped_peer_can_be_interrupted(impatient: None) -> None:
    client = Client.spawn(["/bin/bash", "-c", "kill -STOP $$"], start_timeout=None)
    thread = interrupt_soon(lambda: client._child is not None)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KeyboardInterrupt):
        client.__enter__()
    thread.join()
    assert not is_alive(client.pid)


def test_leaving_can_be_interrupted_and_kills_the_peer(tmp_path: Path) -> None:
    script = f"trap '' TERM; cat > /dev/null; touch {tmp_path}/left; while :; do sleep 0.05; done"
    client = Client.spawn(peer(script))
    thread = interrupt_soon((tmp_path / "left").exists)
    with pytest.raises(KeyboardInterrupt), client:
        pass
    thread.join()
    assert not is_alive(client.pid)


def test_timeout_error_of_caller_passes_through_entering(impatient: None) -> None:
    def give_up(*_: object) -> None:
        raise TimeoutError("the caller's own limit")

    handler = signal.signal(signal.SIGINT, give_up)
    client = Client.spawn(["/bin/bash", "-c", "kill -STOP $$"], start_timeout=None)
    thread = interrupt_soon(lambda: client._child is not None)  # pyright: ignore[reportPrivateUsage]
    try:
        with pytest.raises(TimeoutError, match="the caller's own limit"):
            client.__enter__()
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert not is_alive(client.pid)


# -- blocks -----------------------------------------------------------------------------------


def begin(client: Client, what: str) -> Any:
    if what == "events":
        return client.events()
    if what == "start":
        return client.start("sleep 300")
    return client.stream("echo out; sleep 300", session=None)


def enter(block: Any) -> None:
    block.__enter__()
    if isinstance(block, OutputStream):
        next(block)


def is_interrupted(client: Client, what: str, step: int, *, is_left: bool) -> bool:
    """Interrupt one step of entering a `with` block, or of leaving it if `is_left`. Return whether
    the code has this many steps.
    """
    block = begin(client, what)
    if not is_left:
        return interrupted_at(step, partial(enter, block))
    enter(block)
    return interrupted_at(step, partial(block.__exit__, None, None, None))


@pytest.mark.slow
@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("what", ["events", "start", "stream"])
def test_interrupted_blocks_leave_no_command_or_subscription(what: str, is_left: bool) -> None:
    with Client.spawn() as client:
        step = 1
        while is_interrupted(client, what, step, is_left=is_left):
            # The interrupt may have left references that keep the object of the `with` block alive.
            # Collecting the garbage runs the object's finaliser, which ends the command or the
            # subscription.
            gc.collect()
            step += 5
        assert step > 200
        wait_for(
            lambda: not any(each.is_running for each in client.list_shells()), "the end of all"
        )
        with ExitStack() as stack:
            for _ in range(MAX_SUBSCRIPTIONS):
                stack.enter_context(client.events())


@pytest.mark.slow
def test_interrupted_continuation_ends_with_the_block_that_began_it() -> None:
    with Client.spawn() as client:
        step, was_interrupted = 1, True
        while was_interrupted:
            with client.events() as events:
                block = client.events(subscription=events.subscription)
                was_interrupted = interrupted_at(step, partial(enter, block))
                # The interrupt may have left references that keep the object of the `with` block
                # alive. Collecting the garbage runs the object's finaliser, which ends the
                # continuation.
                del block
                gc.collect()
            step += 5
        assert step > 200
        with ExitStack() as stack:
            for _ in range(MAX_SUBSCRIPTIONS):
                stack.enter_context(client.events())


@pytest.mark.slow
def test_refused_nested_iteration_ends_the_interrupted_one() -> None:
    with Client.spawn() as client:
        refusals, step, was_within = 0, 1, True
        while was_within:
            stream = client.stream("echo out")

            def take(*_: object, stream: OutputStream = stream) -> None:
                next(stream)

            signal.signal(signal.SIGINT, take)
            interrupter = Interrupter(step)
            sys.settrace(interrupter)
            try:
                with suppress(StopIteration):
                    while not isinstance(next(stream), BashResult):
                        pass
            except RuntimeError as error:
                sys.settrace(None)
                assert "interrupted while it took an item" in str(error)
                # The lost item may be the last item, so the next call must not wait for another
                # item.
                assert list(stream) == []
                refusals += 1
            finally:
                sys.settrace(None)
            was_within = interrupter.steps_left < 0
            step += 7
        assert refusals > 20
