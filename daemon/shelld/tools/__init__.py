"""Provides tools for language models, on top of the methods."""

from shelld.methods.context import Daemon
from shelld.tools.base import BaseTool
from shelld.tools.bash import BashTool
from shelld.tools.bash_output import BashOutputTool
from shelld.tools.executor import ToolExecution, ToolExecutor
from shelld.tools.interactive import BashInputTool, BashScreenTool, InteractiveBashTool
from shelld.tools.kill_shell import KillShellTool
from shelld.tools.registry import ToolRegistry
from shelld_protocol.tools import (
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolParameter,
    ToolResult,
)

__all__ = [
    "BaseTool",
    "BashInputTool",
    "BashOutputTool",
    "BashScreenTool",
    "BashTool",
    "ExecutionContext",
    "InteractiveBashTool",
    "KillShellTool",
    "ToolCategory",
    "ToolError",
    "ToolExecution",
    "ToolExecutor",
    "ToolParameter",
    "ToolRegistry",
    "ToolResult",
    "register_execution_tools",
]


def register_execution_tools(
    registry: ToolRegistry, daemon: Daemon | None = None, *, interactive: bool = False
) -> None:
    """Register `Bash`, `BashOutput` and `KillShell`, for a daemon or for this program itself.

    If `interactive`, `Bash` can give a command a terminal, and `BashInput` and `BashScreen` are
    registered as well. Raises `ToolError` if the name of a tool is taken.
    """
    tools: list[BaseTool] = [BashOutputTool(daemon), KillShellTool(daemon)]
    if interactive:
        tools = [InteractiveBashTool(daemon), *tools, BashInputTool(daemon), BashScreenTool(daemon)]
    else:
        tools.insert(0, BashTool(daemon))
    registry.register_many(tools)
