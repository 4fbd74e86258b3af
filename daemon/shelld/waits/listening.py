"""The TCP ports on which the processes of a command listen.

A look at many processes happens in slices, so that it does not hold up other requests.
"""

from __future__ import annotations

import time
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import Turn, Turns
from shelld.prompts import ports, sockets
from shelld.shells.shell import Shell
from shelld_protocol.errors import unavailable
from shelld_protocol.structs import Listener

# Pauses between looks for a port: from the first number to the second, doubled each time. Servers
# often write that they listen, so new output ends a pause.
_FIRST_PAUSE_S: Final = 0.02
_LAST_PAUSE_S: Final = 0.2
# A pause is at least this many times as long as the processor time of the last look, up to a limit.
_PAUSE_SHARE: Final = 20
_LONGEST_PAUSE_S: Final = 2.0
# Processor time of one slice of a look.
_SLICE_S: Final = 0.005


def check_ports() -> None:
    """Raise `RpcError` (unavailable) if this system does not list listening sockets."""
    if not sockets.can_be_listed():
        raise unavailable("listening", "a list of listening sockets", "Mount /proc")


async def wait_for_port(
    shell: Shell, port: int | None, give_up_at: float, looks: Turns
) -> list[Listener]:
    """Return the ports once there are any; none at `give_up_at`, or if the shell ends."""
    pause = _FIRST_PAUSE_S
    while not shell.has_ended:
        async with looks.turn() as turn:
            found = await listening_ports(shell, port, turn)
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


async def listening_ports(shell: Shell, port: int | None, turn: Turn) -> list[Listener]:
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
