"""Tools of others: the entry points of the group ``shelld.tools``.

An entry point names a subclass of `BaseTool`, or a function without parameters that returns a tool
or several. What is broken, or takes too long, is reported and skipped; the others are registered
all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from typing import Any, Final, TypeAlias, get_args

from shelld.process import faults
from shelld.tools.base import BaseTool
from shelld.tools.registry import ToolRegistry
from shelld_protocol.encoding import PLAIN, decode, encode
from shelld_protocol.tool_methods import ToolFormat

logger = logging.getLogger("shelld.plugins")

GROUP: Final = "shelld.tools"

# For one plug-in to make its tools. The list of all tools waits for that.
LOAD_TIMEOUT_S: Final = 5.0

# Of one plug-in. More are a mistake, such as a generator without an end.
MAX_TOOLS: Final = 1_000

# A tool in the format of each API.
Schemas: TypeAlias = dict[ToolFormat, dict[str, Any]]


def load_plugins(registry: ToolRegistry) -> list[Schemas]:
    """Register the tools of all installed plug-ins, in the order of their names.

    Returns their schemas. Raises what is a shortage of the system.
    """
    registered: list[Schemas] = []
    for entry_point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            schemas = [(tool, schemas_of(tool)) for tool in _load(entry_point)]
            registry.register_many([tool for tool, schema in schemas if schema is not None])
            registered += [schema for _, schema in schemas if schema is not None]
        except BaseException as error:
            if faults.shortage(error) is not None:
                # Not the plug-in's fault: all tools are loaded again later.
                raise
            reason = f"{type(error).__name__}: {_text_of(error)}"
            logger.warning("the tools of plug-in %s are skipped: %s", entry_point.name, reason)
    return registered


def schemas_of(tool: BaseTool) -> Schemas | None:
    """Return the schemas of a tool; None, and report it, if it has none that JSON can express."""
    try:
        schemas: Schemas = {}
        for name in get_args(ToolFormat):
            # Kept as plain values, so that no code of the tool runs when they are asked for.
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
    """Have a plug-in make its tools. Raises whatever it raises, and TimeoutError."""
    made: Future[list[BaseTool]] = Future()

    def make() -> None:
        try:
            made.set_result(_tools_of(entry_point))
        except BaseException as error:
            made.set_exception(error)

    # Nothing can end it if it never returns; nor does the end of the process wait for it.
    threading.Thread(target=make, name="shelld-plugin", daemon=True).start()
    try:
        return made.result(LOAD_TIMEOUT_S)
    except TimeoutError:
        if made.done():
            raise
        raise TimeoutError(f"it takes more than {LOAD_TIMEOUT_S:g} s") from None


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
