"""Runs the daemon: builds its parts, waits for a reason to stop, and stops.

Every stage of the stop has a deadline, and starts even if the previous stage has failed. When the
daemon ends, the runners see end of file on their channels and kill the commands that still run.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import anyio

from shelld import __version__
from shelld.audit import AuditLog, AuditRecord
from shelld.eventloop.loop import EventLoop
from shelld.eventloop.memory import collect_rarely, give_back_regularly
from shelld.eventloop.patience import wait_patiently
from shelld.eventloop.signals import received
from shelld.eventloop.threads import wait_for_work
from shelld.guard.policy import Policy
from shelld.keeper.pool import RunnerPool
from shelld.mcp.tasks import Tasks
from shelld.mcp.toolbox import Toolbox
from shelld.methods.context import Daemon, manager_options
from shelld.methods.guard import load_soon
from shelld.process import faults
from shelld.process.logs import Log, write_without_waiting
from shelld.process.options import Options
from shelld.process.stack import with_room_for_frames
from shelld.routes import routes
from shelld.server.attached_client import DRAIN_S, FLUSH_S
from shelld.server.serve import Server
from shelld.server.service import Service
from shelld.server.startup import StartupError
from shelld.server.stdio import Output
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell

logger = Log("shelld.app")

# The signals that stop the daemon. A second signal shortens the stop.
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# After the daemon has stopped reading requests, the requests in flight get `DRAIN_S` to end by
# themselves. Then the daemon sends SIGTERM to the shells that still run. After this grace period,
# it sends them SIGKILL.
STOP_GRACE_MS: Final = 500
# After SIGTERM, the shells have `STOP_KILL_S` to end, and `STOP_KILL_PER_SHELL_S` more for each
# shell. If the requests in flight end before `DRAIN_S` is over, the shells also get the time that
# was left. The time is counted in turns (see `patience`). A turn in which a shell ends does not
# count, because shells may end late on a busy machine, and clients must still learn that they have
# ended.
STOP_KILL_S: Final = 0.8
STOP_KILL_PER_SHELL_S: Final = 0.003
# How long the whole stop may take. After the earlier stages, the client can read the last answers
# in the time that is left, but at least for FLUSH_S. The stop must take less than 2 s, because MCP
# hosts send SIGKILL after that time. A turn (see `patience`) in which the client reads does not
# count, so the time for the answers may grow by up to FLUSH_S. When only FLUSH_S is left, the
# daemon skips long output, so that it can still send the exit events of all shells.
STOP_S: Final = 1.6
# On a busy machine, the stop may exceed the total time of its stages by this much.
LATENESS_S: Final = 1.0
# After the event loop has ended, its threads have this time to end. Some threads cannot be stopped,
# such as a search by RE2.
THREADS_S: Final = 0.3
# One exit code is for answers that could not be written, the other is for requests that could not
# be read. In both cases, the client may still be there.
STDOUT_FAILED: Final = 3
STDIN_FAILED: Final = 4
# The exit code if the event loop itself has failed.
LOOP_FAILED: Final = 1
# How often the daemon checks whether its parent still runs, if the system cannot report that the
# parent has ended.
PARENT_POLL_S: Final = 1.0


def run(
    options: Options,
    make_service: Callable[[], Service],
    pool: RunnerPool,
    audit: AuditLog | None,
    policy: Policy,
) -> int:
    """Serve until the service is over; return the exit code. `make_service` runs on the event loop.

    Ends the process instead of returning if the event loop fails, or if tasks or threads ignore
    their cancellation. Raises StartupError.
    """
    try:
        _try_descriptors()
        with_loop = {"loop_factory": EventLoop}
        start = with_room_for_frames(partial(anyio.run, backend_options=with_loop))
        exit_code: int = start(_run, options, make_service, pool, audit, policy)
        _ignore_signals()
    except OSError as error:
        # Only the start of the event loop raises a bare OSError. Tasks raise exception groups, or
        # report their errors.
        raise StartupError(f"cannot start an event loop: {error.strerror}") from error
    except StartupError:
        raise
    except BaseException:
        # For example, there was no memory for the event loop itself. In this state, the daemon
        # cannot stop the threads of the event loop.
        faults.report("the event loop")
        _end_process(pool, LOOP_FAILED)
    give_up_at = time.monotonic() + THREADS_S
    is_idle = wait_for_work(THREADS_S)
    # Plug-ins may have threads. The interpreter does not wait for daemon threads.
    threads = [thread for thread in threading.enumerate()[1:] if not thread.daemon]
    for thread in threads:
        thread.join(max(0, give_up_at - time.monotonic()))
    if not is_idle or any(thread.is_alive() for thread in threads):
        logger.info("the daemon ends although some of its threads are busy")
        _end_process(pool, exit_code)
    return exit_code


def _try_descriptors() -> None:
    """Open the descriptors that an event loop opens at its start, and close them again. Raises
    OSError.

    Without this check, asyncio could fail after it has opened only some of its descriptors. In that
    case, asyncio would also print a traceback later.
    """
    with selectors.DefaultSelector():
        for end in socket.socketpair():
            end.close()


def _end_although_tasks_run(manager: Manager, pool: RunnerPool, exit_code: int) -> NoReturn:
    if manager.list_running():
        # The stop ran out of time before all commands ended. The runners kill the remaining
        # commands.
        logger.info("the daemon ends before its shells")
    else:
        # Some tasks ignore their cancellation, or have had too little processor time.
        logger.info("the daemon ends although some of its tasks still run")
    _end_process(pool, exit_code)


def _end_process(pool: RunnerPool, exit_code: int) -> NoReturn:
    """End this process at once. This loses nothing: no answer can be sent any more, and the log has
    no buffer.
    """
    try:
        pool.close()
    finally:
        os._exit(exit_code)


async def _run(
    options: Options,
    make_service: Callable[[], Service],
    pool: RunnerPool,
    audit: AuditLog | None,
    policy: Policy,
) -> int:
    def on_end(shell: Shell) -> None:
        if audit is not None:
            audit.write(AuditRecord.of_shell(shell))

    def start(task: Callable[..., Awaitable[None]], *args: object) -> None:
        watchers.start_soon(faults.keep_running, partial(task, *args), task.__name__)

    service = make_service()
    exit_code = 0
    collect_rarely()
    logger.info("shelld %s has started", __version__)
    async with (
        anyio.create_task_group() as requests,
        # The manager is the inner scope, so shells end before the requests that wait for these
        # shells.
        Manager(manager_options(options), pool=pool, on_end=on_end) as manager,
    ):
        daemon = Daemon(options, manager, audit, policy)
        for name, argv in options.targets:
            daemon.targets.add(name, argv)
        for name, argv in options.bootstraps:
            daemon.targets.add(name, argv, bootstrap=True)
        toolbox = Toolbox(daemon)
        service.begin(daemon, partial(routes, toolbox, Tasks()), requests)
        async with anyio.create_task_group() as watchers:
            second_signal = anyio.Event()
            reading = anyio.CancelScope()
            start(_watch_signals, reading, second_signal)
            if service.output is not None:
                start(_watch_output, service.output, reading)
            start(_watch_children, pool)
            watchers.start_soon(faults.run_once, load_soon, "the preload of the guard")
            watchers.start_soon(faults.run_once, toolbox.preload, "the preload of the tools")
            start(give_back_regularly)
            if options.parent_pid is not None:
                start(watch_process, options.parent_pid, reading)
            with reading:
                await service.serve()
            await service.close()
            server, output = service.server, service.output
            daemon.draining = True
            logger.info("stopping: %d shells are running", len(manager.list_running()))
            stop_at = anyio.current_time() + STOP_S
            loop = asyncio.get_running_loop()
            # If memory is short, a cancellation can get lost, and a stage of the stop would never
            # end.
            last_resort = loop.call_at(
                anyio.current_time() + _longest_stop_s(manager),
                lambda: _end_although_tasks_run(manager, pool, _exit_code(server, output)),
            )
            kill_until = last_resort.when() - 2 * FLUSH_S
            await _stop(
                server, daemon, output, second_signal, stop_at=stop_at, kill_until=kill_until
            )
            last_resort.cancel()
            if output is not None:
                output.close()
            exit_code = _exit_code(server, output)
            service.end(exit_code)
            # asyncio waits for all tasks, and a task may ignore its cancellation. So end the
            # process when the time for the last answers is over.
            loop.call_at(_flush_until(stop_at), _end_although_tasks_run, manager, pool, exit_code)
            try:
                watchers.cancel_scope.cancel()
            except MemoryError:
                # anyio had no memory to record which task cancels the scope. All commands have
                # ended by now, so end the process.
                _end_although_tasks_run(manager, pool, exit_code)
        requests.cancel_scope.cancel()
    return exit_code


def _exit_code(server: Server | None, output: Output | None) -> int:
    """Return the exit code. Call this when the time for writing answers is over."""
    if server is None or output is None:
        return 0
    failure = output.failure
    if output.backlog and not output.is_broken:
        failure = "the client has not read all answers in time"
    # Write to stderr, not to the log file, because a user of `shelld >file` sees only stderr.
    if failure is not None:
        write_without_waiting(2, f"shelld: cannot write to stdout: {failure}\n".encode())
        return STDOUT_FAILED
    if server.read_failure is not None:
        text = f"shelld: cannot read requests from stdin: {server.read_failure}\n"
        write_without_waiting(2, text.encode())
        return STDIN_FAILED
    return server.exit_code or 0


def _flush_until(stop_at: float) -> float:
    return max(stop_at, anyio.current_time() + FLUSH_S)


def _kill_s(manager: Manager) -> float:
    return STOP_KILL_S + len(manager.list_running()) * STOP_KILL_PER_SHELL_S


def _longest_stop_s(manager: Manager) -> float:
    return max(STOP_S, DRAIN_S + _kill_s(manager) + FLUSH_S) + LATENESS_S


async def _stop(
    server: Server | None,
    daemon: Daemon,
    output: Output | None,
    second_signal: anyio.Event,
    *,
    stop_at: float,
    kill_until: float,
) -> None:
    """Stop step by step.

    `server` and `output` serve the attached client. Without a client, they are None.
    """
    manager = daemon.manager

    async def drain() -> None:
        if server is None or output is None:
            return
        await server.drain(0 if output.is_broken else DRAIN_S, second_signal)
        server.refuse_in_flight()

    async def kill_all() -> None:
        daemon.targets.hang_up()
        grace_ms = 0 if second_signal.is_set() else STOP_GRACE_MS
        await wait_patiently(
            lambda: manager.kill_all(grace_ms),
            max(_kill_s(manager), stop_at - FLUSH_S - anyio.current_time()),
            lambda: len(manager.list_running()),
            until=kill_until,
        )

    async def send_all() -> None:
        await daemon.subscriptions.settle()
        if output is not None:
            await output.wait_empty()

    async def flush() -> None:
        until = _flush_until(stop_at)
        hurry = asyncio.get_running_loop().call_at(until - FLUSH_S, daemon.subscriptions.hurry)
        try:
            await wait_patiently(
                send_all,
                until - anyio.current_time(),
                lambda: 0 if output is None else output.backlog,
                until=until + FLUSH_S,
            )
        finally:
            hurry.cancel()

    for stage in (drain, kill_all, flush):
        try:
            await stage()
        except Exception:
            faults.report("the stop")


async def _watch_signals(reading: anyio.CancelScope, second_signal: anyio.Event) -> None:
    with received(*STOP_SIGNALS) as arrivals:
        while True:
            count = await arrivals.wait()
            if reading.cancel_called or count > 1:
                second_signal.set()
            reading.cancel()


def _ignore_signals() -> None:
    """Ignore further signals, so that no signal changes the exit code of the ending daemon."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


async def _watch_output(output: Output, reading: anyio.CancelScope) -> None:
    await output.wait_broken()
    reading.cancel()


async def _watch_children(pool: RunnerPool) -> None:
    """Notify the pool when a child ends or stops.

    Each child is a keeper, or a process that this daemon has adopted.
    """
    with received(signal.SIGCHLD) as arrivals:
        while True:
            next_ms = pool.clean_up()
            with anyio.move_on_after(math.inf if next_ms is None else next_ms / 1000):
                await arrivals.wait()


async def watch_process(pid: int, reading: anyio.CancelScope) -> None:
    """Stop the daemon when the process `pid` ends, or at once if there is no such process."""
    while _is_there(pid):
        try:
            await _end_of(pid)
            break
        except (AttributeError, OSError):
            # Either no descriptor is free, or the system has no pidfd_open, as in an old kernel or
            # a sandbox.
            await anyio.sleep(PARENT_POLL_S)
    reading.cancel()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # The process belongs to another user.
        pass
    return True


async def _end_of(pid: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)
