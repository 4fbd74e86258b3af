"""`AsyncClient`: the daemon's methods as coroutines.

Safe to use from any number of tasks of one event loop. Cancelling a task that awaits a call ends
the call in the daemon too: for `bash` that is the command with every process it started.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

import anyio
import anyio.abc
import msgspec

from shelld_client.connection import Connection
from shelld_client.errors import DaemonExited, ProtocolError, ShellError
from shelld_client.transport import Transport
from shelld_protocol.methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    Empty,
    KillShellResult,
    ListShellsResult,
    ServerInfoResult,
    ShellInfo,
    SignalName,
)

T = TypeVar("T")

# For the exit code and the last stderr lines, once the daemon's stdout has ended.
_POST_MORTEM_S: Final = 1.0


class BashOptions(TypedDict, total=False):
    """What can be said of a command. `timeout` is in milliseconds, 1,000 to 600,000.

    `env` is laid over the session's environment, None removing a name; `stdin` is given to the
    command, which otherwise reads end of file; `session=None` runs it outside all sessions.
    """

    description: str | None
    timeout: int | None
    cwd: str | None
    env: dict[str, str | None] | None
    session: str | None
    stdin: str | None
    strip_ansi: bool


class _Call:
    """A call that waits for its answer."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.answer: bytes | ShellError = b""


def default_command() -> list[str]:
    """Return the command line of the daemon that is installed beside this client."""
    return [sys.executable, "-m", "shelld"]


class AsyncClient:
    """Use `spawn` and ``async with``.

    Every method raises `ShellError` or one of its kinds: `DaemonExited` when the daemon is gone,
    `ProtocolError` when the peer does not speak the protocol.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._connection: Connection[_Call] = Connection()
        self._transport: Transport | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._failure: ShellError | None = None

    @classmethod
    def spawn(
        cls,
        command: Sequence[str] | None = None,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> AsyncClient:
        """Return a client whose daemon starts when the client is entered.

        `command` is any argv that ends in a shelld (``["ssh", "host", "shelld"]``); `args` are
        options of the daemon, appended to it. `env` and `cwd` are the daemon's, and so those its
        commands start from.
        """
        return cls([*(command or default_command()), *args], env=env, cwd=cwd)

    async def __aenter__(self) -> AsyncClient:
        self._transport = await Transport.spawn(self._command, env=self._env, cwd=self._cwd)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._transport.collect_stderr)
        self._tasks.start_soon(self._receive, self._transport)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transport is not None
        assert self._tasks is not None
        await self._transport.close()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        self._fail(DaemonExited("the client is closed"))

    @property
    def pid(self) -> int:
        """The pid of the process that `spawn` started."""
        if self._transport is None:
            raise DaemonExited("the client was not entered")
        return self._transport.pid

    # -- the methods ------------------------------------------------------------------------

    @overload
    async def bash(
        self, command: str, *, run_in_background: Literal[True], **options: Unpack[BashOptions]
    ) -> BackgroundResult: ...

    @overload
    async def bash(
        self, command: str, *, dry_run: Literal[True], **options: Unpack[BashOptions]
    ) -> DryRunResult: ...

    @overload
    async def bash(
        self, command: str, *, on_timeout: Literal["background"], **options: Unpack[BashOptions]
    ) -> BashResult | BackgroundResult: ...

    @overload
    async def bash(
        self,
        command: str,
        *,
        run_in_background: Literal[False] = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult: ...

    async def bash(
        self, command: str, **options: Any
    ) -> BashResult | BackgroundResult | DryRunResult:
        """Run a command; see `BashOptions` for what else can be said of it.

        A command that fails is a result. `CommandTimedOut`, `SpawnFailed` and the others are
        raised.
        """
        params = _given(command=command, **options)
        if "session" in options:
            # None is a session of its own: none.
            params["session"] = options["session"]
        result = await self._request("bash", params)
        if options.get("dry_run"):
            return _decode(result, DryRunResult)
        if options.get("run_in_background"):
            return _decode(result, BackgroundResult)
        if options.get("on_timeout") == "background" and not _has_exit_code(result):
            return _decode(result, BackgroundResult)
        return _decode(result, BashResult)

    async def bash_output(
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
        """Read what a shell wrote since the last plain read, or from the given byte offsets.

        `wait` is in milliseconds: how long to wait for output, or for the shell's exit.
        """
        params = _given(
            bash_id=bash_id,
            filter=filter,
            wait=wait or None,
            until=None if until == "output" else until,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
            max_bytes=max_bytes,
            strip_ansi=None if strip_ansi else False,
        )
        return _decode(await self._request("bash_output", params), BashOutputResult)

    async def kill_shell(
        self, shell_id: str, *, signal: SignalName | None = None, grace: int | None = None
    ) -> KillShellResult:
        """End a shell with every process it started; `grace` is in milliseconds."""
        params = _given(shell_id=shell_id, signal=signal, grace=grace)
        return _decode(await self._request("kill_shell", params), KillShellResult)

    async def list_shells(self, *, session: str | None = None) -> list[ShellInfo]:
        """Return running and retained shells in start order."""
        result = await self._request("list_shells", _given(session=session))
        return _decode(result, ListShellsResult).shells

    async def server_info(self) -> ServerInfoResult:
        """Return the daemon's version, limits and counters."""
        return _decode(await self._request("server_info", {}), ServerInfoResult)

    async def ping(self) -> None:
        """Return when the daemon has answered."""
        _decode(await self._request("ping", {}), Empty)

    # -- calls ------------------------------------------------------------------------------

    async def _request(self, method: str, params: dict[str, Any]) -> bytes:
        if self._transport is None:
            raise DaemonExited("the client was not entered")
        if self._failure is not None:
            raise self._failure
        call = _Call()
        try:
            request_id, frame = self._connection.call(method, params, call)
        except (TypeError, ValueError) as error:
            # A lone surrogate, or a value JSON has no word for.
            raise ProtocolError(f"the parameters of {method} cannot be encoded") from error
        try:
            # If the daemon is gone, the reader knows why and is about to say so.
            with suppress(DaemonExited):
                await self._transport.send(frame)
            await call.answered.wait()
        except anyio.get_cancelled_exc_class():
            self._connection.forget(request_id)
            if not call.answered.is_set():
                await self._cancel(request_id)
            raise
        if isinstance(call.answer, ShellError):
            raise call.answer
        return call.answer

    async def _cancel(self, request_id: int) -> None:
        frame = self._connection.notify("$/cancelRequest", {"id": request_id})
        assert self._transport is not None
        with suppress(DaemonExited):
            await self._transport.send(frame)

    async def _receive(self, transport: Transport) -> None:
        try:
            while data := await transport.receive():
                for call, answer in self._connection.receive(data):
                    call.answer = answer
                    call.answered.set()
        except ProtocolError as error:
            self._fail(error)
            return
        exit_code = await transport.exit_code(_POST_MORTEM_S)
        ended = "the daemon has ended" if exit_code is None else f"the daemon exited: {exit_code}"
        self._fail(DaemonExited(ended, stderr=transport.stderr_tail, exit_code=exit_code))

    def _fail(self, failure: ShellError) -> None:
        """No answer will come any more: all calls, present and future, raise `failure`."""
        self._failure = self._failure or failure
        for call in self._connection.take_pending():
            call.answer = self._failure
            call.answered.set()


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _has_exit_code(result: bytes) -> bool:
    return "exitCode" in msgspec.json.decode(result, type=dict[str, msgspec.Raw])


def _decode(result: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(result, type=shape)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the peer's result is no {shape.__name__}") from error
