"""Follows the prompt, the ports and the screen of a shell for one subscription.

The `run` method of each follower returns when the shell has ended, or when no more changes can be
seen. If `run` fails, it can be called again, and sends no event twice. Only one follower at a time
checks processes. While a shell is quiet, its processes are checked less and less often.
"""

from __future__ import annotations

from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import Turns
from shelld.events.feed import Feed
from shelld.inspection.socket_news import SocketNews, SocketWatch
from shelld.output.store import StreamStore
from shelld.screens.screen import Screen
from shelld.screens.screens import Screens
from shelld.shells.shell import Shell
from shelld.terminals.input import TerminalInput
from shelld.waits.listening import basis_of_ports, listening_ports
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import (
    CHECK_ANYWAY_S,
    PromptIdentity,
    identity_of,
    is_settled,
    prompt_of,
    settled_prompt_of,
    takes_input,
)
from shelld_protocol.errors import RpcError
from shelld_protocol.event_methods import ListeningEvent, PromptEvent
from shelld_protocol.screen_methods import ScreenCursor
from shelld_protocol.structs import Listener, Prompt

# After this time, look for ports even if `basis_of_ports` has not changed, because a process may
# have passed a socket on to another process.
_PORTS_ANYWAY_S: Final = 30.0
# How long a capture may take if a program writes faster than its screen can be shown.
_MAX_CAPTURE_S: Final = 0.5
# If no helper process can show the screen, the follower tries again after a pause. The first value
# is for a running shell, and the second is for a shell that has ended.
_SHORTAGE_PAUSE_S: Final = 1.0
_LAST_SHORTAGE_PAUSE_S: Final = 0.1


class PromptFollower:
    """Sends an event when a command begins to wait for input, and when the wait is over."""

    def __init__(self, check_turns: Turns, feed: Feed) -> None:
        self._check_turns = check_turns
        self._feed = feed
        self._told: PromptIdentity | None = None

    async def run(self) -> None:
        shell = self._feed.shell
        pauses = Pauses(self._check_turns)
        checked_at = anyio.current_time()
        while takes_input(shell):
            if await _wait_for_activity(shell, pauses.next(shell)):
                if self._told is None and anyio.current_time() - checked_at < CHECK_ANYWAY_S:
                    # The command still writes output, so it does not wait for input yet.
                    continue
                await _pause(shell, pauses.shortest)
            checked_at = anyio.current_time()
            check = settled_prompt_of if self._told is None else prompt_of
            found = await pauses.check(check, shell)
            identity = None if found is None else identity_of(shell, found)
            if found is not None and identity is not None and not is_settled(found):
                if identity.has_same_reader(self._told):
                    # The program still waits for input. It has only drawn something, such as a
                    # clock.
                    continue
                found = identity = None
            if identity is not None and self._told is not None and identity.is_same(self._told):
                identity = identity.since(self._told)
            elif identity is not None or self._told is not None:
                await self._tell(found)
            self._told = identity
        if self._told is not None and not shell.has_ended:
            # The input was closed after the last check, perhaps while the event about the prompt
            # was being sent.
            await self._tell(None)
            self._told = None

    async def _tell(self, prompt: Prompt | None) -> None:
        await self._feed.send_fact("shell/prompt", PromptEvent, prompt=prompt)


async def _wait_for_activity(shell: Shell, seconds: float) -> bool:
    """Wait until the command writes output or gets input, but at most `seconds`. Return whether one
    of these happened.
    """
    before = shell.activity
    with anyio.move_on_after(seconds):
        await shell.wait_until(lambda: shell.has_ended or shell.activity != before)
    return shell.activity != before


class PortFollower:
    """Sends an event whenever the ports on which the command listens have changed."""

    def __init__(self, check_turns: Turns, news: SocketNews, feed: Feed) -> None:
        self._check_turns = check_turns
        self._news = news
        self._feed = feed
        self._told: list[Listener] = []

    async def run(self) -> None:
        with SocketWatch(self._news, self._feed.shell.notify) as watch:
            await self._follow(watch)

    async def _follow(self, watch: SocketWatch) -> None:
        shell = self._feed.shell
        pauses = Pauses(self._check_turns)
        known: object = None
        ports_due_at = 0.0
        while not shell.has_ended:
            seen = watch.count

            def has_news(seen: int = seen) -> bool:
                return watch.count != seen

            # Do not look for ports every time, because finding the owners of sockets takes much
            # longer than `basis_of_ports`.
            basis = await pauses.check(basis_of_ports, shell)
            now = None if basis is None else (shell.output.written, basis)
            if now is None or now != known or anyio.current_time() >= ports_due_at:
                known, ports_due_at = now, anyio.current_time() + _PORTS_ANYWAY_S
                found = await listening_ports(shell, pauses, watch)
                if found != self._told:
                    if not await self._feed.subscription.wait_for_room():
                        # The list may be long, so wait for the client. After this wait, look for
                        # ports again, because they may have changed.
                        await _wait_for_slow_client(self._feed)
                        known = None
                        continue
                    await self._feed.send_fact("shell/listening", ListeningEvent, listening=found)
                    self._told = found
            # New output also ends the pause, because a server may write a message when it stops
            # listening.
            await pauses.pause(shell, has_news)


class ScreenFollower:
    """Sends the changes of the screen, at most once per interval, and once at the end."""

    def __init__(self, screens: Screens, feed: Feed) -> None:
        self._screens = screens
        self._feed = feed
        # The result of `_drawn` before the last successful capture.
        self._told = (-1, -1)

    async def run(self) -> None:
        shell, terminal = self._feed.shell, self._feed.shell.input
        if not isinstance(terminal, TerminalInput):
            return
        with self._screens.following(terminal, shell.stdout.store) as screen:
            await self._follow(screen, terminal)

    async def _follow(self, screen: Screen, terminal: TerminalInput) -> None:
        feed, shell, store = self._feed, self._feed.shell, self._feed.shell.stdout.store

        def has_news() -> bool:
            return self._told != _drawn(terminal, store)

        # A slow client gets the last screen only if it reads soon, because the feed cancels this
        # loop `LAST_CHECKS_S` after the shell has ended.
        while not shell.has_ended or has_news():
            drawn = _drawn(terminal, store)
            pause_s = feed.interval_s
            if has_news():
                if not await feed.subscription.wait_for_room():
                    # The next capture also shows these changes.
                    await _wait_for_slow_client(feed)
                    continue
                if await _send_changes(screen, feed, store.written):
                    self._told = drawn
                else:
                    # No helper process can show the screen now.
                    pause_s = _SHORTAGE_PAUSE_S
            if shell.has_ended and has_news():
                await anyio.sleep(_LAST_SHORTAGE_PAUSE_S)
            elif not shell.has_ended:
                await _pause(shell, pause_s)
                await shell.wait_until(lambda: shell.has_ended or has_news())
                await checkpoint()


async def _wait_for_slow_client(feed: Feed) -> None:
    """Wait until the client can take more events, or until the shell ends."""
    had_ended = feed.shell.has_ended
    await feed.subscription.wait_for_slow_client(
        feed.shell, lambda: feed.shell.has_ended and not had_ended
    )


async def _send_changes(screen: Screen, feed: Feed, least: int) -> bool:
    """Send the changes of the screen. Return False if the screen cannot be captured now."""
    cut_at = anyio.current_time() + _MAX_CAPTURE_S
    while True:
        shown = feed.subscription.shown_rows(feed.shell)
        version = None if shown is None else shown.version
        try:
            view = await screen.capture(version, least=least, cut_at=cut_at)
        except RpcError:
            return False
        if view.version == version:
            return True
        facts = {
            "version": view.version,
            "rows": view.rows,
            "cols": view.cols,
            "cursor": ScreenCursor(*view.cursor),
            "alt_screen": view.is_alternate,
            "title": view.title,
        }
        if await feed.send_screen(facts, view.lines, view.changed, shown):
            return True
        # During the capture, a client has continued the subscription. This client needs all rows.


def _drawn(terminal: TerminalInput, store: StreamStore) -> tuple[int, int]:
    """Return how many bytes were written, and the number of the terminal's last resize.

    The screen depends on both.
    """
    return store.written, terminal.sizes[-1].number


async def _pause(shell: Shell, seconds: float) -> None:
    """Wait until a shell ends, but at most `seconds`."""
    with anyio.move_on_after(seconds):
        await shell.wait_until(lambda: shell.has_ended)
