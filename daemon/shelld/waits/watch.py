"""Moves a command that waits for input to the background, or kills it, as `on_prompt` says.

Acts only on a proved prompt, and not on a likely one. A program that also waits for time to pass,
as event loops do, may soon continue without input. So it gets more time than a program that waits
only for input.
"""

from __future__ import annotations

from typing import Final, Literal

import anyio

from shelld.eventloop.turns import Turns
from shelld.shells.shell import SeenPrompt, Shell
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import settled_prompt_of, takes_input
from shelld_protocol.structs import Prompt

# If a program waits only for input, `watch` acts after this many seconds without output.
BLOCKING_AFTER_S: Final = 0.15
# If a program also waits for the network or a timer, `watch` acts after this many seconds without
# output.
OTHERS_AFTER_S: Final = 1.0


async def watch(
    shell: Shell, on_prompt: Literal["background", "kill"], grace_ms: int, check_turns: Turns
) -> None:
    """Wait for a proved prompt. Then move the command to the background, or kill it.

    Returns after that. Also returns if the command takes no input any more, or if a request has
    moved the command to the background. `grace_ms`: the time between SIGTERM and SIGKILL.
    """
    pauses = Pauses(check_turns)
    pause = BLOCKING_AFTER_S
    while takes_input(shell):
        has_news = await shell.wait_for_news(anyio.current_time() + pause)
        found = None if has_news else await pauses.check(settled_prompt_of, shell)
        # A request may have moved the command to the background while the check waited for a turn.
        if shell.released:
            return
        if found is None or found.certainty != "proved":
            pause = max(BLOCKING_AFTER_S, pauses.next(shell))
        elif (pause := time_left(found)) <= 0:
            if on_prompt == "kill":
                await shell.end_tree(None, grace_ms, reason="prompt")
            else:
                shell.released_at = SeenPrompt.now(found, shell)
                shell.release()
            return


def time_left(found: Prompt) -> float:
    """Return how many more seconds the command must be silent."""
    needed = BLOCKING_AFTER_S if found.blocking else OTHERS_AFTER_S
    return needed - found.since_ms / 1000
