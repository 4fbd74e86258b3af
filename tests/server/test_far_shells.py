"""A watcher gets rows that it can show, whatever a target answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest

from shelld.server.far_shells import FarShells
from shelld.targets.targets import Targets

SHELL = {"bash_id": "shell_1", "command": "make", "status": "failed", "isRunning": False}


class _Link:
    def __init__(self, answer: object) -> None:
        self._answer = answer

    def begin(self, method: str, _params: bytes, _request_id: None) -> str:
        return method

    async def answer(self, _call: str) -> bytes:
        return msgspec.json.encode(self._answer)


async def rows_of(shell: dict[str, Any]) -> list[str]:
    """Return the ids of the rows that a watcher gets if a target answers with this shell."""
    target = SimpleNamespace(name="box", link=_Link({"shells": [shell]}), is_connected=True)
    targets = cast("Targets", SimpleNamespace(all=lambda: [target]))
    async with anyio.create_task_group() as tasks:
        return [row.id for row in await FarShells(targets, tasks, 100).rows()]
    raise AssertionError


async def test_shell_at_a_target_is_a_row() -> None:
    assert await rows_of({**SHELL, "exitCode": 255, "durationMs": 2**53}) == ["box:shell_1"]


@pytest.mark.parametrize("member", ["durationMs", "exitCode"])
@pytest.mark.parametrize("number", [10**400, -1], ids=["huge", "negative"])
async def test_impossible_number_is_not_a_valid_answer(member: str, number: int) -> None:
    assert await rows_of({**SHELL, member: number}) == []
