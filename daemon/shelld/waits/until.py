"""Waits for the conditions that `until` can name, except "output" and "exit".

If the shell ends, every wait ends. No wait delays other requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple

import anyio

from shelld.filters.filter import LineFilter
from shelld.output.retention import StreamName
from shelld.shells.manager import Manager
from shelld.shells.shell import SeenPrompt, Shell
from shelld.terminals.input import PipeInput
from shelld.waits.listening import check_ports, wait_for_port
from shelld.waits.matches import Search
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import takes_input, wait_for_prompt
from shelld_protocol.errors import invalid_params, missing_parameter
from shelld_protocol.shell_methods import BashOutputParams
from shelld_protocol.structs import Listener, Matched, UntilName

# When a process ends, it closes its input before the daemon learns that the process has ended.
# After the input was closed, a wait for a prompt waits at most this long for the daemon to learn
# that the process has ended.
_END_WAIT_S: Final = 0.1


class Reached(NamedTuple):
    """Describes how a wait has ended.

    `what` is None if the time ran out, or if no input is possible (see `reason`).
    """

    what: UntilName | None = None
    matched: Matched | None = None
    listening: list[Listener] | None = None
    prompt: SeenPrompt | None = None
    reason: Literal["no_input"] | None = None


class PreparedWait:
    """A wait whose params are valid. `line_filter` is the filter for `pattern`."""

    def __init__(
        self, params: BashOutputParams, line_filter: LineFilter | None, manager: Manager
    ) -> None:
        self._params = params
        self._check_turns, self._socket_news = manager.check_turns, manager.socket_news
        self._line_filter = line_filter

    @property
    def is_for_reading(self) -> bool:
        """Whether a read can wait for this condition. A read can wait for output and for the end of
        the command.
        """
        return self._params.until in {"output", "exit"}

    async def wait(self, shell: Shell, starts: Mapping[StreamName, int]) -> Reached:
        """Return once a shell waits for input, writes a matching line, is quiet, or listens.

        `starts`: the offset from which to search each stream. With `wait` 0, check once. Raises
        `RpcError`.
        """
        give_up_at = anyio.current_time() + self._params.wait / 1000
        reached = await self._wait(shell, starts, give_up_at)
        # A shell that has ended also takes no input, so report "exit" and not "no_input".
        return Reached("exit") if reached.what is None and shell.has_ended else reached

    async def _wait(
        self, shell: Shell, starts: Mapping[StreamName, int], give_up_at: float
    ) -> Reached:
        params = self._params
        if self._line_filter is not None:
            search = Search(shell, self._line_filter, starts, strip=params.strip_ansi)
            matched = await search.wait(give_up_at)
            return Reached(None if matched is None else "match", matched=matched)
        if params.until == "listening":
            listening = await wait_for_port(
                shell, params.port, give_up_at, self._check_turns, self._socket_news
            )
            return Reached("listening" if listening else None, listening=listening or None)
        if params.until == "quiet":
            is_quiet = await wait_for_quiet(shell, params.quiet_ms / 1000, give_up_at)
            return Reached("quiet" if is_quiet else None)
        pauses = Pauses(self._check_turns)
        if (prompt := await wait_for_prompt(shell, give_up_at, pauses)) is not None:
            return Reached("prompt", prompt=SeenPrompt.now(prompt, shell))
        if takes_input(shell):
            return Reached()
        if isinstance(shell.input, PipeInput):
            with anyio.CancelScope(deadline=min(give_up_at, anyio.current_time() + _END_WAIT_S)):
                await shell.wait_until(lambda: shell.has_ended)
        return Reached(reason="no_input")


@asynccontextmanager
async def preparing(params: BashOutputParams, manager: Manager) -> AsyncGenerator[PreparedWait]:
    """Check the params of a wait. Call this before the request has any effect.

    Raises `RpcError`: invalid_params; unavailable; resource_exhausted if the pattern needs a helper
    process and none is free.
    """
    if params.until == "match" and params.pattern is None:
        raise missing_parameter("pattern")
    for name, value, until in (
        ("pattern", params.pattern, "match"),
        ("port", params.port, "listening"),
    ):
        if value is not None and params.until != until:
            raise invalid_params(f'Invalid value for {name}: until is not "{until}"', name)
    if params.until == "listening":
        check_ports()
    async with manager.filters.open(params.pattern, "pattern") as line_filter:
        yield PreparedWait(params, line_filter, manager)


async def wait_for_quiet(shell: Shell, quiet_s: float, give_up_at: float) -> bool:
    """Wait until the shell has been quiet for `quiet_s`, and return True.

    Return False at `give_up_at`, or if the shell ends.
    """
    while not shell.has_ended:
        now = anyio.current_time()
        due = now - shell.quiet_s + quiet_s
        if due <= now:
            # If the daemon was suspended or busy, the command may have written something during
            # this time.
            before = shell.output.written
            shell.catch_up()
            if shell.output.written == before:
                return True
            due = now + quiet_s
        if give_up_at <= now:
            return False
        # Input to the command restarts the quiet time, but does not wake this task. So check again
        # at `due`.
        await shell.wait_for_news(min(due, give_up_at))
    return False
