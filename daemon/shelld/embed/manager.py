"""Manages the shells of a program that embeds shelld.

``ShellManager()`` always returns the same object. The manager runs while the program is inside
``async with``. Without ``async with``, the manager runs from the first call until `reset` or the
end of the program. Outside ``async with``, or if the program's loop is not asyncio, the manager
runs its own event loop in a thread. In that case, shells outlive the caller's event loop, and other
event loops can use them. In a daemon, the object uses the daemon's manager: see `adopt`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import ClassVar, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from shelld.embed.owner_loop import LoopThread, OwnerLoop
from shelld.embed.process import ShellProcess
from shelld.eventloop.threadsafe import call_threadsafe
from shelld.sessions.text import check_text
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld.shells.starting import wait_for_start
from shelld_protocol.errors import RpcError, shutting_down

T = TypeVar("T")


class ShellManager:
    """The manager of this process. Raises RuntimeError if `options` are given although there
    already is a manager.

    The coroutines of the manager can be awaited on any event loop.
    """

    _instance: ClassVar[ShellManager | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    # There is no __init__, because each ``ShellManager()`` would run it.
    def __new__(cls, options: ManagerOptions | None = None) -> ShellManager:
        with cls._making:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
                cls._instance._set_up(Manager(options))
            elif options is not None:
                raise RuntimeError("options were given, but a shell manager already exists")
            return cls._instance

    def _set_up(self, manager: Manager) -> None:
        self._manager = manager
        # This member is None while the manager does not run.
        self._owner: OwnerLoop | None = None
        # This member is like `_owner`, but it is not cleared when the manager ends.
        self._last_owner: OwnerLoop | None = None
        self._entered: AbstractAsyncContextManager[None] | None = None
        # This member is set if the manager runs in a thread.
        self._thread: LoopThread | None = None
        self._opening = threading.Lock()
        # `reset` sets this member.
        self._is_over = False
        self._is_adopted = False
        # Maps ids to the shells that the program still refers to.
        self._processes: weakref.WeakValueDictionary[str, ShellProcess] = (
            weakref.WeakValueDictionary()
        )

    @classmethod
    def adopt(cls, manager: Manager) -> None:
        """Let ``ShellManager()`` use a running manager. Call this on that manager's event loop.

        A second call with the same manager does nothing.
        """
        with cls._making:
            if cls._instance is not None and cls._instance._manager is manager:
                return
            adopted = cls._instance = super().__new__(cls)
            adopted._set_up(manager)
            adopted._is_adopted = True
        adopted._enter_owner()
        manager.on_close = adopted._leave

    def _leave(self) -> None:
        """Forget the adopted manager, because it is closing."""
        if self._owner is not None:
            self._owner.close()
        with self._making:
            if ShellManager._instance is self:
                ShellManager._instance = None

    def _enter_owner(self) -> None:
        self._owner = self._last_owner = owner = OwnerLoop(self._manager.runtime.tasks)
        self._manager.on_close = owner.close

    @classmethod
    async def reset(cls) -> None:
        """Kill all shells. The next ``ShellManager()`` makes a new manager, except in a daemon.

        If the current manager was entered with ``async with``, the program must still leave that
        block.
        """
        with cls._making:
            one = cls._instance
            if one is None or not one._is_adopted:
                cls._instance = None
        if one is None:
            return
        if one._is_adopted:
            await one.kill_all(0)
            return
        one._begin_end()
        with anyio.CancelScope(shield=True):
            has_stopped = await anyio.to_thread.run_sync(one._stop_thread)
            if not has_stopped and one._owner is not None:
                # If the event loop has ended, there is nothing to do.
                with contextlib.suppress(RpcError):
                    await one._owner.call(one._manager.kill_all, 0)

    def _begin_end(self) -> None:
        """Begin to kill everything. Do not wait, because asyncio could cancel the wait."""
        self._is_over = True
        if self._thread is not None:
            self._thread.begin_stop()
        elif self._owner is not None:
            self._owner.call_soon(self._discard_all)

    def _stop_thread(self) -> bool:
        """Stop the manager's thread; return False if it has none.

        If a caller is just starting the thread, this method waits for that caller.
        """
        with self._opening:
            thread = self._thread
        if thread is not None:
            thread.stop()
        return thread is not None

    def _discard_all(self) -> None:
        self._manager.runtime.stop_starting()
        for shell in self._manager.list_shells():
            shell.discard()

    @classmethod
    def forget_after_fork(cls) -> None:
        """Forget the manager in a forked child. The shells belong to the parent, and the fork has
        not copied the thread of the manager.
        """
        one, cls._instance = cls._instance, None
        cls._making = threading.Lock()
        if one is not None and one._owner is not None:
            one._manager.runtime.abandon()
            one._owner.abandon()

    # -- running ----------------------------------------------------------------------------

    async def __aenter__(self) -> ShellManager:
        """Run the manager while the `async with` block runs.

        If the manager already runs in a thread, it continues to run after the block.
        """
        if self._entered is not None:
            raise RuntimeError("the shell manager is running already")
        if self._thread is None:
            self._entered = self._running() if _on_asyncio() else self._running_in_thread()
            try:
                await self._entered.__aenter__()
            except BaseException:
                self._entered = None
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if self._entered is None:
            return None
        try:
            return await self._entered.__aexit__(kind, error, traceback)
        finally:
            self._entered = None

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None]:
        try:
            async with self._manager:
                self._enter_owner()
                yield
        finally:
            # Clear these members only after the manager has ended. A call that comes while the
            # manager ends must be refused, and must not start the manager again.
            self._owner = self._thread = None

    @asynccontextmanager
    async def _running_in_thread(self) -> AsyncGenerator[None]:
        await self.manager()
        thread = self._thread
        try:
            yield
        finally:
            if thread is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(thread.stop)

    async def manager(self) -> Manager:
        """Return the running `Manager` of this object. Use it only on the event loop of the shells.

        Raises `RpcError` (shutting_down) after `reset`.
        """
        self._check_open()
        if self._owner is None:
            await anyio.to_thread.run_sync(self._open_in_thread)
        return self._manager

    async def run(
        self,
        function: Callable[..., Awaitable[T]],
        *args: object,
        discard: Callable[[T], object] | None = None,
    ) -> T:
        """Await ``function(*args)`` on the event loop of the shells; return the result.

        `discard`: see `OwnerLoop.call`. Raises `RpcError` (shutting_down).
        """
        await self.manager()
        owner = self._owner
        if owner is None:
            # The manager ended just after `self.manager` had returned it.
            raise shutting_down()
        return await owner.call(function, *args, discard=discard)

    def _open_in_thread(self) -> None:
        with self._opening:
            self._check_open()
            if self._owner is None:
                self._thread = LoopThread(self._running)
            try:
                self._check_open()
            except RpcError:
                # If `reset` ran while the thread started, it could not see the new thread, and so
                # did not stop it.
                if self._thread is not None:
                    self._thread.stop()
                raise

    def _check_open(self) -> None:
        """Raise `RpcError` (shutting_down) after `reset`."""
        if self._is_over:
            raise shutting_down()

    # -- shells -----------------------------------------------------------------------------

    async def create_shell(
        self, command: str, working_dir: str, env: dict[str, str | None] | None = None
    ) -> ShellProcess:
        """Start a command in the background; return when it runs.

        `env` is merged into the environment. The value None removes a name from the environment. If
        the caller is cancelled, the command is killed. Raises `RpcError`: invalid_params,
        spawn_failed, resource_exhausted, shutting_down.
        """
        check_text(command, working_dir, env)
        request = StartRequest(command, cwd=_absolute(working_dir), env=env)
        process = await self.run(self._start, request, discard=ShellProcess.discard)
        # Even if the command has already ended, report it as running until the caller has awaited
        # something else.
        call_threadsafe(current_token(), process.show_end)
        return process

    async def _start(self, request: StartRequest) -> ShellProcess:
        shell = await self._manager.start(request)
        try:
            await wait_for_start(shell)
        except anyio.get_cancelled_exc_class():
            # Nobody knows the id of the shell, so nobody else could kill the command.
            shell.discard()
            raise
        process = self._process_of(shell)
        # At first, report the command as running even if it has already ended: see `create_shell`.
        process.hide_end()
        return process

    def _process_of(self, shell: Shell) -> ShellProcess:
        process = self._processes.get(shell.id)
        # After `get` has returned None, another thread may have made an object for this shell.
        return process or self._processes.setdefault(
            shell.id, ShellProcess(record=shell, owner=self._last_owner)
        )

    def get_shell(self, shell_id: str) -> ShellProcess | None:
        """Return the shell with this id if it runs or is retained, and None otherwise."""
        try:
            return self._process_of(self._manager.get(shell_id))
        except RpcError:
            return None

    def list_shells(self) -> list[ShellProcess]:
        """Return running and retained shells in start order."""
        return [self._process_of(shell) for shell in self._manager.list_shells()]

    def list_running(self) -> list[ShellProcess]:
        """Return the shells that run or will start, in start order."""
        return [process for process in self.list_shells() if not process.has_ended]

    async def kill_all(self, grace_ms: int | None = None) -> int:
        """Kill every shell and all leftover processes. Return the number of shells that had
        processes.
        """
        owner = self._owner
        return 0 if owner is None else await owner.call(self._manager.kill_all, grace_ms)

    def cleanup_completed(self, max_age_seconds: float = 3_600) -> int:
        """Forget shells that ended more than `max_age_seconds` ago and left no processes.

        Returns the number of forgotten shells.
        """
        owner, forget = self._owner, self._manager.forget_older_than
        if owner is None:
            return forget(max_age_seconds)
        return owner.call_sync(forget, max_age_seconds)


def _on_asyncio() -> bool:
    """Return whether the running event loop is asyncio's. Shells can live only on such a loop."""
    return isinstance(current_token().native_token, asyncio.AbstractEventLoop)


def _absolute(working_dir: str) -> str:
    """Return an absolute directory, resolved against the program's current directory."""
    try:
        return os.path.abspath(working_dir)
    except FileNotFoundError:
        # The current directory has been deleted.
        return working_dir


os.register_at_fork(after_in_child=ShellManager.forget_after_fork)
