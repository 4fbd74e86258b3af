"""`AsyncClient`: the daemon's methods as coroutines.

Any number of tasks of one event loop can use a client. Cancelling a task that awaits a call also
cancels the call in the daemon: for `bash`, that kills the command and every process it started. A
client may be exited in another task than it was entered in, but not on another event loop.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from shelld_client import calls
from shelld_client.background import Background, run_together
from shelld_client.calls import BashOptions, Call, KillOptions, OutputOptions
from shelld_client.child import (
    LAST_WORDS_S,
    POST_MORTEM_S,
    START_TIMEOUT_S,
    SpawnedClient,
    message_limit,
    no_shelld,
)
from shelld_client.connection import Connection
from shelld_client.errors import DaemonExited, ProtocolError, ShellError
from shelld_client.transport import Transport
from shelld_protocol.about import ServerInfoResult
from shelld_protocol.session_methods import (
    CloseSessionResult,
    ExplainCommandResult,
    GetSessionResult,
    SessionInfo,
)
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    KillShellResult,
    ShellInfo,
)
from shelld_protocol.tool_methods import ToolFormat
from shelld_protocol.tools import ExecutionContext, ToolResult

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

T = TypeVar("T")


class _Pending:
    """A call that has no answer yet."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.answer: bytes | ShellError = b""


class AsyncClient(SpawnedClient):
    """Use `spawn` and ``async with``.

    Every method raises `ShellError` or one of its kinds: `DaemonExited` when the daemon is gone,
    `ProtocolError` when the peer does not speak the protocol.
    """

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
    ) -> None:
        super().__init__(command, env=env, cwd=cwd, start_timeout=start_timeout)
        self._connection: Connection[_Pending] = Connection(message_limit(self._command))
        self._transport: Transport | None = None
        self._background: Background | None = None
        # Exists from the start of exiting; set when exiting is done.
        self._left: anyio.Event | None = None
        self._event_loop: object = None

    async def __aenter__(self) -> Self:
        self._enter_once()
        self._event_loop = current_token()
        await checkpoint_if_cancelled()
        try:
            child = self._start_child()
            self._transport = Transport(child)
            self._background = Background(self._serve, self._on_background_end)
            with anyio.move_on_after(self._start_timeout) as scope:
                await self._request(calls.ping())
            if scope.cancelled_caught:
                raise self._no_answer(self._connection.said)
        except BaseException as error:
            await self._end(patiently=False)
            if isinstance(error, ShellError):
                raise no_shelld(error) from None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._transport is None:
            raise RuntimeError("the client was not entered")
        if self._is_forked:
            # Do not touch the event loop: the parent's loop watches the same descriptors.
            self._transport.release()
            return
        is_watched = self._background is not None and not self._background.has_ended
        if is_watched and current_token() != self._event_loop:
            # Leave the pipes open: only the event loop that watches them may close them.
            self._transport.kill()
            raise RuntimeError("the client was entered on another event loop; its daemon is killed")
        await self._end(patiently=True)

    async def _end(self, *, patiently: bool) -> None:
        if self._left is not None:
            # Another task is already exiting, and that takes a bounded time.
            with anyio.CancelScope(shield=True):
                await self._left.wait()
            return
        self._left = anyio.Event()
        self._failure = self._failure or DaemonExited("the client is closed")
        try:
            if self._transport is not None:
                await self._transport.close(patiently=patiently)
        finally:
            self._fail(self._failure)
            try:
                if self._background is not None:
                    await self._background.stop()
            finally:
                self._left.set()

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
        self,
        command: str,
        *,
        run_in_background: Literal[False] = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult: ...

    @overload
    async def bash(
        self,
        command: str,
        *,
        run_in_background: bool = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill", "background"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult | BackgroundResult: ...

    @overload
    async def bash(
        self,
        command: str,
        *,
        run_in_background: bool = ...,
        dry_run: bool = ...,
        on_timeout: Literal["kill", "background"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult | BackgroundResult | DryRunResult: ...

    async def bash(
        self, command: str, **options: Any
    ) -> BashResult | BackgroundResult | DryRunResult:
        """Run a command; see `BashOptions` for the other options.

        A failing command is a result. `CommandTimedOut`, `SpawnFailed` and the others are raised.
        """
        return await self._request(calls.bash(command, options))

    async def bash_output(self, bash_id: str, **options: Unpack[OutputOptions]) -> BashOutputResult:
        """Return a shell's output since the last plain read, or from given byte offsets."""
        return await self._request(calls.bash_output(bash_id, options))

    async def kill_shell(self, shell_id: str, **options: Unpack[KillOptions]) -> KillShellResult:
        """Kill a shell and every process it started."""
        return await self._request(calls.kill_shell(shell_id, options))

    async def list_shells(self, *, session: str | None = None) -> list[ShellInfo]:
        """Return running and retained shells, oldest first."""
        return await self._request(calls.list_shells(session))

    async def get_session(self, session: str = "main") -> GetSessionResult:
        """Return the state in which the session's next command starts.

        Raises `SessionNotFound` for a session that was never used.
        """
        return await self._request(calls.get_session(session))

    async def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions."""
        return await self._request(calls.list_sessions())

    async def close_session(self, session: str) -> CloseSessionResult:
        """Kill a session's shells and their leftover processes, and delete the session."""
        return await self._request(calls.close_session(session))

    async def explain_command(
        self,
        command: str,
        *,
        session: str | None = "main",
        env: Mapping[str, str | None] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> ExplainCommandResult:
        """Return the guard's verdict on a command, without running it."""
        return await self._request(calls.explain_command(command, session, env, cwd))

    async def tool_schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:  # noqa: A002
        """Return the tool definitions as the API takes them: "openai", "anthropic" or "mcp"."""
        return await self._request(calls.list_tools(format))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: ExecutionContext | Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Execute a tool call of a model. A failure is a result, not an exception.

        Members of `context` that are None count as absent.
        """
        return await self._request(calls.call_tool(name, arguments, context))

    async def langchain_tools(
        self, *, context: ExecutionContext | Mapping[str, Any] | None = None
    ) -> list[StructuredTool]:
        """Return the tools as LangChain tools. Needs the extra ``langchain``."""
        from shelld_protocol.langchain import structured_tool  # noqa: PLC0415

        return [
            structured_tool(
                tool["name"],
                tool["description"],
                tool["input_schema"],
                call_async=partial(self.call_tool, tool["name"], context=context),
            )
            for tool in await self.tool_schemas("anthropic")
        ]

    async def server_info(self) -> ServerInfoResult:
        """Return the daemon's version, limits and counters."""
        return await self._request(calls.server_info())

    async def ping(self) -> None:
        """Wait for the daemon to answer."""
        await self._request(calls.ping())

    # -- calls ------------------------------------------------------------------------------

    async def _request(self, call: Call[T]) -> T:
        is_entered = self._background is not None and self._left is None and not self._is_forked
        if is_entered and current_token() != self._event_loop:
            # Nothing would wake this task. The other event loop may even have ended.
            raise RuntimeError("the client was entered on another event loop")
        self._raise_if_unusable()
        assert self._transport is not None
        pending = _Pending()
        request_id = self._connection.new_id()
        try:
            frame = self._connection.call(request_id, call.method, call.params, pending)
            self._transport.send(frame)
            await pending.answered.wait()
        except BaseException:
            # The caller no longer waits: end the call in the daemon, too.
            if cancellation := self._connection.cancel(request_id):
                self._transport.send(cancellation)
            raise
        if isinstance(pending.answer, ShellError):
            raise pending.answer
        return call.decode(pending.answer)

    async def _serve(self) -> None:
        assert self._transport is not None
        try:
            await run_together(
                self._transport.write_outbox,
                self._transport.watch_exit,
                self._transport.collect_stderr,
                self._receive,
            )
        except Exception as error:
            # No caller would get the exception, and nothing else would fail the pending calls.
            self._fail(ShellError(f"the client has failed: {error!r}"))

    def _on_background_end(self) -> None:
        # Any code can cancel the task, even before it begins: asyncio's `all_tasks` includes it.
        self._fail(DaemonExited("the client's task was cancelled"))

    async def _receive(self) -> None:
        """Deliver answers to their calls until the daemon has ended."""
        assert self._child is not None
        assert self._transport is not None
        try:
            await self._transport.collect_stdout(self._hand_out)
        except ProtocolError as error:
            self._fail(error)
            return
        await self._transport.has_ended(POST_MORTEM_S)
        # The daemon can write no more, but a child of the command's prefix may hold the pipe open.
        with anyio.move_on_after(LAST_WORDS_S):
            await self._transport.stderr_ended.wait()
        self._fail(self._child.post_mortem(self._connection.said))

    def _hand_out(self, data: bytes) -> None:
        # A function of its own: the reading loop's locals would keep the last answer alive while it
        # waits for more.
        for pending, answer in self._connection.receive(data):
            pending.answer = answer
            pending.answered.set()

    def _fail(self, failure: ShellError) -> None:
        """Make all calls, present and future, raise `failure`: no more answers will come."""
        self._failure = self._failure or failure
        for pending in self._connection.take_pending():
            pending.answer = copy.copy(self._failure)
            pending.answered.set()
