"""Tells a watcher about the shells at targets, from the last report of each target.

Asks only connected targets, and never connects a target. Asks each target one question at a time.
So a silent target delays only the first view. A watcher sees the last rows of a silent target until
the connection to the target ends.

Invariant: no target can make this module raise an error.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, TypeAlias

import anyio
import anyio.abc
import msgspec

from shelld.lasting.views import WatchedShell
from shelld.sessions.text import beginning
from shelld.targets.targets import Target, Targets
from shelld_protocol.encoding import decode
from shelld_protocol.errors import RpcError

# How long the first view waits for a target.
FIRST_ANSWER_S: Final = 0.5
# How many characters of an id or another name are shown. A target can choose these names freely.
_NAME_CHARACTERS: Final = 100


# A float can hold such a number, so a watcher can show it.
_Milliseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Shell(msgspec.Struct, rename="camel"):
    """The members of a ``ShellInfo`` that a watcher shows.

    The target may have another version of shelld.
    """

    bash_id: str = msgspec.field(name="bash_id")
    command: str
    status: str
    is_running: bool
    session: str | None = None
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    signal: str | None = None
    duration_ms: _Milliseconds = 0


class _Listed(msgspec.Struct):
    shells: list[_Shell]


_listed: Final = msgspec.json.Decoder(_Listed)


class FarShells:
    """The shells at all targets, for one watcher.

    When the watcher goes away, the tasks in `tasks` end. `characters` is the maximum length of a
    command.
    """

    def __init__(self, targets: Targets, tasks: anyio.abc.TaskGroup, characters: int) -> None:
        self._targets = targets
        self._tasks = tasks
        self._characters = characters
        # The rows of each connection that has answered, and the connections that have not answered
        # yet.
        self._rows: dict[object, list[WatchedShell]] = {}
        self._asked: set[object] = set()
        self._answered = anyio.Event()

    async def rows(self) -> list[WatchedShell]:
        """Ask all targets. Return the rows that are known. These rows contain no output."""
        links = {each.link: each for each in self._targets.all() if each.is_connected}
        self._rows = {link: rows for link, rows in self._rows.items() if link in links}
        for link, target in links.items():
            if link not in self._asked:
                self._asked.add(link)
                self._tasks.start_soon(self._ask, target)
        with anyio.move_on_after(FIRST_ANSWER_S):
            while not links.keys() <= self._rows.keys():
                await self._answered.wait()
        for link in links:
            # The next view does not wait for a target that has not answered.
            self._rows.setdefault(link, [])
        return [row for link in links for row in self._rows[link]]

    async def _ask(self, target: Target) -> None:
        link = target.link
        assert link is not None
        try:
            call = link.begin("list_shells", b"{}", None)
            listed = decode(await link.answer(call), _listed)
        except (RpcError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The target is gone, or its answer is not valid.
            self._rows[link] = []
        else:
            self._rows[link] = [*map(partial(self._row, target.name), listed.shells)]
        finally:
            self._asked.discard(link)
            self._answered.set()
            self._answered = anyio.Event()

    def _row(self, target: str, shell: _Shell) -> WatchedShell:
        return WatchedShell(
            id=f"{target}:{shell.bash_id[:_NAME_CHARACTERS]}",
            session=shell.session and shell.session[:_NAME_CHARACTERS],
            command=beginning(shell.command)[: self._characters],
            status=shell.status[:_NAME_CHARACTERS],
            is_running=shell.is_running,
            exit_code=shell.exit_code,
            signal=shell.signal and shell.signal[:_NAME_CHARACTERS],
            elapsed_ms=shell.duration_ms,
            written=0,
            lines=[],
        )
