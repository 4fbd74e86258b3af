"""The commands of the ten tasks, and the results that the tasks must return."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

# A model gives the name of a tool and its arguments.
ToolCall: TypeAlias = tuple[str, dict[str, Any]]
# A model gets the definitions of the tools and the result of the last call.
Model: TypeAlias = Callable[[list[dict[str, Any]], str | None], ToolCall | None]

RUN = "echo hello; exit 3"
RAN = (3, "hello\n")
FOLLOW = "for i in 1 2 3; do echo $i; sleep 0.1; done"
FOLLOWED = "1\n2\n3\n"
SERVE = f"{sys.executable} -u -m http.server {{port}} --bind 127.0.0.1"
ASK = f"""{sys.executable} -c 'print("You said", input("Overwrite? "))'"""
QUESTION = "Overwrite? "
ANSWERED = "You said yes"
TREE = "echo started; sleep 300 & sleep 300"
LONG = "seq 20000"
PAGE_BYTES = 10_000
PAGES = "".join(f"{number}\n" for number in range(1, 20_001))
MANY = [f"echo {number}" for number in range(50)]
MANY_ANSWERS = [f"{number}\n" for number in range(50)]
BINARY = r"printf '\377\000\001'"
BYTES = b"\xff\x00\x01"
