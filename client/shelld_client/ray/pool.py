"""Provides `Pool`, which runs commands on daemons in the actors of a Ray cluster.

Owns its daemons, and the tasks that start and end them. Owns each daemon from the request for the
daemon's actor until the actor has ended. Invariants: a daemon is in `_members` as soon as Ray is
asked for its actor; each wait for room in the cluster is bounded, or happens in the background; a
lost daemon is replaced, and only its own sessions are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, NoReturn, Self, Unpack, cast, overload

import anyio

from shelld_client import calls
from shelld_client.call_options import BashOptions, RunOptions
from shelld_client.command_lines import daemon_command
from shelld_client.errors import ShellError, refused_here
from shelld_client.ray.engine import Needs, connect, room
from shelld_client.ray.link import Failure
from shelld_client.ray.mapping import Results
from shelld_client.ray.member import Member, closed, lost
from shelld_client.ray.placement import Placement
from shelld_client.ray.session import Session
from shelld_client.ray.starting import all_started
from shelld_protocol.errors import invalid_params
from shelld_protocol.shell_methods import BackgroundResult, BashResult

_REMOVED: Final = lost("it was removed from the pool")

logger: Final = logging.getLogger("shelld_client.ray")

# The pause between two attempts to replace a daemon grows from `FIRST_PAUSE_S` to
# `LONGEST_PAUSE_S`.
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


class Load(NamedTuple):
    """Holds the load of one daemon.

    `commands` counts the commands that run or wait for their turn.
    """

    sessions: int
    commands: int


class Pool:
    """Runs commands on several daemons.

    Use it with ``async with``, on asyncio, because Ray needs asyncio. `size` is the number of
    daemons; by default, as many as the cluster has room for. Each daemon is in an actor that takes
    `num_cpus` and `resources` of the cluster. `daemon_args` are options of the daemons. At most
    `max_in_flight` foreground commands run on a daemon at once. Other foreground commands wait for
    their turn. `actor_options` are further options of Ray's actors, such as `scheduling_strategy`
    and `runtime_env`.

    When the pool is entered, it joins the cluster to which the process is connected, or starts Ray.
    The pool raises `ResourceExhausted` if the cluster has no room within `start_timeout` seconds.
    When the block or the process ends, all daemons end with all their commands.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        num_cpus: float = 1,
        resources: Mapping[str, float] | None = None,
        daemon_args: Sequence[str | PathLike[str]] = (),
        max_in_flight: int = 64,
        start_timeout: float = 60.0,
        actor_options: Mapping[str, Any] | None = None,
    ) -> None:
        if size is not None:
            _check_count("size", size, least=1)
        _check_count("max_in_flight", max_in_flight, least=1)
        if not (num_cpus >= 0 and start_timeout > 0):
            raise ValueError("num_cpus must be 0 or more, and start_timeout more than 0 seconds")
        for name in ("num_cpus", "resources"):
            if name in (actor_options or ()):
                raise ValueError(f"give {name} to the pool itself, not in actor_options")
        self._wanted = size
        self._needs = Needs(num_cpus, dict(resources or {}), dict(actor_options or {}))
        self._daemon_args = daemon_command(["shelld"], daemon_args)[1:]
        self._max_in_flight = max_in_flight
        self._start_timeout = start_timeout
        self._placement = Placement(room_timeout=start_timeout, on_idle=self._on_idle)
        # All daemons whose actors have not ended: they are starting, serving or draining.
        self._members = set[Member]()
        self._replacements = set[asyncio.Task[None]]()
        # The tasks that end daemons.
        self._endings = set[asyncio.Task[None]]()
        # `resize` holds this lock while it changes the number of daemons.
        self._resizing = asyncio.Lock()
        self._is_entered = False
        self._is_closed = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a pool cannot be pickled, because it belongs to the process that entered it: "
            "create one where it is needed"
        )

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise RuntimeError("a pool can be entered only once")
        self._is_entered = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("a pool needs asyncio, because Ray does") from None
        connect()
        size = self._wanted
        if size is None:
            size = max(1, await asyncio.to_thread(room, self._needs))
        await self._start(size, self._start_timeout)
        self._placement.closed = ""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closed = True
        self._placement.close("the pool is closed")
        for task in self._replacements:
            task.cancel()
        try:
            with anyio.CancelScope(shield=True):
                for member in list(self._members):
                    self._end(member, closed)
                await asyncio.gather(*self._replacements, *self._endings, return_exceptions=True)
        finally:
            # Despite the shield, asyncio's `Task.cancel` interrupts the block.
            for member in self._members:
                member.kill()

    @property
    def size(self) -> int:
        """The number of daemons that take new sessions, or will take them after their start."""
        return len(self._placement.members) + len(self._replacements)

    @property
    def loads(self) -> list[Load]:
        """The loads of the daemons that take new sessions."""
        return [Load(len(each.sessions), each.commands) for each in self._placement.members]

    # -- commands ----------------------------------------------------------------------------

    def session(self, name: str) -> Session:
        """Return the session `name`: an object with the methods of `AsyncClient`.

        The session starts with its first call, on the daemon with the fewest sessions, and stays on
        this daemon.
        """
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the name of a session must be text, not {type(name).__name__}")
        if not name.isascii() and any("\ud800" <= each <= "\udfff" for each in name):
            # No daemon takes this name, so nothing could close the session.
            reason = "Invalid value for session: must not contain lone surrogates"
            raise refused_here(invalid_params(reason, "session"))
        return Session(self._placement, name)

    @overload
    async def bash(
        self, command: str, *, run_in_background: Literal[True], **options: Unpack[BashOptions]
    ) -> BackgroundResult: ...

    @overload
    async def bash(self, command: str, **options: Unpack[RunOptions]) -> BashResult: ...

    async def bash(self, command: str, **options: Any) -> Any:
        """Run a command as `AsyncClient.bash` does, in the given session of the pool.

        Without a session, the command runs outside all sessions, on the daemon with the fewest
        commands. Raises `SessionLost` if the daemon is gone.
        """
        if (session := options.pop("session", None)) is not None:
            methods: Any = self.session(session)
            return await methods.bash(command, **options)
        for name in ("run_in_background", "dry_run", "on_output", "idempotency_key"):
            if options.get(name):
                raise TypeError(f"a command with {name} needs a session")
        for name in ("on_timeout", "on_prompt"):
            if options.get(name) == "background":
                raise TypeError(f"a command with {name}='background' needs a session")
        check = options.pop("check", False)
        call = calls.bash(command, {**options, "session": None})
        result = await self._placement.request(None, call)
        assert isinstance(result, BashResult)
        return calls.checked(result) if check else result

    @overload
    def map(
        self,
        commands: Iterable[str],
        *,
        return_exceptions: Literal[False] = ...,
        progress: bool = ...,
        **options: Unpack[BashOptions],
    ) -> Results[BashResult]: ...

    @overload
    def map(
        self,
        commands: Iterable[str],
        *,
        return_exceptions: bool,
        progress: bool = ...,
        **options: Unpack[BashOptions],
    ) -> Results[BashResult | ShellError]: ...

    def map(
        self,
        commands: Iterable[str],
        *,
        return_exceptions: bool = False,
        progress: bool = False,
        **options: Any,
    ) -> Results[Any]:
        """Run many commands, each outside all sessions, with the same options.

        Iterate over the results with ``async for``, or await them as a list. The results come in
        the order of the commands. The pool takes the next command from the iterable when the
        daemons can run another one.

        If a command raises an error, the iteration ends with this error, and the running commands
        are cancelled. With `return_exceptions`, the caller gets the error in place of the command's
        result, and the iteration goes on. `progress` shows a progress bar of tqdm.
        """
        if isinstance(commands, str):
            raise TypeError("map needs several commands, not one text")

        async def run(command: str) -> BashResult:
            return cast("BashResult", await self.bash(command, **options))

        return Results[Any](
            run,
            commands,
            at_once=lambda: max(1, self.size) * self._max_in_flight,
            returns_errors=return_exceptions,
            progress=progress,
        )

    # -- the number of daemons ---------------------------------------------------------------

    async def resize(self, size: int, *, timeout: float | None = None) -> None:
        """Change the number of daemons, while the pool is used. Wait until the number has changed.

        If the pool is made larger, the call waits up to `start_timeout` for room in the cluster, as
        entering the pool does. If there is no room, the pool keeps its size, and the call raises
        `ResourceExhausted`.

        If the pool is made smaller, the daemons with the fewest sessions are drained. These daemons
        take no new sessions. Each of them ends when its last session is closed and its last command
        has ended. After `timeout` seconds (None: never), the pool ends the draining daemons that
        still run, and their sessions are lost. With size 0, all daemons end; the pool then refuses
        new sessions, until it is resized again.
        """
        _check_count("size", size, least=0)
        async with self._resizing:
            if not self._is_entered or self._is_closed:
                raise RuntimeError("resize needs a pool that is entered and not closed")
            surplus = self.size - size
            if surplus < 0:
                await self._grow(-surplus)
            draining = self._drain(surplus)
            self._placement.closed = "" if size else "the pool was resized to no daemons"
        waits = [asyncio.create_task(member.ended.wait()) for member in draining]
        try:
            if waits:
                await asyncio.wait(waits, timeout=timeout)
        finally:
            for wait in waits:
                wait.cancel()
        for member in draining:
            self._end(member, _REMOVED)
        for member in draining:
            await member.ended.wait()

    async def _grow(self, count: int) -> None:
        try:
            await self._start(count, self._start_timeout)
        except ShellError:
            if not self._is_closed:
                raise
        if self._is_closed:
            # The end of the block has ended the daemons that were starting.
            raise closed(None)

    def _drain(self, count: int) -> list[Member]:
        """Choose `count` daemons that are to end.

        Replacements for lost daemons may still be starting. First choose these, and cancel their
        start. Return the other chosen daemons. They take no more sessions, and end once they are
        idle.
        """
        for task in list(self._replacements)[: max(0, count)]:
            task.cancel()
            self._replacements.discard(task)
            count -= 1
        by_load = sorted(
            self._placement.members, key=lambda each: (len(each.sessions), each.commands)
        )
        draining = by_load[: max(0, count)]
        for member in draining:
            member.is_draining = True
            self._placement.remove(member)
            self._on_idle(member)
        return draining

    def _on_idle(self, member: Member) -> None:
        if member.is_draining and member.is_idle:
            self._end(member, _REMOVED)

    def _end(self, member: Member, failure: Failure) -> None:
        """Make the calls of a daemon fail, and end it in the background, unless it is ending."""
        self._placement.remove(member)
        if not member.is_gone:
            member.end_calls(failure)
            self._keep(self._endings, self._close(member))

    async def _close(self, member: Member) -> None:
        try:
            await member.close()
        finally:
            self._members.discard(member)

    @staticmethod
    def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        # Keep a reference, because the event loop holds tasks only weakly.
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # -- starting ----------------------------------------------------------------------------

    async def _start(self, count: int, timeout: float | None) -> None:
        """Start `count` daemons. If one of them fails to start, end all.

        Raises `ShellError`.
        """
        members = list[Member]()
        tasks = list[asyncio.Task[None]]()
        try:
            for _ in range(count):
                members.append(self._new_member())
                tasks.append(asyncio.create_task(members[-1].start()))
            await all_started(tasks, timeout, self._needs)
        except BaseException:
            for member in members:
                member.kill()
                self._members.discard(member)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        for member in members:
            if not member.is_gone:
                self._placement.add(member)
            elif not self._is_closed:
                # This daemon was lost while the others started.
                self._keep(self._replacements, self._replace())

    def _new_member(self) -> Member:
        member = Member(
            self._needs,
            self._daemon_args,
            max_in_flight=self._max_in_flight,
            on_lost=self._on_lost,
            on_idle=self._on_idle,
        )
        self._members.add(member)
        return member

    # -- losses ------------------------------------------------------------------------------

    def _on_lost(self, member: Member) -> None:
        served = member in self._placement.members
        self._placement.remove(member)
        self._members.discard(member)
        if served and not self._is_closed:
            self._keep(self._replacements, self._replace())

    async def _replace(self) -> None:
        """Start a replacement for a lost daemon, however long it takes."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                await self._start(1, None)
            except ShellError as error:
                logger.warning("a lost daemon cannot be replaced yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                return


def _check_count(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}")
