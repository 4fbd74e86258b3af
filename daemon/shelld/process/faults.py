"""Handles unexpected exceptions, and shortages of the system.

An unexpected exception that reached the daemon's task group would end the daemon with all its
shells. So there are boundaries. At each of them, an exception ends only one thing. ARCHITECTURE.md
lists them. A boundary reports the exception here. This module logs it once, with its traceback, and
counts it for ``server_info``.

A *shortage* is no fault: the system has no thread, descriptor, memory or disk for one request, and
the answer to that request is ``resource_exhausted``.

This module holds one counter for the process. Reporting never raises.
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

# A background task restarts at once after its first failure, and after this pause from then on.
RESTART_PAUSE_S: Final = 1.0

# What dlopen(3) reports, in an ImportError, when the system is short of a resource.
_IMPORT_FAILURES: Final = (
    (os.strerror(errno.EMFILE), "files"),
    (os.strerror(errno.ENFILE), "files"),
    (os.strerror(errno.ENOMEM), "memory"),
    ("failed to map segment", "memory"),
)

_count = 0


def count() -> int:
    """Return the number of unexpected exceptions reported since the process started."""
    return _count


def report(where: str) -> None:
    """Log and count the current exception; `where` names the work it ended."""
    global _count  # noqa: PLW0603 - one counter for the process
    _count += 1
    # The traceback names code, not the command or its environment. Logging may fail too.
    with suppress(Exception):
        logger.exception("unexpected error in %s", where)


def shortage(error: BaseException) -> RpcError | None:
    """Return the ``resource_exhausted`` error for a shortage; None for any other exception."""
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
        # The frames of the failed request may hold all the memory, and the answer needs some.
        error.__traceback__ = error.__context__ = None
    if (failure := shortage(error)) is not None:
        logger.warning("%s: %s", where, failure.message)
        return failure
    report(where)
    return internal_error()


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
            await anyio.sleep(RESTART_PAUSE_S)
        failed_before = True


async def run_once(task: Callable[[], Awaitable[None]], where: str) -> None:
    """Run a background task once. If it fails, its work is done on demand."""
    try:
        await task()
    except Exception as error:
        answer_for(error, where)
