"""`Client`: the same methods without await, for any number of threads.

No event loop: the calling thread writes its request itself, and one thread reads the answers and
wakes the thread that waits for each. A call that is interrupted while it waits (KeyboardInterrupt)
is cancelled in the daemon.
"""

from __future__ import annotations

import os
import queue
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack, overload

from shelld_client import calls, child
from shelld_client.calls import BashOptions, Call, KillOptions, OutputOptions
from shelld_client.child import POST_MORTEM_S, READ_BYTES, Child, SpawnedClient
from shelld_client.connection import Connection
from shelld_client.errors import DaemonExited, ProtocolError, ShellError
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
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        super().__init__(command, env=env, cwd=cwd)
        # Guards the connection and the failure.
        self._lock = threading.Lock()
        self._connection: Connection[queue.SimpleQueue[Answer]] = Connection()
        self._failure: ShellError | None = DaemonExited("the client was not entered")
        # Guards stdin, and what an interrupted write has left to be written.
        self._write_lock = threading.Lock()
        self._unwritten = bytearray()
        self._reader: threading.Thread | None = None
        self._stop_reading, self._stop_reading_end = -1, -1

    def __enter__(self) -> Client:
        daemon = self._start_child()
        self._failure = None
        self._stop_reading, self._stop_reading_end = os.pipe()
        self._reader = threading.Thread(
            target=self._read, args=(daemon,), name="shelld-client", daemon=True
        )
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._child is not None
        assert self._reader is not None
        self._fail(DaemonExited("the client is closed"))
        try:
            self._end(self._child)
        finally:
            os.close(self._stop_reading_end)
            self._reader.join()
            os.close(self._stop_reading)
            self._child.stdout.close()
            self._child.stderr.close()

    def _end(self, daemon: Child) -> None:
        """End of file, then SIGTERM, then SIGKILL; returns once the daemon is reaped."""
        with suppress(OSError):
            daemon.stdin.close()
        process = daemon.process
        for seconds, end in (
            (child.CLOSE_TIMEOUT_S, process.terminate),
            (child.TERMINATE_TIMEOUT_S, process.kill),
        ):
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                end()
            else:
                return
        process.wait()

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
        """Run a command; see `BashOptions` for what else can be said of it.

        A command that fails is a result. `CommandTimedOut`, `SpawnFailed` and the others are
        raised.
        """
        return self._request(calls.bash(command, options))

    def bash_output(self, bash_id: str, **options: Unpack[OutputOptions]) -> BashOutputResult:
        """Read what a shell wrote since the last plain read, or from given byte offsets."""
        return self._request(calls.bash_output(bash_id, options))

    def kill_shell(self, shell_id: str, **options: Unpack[KillOptions]) -> KillShellResult:
        """End a shell with every process it started."""
        return self._request(calls.kill_shell(shell_id, options))

    def list_shells(self, *, session: str | None = None) -> list[ShellInfo]:
        """Return running and retained shells in start order."""
        return self._request(calls.list_shells(session))

    def get_session(self, session: str = "main") -> GetSessionResult:
        """Return what the session's next command starts from; an error for one never used."""
        return self._request(calls.get_session(session))

    def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions."""
        return self._request(calls.list_sessions())

    def close_session(self, session: str) -> CloseSessionResult:
        """Kill a session's shells and all they left, and forget the session."""
        return self._request(calls.close_session(session))

    def explain_command(
        self,
        command: str,
        *,
        session: str | None = "main",
        env: Mapping[str, str | None] | None = None,
        cwd: str | None = None,
    ) -> ExplainCommandResult:
        """Return what the guard sees in a command; it is not run."""
        return self._request(calls.explain_command(command, session, env, cwd))

    def tool_schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:  # noqa: A002
        """Return the tools as that API takes them: "openai", "anthropic" or "mcp"."""
        return self._request(calls.list_tools(format))

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        context: ExecutionContext | Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Execute a tool as a model asks for it; what goes wrong is a failed result.

        Of `context` what is None does not count.
        """
        return self._request(calls.call_tool(name, arguments, context))

    def langchain_tools(
        self, *, context: ExecutionContext | Mapping[str, Any] | None = None
    ) -> list[StructuredTool]:
        """Return the tools as LangChain has them. Needs the extra ``langchain``."""
        from shelld_client.langchain import langchain_tool  # noqa: PLC0415

        return [langchain_tool(self, schema, context) for schema in self.tool_schemas("anthropic")]

    def server_info(self) -> ServerInfoResult:
        """Return the daemon's version, limits and counters."""
        return self._request(calls.server_info())

    def ping(self) -> None:
        """Return when the daemon has answered."""
        self._request(calls.ping())

    # -- calls ------------------------------------------------------------------------------

    def _request(self, call: Call[T]) -> T:
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._lock:
            if self._failure is not None:
                raise self._failure
            request_id, frame = self._connection.call(call.method, call.params, answers)
        try:
            self._write(frame)
            answer = answers.get()
        except BaseException:
            # This thread was interrupted: the call must not go on alone.
            with self._lock:
                cancel = self._connection.cancel(request_id)
            self._write(cancel)
            raise
        if isinstance(answer, ShellError):
            raise answer
        return call.decode(answer)

    def _write(self, frame: bytes) -> None:
        """Write one message whole. A daemon that is gone shows when reading."""
        assert self._child is not None
        with self._write_lock:
            self._unwritten += frame
            try:
                while self._unwritten:
                    written = os.write(self._child.stdin.fileno(), self._unwritten)
                    del self._unwritten[:written]
            except (OSError, ValueError):
                return

    # -- the reading thread -----------------------------------------------------------------

    def _read(self, daemon: Child) -> None:
        """Hand answers to their calls, and keep stderr, until the daemon ends or we are told."""
        stdout, stderr = daemon.stdout.fileno(), daemon.stderr.fileno()
        sources = select.poll()
        for descriptor in (stdout, stderr, self._stop_reading):
            sources.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in sources.poll():
                if descriptor == stdout:
                    if not self._read_answers(stdout):
                        sources.unregister(stdout)
                        self._fail(self._post_mortem(daemon, sources))
                        return
                elif descriptor == stderr:
                    self._read_stderr(daemon, sources)
                else:
                    return

    def _read_answers(self, stdout: int) -> bool:
        data = os.read(stdout, READ_BYTES)
        try:
            with self._lock:
                answered = self._connection.receive(data)
        except ProtocolError as error:
            self._fail(error)
            return False
        for answers, answer in answered:
            answers.put(answer)
        return bool(data)

    def _read_stderr(self, daemon: Child, sources: select.poll) -> None:
        data = os.read(daemon.stderr.fileno(), READ_BYTES)
        daemon.keep_stderr(data)
        if not data:
            sources.unregister(daemon.stderr)

    def _post_mortem(self, daemon: Child, sources: select.poll) -> DaemonExited:
        exit_code = None
        with suppress(subprocess.TimeoutExpired):
            exit_code = daemon.process.wait(POST_MORTEM_S)
        stderr = daemon.stderr.fileno()
        while any(descriptor == stderr for descriptor, _ in sources.poll(0)):
            self._read_stderr(daemon, sources)
        return daemon.post_mortem(exit_code)

    def _fail(self, failure: ShellError) -> None:
        """No answer will come any more: all calls, present and future, raise `failure`."""
        with self._lock:
            self._failure = self._failure or failure
            pending = self._connection.take_pending()
        for answers in pending:
            answers.put(self._failure)
