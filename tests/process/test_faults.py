"""Reporting a failure never fails, and a shortage (of memory, for example) does not count as a
fault.
"""

from __future__ import annotations

import errno
import logging
import marshal
import os
import time
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from shelld.process import faults
from shelld.process.logs import DescriptorHandler, Log
from shelld_protocol.errors import ErrorKind, RpcError


def no_memory(*_args: object, **_options: object) -> Any:
    raise MemoryError


@pytest.fixture(params=["format", "makeRecord"])
def log_without_memory(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DescriptorHandler]:
    """A log that fails to write any line: it has no memory to make the record, or to format the
    record.
    """
    read, write = os.pipe()
    handler = DescriptorHandler(write)
    owner = DescriptorHandler if request.param == "format" else logging.Logger
    monkeypatch.setattr(owner, request.param, no_memory)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger("shelld").addHandler(handler)
    yield handler
    logging.getLogger("shelld").removeHandler(handler)
    os.close(read)
    os.close(write)


def test_report_is_counted_without_memory_for_its_line(
    log_without_memory: DescriptorHandler,
) -> None:
    before = faults.count()
    try:
        raise ValueError("unforeseen")
    except ValueError:
        faults.report("a test")
    assert faults.count() == before + 1


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, ""), ValueError()])
def test_answer_is_found_without_memory_for_its_line(
    log_without_memory: DescriptorHandler, error: Exception
) -> None:
    expected = "internal_error" if isinstance(error, ValueError) else "resource_exhausted"
    assert faults.answer_for(error, "a test").kind.value == expected


async def test_preload_without_memory_ends_nothing(log_without_memory: DescriptorHandler) -> None:
    async with anyio.create_task_group() as tasks:

        async def preload() -> None:
            raise MemoryError

        tasks.start_soon(faults.run_once, preload, "the preload")


def test_line_without_memory_is_counted_as_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    handler = DescriptorHandler(write)
    record = logging.LogRecord("shelld", logging.INFO, "", 0, "text", None, None)
    with monkeypatch.context() as patch:
        patch.setattr(DescriptorHandler, "format", no_memory)
        handler.emit(record)
    handler.emit(record)
    lines = os.read(read, 1000).decode().splitlines()
    assert lines == ["1 log lines were dropped: the log did not accept them", "text"]
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "exception"])
def test_failing_log_raises_nothing(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    log = Log("shelld.test")
    log.logger.setLevel(logging.DEBUG)
    monkeypatch.setattr(logging.Logger, "_log", no_memory)
    getattr(log, level)("a line with %s", "an argument")


def test_shortage_is_not_counted_as_fault(caplog: pytest.LogCaptureFixture) -> None:
    before = faults.count()
    for error in (MemoryError(), OSError(errno.ENOMEM, ""), RuntimeError(faults.NO_THREAD)):
        try:
            raise error
        except Exception:
            faults.report("a test")
    assert faults.count() == before
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert caplog.messages[0] == "a test: The daemon is short of memory"


def test_shortage_has_a_prepared_answer_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "resource_exhausted", no_memory)
    tracebacks: list[int] = []
    for _ in range(2):
        answer = faults.answer_for(MemoryError(), "a test")
        assert answer.kind is ErrorKind.RESOURCE_EXHAUSTED
        assert answer.data["limit"] == "memory"
        with pytest.raises(RpcError) as raised:
            raise answer
        tracebacks.append(len(raised.traceback))
    # The prepared answer must not keep the stack frames of each request that failed with this
    # answer.
    assert tracebacks[0] == tracebacks[1]


async def test_pause_has_its_full_length_although_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(anyio, "sleep", no_memory)
    monkeypatch.setattr(time, "sleep", slept.append)
    await faults.pause(0.1)
    assert slept == [0.1]


@pytest.mark.parametrize(
    "text",
    [
        "error return without exception set",
        "<functools._lru_cache_wrapper object> returned NULL without setting an exception",
    ],
)
def test_lost_error_is_a_shortage_of_memory(text: str) -> None:
    shortage = faults.shortage(SystemError(text))
    assert shortage is not None
    assert shortage.data["limit"] == "memory"
    assert faults.shortage(SystemError("bad argument")) is None


def test_failed_marshal_for_lack_of_memory_is_a_shortage() -> None:
    anything: Any = object()
    with pytest.raises(ValueError, match="unmarshallable") as caught:
        marshal.dumps(anything)
    assert faults.answer_for(caught.value, "a test").data["limit"] == "memory"


def test_group_of_shortages_is_a_shortage() -> None:
    group = ExceptionGroup("tasks", [MemoryError(), ExceptionGroup("more", [MemoryError()])])
    assert faults.answer_for(group, "a test").kind is ErrorKind.RESOURCE_EXHAUSTED


def test_group_with_another_error_is_unexpected() -> None:
    group = ExceptionGroup("tasks", [MemoryError(), ValueError()])
    assert not faults.is_shortage(group)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("x.so: failed to map segment from shared object", "memory"),
        ("libstdc++.so.6: cannot map zero-fill pages", "memory"),
        ("x.so: cannot allocate memory in static TLS block", "memory"),
        ("x.so: cannot create shared object descriptor: Cannot allocate memory", "memory"),
        ("x.so: cannot change memory protections", "memory"),
        ("x.so: cannot open shared object file: Too many open files", "files"),
        ("x.so: cannot open shared object file: No such file or directory", None),
    ],
)
def test_failed_import_for_want_of_a_resource_is_a_shortage(text: str, limit: str | None) -> None:
    shortage = faults.shortage(ImportError(text))
    assert (None if shortage is None else shortage.data["limit"]) == limit
