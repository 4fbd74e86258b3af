"""Loads plug-ins: tools from the entry points of the group ``shelld.tools``.

An entry point names a subclass of `BaseTool`, or a function without parameters that returns one or
more tools. A plug-in that is broken or too slow is logged and skipped, and the others are
registered.
"""

from __future__ import annotations

# Import `importlib.resources` first, because `importlib.metadata` imports a submodule of this
# package. While the submodule is imported, another thread may import the package for the guard.
# Python would then refuse one of the two imports, to prevent a deadlock.
import importlib.resources  # noqa: F401  # pyright: ignore[reportUnusedImport]
from collections.abc import Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from typing import Any, Final, TypeAlias, get_args

from shelld.eventloop.threads import Thread
from shelld.process import faults
from shelld.process.logs import Log
from shelld.tools.base import BaseTool
from shelld.tools.registry import ToolRegistry
from shelld_protocol.encoding import PLAIN, decode, encode
from shelld_protocol.tool_methods import ToolFormat

logger = Log("shelld.plugins")

GROUP: Final = "shelld.tools"

# How long one plug-in may take to make its tools. Requests that list all tools wait for each
# plug-in.
LOAD_TIMEOUT_S: Final = 5.0

# The maximum number of tools of one plug-in. A plug-in that makes more has a fault, such as an
# endless generator.
MAX_TOOLS: Final = 1_000

# The schemas of a tool, by the API that they are for.
Schemas: TypeAlias = dict[ToolFormat, dict[str, Any]]


def load_plugins(registry: ToolRegistry) -> list[Schemas]:
    """Register the tools of all installed plug-ins, in the order of the plug-ins' names.

    Returns the tools' schemas. Raises errors that mean a shortage, such as MemoryError.
    """
    registered: list[Schemas] = []
    for entry_point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            schemas = [(tool, schemas_of(tool)) for tool in _load(entry_point)]
            registry.register_many([tool for tool, schema in schemas if schema is not None])
            registered += [schema for _, schema in schemas if schema is not None]
        except BaseException as error:
            if faults.shortage(error) is not None:
                # The system is short of a resource, so the failure is not the fault of the plug-in.
                # The toolbox loads all tools again later.
                raise
            reason = f"{type(error).__name__}: {_text_of(error)}"
            logger.warning("the tools of plug-in %s are skipped: %s", entry_point.name, reason)
    return registered


def schemas_of(tool: BaseTool) -> Schemas | None:
    """Return the schemas of a tool. If JSON cannot express them, log this and return None."""
    try:
        schemas: Schemas = {}
        for name in get_args(ToolFormat):
            # Keep plain values, so that a request for the schemas runs no code of the tool.
            schemas[name] = decode(encode(tool.to_schema(name)), PLAIN)
        for text in (tool.name, tool.description):
            if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError("name and description must be str")
    except Exception as error:
        kind = type(tool).__name__
        logger.warning("the tool %s is skipped: %s", kind, _text_of(error))
        return None
    return schemas


def _load(entry_point: EntryPoint) -> list[BaseTool]:
    """Let a plug-in make its tools.

    Raises the plug-in's errors, TimeoutError, and RuntimeError ("can't start new thread").
    """
    # Run the plug-in in a thread. If its function never returns, the daemon can continue without
    # it.
    thread = Thread(partial(_tools_of, entry_point))
    thread.start()
    if not thread.join(LOAD_TIMEOUT_S):
        if thread.give_up():
            raise RuntimeError(faults.NO_THREAD)
        raise TimeoutError(f"it takes more than {LOAD_TIMEOUT_S:g} s")
    return thread.result()


def _tools_of(entry_point: EntryPoint) -> list[BaseTool]:
    made: Any = entry_point.load()()
    tools: list[Any] = [made]
    if isinstance(made, Iterable):
        tools = list(islice(made, MAX_TOOLS + 1))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if len(tools) > MAX_TOOLS:
        raise ValueError(f"{entry_point.value} makes more than {MAX_TOOLS} tools")
    for tool in tools:
        if not isinstance(tool, BaseTool):
            raise TypeError(f"{entry_point.value} makes a {type(tool).__name__}, not a BaseTool")
    return tools


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
