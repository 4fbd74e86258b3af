"""``read_screen``: what a person would see on a command's terminal."""

from __future__ import annotations

import math

import anyio

from shelld.methods.context import RequestContext
from shelld.output.reader import STEP_BYTES
from shelld.screens.screen import Screen
from shelld.shells.shell import Shell
from shelld.terminals.input import TerminalInput
from shelld.waits.prompts import is_stopped, prompt_of, wait_for_prompt
from shelld_protocol.errors import invalid_params, not_possible
from shelld_protocol.screen_methods import ReadScreenParams, ReadScreenResult, ScreenCursor


async def read_screen(context: RequestContext, params: ReadScreenParams) -> ReadScreenResult:
    manager = context.daemon.manager
    shell = context.looks_at(manager.get(params.bash_id))
    terminal = shell.input
    if not isinstance(terminal, TerminalInput):
        raise not_possible("tty", f"Shell {shell.id} has no terminal")
    with manager.reading(shell):
        screen = manager.screens.of(terminal, shell.stdout.store)
        if params.wait or params.since is not None:
            seen = await screen.look()
            if params.since is not None and params.since > seen.version:
                raise invalid_params("Invalid value for since: no such version", "since")
            if params.wait:
                await _wait(shell, terminal, screen, params, seen.version)
        size = terminal.sizes[-1].size
        if params.scrollback or size.rows * size.cols > STEP_BYTES:
            await context.begin_large_answer()
        view = await screen.look(params.since, params.scrollback)
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
        is_stopped=is_stopped(shell),
        exit_code=shell.exit_code,
        signal=shell.signal,
        prompt=prompt_of(shell),
    )


async def _wait(
    shell: Shell, terminal: TerminalInput, screen: Screen, params: ReadScreenParams, version: int
) -> None:
    """Wait as `params` say. `version` is the current version of the screen."""
    give_up_at = anyio.current_time() + params.wait / 1000
    if params.until == "prompt":
        await wait_for_prompt(shell, give_up_at)
        return
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

        # A deadline in the past would hide what has arrived already.
        with anyio.CancelScope(deadline=until if not has_news() else math.inf):
            await shell.wait_until(has_news)
        if anyio.current_time() >= until:
            return
        # Taken before the look: what arrives during the look may be missing from the screen.
        shown = (store.written, terminal.sizes[-1].number)
        seen = await screen.look()
        if seen.version != version:
            version, quiet_from = seen.version, anyio.current_time()
