"""The method ``read_screen``.

It returns the screen that a person would see on a command's terminal.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio

from shelld.methods.context import RequestContext
from shelld.output.text import STEP_BYTES
from shelld.screens.screen import View
from shelld.shells.shell import SeenPrompt, Shell
from shelld.terminals.input import TerminalInput
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import run_state_of, wait_for_prompt
from shelld_protocol.errors import invalid_params, not_possible
from shelld_protocol.screen_methods import ReadScreenParams, ReadScreenResult, ScreenCursor

# How long the last capture may take if a program writes faster than its screen can be shown.
_LAST_CAPTURE_S: Final = 1.0


async def read_screen(context: RequestContext, params: ReadScreenParams) -> ReadScreenResult:
    manager = context.daemon.manager
    shell = context.concerns(manager.get(params.bash_id))
    terminal = shell.input
    if not isinstance(terminal, TerminalInput):
        raise not_possible("tty", f"Shell {shell.id} has no terminal")
    with manager.reading(shell):
        screen = manager.screens.of(terminal, shell.stdout.store)
        give_up_at = anyio.current_time() + params.wait / 1000
        seen_prompt: SeenPrompt | None = None
        # Show all output that has been written by now, even if that takes longer than the wait.
        least = shell.stdout.store.written
        if params.wait or params.since is not None:
            capture = partial(screen.capture, least=least, cut_at=give_up_at)
            seen = await capture(params.since)
            if params.since is not None and params.since > seen.version:
                raise invalid_params("Invalid value for since: no such version", "since")
            if params.until == "prompt":
                prompt = await wait_for_prompt(shell, give_up_at, Pauses(manager.check_turns))
                if prompt is not None:
                    seen_prompt = SeenPrompt.now(prompt, shell)
            elif params.wait:
                version = seen.version
                await _wait(
                    shell, terminal, capture, params, version=version, give_up_at=give_up_at
                )
        size = terminal.sizes[-1].size
        if params.scrollback or size.rows * size.cols > STEP_BYTES:
            await context.begin_large_answer()
        view = await screen.capture(
            params.since,
            params.scrollback,
            # If the command has ended, this is the last capture, so it must show all output.
            least=None if shell.has_ended else least,
            cut_at=max(give_up_at, anyio.current_time() + _LAST_CAPTURE_S),
        )
    state = run_state_of(shell, seen_prompt)
    return ReadScreenResult(
        bash_id=shell.id,
        rows=view.rows,
        cols=view.cols,
        lines=view.lines,
        cursor=ScreenCursor(*view.cursor),
        alt_screen=view.is_alternate,
        title=view.title,
        version=view.version,
        changed=view.changed,
        is_running=not shell.has_ended,
        is_stopped=state.is_stopped,
        exit_code=shell.exit_code,
        signal=shell.signal,
        prompt=state.prompt,
    )


async def _wait(
    shell: Shell,
    terminal: TerminalInput,
    capture: Callable[[int], Awaitable[View]],
    params: ReadScreenParams,
    *,
    version: int,
    give_up_at: float,
) -> None:
    """Wait for the condition in `params`. `version` is the current version of the screen.

    `capture` returns the screen and its changes after a version. `give_up_at` is a time on the
    clock of anyio.current_time().
    """
    known = version if params.since is None else params.since
    quiet_from = anyio.current_time()
    store = shell.stdout.store
    shown = (-1, -1)
    while not shell.has_ended:
        until = give_up_at
        if params.until == "stable":
            until = min(until, quiet_from + params.quiet_ms / 1000)
        elif version > known:
            return

        def has_news(shown: tuple[int, int] = shown) -> bool:
            return shell.has_ended or shown != (store.written, terminal.sizes[-1].number)

        # If output has arrived already, set no deadline, because a deadline that has passed would
        # end the wait before the wait sees this output.
        with anyio.CancelScope(deadline=until if not has_news() else math.inf):
            await shell.wait_until(has_news)
        if anyio.current_time() >= until:
            return
        # Record these numbers before the capture, because output that arrives during the capture
        # may be missing in `seen`.
        shown = (store.written, terminal.sizes[-1].number)
        seen = await capture(version)
        if seen.version != version:
            version, quiet_from = seen.version, anyio.current_time()
