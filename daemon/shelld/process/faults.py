"""Handles unexpected exceptions, and shortages of system resources.

An unexpected exception that reached the daemon's task group would end the daemon with all its
shells. So the daemon has boundaries, which ARCHITECTURE.md lists. At each boundary, an exception
ends only one piece of work, such as a request. The boundary reports the exception to this module,
which logs it once, with its traceback, and counts it for ``server_info``.

A *shortage* is not a fault. It means that the system has no thread, descriptor, memory or disk
space for one request. The answer to this request is ``resource_exhausted``.

This module has one counter for the process. `report` and `answer_for` never raise, even if there is
no memory for their work.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, cast

import anyio

from shelld.process import no_memory
from shelld.process.logs import Log
from shelld_protocol.errors import (
    RpcError,
    exhausted_limit,
    internal_error,
    resource_exhausted,
)

logger = Log("shelld")

# A background task restarts immediately after its first failure, and after this pause when it fails
# again.
RESTART_PAUSE_S: Final = 1.0

# The text of the error that Python raises if it cannot start a thread.
NO_THREAD: Final = "can't start new thread"

# The texts of the errors that Python 3.11 raises if it has no memory for the frame of a call.
_LOST_ERRORS: Final = ("error return without exception set", "returned NULL without setting")

# The text of the error that marshal raises if it has no memory for its list of written objects.
# Messages to the keeper consist of plain values, so the error has no other cause here.
_UNMARSHALLABLE: Final = "unmarshallable object"

# If dlopen(3) fails, an ImportError contains one of these texts. Each text is followed by the name
# of the resource that is short.
_IMPORT_FAILURES: Final = (
    (os.strerror(errno.EMFILE), "files"),
    (os.strerror(errno.ENFILE), "files"),
    (os.strerror(errno.ENOMEM), "memory"),
    *((text, "memory") for text in no_memory.IMPORT_TEXTS),
)

# The daemon answers with this error if there is no memory to make a new error.
_NO_MEMORY: Final = resource_exhausted("memory", "The daemon is short of memory")

_count = 0


def count() -> int:
    """Return the number of unexpected exceptions reported since the process started."""
    return _count


def report(where: str) -> None:
    """Log the current exception, and count it unless it is a shortage.

    `where` names the work that failed with the exception.
    """
    global _count  # noqa: PLW0603 - one counter for the process
    error = sys.exc_info()[1]
    if error is not None and (limit := _limit_of(error)) is not None:
        logger.warning("%s: The daemon is short of %s", where, limit)
        return
    _count += 1
    # The traceback contains only code, and no command or environment.
    logger.exception("unexpected error in %s", where)


def is_shortage(error: BaseException) -> bool:
    """Return whether an exception says that the system is short of memory or another resource."""
    return _limit_of(error) is not None


def shortage(error: BaseException) -> RpcError | None:
    """Return the ``resource_exhausted`` error for a shortage; None for any other exception."""
    limit = _limit_of(error)
    if limit is None:
        return None
    try:
        return resource_exhausted(limit, f"The daemon is short of {limit}")
    except MemoryError:
        # Drop the old traceback. Otherwise the traceback would grow each time that this error is
        # raised.
        return _NO_MEMORY.with_traceback(None)


def _limit_of(error: BaseException) -> str | None:
    if not isinstance(error, BaseExceptionGroup):
        return _limit_of_one(error)
    # Several tasks that ran together have failed.
    group = cast("BaseExceptionGroup[BaseException]", error)
    limits = [_limit_of(each) for each in group.exceptions]
    return limits[0] if all(limits) else None


def _limit_of_one(error: BaseException) -> str | None:
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return exhausted_limit(error.errno or 0)
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return "threads"
    is_lost = isinstance(error, SystemError) and any(text in str(error) for text in _LOST_ERRORS)
    if is_lost or (isinstance(error, ValueError) and str(error) == _UNMARSHALLABLE):
        return "memory"
    if isinstance(error, ImportError):
        return next((limit for text, limit in _IMPORT_FAILURES if text in str(error)), None)
    return None


def answer_for(error: BaseException, where: str) -> RpcError:
    """Return the answer to a request that failed with `error`. Log any error but `RpcError`."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, MemoryError):
        # Drop the traceback, because the frames of the failed request may use all memory, and the
        # answer needs some memory.
        error.__traceback__ = error.__context__ = None
    if (failure := shortage(error)) is not None:
        logger.warning("%s: %s", where, failure.message)
        return failure
    report(where)
    return internal_error()


async def pause(seconds: float) -> None:
    """Sleep. If there is no memory even for a sleep, block the event loop for the same time.

    So a loop of attempts always pauses, and N attempts last at least N pauses.
    """
    try:
        await anyio.sleep(seconds)
    except MemoryError:
        time.sleep(seconds)  # noqa: ASYNC251 - nothing else is possible


async def keep_running(task: Callable[[], Awaitable[None]], where: str) -> None:
    """Run a background task to its end; restart it if it fails."""
    failed_before = False
    while True:
        try:
            await task()
        except Exception:
            report(where)
        else:
            return
        if failed_before:
            await pause(RESTART_PAUSE_S)
        failed_before = True


async def run_once(task: Callable[[], Awaitable[None]], where: str) -> None:
    """Run a background task once.

    If the task fails, other code does the task's work later, when a request needs this work.
    """
    try:
        await task()
    except Exception as error:
        answer_for(error, where)
