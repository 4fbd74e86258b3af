"""Follows what a shell waits for, its ports and its screen, for one subscription.

Each function returns when its shell has ended, or nothing more can be seen. All looks at processes
are taken in turns, with pauses that grow while a shell is quiet.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import Turns
from shelld.events.feed import Feed
from shelld.events.notes import Rows, ScreenNote
from shelld.output.store import StreamStore
from shelld.screens.screen import Screen, Screens, View
from shelld.shells.shell import Shell
from shelld.terminals.input import TerminalInput
from shelld.waits.listening import listening_ports
from shelld.waits.prompts import (
    LOOK_ANYWAY_S,
    Pauses,
    is_settled,
    prompt_of,
    settled_prompt_of,
    takes_input,
)
from shelld_protocol.errors import RpcError
from shelld_protocol.event_methods import ListeningEvent, PromptEvent
from shelld_protocol.screen_methods import ScreenCursor
from shelld_protocol.structs import Listener, Prompt

# How long a look may follow a program that writes faster than its screen can be shown.
_SCREEN_LOOK_S: Final = 0.5
# The pause before another try if the client is slow, or if no process can show the screen.
_SLOW_PAUSE_S: Final = 0.1
_SHORTAGE_PAUSE_S: Final = 1.0


async def follow_prompts(looks: Turns, feed: Feed) -> None:
    """Tell when the command begins to wait for input, and when it stops to."""
    shell = feed.shell
    pauses = Pauses(looks)
    told: object = None
    looked_at = anyio.current_time()
    while takes_input(shell):
        if await _wait_for_activity(shell, pauses.next(shell)):
            if told is None and anyio.current_time() - looked_at < LOOK_ANYWAY_S:
                # It writes, so it does not wait yet.
                continue
            await _pause(shell, pauses.shortest)
        looked_at = anyio.current_time()
        found = await pauses.look(settled_prompt_of if told is None else prompt_of, shell)
        if found is not None and not is_settled(found):
            found = None
        if _identity(shell, found) != told:
            told = _identity(shell, found)
            await feed.tell("shell/prompt", PromptEvent, prompt=found)


async def _wait_for_activity(shell: Shell, seconds: float) -> bool:
    """Wait until something is written, by the command or to it. Return whether it was."""
    before = _activity(shell)
    with anyio.move_on_after(seconds):
        await shell.wait_until(lambda: shell.has_ended or _activity(shell) != before)
    return _activity(shell) != before


def _activity(shell: Shell) -> tuple[int, float]:
    return shell.output.written, 0.0 if shell.input is None else shell.input.written_at


def _identity(shell: Shell, found: Prompt | None) -> object:
    """Return what makes a prompt another one: its process, its modes, an answer since."""
    if found is None:
        return None
    return found.pid, found.certainty, found.line_mode, found.echo, _activity(shell)[1]


async def follow_ports(looks: Turns, feed: Feed) -> None:
    """Tell on which ports the command listens, whenever that changes."""
    shell = feed.shell
    pauses = Pauses(looks)
    told: list[Listener] = []
    while not shell.has_ended:
        async with looks.turn() as turn:
            found = await listening_ports(shell, None, turn)
        pauses.note_cost(turn.cost_s)
        if found != told:
            told = found
            await feed.tell("shell/listening", ListeningEvent, listening=found)
        await _pause(shell, pauses.shortest)
        # Servers often write that they listen.
        await shell.wait_for_news(anyio.current_time() + pauses.next(shell))


async def follow_screen(screens: Screens, feed: Feed) -> None:
    """Tell what has changed on the terminal, at most once per interval, and once at the end."""
    shell, terminal = feed.shell, feed.shell.input
    if not isinstance(terminal, TerminalInput):
        return
    with screens.following(terminal, shell.stdout.store) as screen:
        await _follow(screen, terminal, feed)


async def _follow(screen: Screen, terminal: TerminalInput, feed: Feed) -> None:
    shell, store = feed.shell, feed.shell.stdout.store
    shown = (-1, -1)
    has_ended = False
    while not has_ended:
        has_ended = shell.has_ended
        drawn = _drawn(terminal, store)
        pause_s = feed.interval_s
        if shown != drawn:
            if not await feed.subscription.wait_for_room():
                # The next look shows all that has changed until then.
                pause_s = max(pause_s, _SLOW_PAUSE_S)
            elif await _look(screen, feed, store.written):
                shown = drawn
            else:
                # There is no process for it now.
                pause_s = _SHORTAGE_PAUSE_S
        if not has_ended:
            await _pause(shell, pause_s)

            def has_news(shown: tuple[int, int] = shown) -> bool:
                return shell.has_ended or shown != _drawn(terminal, store)

            await shell.wait_until(has_news)
            await checkpoint()


async def _look(screen: Screen, feed: Feed, least: int) -> bool:
    """Tell what has changed on the screen. Return False if it cannot be seen now."""
    known = feed.subscription.screens.get(feed.shell)
    version = None if known is None else known.version
    cut_at = anyio.current_time() + _SCREEN_LOOK_S
    try:
        view = await screen.look(version, least=least, cut_at=cut_at)
    except RpcError:
        return False
    if view.version != version:
        await _tell_screen(feed, view)
    return True


async def _tell_screen(feed: Feed, view: View) -> None:
    shell, screens = feed.shell, feed.subscription.screens
    known = screens[shell].lines if shell in screens else []
    rows = (known + [""] * view.rows)[: view.rows]
    for row, line in zip(view.changed, view.lines, strict=True):
        rows[row] = line
    facts = {
        "version": view.version,
        "rows": view.rows,
        "cols": view.cols,
        "cursor": ScreenCursor(*view.cursor),
        "alt_screen": view.is_alternate,
        "title": view.title,
    }
    note = ScreenNote(shell, facts, screens)
    make = partial(note.with_changes, lines=view.lines, changed=view.changed)
    screens[shell] = Rows(view.version, rows)
    await feed.tell_screen(note, make)


def _drawn(terminal: TerminalInput, store: StreamStore) -> tuple[int, int]:
    """Return what the screen depends on: how much was written, and the size."""
    return store.written, terminal.sizes[-1].number


async def _pause(shell: Shell, seconds: float) -> None:
    """Wait for at most this long for the end of a shell."""
    with anyio.move_on_after(seconds):
        await shell.wait_until(lambda: shell.has_ended)
