"""What happens to an unexpected exception, and to a shortage of the system.

An unexpected exception that reached the daemon's task group would end the daemon with all its
shells. So there are boundaries, each of which ends one thing; ARCHITECTURE.md lists them. A
boundary reports the exception here: it is logged with its traceback, once, and counted in
``server_info``.

A *shortage* is no fault: the system has no thread, descriptor, memory or disk for one request, and
that request is answered with ``resource_exhausted``.

This module holds one counter for the process. To report never raises.
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

# A background task is started again at once after its first failure, and after this pause later on.
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
    """Log and count the exception that is being handled; `where` names what it ended."""
    global _count  # noqa: PLW0603 - one counter for the process
    _count += 1
    # The traceback names code, not the command or its environment. Logging may fail too.
    with suppress(Exception):
        logger.exception("unexpected error in %s", where)


def shortage(error: BaseException) -> RpcError | None:
    """Return the ``resource_exhausted`` error for an exception; None if it is no shortage."""
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
    """Return the answer to a request that ended with `error`; report an unexpected one."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, MemoryError):
        # The frames of what has failed may hold all the memory there was, and an answer takes some.
        error.__traceback__ = error.__context__ = None
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
    """Run a background task once. If it fails, others do its work on demand."""
    try:
        await task()
    except Exception as error:
        answer_for(error, where)
