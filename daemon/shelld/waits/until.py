"""Waits for what `until` names, apart from output itself.

Every wait ends with the shell. None holds up other requests: a look at many processes happens in
slices.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple

import anyio
from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import Turn, Turns
from shelld.filters.filter import LineFilter
from shelld.output.retention import StreamName
from shelld.prompts import ports, sockets
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.waits.matches import Search
from shelld.waits.prompts import takes_input, wait_for_prompt
from shelld_protocol.errors import invalid_params, missing_parameter, unavailable
from shelld_protocol.shell_methods import BashOutputParams
from shelld_protocol.structs import Listener, Matched, Prompt, UntilName

# Pauses between looks for a port: from the first number to the second, doubled each time. Servers
# often write that they listen, so new output ends a pause.
_FIRST_PAUSE_S: Final = 0.02
_LAST_PAUSE_S: Final = 0.2
# A pause is at least this many times as long as the processor time of the last look, up to a limit.
_PAUSE_SHARE: Final = 20
_LONGEST_PAUSE_S: Final = 2.0
# Processor time of one slice of a look.
_SLICE_S: Final = 0.005


class Reached(NamedTuple):
    """What ended a wait. `what` is None if the time was over, or for `reason`."""

    what: UntilName | None = None
    matched: Matched | None = None
    listening: list[Listener] | None = None
    prompt: Prompt | None = None
    reason: Literal["no_input"] | None = None


class Waiting:
    """A wait whose params are valid. `line_filter` is the one of `pattern`."""

    def __init__(
        self, params: BashOutputParams, line_filter: LineFilter | None, looks: Turns
    ) -> None:
        self._params = params
        self._looks = looks
        self._line_filter = line_filter

    @property
    def is_for_reading(self) -> bool:
        """Whether a read can wait for this itself: for output, or for the end."""
        return self._params.until in {"output", "exit"}

    async def wait(self, shell: Shell, starts: Mapping[StreamName, int]) -> Reached:
        """Wait until a shell prompts, writes a matching line, is quiet or listens.

        `starts`: the offset from which to search each stream. With `wait` 0, this looks once.
        Raises `RpcError`.
        """
        give_up_at = anyio.current_time() + self._params.wait / 1000
        reached = await self._wait(shell, starts, give_up_at)
        # An ended shell takes no input either.
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
            listening = await _wait_for_port(shell, params.port, give_up_at, self._looks)
            return Reached("listening" if listening else None, listening=listening or None)
        if params.until == "quiet":
            is_quiet = await _wait_for_quiet(shell, params.quiet_ms / 1000, give_up_at)
            return Reached("quiet" if is_quiet else None)
        if (prompt := await wait_for_prompt(shell, give_up_at, self._looks)) is not None:
            return Reached("prompt", prompt=prompt)
        return Reached(reason=None if takes_input(shell) else "no_input")


@asynccontextmanager
async def preparing(params: BashOutputParams, manager: Manager) -> AsyncGenerator[Waiting]:
    """Check the params of a wait, before anything else happens for its request.

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
    if params.until == "listening" and not sockets.can_be_listed():
        raise unavailable("listening", "a list of listening sockets", "Mount /proc")
    async with manager.filters.open(params.pattern, "pattern") as line_filter:
        yield Waiting(params, line_filter, manager.looks)


async def _wait_for_quiet(shell: Shell, quiet_s: float, give_up_at: float) -> bool:
    """Return True once the shell has been quiet; False at `give_up_at`, or if the shell ends."""
    while not shell.has_ended:
        now = anyio.current_time()
        due = now - shell.quiet_s + quiet_s
        if due <= now:
            return True
        if give_up_at <= now:
            return False
        # Input restarts the time but wakes no waiter, so look again when it is due.
        await shell.wait_for_news(min(due, give_up_at))
    return False


async def _wait_for_port(
    shell: Shell, port: int | None, give_up_at: float, looks: Turns
) -> list[Listener]:
    """Return the ports once there are any; none at `give_up_at`, or if the shell ends."""
    pause = _FIRST_PAUSE_S
    while not shell.has_ended:
        async with looks.turn() as turn:
            found = await _listening(shell, port, turn)
        now = anyio.current_time()
        if found or now >= give_up_at:
            return found
        # Output that does not stop must not cause one look after the other.
        shortest = min(max(_FIRST_PAUSE_S, _PAUSE_SHARE * turn.cost_s), _LONGEST_PAUSE_S)
        with anyio.CancelScope(deadline=min(now + shortest, give_up_at)):
            await shell.wait_until(lambda: shell.has_ended)
        if await shell.wait_for_news(min(now + max(shortest, pause), give_up_at)):
            pause = _FIRST_PAUSE_S
        pause = min(2 * pause, _LAST_PAUSE_S)
    return []


async def _listening(shell: Shell, port: int | None, turn: Turn) -> list[Listener]:
    """Return the ports of a command. Other requests run between slices of the look."""
    found: list[Listener] = []
    began = time.thread_time()
    for each in () if shell.pid is None else ports.find(shell.pid, port):
        if each is not None:
            found.append(Listener(each.port, each.address, each.pid, each.program))
        if (spent := time.thread_time() - began) > _SLICE_S:
            turn.cost_s += spent
            await checkpoint()
            began = time.thread_time()
    turn.cost_s += time.thread_time() - began
    return sorted(found, key=lambda each: (each.port, each.address))
