"""When a wait ends, it takes into account output that the command has written but the daemon has
not read.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from shelld.filters.filter import Filters
from shelld.keeper.pool import RunnerPool
from shelld.methods.bash_output import wait_and_read
from shelld.output.reader import StreamReader
from shelld.output.retention import ShellOutput
from shelld.shells.shell import Shell
from shelld.waits.matches import Search
from shelld.waits.until import wait_for_quiet
from shelld_protocol.shell_methods import BashOutputParams

QUIET_S = 0.05


class Owner:
    """The owner of a shell. Its pipe holds output that was written while the daemon was busy."""

    def __init__(self, output: ShellOutput, pieces: int) -> None:
        self._output, self._left = output, pieces

    def catch_up(self) -> None:
        if self._left:
            self._left -= 1
            self._output.append(self._output.stdout, b"late\n")


def a_shell(pieces: int) -> Shell:
    shell = Shell("shell_a")
    shell.started()
    owner: Any = Owner(shell.output, pieces)
    shell.owner = owner
    return shell


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_quiet_time_begins_again_at_late_output(pieces: int) -> None:
    shell = a_shell(pieces)
    assert await wait_for_quiet(shell, QUIET_S, float("inf"))
    assert shell.output.written == pieces * len(b"late\n")
    assert shell.quiet_s >= QUIET_S


@pytest.mark.parametrize(("pieces", "line"), [(0, None), (1, "late")])
async def test_search_finds_late_output(pieces: int, line: str | None) -> None:
    async with Filters(RunnerPool()).open("late", "pattern") as line_filter:
        assert line_filter is not None
        search = Search(a_shell(pieces), line_filter, {"stdout": 0}, strip=True)
        found = await search.wait(anyio.current_time())
    assert (None if found is None else found.line) == line


@pytest.mark.parametrize(("pieces", "text"), [(0, ""), (1, "late\n")])
async def test_read_that_waits_returns_late_output(pieces: int, text: str) -> None:
    shell = a_shell(pieces)
    reader = StreamReader(shell.stdout, offset=None, max_bytes=100, strip=True, line_filter=None)
    reads = await wait_and_read(shell, BashOutputParams("shell_a", wait=1), {"stdout": reader})
    assert reads["stdout"].text == text
