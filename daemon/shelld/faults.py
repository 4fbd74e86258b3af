"""Where an unexpected exception stops, and what it is called on the wire.

No exception that nobody expected may reach the daemon's task group, as that would end the daemon
with all its shells. So there are boundaries, each of which ends one thing:

* a message or a request (`serve`): it is answered with an error;
* a shell (`shells.supervision`): it is killed and reported as "lost";
* a background task of the daemon (`keep_running`): it is started again;
* a preload (the guard, the tools): whoever needs it loads it.

A boundary reports the exception here: it is logged with its traceback, once, and counted in
``server_info``. A *shortage* is no fault: the system has no thread, descriptor, memory or disk for
one request, and that request is answered with ``resource_exhausted``.

This module holds one counter for the process. It never raises.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio

from shelld_protocol.errors import (
    RpcError,
    exhausted_limit,
    internal_error,
    resource_exhausted,
)

logger = logging.getLogger("shelld")

# Before a background task is started again that has failed twice in a row.
RESTART_PAUSE_S: Final = 1.0

# What dlopen(3) says, in an ImportError, when it is the system that is short of something.
_IMPORT_FAILURES: Final = (
    (os.strerror(errno.EMFILE), "files"),
    (os.strerror(errno.ENFILE), "files"),
    (os.strerror(errno.ENOMEM), "memory"),
    ("failed to map segment", "memory"),
)

_count = 0


def count() -> int:
    """Return how many unexpected exceptions were reported since the process started."""
    return _count


def report(where: str) -> None:
    """Log and count the exception that is being handled; `where` says what it has ended."""
    global _count  # noqa: PLW0603 - one counter for the process
    _count += 1
    # The traceback names code, not the command nor its environment. To log may fail too.
    with suppress(Exception):
        logger.exception("unexpected error in %s", where)


def shortage(error: BaseException) -> RpcError | None:
    """Return the ``resource_exhausted`` error that an exception stands for, None if it is none."""
    limit: str | None = None
    if isinstance(error, MemoryError):
        limit = "memory"
    elif isinstance(error, OSError):
        limit = exhausted_limit(error.errno or 0)
    elif isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        limit = "threads"
    elif isinstance(error, ImportError):
        limit = next((limit for text, limit in _IMPORT_FAILURES if text in str(error)), None)
    if limit is None:
        return None
    return resource_exhausted(limit, f"The daemon is short of {limit}")


def answer_for(error: BaseException, where: str) -> RpcError:
    """Return what a request is answered with that `error` has ended; report it if unexpected."""
    if isinstance(error, RpcError):
        return error
    if (failure := shortage(error)) is not None:
        logger.warning("%s: %s", where, failure.message)
        return failure
    report(where)
    return internal_error()


async def keep_running(task: Callable[[], Awaitable[None]], where: str) -> None:
    """Run a background task to its end; start it again if it fails."""
    failed_before = False
    while True:
        try:
            await task()
        except Exception:
            report(where)
        else:
            return
        if failed_before:
            await anyio.sleep(RESTART_PAUSE_S)
        failed_before = True


async def run_once(task: Callable[[], Awaitable[None]], where: str) -> None:
    """Run a background task whose work others do on demand if it fails."""
    try:
        await task()
    except Exception as error:
        answer_for(error, where)
