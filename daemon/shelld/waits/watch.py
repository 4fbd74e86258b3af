"""Acts on a command that waits for input, as `on_prompt` of its request says.

A likely prompt is not enough: only a proved one counts. A program that also waits for time to pass,
as event loops do, may be about to go on. It gets more time than one that can only wait for input.
"""

from __future__ import annotations

import signal
from typing import Final, Literal

import anyio

from shelld.shells.shell import Shell
from shelld.waits.prompts import prompt_of, takes_input
from shelld_protocol.structs import Prompt

# How long the command must have been silent.
BLOCKING_AFTER_S: Final = 0.15
OTHERS_AFTER_S: Final = 1.0
# Pauses between looks double from the first number to the second while nothing is written.
_FIRST_PAUSE_S: Final = BLOCKING_AFTER_S
_LAST_PAUSE_S: Final = 3.0


async def watch(shell: Shell, on_prompt: Literal["background", "kill"], grace_ms: int) -> None:
    """Wait for a proved prompt. Then move the command to the background, or kill it.

    Returns once that is done or cannot happen any more. `grace_ms` passes before SIGKILL.
    """
    pause = _FIRST_PAUSE_S
    while takes_input(shell):
        before = shell.output.written

        def has_news(before: int = before) -> bool:
            return not takes_input(shell) or shell.output.written != before

        with anyio.move_on_after(pause):
            await shell.wait_until(has_news)
        if on_prompt == "background" and shell.released:
            return
        if has_news():
            pause = _FIRST_PAUSE_S
            continue
        found = prompt_of(shell)
        if found is None or found.certainty != "proved":
            pause = min(2 * pause, _LAST_PAUSE_S)
        elif (pause := _time_left(found)) <= 0:
            if on_prompt == "kill":
                await shell.end_tree(signal.SIGTERM, grace_ms, reason="prompt")
            else:
                shell.release()
            return


def _time_left(found: Prompt) -> float:
    """Return how much longer the command must be silent."""
    needed = BLOCKING_AFTER_S if found.blocking else OTHERS_AFTER_S
    return needed - found.since_ms / 1000
