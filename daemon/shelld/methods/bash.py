"""``bash``: validate, judge, start, wait, answer. A cancellation or a failure before the answer
kills the command: without the answer, nobody would know of the command.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
import anyio.lowlevel
import msgspec

from shelld.audit import AuditRecord, timestamp
from shelld.eventloop.threads import run_in_thread
from shelld.guard.verdict import Verdict
from shelld.limits.members import LIMIT_REASONS
from shelld.methods.context import RequestContext
from shelld.methods.events import notifying
from shelld.methods.guard import admit
from shelld.methods.here import check_is_here
from shelld.methods.input import typed_first
from shelld.methods.once import start_once
from shelld.output.reader import STEP_BYTES, Head, read_head
from shelld.output.retention import OutputStream
from shelld.process.logs import Log
from shelld.sandbox.policy import tightened
from shelld.sandbox.sandboxes import SandboxKey
from shelld.sessions.text import check_text, shown, to_text
from shelld.shells.launch import StartRequest, TimeoutPolicy
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.shell import Shell
from shelld.shells.starting import raise_failure, started_pid, wait_for_start
from shelld.terminals.pty import Size
from shelld.terminals.typed import NOTHING_TYPED, TypedLine
from shelld.waits.prompts import state_of
from shelld.waits.watch import watch
from shelld_protocol.errors import ErrorKind, RpcError, invalid_params, timed_out
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashParams,
    BashResult,
    DryRunResult,
)
from shelld_protocol.structs import GuardVerdict

logger = Log("shelld.guard")

T = TypeVar("T")

# The name of the terminfo entry that describes the terminals of commands.
TERM = "xterm-256color"

MAX_RESULT_BYTES = 1024 * 1024


async def bash(
    context: RequestContext, params: BashParams
) -> BashResult | BackgroundResult | DryRunResult:
    check_is_here(params.target)
    params = await _with_text_stdin(params)
    if params.dry_run:
        return await dry_run(context, params)
    make_answer = partial(_result, context, params)
    start = partial(run_for_answer, context, params, make_answer)
    if params.idempotency_key is None:
        return await start()
    return await start_once(
        context.daemon.keys,
        context,
        params.idempotency_key,
        params.command,
        start=start,
        again=partial(_answer_again, context, params),
    )


async def _with_text_stdin(params: BashParams) -> BashParams:
    """Return the params with `stdin` from `stdin_base64`. Raises `RpcError`."""
    if params.stdin_base64 is None:
        return params
    if params.stdin is not None:
        raise invalid_params("Give stdin or stdin_base64, not both", "stdin_base64")
    decode = partial(_decoded, params.stdin_base64)
    try:
        is_long = len(params.stdin_base64) > STEP_BYTES
        text = await run_in_thread(decode, abandon_on_cancel=True) if is_long else decode()
    except ValueError:
        sentence = "Invalid value for stdin_base64: not in base64"
        raise invalid_params(sentence, "stdin_base64") from None
    return msgspec.structs.replace(params, stdin=text)


def _decoded(text: str) -> str:
    """Decode base64. Raises ValueError.

    Decodes in steps, between which other threads can run. A character that two steps share becomes
    surrogates, which stand for the same bytes.
    """
    parts = [text[start : start + STEP_BYTES] for start in range(0, len(text), STEP_BYTES)]
    return "".join(to_text(base64.b64decode(part, validate=True)) for part in parts)


async def run_for_answer(
    context: RequestContext,
    params: BashParams,
    make_answer: Callable[[Shell], Awaitable[T]],
    timeout_ms: int | None = None,
) -> T:
    """Start a command and wait until the request can be answered: when the command has started, has
    ended, or moves to the background.

    Returns the result of `make_answer`. While the caller waits, a cancellation or a failure kills
    the command with all its processes. If output must be dropped during the call, the output of
    other, ended shells is dropped first. `timeout_ms` applies to a foreground command that has no
    timeout in `params`; without `timeout_ms`, the daemon's default applies. Raises `RpcError`.
    """
    verdict, typed = await _admitted(context, params)
    if verdict.verdict == "block":
        logger.warning("a dangerous command runs, because the guard only warns: %s", verdict.rule)
    request = StartRequest(
        command=params.command,
        description=params.description,
        session=params.session,
        cwd=params.cwd,
        env=_with_terminal(params.env) if params.tty else params.env,
        stdin=params.stdin,
        typed=typed,
        terminal=Size(params.rows, params.cols) if params.tty else None,
        open_stdin=params.open_stdin,
        merge=params.merge,
        timeout=_timeout_policy(context, params, timeout_ms),
        idle_timeout=_idle_policy(context, params),
        in_foreground=not params.run_in_background,
        verdict=verdict.verdict,
        warning=verdict.reason if verdict.verdict == "block" else None,
        sandbox=None if params.sandbox is None else _sandbox(context, params, params.sandbox),
    )
    manager = context.daemon.manager
    with notifying(context, params) as begin_events:
        shell = await manager.start(request)
        return await _answer(context, params, shell, begin_events, make_answer)


async def _answer(
    context: RequestContext,
    params: BashParams,
    shell: Shell,
    begin_events: Callable[[Shell], None],
    make_answer: Callable[[Shell], Awaitable[T]],
) -> T:
    """Wait until the request of a started command can be answered, and return the answer.

    The events of a background command follow the answer.
    """
    context.ends_with_client = params.on_disconnect == "kill" and not params.run_in_background
    context.runs(shell)
    with context.daemon.manager.reading(shell):
        try:
            _watch_prompts(context, shell, params)
            if params.run_in_background:
                await wait_for_start(shell)
                begin_events(shell)
            else:
                begin_events(shell)
                if context.deferral is None:
                    await shell.wait_until(partial(is_answerable, shell))
                else:
                    await context.deferral.wait(shell)
                raise_failure(shell)
            if shell.recorder is not None:
                await shell.recorder.settle()
            answer = await make_answer(shell)
            if context.is_over:
                # The cancellation came together with the event that this task waited for.
                await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            if context.is_left:
                shell.release()
            else:
                await _kill(context, shell)
            raise
        except Exception:
            if not shell.has_ended:
                shell.discard()
            raise
    return answer


async def _answer_again(
    context: RequestContext, params: BashParams, shell: Shell
) -> BashResult | BackgroundResult:
    """Answer a repeated request, whose command was started by an earlier one.

    While a call waits for the command, its limits hold. Otherwise the timeout of this request
    holds, from now on. A cancellation kills the command, unless another call waits for it.
    """
    context.ends_with_client = params.on_disconnect == "kill" and not params.run_in_background
    context.runs(shell)
    has_limits = shell.is_in_foreground
    with notifying(context, params) as begin_events, context.daemon.manager.reading(shell):
        begin_events(shell)
        try:
            if params.run_in_background:
                await wait_for_start(shell)
            elif has_limits:
                await shell.wait_until(partial(is_answerable, shell))
            else:
                await _wait_with_timeout(context, params, shell)
            raise_failure(shell)
            if shell.recorder is not None:
                await shell.recorder.settle()
            answer = await _result(context, params, shell)
        except anyio.get_cancelled_exc_class():
            if context.is_left:
                shell.release()
            elif not (params.run_in_background or shell.is_in_foreground):
                await _kill(context, shell)
            raise
    if isinstance(answer, BackgroundResult):
        answer.status = shell.status.value
    return answer


async def _wait_with_timeout(context: RequestContext, params: BashParams, shell: Shell) -> None:
    """Wait for the end of a command that has no limits. At the timeout, kill it or go on."""

    def is_over() -> bool:
        return shell.is_empty or (shell.has_ended and is_answerable(shell))

    policy = _timeout_policy(context, params, None)
    assert policy is not None
    with anyio.move_on_after(policy.timeout_ms / 1000):
        await shell.wait_until(is_over)
    if policy.action == "kill" and not is_over():
        await shell.end_tree(None, policy.grace_ms, ShellEvent.TIMED_OUT)


def _sandbox(
    context: RequestContext, params: BashParams, given: SandboxPolicy
) -> SandboxKey | None:
    """Return the sandbox of a call that tightens its session's. Raises `RpcError`."""
    session = context.daemon.manager.sessions.look_at(params.session)
    own = None if session.sandbox is None else session.sandbox.policy
    engine = context.daemon.options.sandbox_engine
    policy = tightened(own, given, session.cwd, engine)
    return None if policy is None else SandboxKey(policy, session.rules)


def _watch_prompts(context: RequestContext, shell: Shell, params: BashParams) -> None:
    """Start `watch`, if `on_prompt` can have an effect."""
    is_there_already = params.run_in_background and params.on_prompt == "background"
    if params.on_prompt == "wait" or shell.input is None or is_there_already:
        return
    grace, manager = context.daemon.options.grace, context.daemon.manager
    manager.attend(partial(watch, shell, params.on_prompt, grace, manager.looks))


def _with_terminal(env: dict[str, str | None] | None) -> dict[str, str | None]:
    """Return the variables of a command that has a terminal."""
    # Programs would believe LINES and COLUMNS rather than the terminal.
    return {"TERM": TERM, "LINES": None, "COLUMNS": None, **(env or {})}


def _timeout_policy(
    context: RequestContext, params: BashParams, timeout_ms: int | None
) -> TimeoutPolicy | None:
    options = context.daemon.options
    if params.run_in_background:
        if params.timeout is None:
            return None
        return TimeoutPolicy(params.timeout, "kill", options.grace)
    timeout_ms = params.timeout or timeout_ms or options.default_timeout
    return TimeoutPolicy(timeout_ms, params.on_timeout, options.grace)


def _idle_policy(context: RequestContext, params: BashParams) -> TimeoutPolicy | None:
    if params.idle_timeout is None:
        return None
    action = "kill" if params.run_in_background else params.on_timeout
    return TimeoutPolicy(params.idle_timeout, action, context.daemon.options.grace)


async def _kill(context: RequestContext, shell: Shell) -> None:
    """Kill the command of a cancelled request."""
    survivors: list[int] = []
    with anyio.CancelScope(shield=True):
        survivors = await shell.end_tree(None, context.daemon.options.grace)
        if shell.recorder is not None:
            # Otherwise the session would wait for ever for the command's leftover processes.
            await shell.recorder.settle()
    if survivors:
        context.error_data["survivors"] = survivors


def is_answerable(shell: Shell) -> bool:
    """Return whether the request of a foreground command can be answered now."""
    if shell.is_empty:
        return True
    if shell.has_ended:
        # After our own kill, answer only once it is known whether the command has died or survives.
        is_above_limit = shell.status is ShellStatus.KILLED and shell.reason in LIMIT_REASONS
        is_our_kill = shell.status is ShellStatus.TIMEOUT or is_above_limit
        return not is_our_kill or bool(shell.survivors)
    # The command moved to the background, but may not have started yet.
    return shell.released and shell.pid is not None


async def _result(
    context: RequestContext, params: BashParams, shell: Shell
) -> BashResult | BackgroundResult:
    if params.run_in_background or (shell.released and not shell.has_ended):
        return _background_result(context, shell, params)
    result = await _foreground_result(context, shell, params)
    timeout_ms = shell.idle_timeout_ms if shell.reason == "idle" else shell.timeout_ms
    # A command that began in the background has the timeout of the request that waits for it.
    timeout_ms = timeout_ms or params.timeout or context.daemon.options.default_timeout
    if shell.status is ShellStatus.TIMEOUT:
        data = msgspec.to_builtins(result)
        if shell.survivors:
            data["survivors"] = shell.survivors
        raise timed_out(timeout_ms, data)
    return result


async def _foreground_result(
    context: RequestContext, shell: Shell, params: BashParams
) -> BashResult:
    if shell.output.written > STEP_BYTES:
        try:
            await context.begin_large_answer()
        except RpcError as error:
            # With the id, the client can still read the command's output.
            error.data["bash_id"] = shell.id
            raise
    final, strip = shell.output_is_complete, params.strip_ansi

    async def head(stream: OutputStream) -> Head:
        head = await read_head(stream.store, MAX_RESULT_BYTES, strip=strip, final=final)
        # The output in the answer counts as read. bash_output continues after it.
        stream.read_position = max(stream.read_position, head.end)
        return head

    nothing = Head("", 0, is_cut=False)
    stdout = await head(shell.stdout) if shell.stdout.store.written else nothing
    stderr = await head(shell.stderr) if shell.stderr.store.written else nothing
    session_cwd: str | None = None
    if shell.session is not None:
        session_cwd = shown(context.daemon.manager.sessions.look_at(shell.session).resolve(None))
    state_reason = None if shell.recorder is None else shell.recorder.reason
    return BashResult(
        bash_id=shell.id,
        command=params.command,
        stdout=stdout.text,
        stderr=stderr.text,
        exit_code=shell.exit_code,
        signal=shell.signal,
        status=shell.status.value,
        duration_ms=shell.elapsed_ms,
        truncated=stdout.is_cut or stderr.is_cut,
        stdout_bytes=shell.stdout.store.written,
        stderr_bytes=shell.stderr.store.written,
        cwd=shown(shell.working_dir),
        session_cwd=session_cwd,
        state_kept=None if state_reason is None else False,
        state_reason=state_reason,
        leftover=shell.leftover,
        usage=shell.usage.in_milliseconds(),
        description=params.description,
        warning=shell.warning,
        reason=shell.reason,
        limits=shell.limits,
        spool_error=shell.output.error,
        subscription=context.subscription,
        invalid_bytes=(stdout.invalid + stderr.invalid) or None,
        sandbox=shell.sandbox,
    )


def _background_result(
    context: RequestContext, shell: Shell, params: BashParams
) -> BackgroundResult:
    return BackgroundResult(
        bash_id=shell.id,
        command=params.command,
        status="running",
        pid=started_pid(shell),
        message=f"Started background shell {shell.id}",
        prompt=state_of(shell, shell.released_at).prompt,
        description=params.description,
        warning=shell.warning,
        reason=shell.reason,
        limits=shell.limits,
        subscription=context.subscription,
        sandbox=shell.sandbox,
    )


async def dry_run(context: RequestContext, params: BashParams) -> DryRunResult:
    """Validate and judge a command. Raises `RpcError` (invalid_params, blocked)."""
    verdict = (await _admitted(context, params))[0].verdict
    _log(context, params, "dry_run", verdict)
    return DryRunResult(
        dry_run=True,
        command=params.command,
        stdout=f"[Dry Run] Would execute: {params.command}",
        verdict=verdict,
        description=params.description,
    )


async def _admitted(context: RequestContext, params: BashParams) -> tuple[Verdict, TypedLine]:
    """If the command may run, return the guard's verdict and the unfinished line of `stdin`.

    Raises `RpcError` (invalid_params, blocked).
    """
    # Text from base64 is valid by construction.
    stdin = params.stdin if params.stdin_base64 is None else None
    check_text(params.command, params.cwd, params.env, stdin)
    await context.daemon.manager.sessions.look_at(params.session).settle_all()
    try:
        verdict = await admit(context, params)
        return verdict, await typed_first(context, params) if params.stdin else NOTHING_TYPED
    except RpcError as error:
        if error.kind is ErrorKind.BLOCKED:
            _log(context, params, "blocked", "block")
        raise


def _log(context: RequestContext, params: BashParams, status: str, verdict: GuardVerdict) -> None:
    """Log a command that does not run."""
    log = context.daemon.audit
    if log is not None:
        log.write(
            AuditRecord(
                time=timestamp(time.time()),
                session=params.session,
                command=params.command,
                description=params.description,
                status=status,
                guard=verdict,
            )
        )
