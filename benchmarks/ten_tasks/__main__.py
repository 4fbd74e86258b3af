"""Print how many lines of code a program needs for ten tasks, with shelld and other libraries.

Usage: PYTHONPATH=benchmarks python -m ten_tasks
"""

from __future__ import annotations

import importlib

from ten_tasks.counting import LIBRARIES, TASKS, lines_of


def table() -> list[str]:
    """Return the rows of a table in Markdown."""
    modules = [importlib.import_module(f"ten_tasks.with_{library}") for library in LIBRARIES]
    rows = ["| task | shelld | subprocess | asyncio | pexpect | SWE-ReX | MCP SDK |"]
    rows.append("|---|" + "---:|" * len(modules))
    for name, deed in TASKS.items():
        tasks = [getattr(module, name, None) for module in modules]
        cells = ["-" if task is None else str(lines_of(task)) for task in tasks]
        rows.append(f"| {deed} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))
