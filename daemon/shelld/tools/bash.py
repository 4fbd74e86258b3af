"""Implements ``Bash``, which runs a command and shows the result to a model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import anyio
from msgspec.structs import replace

from shelld.guard import DANGEROUS_PATTERNS, StartState
from shelld.guard.judgement import judge
from shelld.methods.bash import dry_run, is_answerable, run_for_answer
from shelld.methods.context import RequestContext
from shelld.process.options import DEFAULT_TIMEOUT_MS
from shelld.process.user import home_without_variable
from shelld.sessions.text import current_directory, shown
from shelld.shells.shell import Shell
from shelld.tools.bash_output import DEFAULT_WAIT_MS, news
from shelld.tools.bash_result import DeferredBashResult, EndState, ended, moved, started
from shelld.tools.execution import ExecutionTool
from shelld.tools.text import MAX_OUTPUT_SIZE, excerpt_readers
from shelld.waits.until import preparing
from shelld_protocol.errors import RpcError, invalid_params
from shelld_protocol.shell_methods import BashOutputParams, BashParams
from shelld_protocol.structs import (
    DEFAULT_SESSION,
    MAX_TIMEOUT_MS,
    Pattern,
    Port,
    QuietMs,
    Until,
    Wait,
)
from shelld_protocol.tools import ExecutionContext, ToolParameter, ToolResult

# A caller may pass any number of seconds. More than one year counts as one year.
_LONGEST_TIMEOUT_S: Final = 365 * 24 * 3600

_CONTEXT_TIMEOUT_S: Final = ExecutionContext("").timeout

# The fields that `BashToolParams` adds.
_WAIT_PARAMS: Final = ("wait", "until", "pattern", "quiet_ms", "port")


class BashToolParams(BashParams):
    """With `run_in_background`, a model can start a server and wait for it in one call."""

    wait: Wait | None = None
    until: Until | None = None
    pattern: Pattern | None = None
    quiet_ms: QuietMs | None = None
    port: Port | None = None


class BashTool(ExecutionTool):
    """`MAX_OUTPUT_SIZE` is the maximum number of characters of output. The notice about omitted
    output does not count.

    A subclass may have other limits. Its `DEFAULT_TIMEOUT_MS` replaces the daemon's default and the
    default `timeout` of a context. A subclass with another `name` needs other `aliases`.

    If a command fails, the result is a failure. The error is a sentence, followed by the output of
    the command.
    """

    DEFAULT_TIMEOUT_MS: ClassVar[int] = DEFAULT_TIMEOUT_MS
    MAX_TIMEOUT_MS: ClassVar[int] = MAX_TIMEOUT_MS
    MAX_OUTPUT_SIZE: ClassVar[int] = MAX_OUTPUT_SIZE
    DANGEROUS_PATTERNS: ClassVar[list[str]] = list(DANGEROUS_PATTERNS)
    # In the description for models, this sentence is about programs that prompt for an answer.
    PROMPTS: ClassVar[str] = "Nobody can answer a prompt: use flags such as -y, or stdin."

    aliases = ("bash",)
    annotations: ClassVar[Mapping[str, Any]] = {
        "title": "Run a command",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    params_type = BashToolParams
    exposed: ClassVar[Mapping[str, str]] = {
        "command": "The command to execute",
        "description": "Clear, concise description (5-10 words)",
        "timeout": "Timeout in milliseconds",
        "run_in_background": "Run in background",
        "on_timeout": "What to do at the timeout",
        "cwd": "Directory of this command (default: that of the session)",
        "stdin": "Standard input (default: empty)",
        "session": "Any name (default: main)",
        "until": "With run_in_background: what to wait for",
        "wait": f"Milliseconds to wait at most (default: {DEFAULT_WAIT_MS})",
        "pattern": "Regex, for until=match",
        "quiet_ms": "Milliseconds, for until=quiet (default: 500)",
        "port": "For until=listening (default: any)",
    }
    without_default = frozenset({"session"})

    @property
    def name(self) -> str:
        return "Bash"

    @property
    def description(self) -> str:
        default = self.DEFAULT_TIMEOUT_MS
        if self._daemon is not None and default == DEFAULT_TIMEOUT_MS:
            default = self._daemon.options.default_timeout
        return f"""\
Runs a command in bash; returns its output, and its exit code if that is not 0.
- As in one terminal, the directory, variables and functions that a command sets are there for the \
next. In parallel calls, use cwd, not cd.
- After timeout ms (default {default}) the command is killed with all that it started; with \
on_timeout="background" it goes on.
- For servers and anything long: run_in_background=true returns a bash_id at once. BashOutput \
reads, KillShell ends. Use neither & nor sleep: a server is up with until="listening".
- {self.PROMPTS}
- Of more than {self.MAX_OUTPUT_SIZE} characters the middle is left out."""

    @cached_property
    def _parameters(self) -> Sequence[ToolParameter]:
        return [
            replace(each, maximum=self.MAX_TIMEOUT_MS) if each.name == "timeout" else each
            for each in super()._parameters
        ]

    def time_limit(self, context: ExecutionContext, params: Mapping[str, Any]) -> float:
        # The command has its own timeout, and the kill after this timeout also takes time.
        return math.inf

    def _check_dangerous_command(self, command: str) -> str | None:
        """Return the reason why the guard blocks a command, or None if it does not block the
        command.
        """
        env = dict(os.environ)
        verdict = judge(
            command, StartState(current_directory(), env, home=home_without_variable(env))
        )
        return verdict.reason if verdict.verdict == "block" else None

    def _discard(self, request: RequestContext) -> None:
        if request.shell is not None:
            request.shell.discard()

    async def _dry_run(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        return await self._with_daemon(self._judge, context, params)

    async def _judge(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        _read_params(context, params)
        result = await dry_run(request, _bash_params(request, context, params))
        return ToolResult.ok(
            result.stdout, dry_run=True, command=result.command, verdict=result.verdict
        )

    async def _run(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        read_params = _read_params(context, params)
        bash_params = _bash_params(request, context, params)
        manager, session = request.daemon.manager, bash_params.session
        command, description = bash_params.command, bash_params.description
        session_cwd = None
        if bash_params.cwd is None:
            session_cwd = manager.sessions.peek(session).cwd

        deferral = request.deferral
        if deferral is not None:
            # A prompt turns the call into a task, and the prompt must not change how the command
            # runs.
            bash_params.on_prompt = "wait"

        async def result(shell: Shell) -> ToolResult:
            lines = moved(shell, session_cwd)
            limit = min(self.MAX_OUTPUT_SIZE, context.max_output_size)

            def next_cwd() -> str:
                return shown(manager.sessions.peek(session).resolve(None))

            if bash_params.run_in_background:
                result = started(shell, command, description, lines)
                if read_params.wait:
                    patience = math.inf if deferral is None else deferral.seconds_left
                    with anyio.move_on_after(patience):
                        return await with_news(shell, result, limit)
                elif deferral is None:
                    return result
            elif deferral is None or is_answerable(shell):
                end_state = EndState.of(shell, lines, next_cwd())
                # If the client is lost, perhaps nobody gets this result. So these readers leave the
                # output unread.
                ends = end_state.written if request.is_left else None
                readers = excerpt_readers(shell, limit, ends)
                return await ended(shell, command, description, end_state, readers)
            else:
                result = started(shell, command, description, lines)
            assert deferral is not None
            deferral.defer(shell, DeferredBashResult(lines, limit, next_cwd))
            return result

        async def with_news(shell: Shell, result: ToolResult, limit: int) -> ToolResult:
            try:
                read = await news(request, shell, read_params, waiting, limit)
            except RpcError as error:
                # The command runs even if the wait has failed.
                return replace(result, output=f"{result.output}\n[{error.message}]")
            read.metadata = {**result.metadata, **read.metadata}
            return replace(read, output=f"{result.output}\n{read.output}")

        async with preparing(read_params, manager) as waiting:
            return await run_for_answer(request, bash_params, result, self._default_ms(context))

    def _default_ms(self, context: ExecutionContext) -> int | None:
        """Return the default timeout of a command; None for the default of the daemon."""
        own = None if self.DEFAULT_TIMEOUT_MS == DEFAULT_TIMEOUT_MS else self.DEFAULT_TIMEOUT_MS
        is_default = own is not None and context.timeout == _CONTEXT_TIMEOUT_S
        if is_default or math.isinf(context.timeout):
            return own
        return max(1, round(min(context.timeout, _LONGEST_TIMEOUT_S) * 1000))


def _read_params(context: ExecutionContext, params: dict[str, Any]) -> BashOutputParams:
    """Remove the parameters of the wait from `params`, and return them. Raises `RpcError`
    (invalid_params).
    """
    given: dict[str, Any] = {name: params.pop(name) for name in _WAIT_PARAMS if name in params}
    if not given:
        return BashOutputParams("")
    if not params.get("run_in_background"):
        name = next(iter(given))
        raise invalid_params(f"Invalid value for {name}: needs run_in_background=true", name)
    given.setdefault("wait", DEFAULT_WAIT_MS)
    read_params = BashOutputParams("", **given)
    read_params.wait = round(min(read_params.wait, context.timeout * 1000))
    return read_params


def _bash_params(
    request: RequestContext, context: ExecutionContext, params: dict[str, Any]
) -> BashParams:
    """Return the parameters of a command. Raises `RpcError` (invalid_params)."""
    session = params.pop("session", None) or context.session_id or DEFAULT_SESSION
    # A tool runs commands only at this daemon.
    request.daemon.targets.check_is_here(session)
    cwd = params.pop("cwd", None)
    # `working_dir` may be a `Path` if the caller is Python code.
    if working_dir := os.fspath(context.working_dir):
        cwd = f"{working_dir}/{cwd}" if cwd and not cwd.startswith("/") else cwd
        cwd = cwd or working_dir
    if params.get("tty"):
        # The model can answer a prompt, so its call need not wait until the timeout.
        params["on_prompt"] = "background"
    return BashParams(**params, session=session, cwd=cwd)
