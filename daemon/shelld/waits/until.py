"""Waits for what `until` names, apart from output itself.

Every wait ends with the shell. None holds up other requests: a look at many processes happens in
slices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

import anyio
from anyio.lowlevel import checkpoint

from shelld.filters.filter import Filters
from shelld.output.retention import StreamName
from shelld.prompts import ports
from shelld.shells.shell import Shell
from shelld.waits.matches import searching
from shelld.waits.prompts import takes_input, wait_for_prompt
from shelld_protocol.errors import invalid_params, missing_parameter, unavailable
from shelld_protocol.shell_methods import BashOutputParams
from shelld_protocol.structs import Listener, Matched, UntilName, WaitReason

# Pauses between looks for a port: from the first number to the second, doubled each time. Servers
# often write that they listen, so new output ends a pause.
_FIRST_PAUSE_S: Final = 0.02
_LAST_PAUSE_S: Final = 0.2
# A pause is at least this many times as long as the processor time of the last look.
_PAUSE_SHARE: Final = 20
# Processor time of one slice of a look.
_SLICE_S: Final = 0.005


class Reached(NamedTuple):
    """What ended a wait. `what` is None if the time was over, or for `reason`."""

    what: UntilName | None = None
    matched: Matched | None = None
    listening: list[Listener] | None = None
    reason: WaitReason | None = None


def check(params: BashOutputParams) -> None:
    """Raises `RpcError` (invalid_params) if the params of a wait do not fit together."""
    if params.until == "match" and params.pattern is None:
        raise missing_parameter("pattern")
    for name, value, until in (
        ("pattern", params.pattern, "match"),
        ("port", params.port, "listening"),
    ):
        if value is not None and params.until != until:
            raise invalid_params(f'Invalid value for {name}: until is not "{until}"', name)


async def wait_for(
    shell: Shell,
    params: BashOutputParams,
    starts: Mapping[StreamName, int],
    filters: Filters,
    give_up_at: float,
) -> Reached:
    """Wait until a shell prompts, writes a matching line, is quiet or listens.

    `starts`: the offset from which to search each stream. Looks once if `give_up_at` is over.
    Raises `RpcError`.
    """
    reached = await _wait_for(shell, params, starts, filters, give_up_at)
    return Reached("exit") if reached.what is None and shell.has_ended else reached


async def _wait_for(
    shell: Shell,
    params: BashOutputParams,
    starts: Mapping[StreamName, int],
    filters: Filters,
    give_up_at: float,
) -> Reached:
    if params.until == "match" and params.pattern is not None:
        strip = params.strip_ansi
        async with searching(shell, filters, params.pattern, starts, strip=strip) as search:
            matched = await search.wait(give_up_at)
        return Reached(None if matched is None else "match", matched=matched)
    if params.until == "listening":
        if not ports.proc_lists_sockets():
            hint = "Mount /proc, with its net directory"
            raise unavailable("until listening", "/proc/net/tcp", hint)
        listening = await _wait_for_port(shell, params.port, give_up_at)
        return Reached("listening" if listening else None, listening=listening or None)
    if params.until == "quiet":
        is_quiet = await _wait_for_quiet(shell, params.quiet_ms / 1000, give_up_at)
        return Reached("quiet" if is_quiet else None)
    if not takes_input(shell) and not shell.has_ended:
        return Reached(reason="no_input")
    has_prompt = await wait_for_prompt(shell, give_up_at)
    return Reached("prompt" if has_prompt else None)


async def _wait_for_quiet(shell: Shell, quiet_s: float, give_up_at: float) -> bool:
    """Return True once the shell has been quiet; False at `give_up_at`, or if the shell ends."""
    while not shell.has_ended:
        now = anyio.current_time()
        due = now - _silent_s(shell) + quiet_s
        if due <= now:
            return True
        if give_up_at <= now:
            return False
        before = shell.output.written

        def has_news(before: int = before) -> bool:
            return shell.has_ended or shell.output.written != before

        # A write to the input, too, starts the time again, and nobody tells of it.
        with anyio.CancelScope(deadline=min(due, give_up_at)):
            await shell.wait_until(has_news)
    return False


def _silent_s(shell: Shell) -> float:
    """Return for how long a command has neither written anything nor been written to."""
    target = shell.input
    written_at = max(
        shell.stdout.written_at,
        shell.stderr.written_at,
        -math.inf if target is None else target.written_at,
    )
    return min(time.monotonic() - written_at, shell.elapsed_ms / 1000)


async def _wait_for_port(shell: Shell, port: int | None, give_up_at: float) -> list[Listener]:
    """Return the ports once there are any; none at `give_up_at`, or if the shell ends."""
    pause = _FIRST_PAUSE_S
    while not shell.has_ended:
        before = shell.output.written
        began = time.thread_time()
        if found := await _listening(shell, port):
            return found
        # The slices of other requests count too: a busy daemon looks less often.
        cost = time.thread_time() - began
        if anyio.current_time() >= give_up_at:
            break

        def has_news(before: int = before) -> bool:
            return shell.has_ended or shell.output.written != before

        pause_ends = anyio.current_time() + max(pause, _PAUSE_SHARE * cost)
        with anyio.CancelScope(deadline=min(pause_ends, give_up_at)):
            await shell.wait_until(has_news)
            pause = _FIRST_PAUSE_S
            # Output that does not stop must not cause one look after the other.
            with anyio.move_on_after(max(_FIRST_PAUSE_S, _PAUSE_SHARE * cost)):
                await shell.wait_until(lambda: shell.has_ended)
        pause = min(2 * pause, _LAST_PAUSE_S)
    return []


async def _listening(shell: Shell, port: int | None) -> list[Listener]:
    if shell.pid is None:
        return []
    found: list[Listener] = []
    slice_ends = time.thread_time() + _SLICE_S
    for each in ports.find(shell.pid, port):
        if each is not None:
            found.append(Listener(each.port, each.address, each.pid, each.program))
        if time.thread_time() > slice_ends:
            await checkpoint()
            slice_ends = time.thread_time() + _SLICE_S
    return sorted(found, key=lambda each: (each.port, each.address))
