"""Serves the watchers of a lasting daemon, which are processes of `shelld watch`.

Owns the connections of watchers. A watcher gets one answer to each question, and no other messages.
So a watcher that stops asking costs nothing, and the daemon never keeps an answer for a watcher.
Watchers change nothing. They see the output that the daemon keeps, but they do not move read
positions, and they do not keep the daemon alive.

Invariant: every connection is closed when its watcher leaves, or when the daemon ends.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from shelld.lasting.handshake import (
    MAX_BYTES,
    End,
    HandshakeError,
    close_all,
    receive,
    send,
)
from shelld.lasting.views import (
    MAX_LINES,
    MAX_SHELLS,
    Info,
    View,
    ViewRequest,
    WatchedShell,
    decoded,
    encoded,
)
from shelld.output.excerpt import last_lines
from shelld.server.far_shells import FarShells
from shelld.sessions.text import beginning
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.targets.targets import Targets

# The maximum number of watchers. Each watcher needs a descriptor, and the event loop spends time on
# each watcher.
MAX_WATCHERS: Final = 16
# The maximum lengths of a command and of a line in an answer.
_COMMAND_CHARACTERS: Final = 200
_LINE_CHARACTERS: Final = 500
# The number of bytes that an answer reserves for everything except the shells.
_RESERVED_BYTES: Final = 2_048


class Watchers:
    """All watchers. `info` describes the daemon."""

    def __init__(self, info: Callable[[], Info]) -> None:
        self._info = info
        self._connections: set[socket.socket] = set()

    @property
    def has_room(self) -> bool:
        return len(self._connections) < MAX_WATCHERS

    def has(self, connection: socket.socket) -> bool:
        """Return whether a connection belongs to a watcher."""
        return connection in self._connections

    async def serve(self, connection: socket.socket, manager: Manager, targets: Targets) -> None:
        """Answer a watcher until it leaves, or sends a message that is not a `ViewRequest`.

        Then close the connection.
        """
        self._connections.add(connection)
        try:
            async with anyio.create_task_group() as tasks:
                far = FarShells(targets, tasks, _COMMAND_CHARACTERS)
                with contextlib.suppress(OSError, HandshakeError):
                    await self._answer(connection, manager, far)
                # Do not wait for the targets, because a target may take long to answer.
                self._close(connection)
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            # The daemon ends. `end` reports this to the watcher.
            raise
        except BaseException:
            self._close(connection)
            raise

    async def _answer(self, connection: socket.socket, manager: Manager, far: FarShells) -> None:
        while True:
            await anyio.wait_readable(connection)
            try:
                data, descriptors = receive(connection)
            except BlockingIOError:
                continue
            close_all(descriptors)
            if not data:
                return
            request = decoded(data, ViewRequest)
            send(connection, encoded(await self._view(request, manager, await far.rows())))

    def end(self, exit_code: int) -> None:
        """Tell all watchers that the daemon has ended."""
        for each in list(self._connections):
            with contextlib.suppress(OSError):
                send(each, End("stopped", exit_code))
            self._close(each)

    def _close(self, connection: socket.socket) -> None:
        self._connections.discard(connection)
        connection.close()

    async def _view(
        self, request: ViewRequest, manager: Manager, far: Sequence[WatchedShell]
    ) -> View:
        """Return a view of the shells at this daemon and at its targets.

        Ended shells come last.
        """
        shells = manager.list_shells()
        running = [each for each in shells if not each.has_ended]
        ended = [each for each in reversed(shells) if each.has_ended]
        far_running = [each for each in far if each.is_running]
        far_ended = [each for each in reversed(far) if not each.is_running]
        found: list[Shell | WatchedShell] = [*running, *far_running, *ended, *far_ended]
        shown = list[WatchedShell]()
        room = MAX_BYTES - _RESERVED_BYTES
        for shell in found[: max(0, min(request.shells, MAX_SHELLS))]:
            if isinstance(shell, WatchedShell):
                row = shell
            else:
                row = _row(shell, max(0, min(request.lines, MAX_LINES)))
            room -= len(encoded(row)) + 1
            if room < 0:
                break
            shown.append(row)
            # Let the requests of the client run.
            await checkpoint()
        info = self._info()
        info.shells_running += len(far_running)
        info.shells_retained += len(far_ended)
        return View(info, shown, len(found) - len(shown))


def _row(shell: Shell, lines: int) -> WatchedShell:
    store = shell.latest_stream.store
    text = last_lines(store, 0, store.written, lines * _LINE_CHARACTERS) if lines else ""
    return WatchedShell(
        id=shell.id,
        session=shell.session,
        command=beginning(shell.command)[:_COMMAND_CHARACTERS],
        status=shell.status.value,
        is_running=not shell.has_ended,
        exit_code=shell.exit_code,
        signal=shell.signal,
        elapsed_ms=shell.elapsed_ms,
        written=shell.output.written,
        lines=[line[-_LINE_CHARACTERS:] for line in text.splitlines()[-lines:]] if lines else [],
    )
