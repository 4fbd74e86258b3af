"""Provides the daemon's methods as coroutines, for `AsyncClient`.

`methods.py` has the same methods without await, for `Client`. `make sync` makes it from this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from shelld_client import calls
from shelld_client.async_jobs import AsyncJob
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.async_streams import AsyncEventStream, AsyncOutputStream
from shelld_client.call_options import (
    BashOptions,
    EventOptions,
    InputOptions,
    KillOptions,
    OnOutput,
    OutputOptions,
    RunOptions,
    ScreenOptions,
    StreamOptions,
)
from shelld_client.calls import Call
from shelld_client.errors import InvalidParams, MessageTooLarge, ShellError
from shelld_protocol.about import ServerInfoResult
from shelld_protocol.event_methods import OutputEvent
from shelld_protocol.input_methods import ResizeShellResult, WriteStdinResult
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.screen_methods import ReadScreenResult
from shelld_protocol.session_methods import (
    CloseSessionResult,
    ConfigureSessionResult,
    EnvironmentRules,
    ExplainCommandResult,
    GetSessionResult,
    SessionInfo,
)
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashOutputResult,
    BashResult,
    DryRunResult,
    HandOverResult,
    KillShellResult,
    ShellInfo,
)
from shelld_protocol.structs import DEFAULT_SESSION, OnPrompt, ResourceLimits
from shelld_protocol.target_methods import RemoveTargetResult, TargetInfo
from shelld_protocol.tool_methods import ToolFormat
from shelld_protocol.tools import ExecutionContext, ToolResult

if TYPE_CHECKING:
    from agents import FunctionTool
    from langchain_core.tools import StructuredTool
    from pydantic_ai import Tool as PydanticTool

T = TypeVar("T")


class AsyncMethods:
    """Each method raises `ShellError` or a subclass of it."""

    async def _request(self, call: Call[T]) -> T:
        """Return the daemon's answer to a call."""
        raise NotImplementedError

    async def _finish(self, call: Call[T]) -> T:
        """Return the daemon's answer to a call, even if the caller is cancelled."""
        raise NotImplementedError

    async def _begin(self, call: Call[Any]) -> AsyncOngoing:
        """Send a call.

        The caller takes the events and the answer of the call one by one from the returned object.
        """
        raise NotImplementedError

    def _may_reconnect(self, error: ShellError) -> bool:
        """Return whether a later call may reach the same daemon after `error`.

        A client that can reconnect overrides this method.
        """
        return False

    def _repeatable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of a subscription.

        A client that can reconnect overrides this method, so that it can repeat the request.
        """
        return options

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
        on_prompt: Literal["wait", "kill"] = ...,
        **options: Unpack[RunOptions],
    ) -> BashResult: ...

    @overload
    async def bash(
        self,
        command: str,
        *,
        run_in_background: bool = ...,
        dry_run: Literal[False] = ...,
        on_timeout: Literal["kill", "background"] = ...,
        on_prompt: OnPrompt = ...,
        **options: Unpack[RunOptions],
    ) -> BashResult | BackgroundResult: ...

    @overload
    async def bash(
        self,
        command: str,
        *,
        run_in_background: bool = ...,
        dry_run: bool = ...,
        on_timeout: Literal["kill", "background"] = ...,
        on_prompt: OnPrompt = ...,
        **options: Unpack[RunOptions],
    ) -> BashResult | BackgroundResult | DryRunResult: ...

    async def bash(
        self, command: str, **options: Any
    ) -> BashResult | BackgroundResult | DryRunResult:
        """Run a command; see `RunOptions` and `BashOptions` for the other options.

        `on_timeout` says what to do at the timeout: kill the command ("kill", the default), or
        return a `BackgroundResult` ("background"). `on_prompt` says what to do once the daemon has
        proved that the command waits for input: keep waiting ("wait", the default), "kill" or
        "background".

        A command that fails has a result as well, unless `check` is given. Raises
        `CommandTimedOut`, `SpawnFailed` and other errors.
        """
        if "check" not in options and "on_output" not in options:
            return await self._request(calls.bash(command, options))
        check, on_output = options.pop("check", False), options.pop("on_output", None)
        result: BashResult | BackgroundResult | DryRunResult
        if check or on_output is not None:
            calls.check_run_options(options, on_output)
        if on_output is None:
            result = await self._request(calls.bash(command, options))
        else:
            result = await self._followed(command, options, on_output)
        return calls.checked(result) if check else result

    async def _followed(
        self, command: str, options: Mapping[str, Any], on_output: OnOutput
    ) -> BashResult | BackgroundResult:
        async with self.stream(command, **options) as stream:
            async for item in stream:
                if isinstance(item, OutputEvent):
                    on_output(item)
        assert stream.result is not None
        return stream.result

    async def bash_output(self, bash_id: str, **options: Unpack[OutputOptions]) -> BashOutputResult:
        """Return a shell's output from byte offsets, or since the last call without offsets."""
        return await self._request(calls.bash_output(bash_id, options))

    async def write_stdin(
        self, bash_id: str, text: str | None = None, **options: Unpack[InputOptions]
    ) -> WriteStdinResult:
        """Write to the terminal or the open stdin of a shell. Wait, and return the new output.

        Raises `StdinClosed` or `NotPossible`. If the guard blocks a line that a shell would read,
        raises `CommandBlocked`.
        """
        return await self._request(calls.write_stdin(bash_id, text, options))

    async def resize_shell(self, bash_id: str, rows: int, cols: int) -> ResizeShellResult:
        """Change the size of a shell's terminal. Does nothing to an ended shell.

        Raises `NotPossible` for a shell without a terminal.
        """
        return await self._request(calls.resize_shell(bash_id, rows, cols))

    async def read_screen(self, bash_id: str, **options: Unpack[ScreenOptions]) -> ReadScreenResult:
        """Return the screen of a shell's terminal, as a person would see it.

        Raises `NotPossible` for a shell without a terminal, and `Unavailable` if the daemon lacks
        the extra `screen`.
        """
        return await self._request(calls.read_screen(bash_id, options))

    def events(self, **options: Unpack[EventOptions]) -> AsyncEventStream:
        """Return the events of shells. Use the result with ``async with``, and iterate over it.

        By default, the iteration yields the output and exit events of all shells, including shells
        that start later.
        """
        return AsyncEventStream(self._begin, self._repeatable(options))

    def stream(self, command: str, **options: Unpack[StreamOptions]) -> AsyncOutputStream:
        """Run a command as `bash` does.

        Iterating yields the output as it comes, and then the result. If you leave the iteration,
        the command is killed.
        """
        call = calls.followed_bash(command, options, ["output", "exit"])
        return AsyncOutputStream(self._begin, self._request, self._may_reconnect, call)

    def start(self, command: str, **options: Unpack[BashOptions]) -> AsyncJob:
        """Run a command in the background.

        Use the job with ``async with``. When the block ends, the job is killed.
        """
        call = calls.followed_bash(command, {**options, "run_in_background": True}, None)
        return AsyncJob(self._begin, self._request, self._finish, self._may_reconnect, call)

    async def kill_shell(self, shell_id: str, **options: Unpack[KillOptions]) -> KillShellResult:
        """Kill a shell and every process it started."""
        return await self._request(calls.kill_shell(shell_id, options))

    async def background(self, bash_id: str) -> HandOverResult:
        """Move a shell to the background.

        The call of `bash` that waits for the shell then returns a `BackgroundResult`.

        The command continues without its timeout. `list_shells` shows which shells are in the
        foreground.
        """
        return await self._request(calls.background(bash_id))

    async def list_shells(
        self, *, session: str | None = None, target: str | None = None
    ) -> list[ShellInfo]:
        """Return the running and retained shells of the daemon or a target, oldest first."""
        return await self._request(calls.list_shells(session, target))

    async def configure_session(
        self,
        session: str,
        *,
        env: EnvironmentRules | None = None,
        limits: ResourceLimits | None = None,
        target: str | None = None,
        sandbox: SandboxPolicy | None = None,
    ) -> ConfigureSessionResult:
        """Set a session's target, environment, limits and sandbox.

        Call this before the session's first command. Raises `InvalidParams` for a later call, or if
        a limit is higher than the daemon's --limit. These settings hold until the session is
        closed. Raises `Unavailable` if the daemon cannot enforce the sandbox; the session then
        refuses its commands.
        """
        return await self._request(calls.configure_session(session, env, limits, target, sandbox))

    async def get_session(
        self, session: str = DEFAULT_SESSION, *, target: str | None = None
    ) -> GetSessionResult:
        """Return the state in which the session's next command starts.

        Raises `SessionNotFound` for a session that was never used.
        """
        return await self._request(calls.get_session(session, target))

    async def list_sessions(self) -> list[SessionInfo]:
        """Return all sessions."""
        return await self._request(calls.list_sessions())

    async def close_session(self, session: str, *, target: str | None = None) -> CloseSessionResult:
        """Kill a session's shells and their leftover processes, and delete the session."""
        return await self._request(calls.close_session(session, target))

    async def add_target(self, name: str, argv: Sequence[str], *, bootstrap: bool = False) -> None:
        """Register another daemon under a name, so that calls can be passed on to it. `argv` starts
        that daemon.

        With `bootstrap`, `argv` connects to a machine that has Python but not shelld, and the
        daemon sends shelld there. The other daemon starts when a call first needs it. Raises
        `InvalidParams` if the name is taken.
        """
        await self._request(calls.add_target(name, argv, bootstrap=bootstrap))

    async def list_targets(self, *, target: str | None = None) -> list[TargetInfo]:
        """Return the targets of the daemon. If `target` is given, return that daemon's targets."""
        return await self._request(calls.list_targets(target))

    async def remove_target(self, name: str) -> RemoveTargetResult:
        """End a target's daemon with all its shells, and forget the target."""
        return await self._request(calls.remove_target(name))

    async def explain_command(
        self,
        command: str,
        *,
        session: str | None = DEFAULT_SESSION,
        env: Mapping[str, str | None] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> ExplainCommandResult:
        """Return the guard's verdict on a command, without running it."""
        return await self._request(calls.explain_command(command, session, env, cwd))

    async def tool_schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:  # noqa: A002
        """Return the tool definitions in the format of "openai", "anthropic" or "mcp"."""
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

    async def _call_for_model(
        self,
        name: str,
        context: ExecutionContext | Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
    ) -> ToolResult:
        """Execute a tool call with the arguments that a model has made.

        If the arguments cannot be encoded in a request (for example, half a surrogate pair), the
        result is a failure.
        """
        try:
            return await self.call_tool(name, arguments, context=context)
        except MessageTooLarge as error:
            return ToolResult.fail(str(error))
        except InvalidParams as error:
            if (error.parameter or "").partition(".")[0] != "arguments":
                # The error is about a parameter that comes from the program, not from the model.
                raise
            return ToolResult.fail(str(error))

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
                call_async=partial(self._call_for_model, tool["name"], context),
            )
            for tool in await self.tool_schemas("anthropic")
        ]

    async def openai_agents_tools(
        self, *, context: ExecutionContext | Mapping[str, Any] | None = None
    ) -> list[FunctionTool]:
        """Return the tools in the form that an agent of the OpenAI Agents SDK takes.

        Needs the extra ``openai-agents``.
        """
        from shelld_client.openai_agents import function_tool  # noqa: PLC0415

        return [
            function_tool(
                tool["name"],
                tool["description"],
                tool["input_schema"],
                call_async=partial(self._call_for_model, tool["name"], context),
            )
            for tool in await self.tool_schemas("anthropic")
        ]

    async def pydantic_ai_tools(
        self, *, context: ExecutionContext | Mapping[str, Any] | None = None
    ) -> list[PydanticTool[object]]:
        """Return the tools for an agent of Pydantic AI. Needs the extra ``pydantic-ai``."""
        from shelld_client.pydantic_ai import pydantic_tool  # noqa: PLC0415

        return [
            pydantic_tool(
                tool["name"],
                tool["description"],
                tool["input_schema"],
                call_async=partial(self._call_for_model, tool["name"], context),
            )
            for tool in await self.tool_schemas("anthropic")
        ]

    async def server_info(self) -> ServerInfoResult:
        """Return the daemon's version, limits and counters."""
        return await self._request(calls.server_info())

    async def discover(self) -> dict[str, Any]:
        """Return the OpenRPC document, which describes all methods of the daemon."""
        return await self._request(calls.discover())

    async def ping(self) -> None:
        """Wait for the daemon to answer."""
        await self._request(calls.ping())
