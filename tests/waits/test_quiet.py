"""Output that the daemon has not read yet restarts the quiet time."""

from __future__ import annotations

from typing import Any

import pytest

from shelld.output.retention import ShellOutput
from shelld.shells.shell import Shell
from shelld.waits.until import wait_for_quiet

QUIET_S = 0.05


class Owner:
    """The owner of a shell. Its pipe holds output that was written while the daemon was busy."""

    def __init__(self, output: ShellOutput, pieces: int) -> None:
        self._output, self._left = output, pieces

    def catch_up(self) -> None:
        if self._left:
            self._left -= 1
            self._output.append(self._output.stdout, b"late\n")


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_quiet_follows_output_that_waits_in_the_pipe(pieces: int) -> None:
    shell = Shell("shell_a")
    shell.started()
    owner: Any = Owner(shell.output, pieces)
    shell.owner = owner
    assert await wait_for_quiet(shell, QUIET_S, float("inf"))
    assert shell.output.written == pieces * len(b"late\n")
    assert shell.quiet_s >= QUIET_S
