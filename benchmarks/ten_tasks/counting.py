"""Count the lines of a task."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable

# For each task, this table has the name of its function and a description, in the order of the
# printed table.
TASKS = {
    "run": "run a command: its exit code and output",
    "follow": "show output as it comes",
    "serve": "start a server, wait for its port, end it with all its processes",
    "answer": "answer a prompt once it is there",
    "cancel": "cancel a command with all its processes, keep its output so far",
    "page": "page through a long output",
    "many": "run 50 commands at once",
    "restart": "go on in the same directory after the process that runs commands has died",
    "give_tools": "give a model the tools",
    "fetch": "fetch binary output",
}
LIBRARIES = ["shelld", "subprocess", "asyncio", "pexpect", "swe_rex", "mcp_sdk"]


def lines_of(task: Callable[..., object]) -> int:
    """Return how many lines the body of a function has, without comments and empty lines.

    Assertions are there for the type checker only, and are not counted.
    """
    source = textwrap.dedent(inspect.getsource(task))
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    asserted = {
        line
        for node in ast.walk(function)
        if isinstance(node, ast.Assert)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    body = source.splitlines()[function.body[0].lineno - 1 :]
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in asserted
        for number, line in enumerate(body, function.body[0].lineno)
    )
