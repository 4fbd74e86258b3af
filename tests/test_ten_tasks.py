"""The code for the ten tasks works with each library. `benchmarks/ten_tasks` counts the lines of
this code.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import wait_for
from ten_tasks import commands
from ten_tasks.__main__ import table
from ten_tasks.counting import LIBRARIES, TASKS, lines_of

ROOT = Path(__file__).parents[1]


def cases() -> list[Any]:
    found = list[Any]()
    for library in LIBRARIES:
        module = importlib.import_module(f"ten_tasks.with_{library}")
        # The tasks of other libraries do not change with our code, and some fail on a busy machine.
        marks = [] if library == "shelld" else [pytest.mark.long]
        for name in TASKS:
            if (task := getattr(module, name, None)) is not None:
                found.append(pytest.param(name, task, id=f"{library}-{name}", marks=marks))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def is_served(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def check_serve(call: Callable[..., object]) -> None:
    port = free_port()
    served = list[bool]()
    call(port, lambda: served.append(is_served(port)))
    assert served == [True]
    wait_for(lambda: not is_served(port), "the end of the server")


def check_page(call: Callable[..., object]) -> None:
    pages = list[str]()
    call(pages.append)
    assert "".join(pages) == commands.PAGES
    assert max(map(len, pages)) <= commands.PAGE_BYTES


def check_follow(call: Callable[..., object]) -> None:
    shown = list[str]()
    call(shown.append)
    assert "".join(shown) == commands.FOLLOWED


def check_cancel(call: Callable[..., object]) -> None:
    told = list[str]()
    assert call(told.append) == "started\n"
    assert [line.strip() for line in told] == ["started"]


def check_tools(call: Callable[..., object]) -> None:
    answers = list[str | None]()

    def model(tools: list[dict[str, Any]], text: str | None) -> commands.ToolCall | None:
        assert tools[0]["function"]["name"] == "Bash"
        answers.append(text)
        return ("Bash", {"command": "echo hello"}) if text is None else None

    call(model)
    assert [answer and answer.strip() for answer in answers] == [None, "hello"]


def check_restart(call: Callable[..., object]) -> None:
    def end(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    assert call(end) == "/usr\n"


def check_answer(call: Callable[..., object]) -> None:
    answer = call()
    assert isinstance(answer, str)
    assert commands.QUESTION in answer
    assert commands.ANSWERED in answer


def check_run(call: Callable[..., object]) -> None:
    assert call() == commands.RAN


def check_many(call: Callable[..., object]) -> None:
    assert call() == commands.MANY_ANSWERS


def check_fetch(call: Callable[..., object]) -> None:
    assert call() == commands.BYTES


@pytest.mark.parametrize(("name", "task"), cases())
def test_task_returns_its_promised_result(name: str, task: Callable[..., Any]) -> None:
    def call(*arguments: object) -> object:
        result = task(*arguments)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    checks = {each.removeprefix("check_"): check for each, check in globals().items()}
    checks["tools" if name == "give_tools" else name](call)


def test_comments_assertions_and_empty_lines_are_not_counted() -> None:
    def task() -> list[int]:
        # A comment.
        number = 1

        assert number
        return [
            number,
        ]

    assert lines_of(task) == 4


def test_document_has_the_table() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert "\n".join(table()) in page
