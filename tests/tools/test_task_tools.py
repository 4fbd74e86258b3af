"""The tools that may answer with a task."""

from __future__ import annotations

from shelld.mcp.toolbox import is_bash
from shelld.tools import BashOutputTool, BashTool, InteractiveBashTool


class OwnBash(BashTool):
    """A tool that a plug-in may offer. Its result can differ from the result of a task."""


def test_only_the_daemons_own_bash_answers_with_a_task() -> None:
    assert is_bash(BashTool())
    assert is_bash(InteractiveBashTool())
    assert not is_bash(OwnBash())
    assert not is_bash(BashOutputTool())
