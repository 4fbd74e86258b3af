"""Tools of others: the entry points of the group ``shelld.tools``.

An entry point names a subclass of `BaseTool`, or a function without parameters that returns a tool
or several. What is broken is reported and skipped; the others are registered all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from shelld import faults
from shelld.tools.base import BaseTool
from shelld.tools.registry import ToolRegistry

logger = logging.getLogger("shelld.plugins")

GROUP: Final = "shelld.tools"


def load_plugins(registry: ToolRegistry) -> None:
    """Register the tools of all installed plug-ins, in the order of their names."""
    for entry_point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            registry.register_many(_tools_of(entry_point))
        except (Exception, SystemExit) as error:
            if faults.shortage(error) is not None:
                # Not the plug-in's fault: all tools are loaded again later.
                raise
            reason = f"{type(error).__name__}: {error}"
            logger.warning("the tools of plug-in %s are skipped: %s", entry_point.name, reason)


def _tools_of(entry_point: EntryPoint) -> list[BaseTool]:
    made: Any = entry_point.load()()
    tools: list[Any] = [made]
    if isinstance(made, Iterable):
        tools = list(made)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for tool in tools:
        if not isinstance(tool, BaseTool):
            raise TypeError(f"{entry_point.value} makes a {type(tool).__name__}, not a BaseTool")
        # What is wrong with it shows here, and not in the list of all tools.
        tool.to_openai_schema()
    return tools
