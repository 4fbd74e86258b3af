"""When a foreground command is answered."""

from __future__ import annotations

from shelld.methods.bash import is_answerable
from shelld.shells.process import ShellProcess


def test_released_command_is_answered_once_started() -> None:
    shell = ShellProcess(id="shell_1", command="true", working_dir="/")
    shell.is_empty = False
    shell.released = True
    assert not is_answerable(shell)
    shell.pid = 1
    assert is_answerable(shell)
