"""`Client`: the same methods without await, for any number of threads.

Runs an `AsyncClient` on an event loop in a thread of its own. A call that is interrupted in its
thread (KeyboardInterrupt) is cancelled in the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shelld_client.client import AsyncClient, BashOptions
from shelld_client.errors import DaemonExited
from shelld_protocol.methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    KillShellResult,
    ServerInfoResult,
    ShellInfo,
    SignalName,
)

T = TypeVar("T")


class Client:
    """Use `spawn` and ``with``. See `AsyncClient` for the methods."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    @classmethod
    def spawn(
        cls,
        command: Sequence[str] | None = None,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Client:
        """Return a client whose daemon starts when the client is entered."""
        return cls(AsyncClient.spawn(command, args=args, env=env, cwd=cwd))

    def __enter__(self) -> Client:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._stack = stack.pop_all()
        self._portal = portal
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal = None
        self._stack.__exit__(kind, error, traceback)

    @property
    def pid(self) -> int:
        """The pid of the process that `spawn` started."""
        return self._client.pid

    # -- the methods ------------------------------------------------------------------------

    @overload
    def bash(
        self, command: str, *, run_in_background: Literal[True], **options: Unpack[BashOptions]
    ) -> BackgroundResult: ...

    @overload
    def bash(
        self, command: str, *, dry_run: Literal[True], **options: Unpack[BashOptions]
    ) -> DryRunResult: ...

    @overload
    def bash(
        self, command: str, *, on_timeout: Literal["background"], **options: Unpack[BashOptions]
    ) -> BashResult | BackgroundResult: ...

    @overload
    def bash(
        self,
        command: str,
        *,
        run_in_background: Literal[False] = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult: ...

    def bash(self, command: str, **options: Any) -> BashResult | BackgroundResult | DryRunResult:
        """Run a command; see `BashOptions` for what else can be said of it."""
        return self._run(self._client.bash, command, **options)

    def bash_output(
        self,
        bash_id: str,
        *,
        filter: str | None = None,  # noqa: A002 - the wire's name
        wait: int = 0,
        until: Literal["output", "exit"] = "output",
        stdout_offset: int | None = None,
        stderr_offset: int | None = None,
        max_bytes: int | None = None,
        strip_ansi: bool = True,
    ) -> BashOutputResult:
        """Read what a shell wrote since the last plain read, or from the given byte offsets."""
        return self._run(
            self._client.bash_output,
            bash_id,
            filter=filter,
            wait=wait,
            until=until,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
            max_bytes=max_bytes,
            strip_ansi=strip_ansi,
        )

    def kill_shell(
        self, shell_id: str, *, signal: SignalName | None = None, grace: int | None = None
    ) -> KillShellResult:
        """End a shell with every process it started; `grace` is in milliseconds."""
        return self._run(self._client.kill_shell, shell_id, signal=signal, grace=grace)

    def list_shells(self, *, session: str | None = None) -> list[ShellInfo]:
        """Return running and retained shells in start order."""
        return self._run(self._client.list_shells, session=session)

    def server_info(self) -> ServerInfoResult:
        """Return the daemon's version, limits and counters."""
        return self._run(self._client.server_info)

    def ping(self) -> None:
        """Return when the daemon has answered."""
        self._run(self._client.ping)

    # -- calls ------------------------------------------------------------------------------

    def _run(self, method: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        if self._portal is None:
            raise DaemonExited("the client is not open")
        future = self._portal.start_task_soon(lambda: method(*args, **kwargs))
        try:
            return future.result()
        except BaseException:
            # If this thread was interrupted while it waited, the call must not go on alone.
            future.cancel()
            raise
