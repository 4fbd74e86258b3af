"""Runs searches that could take long, in a helper process with limited time and memory.

A `FilterProcess` owns its helper process until `close`.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio

from shelld.helpers.helper import Helper
from shelld.keeper.pool import RunnerPool
from shelld.process.faults import shortage
from shelld_protocol.errors import RpcError, invalid_params, resource_exhausted
from shelld_protocol.structs import FilterEngine

# The time limit for matching all texts between two calls of `renew`. For the largest read, a
# pattern without catastrophic backtracking needs a tenth of this time.
TIME_BUDGET_S: Final = 2.0
# The time limit for starting the helper process and compiling the pattern. It is long, because many
# interpreters may start at the same time.
START_TIMEOUT_S: Final = 10.0
# The memory limit of the helper process. It is enough for the decoded text of the largest read and
# for the matching lines of this text.
MEMORY_BYTES: Final = 256 * 1024 * 1024

_PROGRAM: Final = Path(__file__).with_name("main.py")


class FilterProcess:
    """A filter in a helper process. Between `compile` and `close`, it is a `LineFilter`. `compile`
    sets `engine`.

    Raises `RpcError` (resource_exhausted) if no process can start.
    """

    engine: FilterEngine = "re2"

    def __init__(self, pool: RunnerPool, parameter: str = "filter") -> None:
        self._parameter = parameter
        self._seconds_left = TIME_BUDGET_S
        limits = (str(MEMORY_BYTES), str(math.ceil(TIME_BUDGET_S) + 1))
        try:
            self._helper = Helper(pool, _PROGRAM, limits, (_directory_of_re2(),))
        except OSError as error:
            raise shortage(error) or _no_process() from error

    def close(self) -> None:
        """End the helper process."""
        self._helper.close()

    async def compile(self, pattern: str) -> None:
        """Compile `pattern`. Raises `RpcError` (invalid_params, resource_exhausted)."""
        with anyio.move_on_after(START_TIMEOUT_S):
            await self._wait_until_it_runs()
            self.engine = "re2" if await self._ask(pattern) == "re2" else "re"
            return
        raise _no_process()

    def renew(self) -> None:
        self._seconds_left = TIME_BUDGET_S

    async def lines(self, text: str) -> str:
        began = anyio.current_time()
        with anyio.move_on_after(self._seconds_left):
            found = await self._ask(text)
            self._seconds_left -= anyio.current_time() - began
            return found
        raise self._refused(f"takes more than {TIME_BUDGET_S:.0f} s to match")

    async def _wait_until_it_runs(self) -> None:
        try:
            await self._helper.wait_until_it_runs()
        except (EOFError, ConnectionError):
            # The runner or the program did not start. The pattern is not the cause.
            raise _no_process() from None

    async def _ask(self, text: str) -> str:
        """Send a pattern or a text; return the answer."""
        try:
            answer = await self._helper.ask(text.encode())
        except (EOFError, ConnectionError):
            # The kernel has killed the helper process because of its limits, or another process has
            # killed it.
            raise self._refused("takes too much time or memory") from None
        verdict, found = answer[:1], answer[1:].decode()
        if verdict != b"+":
            raise self._refused(found)
        return found

    def _refused(self, reason: str) -> RpcError:
        return refused_pattern(reason, self._parameter)


@cache
def _directory_of_re2() -> str:
    spec = find_spec("re2")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])


def refused_pattern(reason: str, parameter: str) -> RpcError:
    """Return the error for a pattern that cannot be used. `parameter` names the pattern."""
    return invalid_params(f"Invalid {parameter} regex: {reason}", parameter)


def _no_process() -> RpcError:
    return resource_exhausted("processes", "No helper process can start for this filter")
