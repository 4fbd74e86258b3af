"""`Client`: the methods of `AsyncClient` without await, for any number of threads.

The calling thread hands its request to the pump's thread and waits until that thread delivers the
answer. If a call is interrupted while it waits (KeyboardInterrupt), it is cancelled in the daemon.
A forked child cannot use its parent's client.

Finalisers and signal handlers can use the client, whatever they interrupt. A finaliser that the
garbage collector runs in a pump's thread gets no answer: its request is sent, and the call raises
`ShellError`. While the interpreter shuts down, calls send nothing and raise `ShellError`.
"""

from __future__ import annotations

import copy
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, Unpack, overload

from shelld_client import calls
from shelld_client.calls import BashOptions, Call, KillOptions, OutputOptions
from shelld_client.child import START_TIMEOUT_S, SpawnedClient, message_limit, no_shelld
from shelld_client.connection import Connection
from shelld_client.errors import DaemonExited, ProtocolError, ShellError
from shelld_client.pump import Pump
from shelld_client.reentrant import may_wait
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

Answer: TypeAlias = bytes | ShellError


class Client(SpawnedClient):
    """Use `spawn` and ``with``. Raises what `AsyncClient` raises."""

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
    ) -> None:
        super().__init__(command, env=env, cwd=cwd, start_timeout=start_timeout)
        self._connection: Connection[queue.SimpleQueue[Answer]] = Connection(
            message_limit(self._command)
        )
        self._pump: Pump | None = None

    def __enter__(self) -> Self:
        if not may_wait():
            raise ShellError("no client can be entered in the thread of another, or at exit")
        self._enter_once()
        self._pump = Pump(self._start_child, self._receive, self._ended)
        try:
            begun_at = time.monotonic()
            self._pump.start(self._start_timeout)
            left = self._start_timeout
            if left is not None:
                left = max(0.0, left - (time.monotonic() - begun_at))
            self._request(calls.ping(), left)
        except BaseException as error:
            self._failure = self._failure or DaemonExited("the client is closed")
            self._pump.close(patiently=False)
            if isinstance(error, ShellError):
                raise no_shelld(error) from None
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pump is None:
            raise RuntimeError("the client was not entered")
        if self._is_forked:
            self._pump.release()
            return
        try:
            self._failure = self._failure or DaemonExited("the client is closed")
        finally:
            self._pump.close()
        self._connection.write_log()

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
        self,
        command: str,
        *,
        run_in_background: Literal[False] = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult: ...

    @overload
    def bash(
        self,
        command: str,
        *,
        run_in_background: bool = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill", "background"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult | BackgroundResult: ...

    @overload
    def bash(
        self,
        command: str,
        *,
        run_in_background: bool = ...,
        dry_run: bool = ...,
        on_timeout: Literal["kill", "background"] = ...,
        **options: Unpack[BashOptions],
    ) -> BashResult | BackgroundResult | DryRunResult: ...

    def bash(self, command: str, **options: Any) -> BashResult | BackgroundResult | DryRunResult:
        """Run a command; see `BashOptions` for the other options.

        A failing command is a result. `CommandTimedOut`, `SpawnFailed` and the others are raised.
        """
        return self._request(calls.bash(command, options))

    def bash_output(self, bash_id: str, **options: Unpack[OutputOptions]) -> BashOutputResult:
        """Return a shell's output since the last plain read, or from given byte offsets."""
        return self._request(calls.bash_output(bash_id, options))

    def kill_shell(self, shell_id: str, **options: Unpack[KillOptions]) -> KillShellResult:
        """Kill a shell and every process it started."""
        return self._request(calls.kill_shell(shell_id, options))

    def list_shells(self, *, session: str | None = None) -> list[ShellInfo]:
        """Return running and retained shells, oldest first."""
        return self._request(calls.list_shells(session))

    def get_session(self, session: str = "main") -> GetSessionResult:
        """Return the state in which the session's next command starts.

        Raises `SessionNotFound` for a session that was never used.
        """
        return self._request(calls.get_session(session))

    def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions."""
        return self._request(calls.list_sessions())

    def close_session(self, session: str) -> CloseSessionResult:
        """Kill a session's shells and their leftover processes, and delete the session."""
        return self._request(calls.close_session(session))

    def explain_command(
        self,
        command: str,
        *,
        session: str | None = "main",
        env: Mapping[str, str | None] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> ExplainCommandResult:
        """Return the guard's verdict on a command, without running it."""
        return self._request(calls.explain_command(command, session, env, cwd))

    def tool_schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:  # noqa: A002
        """Return the tool definitions as the API takes them: "openai", "anthropic" or "mcp"."""
        return self._request(calls.list_tools(format))

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: ExecutionContext | Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Execute a tool call of a model. A failure is a result, not an exception.

        Members of `context` that are None count as absent.
        """
        return self._request(calls.call_tool(name, arguments, context))

    def langchain_tools(
        self, *, context: ExecutionContext | Mapping[str, Any] | None = None
    ) -> list[StructuredTool]:
        """Return the tools as LangChain tools. Needs the extra ``langchain``."""
        from shelld_protocol.langchain import structured_tool  # noqa: PLC0415

        return [
            structured_tool(
                tool["name"],
                tool["description"],
                tool["input_schema"],
                call=partial(self.call_tool, tool["name"], context=context),
            )
            for tool in self.tool_schemas("anthropic")
        ]

    def server_info(self) -> ServerInfoResult:
        """Return the daemon's version, limits and counters."""
        return self._request(calls.server_info())

    def ping(self) -> None:
        """Wait for the daemon to answer."""
        self._request(calls.ping())

    # -- calls ------------------------------------------------------------------------------

    def _request(self, call: Call[T], timeout: float | None = None) -> T:
        """Return the daemon's answer. `timeout` (seconds) is set only for the first answer."""
        self._raise_if_unusable()
        assert self._pump is not None
        if sys.is_finalizing():
            # The pump's thread has stopped.
            raise ShellError(f"{call.method} is not sent: the interpreter is shutting down")
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        request_id = self._connection.new_id()
        try:
            frame = self._connection.call(request_id, call.method, call.params, answers)
            # Check again: if the client failed meanwhile, `_ended` has not seen this call.
            self._raise_if_unusable()
            self._pump.send(frame)
            if not may_wait():
                self._connection.cancel(request_id)
                raise ShellError(f"{call.method} is sent, but nobody can wait here for the answer")
            answer = answers.get(timeout=timeout and min(timeout, threading.TIMEOUT_MAX))
        except BaseException as error:
            # The caller no longer waits: end the call in the daemon, too.
            if cancellation := self._connection.cancel(request_id):
                self._pump.send(cancellation)
            if isinstance(error, queue.Empty):
                raise self._no_answer(self._connection.said) from None
            raise
        self._connection.write_log()
        if isinstance(answer, ShellError):
            raise answer
        return call.decode(answer)

    # -- in the pump's thread ---------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        for answers, answer in self._connection.receive(data):
            answers.put(answer)

    def _ended(self, error: ProtocolError | None) -> None:
        """Make all calls, present and future, fail: no more answers will come."""
        assert self._child is not None
        # Set it first, so that a call that is not yet pending sees it.
        self._failure = failure = (
            self._failure or error or self._child.post_mortem(self._connection.said)
        )
        for answers in self._connection.take_pending():
            answers.put(copy.copy(failure))
