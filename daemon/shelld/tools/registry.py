"""Finds tools by their names. Each process has one thread-safe registry."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import ClassVar

from shelld.tools.base import BaseTool
from shelld.tools.names import listed
from shelld_protocol.tools import ToolCategory, ToolError, ToolResult


class ToolRegistry:
    """``ToolRegistry()`` always returns the same object. The registry finds tools by name and
    alias.
    """

    _instance: ClassVar[ToolRegistry | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    # There is no __init__, because each ``ToolRegistry()`` would run it again.
    def __new__(cls) -> ToolRegistry:
        with cls._making:
            if cls._instance is None:
                registry = cls._instance = super().__new__(cls)
                registry._lock = threading.RLock()
                registry._tools = {}
                registry._names = {}
            return cls._instance

    _lock: threading.RLock
    # The tools by their own names, in the order of registration.
    _tools: dict[str, BaseTool]
    # Maps every name and alias to the tool's own name.
    _names: dict[str, str]

    @classmethod
    def reset(cls) -> None:
        """Forget the registry. The next ``ToolRegistry()`` makes a new, empty registry."""
        with cls._making:
            cls._instance = None

    def register(self, tool: BaseTool) -> None:
        """Register a tool. Raises `ToolError` if one of its names is taken."""
        self.register_many([tool])

    def register_many(self, tools: Iterable[BaseTool]) -> None:
        """Register all tools. If a name is taken, register none and raise `ToolError`."""
        with self._lock:
            added: dict[str, BaseTool] = {}
            names: dict[str, str] = {}
            for tool in tools:
                for name in (tool.name, *tool.aliases):
                    if name in self._names or name in names:
                        raise ToolError(name, "already registered")
                    names[name] = tool.name
                added[tool.name] = tool
            self._tools.update(added)
            self._names.update(names)

    def deregister(self, name: str) -> bool:
        """Remove a tool. Return whether the name was registered."""
        with self._lock:
            tool = self.get(name)
            if tool is None:
                return False
            del self._tools[self._names[name]]
            for each in (tool.name, *tool.aliases):
                del self._names[each]
            return True

    def get(self, name: str) -> BaseTool | None:
        """Return a tool, or None if there is none.

        `name` may be any JSON value, even a list, because a model may have written it.
        """
        with self._lock:
            try:
                own = self._names.get(name)
            except TypeError:
                return None
            return None if own is None else self._tools[own]

    def get_or_raise(self, name: str) -> BaseTool:
        """Return a tool. Raises `ToolError` if there is none."""
        tool = self.get(name)
        if tool is None:
            raise ToolError(name, "not found")
        return tool

    def unknown(self, name: str) -> ToolResult:
        """Return the result of a call to an unknown tool."""
        known = listed(self.list_names()) or "none"
        return ToolResult.fail(f"Unknown tool: {str(name)[:100]}. Known: {known}")

    def exists(self, name: str) -> bool:
        return self.get(name) is not None

    def count(self) -> int:
        with self._lock:
            return len(self._tools)

    def list_all(self) -> list[BaseTool]:
        """Return the tools in the order of their registration."""
        with self._lock:
            return list(self._tools.values())

    def list_names(self) -> list[str]:
        """Return the sorted names of the tools."""
        with self._lock:
            return sorted(self._tools)

    def list_by_category(self, category: ToolCategory) -> list[BaseTool]:
        return [tool for tool in self.list_all() if tool.category == category]

    def clear(self) -> None:
        with self._lock:
            self._tools.clear()
            self._names.clear()
