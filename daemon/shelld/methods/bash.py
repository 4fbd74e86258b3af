"""The method ``bash``, which validates, judges and starts a command, waits, and answers.

A cancellation or a failure before the answer kills the command, because without the answer no
client would know of the command.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio

from shelld.audit import AuditRecord, timestamp
from shelld.limits.members import LIMIT_REASONS
from shelld.methods.bash_results import result_of
from shelld.methods.bash_start import Admitted, start_request, timeout_policy, with_text_stdin
from shelld.methods.context import RequestContext
from shelld.methods.events import notifying
from shelld.methods.guard import admit
from shelld.methods.here import check_is_here
from shelld.methods.input import typed_first
from shelld.methods.once import start_once
from shelld.process.logs import Log
from shelld.sessions.text import check_text
from shelld.shells.launch import StateChangedError
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.shell import Shell
from shelld.shells.starting import raise_failure, wait_for_start
from shelld.terminals.typed import NOTHING_TYPED
from shelld.waits.watch import watch
from shelld_protocol.errors import ErrorKind, RpcError, invalid_params
from shelld_protocol.shell_methods import (
    BackgroundResult,
    BashParams,
    BashResult,
    DryRunResult,
)
from shelld_protocol.structs import GuardVerdict

logger = Log("shelld.guard")

T = TypeVar("T")

# If another command changes the session before a command starts, the guard judges the command
# again. After this many judgements, the command starts in the session's current state. Otherwise, a
# command might never start in a session that other commands change all the time. A changed sandbox
# always leads to another judgement, because a command must never get more than its session allows.
MAX_JUDGEMENTS: Final = 4


async def bash(
    context: RequestContext, params: BashParams
) -> BashResult | BackgroundResult | DryRunResult:
    check_is_here(params.target)
    if params.dry_run:
        return await dry_run(context, await with_text_stdin(params))
    start = partial(_start, context, params)
    if params.idempotency_key is None:
        if params.key_must_exist:
            raise invalid_params("key_must_exist needs an idempotency_key", "key_must_exist")
        return await start()
    return await start_once(
        context.daemon.keys,
        context,
        params.idempotency_key,
        params.command,
        start=start,
        again=partial(_answer_again, context, params),
        key_must_exist=params.key_must_exist,
    )


async def _start(context: RequestContext, params: BashParams) -> BashResult | BackgroundResult:
    """Start a command, and answer its request."""
    # Do not decode the input of a repeated request, because that request does not use it, and a
    # cancellation during the decoding would not end the command.
    params = await with_text_stdin(params)
    return await run_for_answer(context, params, partial(result_of, context, params))


async def run_for_answer(
    context: RequestContext,
    params: BashParams,
    make_answer: Callable[[Shell], Awaitable[T]],
    timeout_ms: int | None = None,
) -> T:
    """Start a command, and wait until the request can be answered.

    A request can be answered when its command has started, has ended, or moves to the background.

    Returns the result of `make_answer`. While the caller waits, a cancellation or a failure kills
    the command with all its processes. If the daemon must drop output during the call, it first
    drops the output of other shells that have ended. `timeout_ms` applies to a foreground command
    that has no timeout in `params`; without `timeout_ms`, the daemon's default applies. Raises
    `RpcError`.
    """
    manager, is_judged = context.daemon.manager, context.daemon.options.guard != "off"
    context.ends_with_client = params.on_disconnect == "kill" and not params.run_in_background
    context.end_if_left()
    for count in itertools.count(1):
        # Do not judge the command of a request that was cancelled before it began.
        await context.end_if_cancelled()
        admitted = await _admitted(context, params)
        if not is_judged or count >= MAX_JUDGEMENTS:
            admitted = admitted._replace(judged_state=None)
        # Without this call, a cancelled request could still start its command. A cancellation takes
        # effect only while the task waits. The code above does not always wait, and neither does a
        # start in a spare shell.
        await context.end_if_cancelled()
        # A request that came later may have started the session at a target in the meantime.
        context.daemon.targets.check_is_here(params.session)
        request = start_request(context, params, admitted, timeout_ms)
        with suppress(StateChangedError), notifying(context, params) as begin_events:
            shell = await manager.start(request)
            if admitted.verdict.verdict == "block":
                rule = admitted.verdict.rule
                logger.warning("a dangerous command runs, because the guard only warns: %s", rule)
            return await _answer(context, params, shell, begin_events, make_answer)
    raise AssertionError


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
            await context.end_if_cancelled()
        except anyio.get_cancelled_exc_class():
            if context.leaves_command:
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
    """Answer a repeated request. An earlier request has already started the command.

    If the first call still waits for the command, the limits of that call apply, and only its
    cancellation kills the command. Otherwise, the timeout of this request applies from now on, and
    a cancellation kills the command, unless another repeated request waits for the command.
    """
    context.ends_with_client = params.on_disconnect == "kill" and not params.run_in_background
    context.runs(shell)
    has_limits, waits = shell.is_in_foreground, not params.run_in_background
    with notifying(context, params) as begin_events, context.daemon.manager.reading(shell):
        begin_events(shell)
        shell.repeats += waits
        try:
            if not waits:
                await wait_for_start(shell)
            elif has_limits:
                await shell.wait_until(partial(is_answerable, shell))
            else:
                await _wait_with_timeout(context, params, shell)
            raise_failure(shell)
            if shell.recorder is not None:
                await shell.recorder.settle()
            answer = await result_of(context, params, shell)
        except anyio.get_cancelled_exc_class():
            if context.leaves_command:
                shell.release()
            elif waits and not has_limits and shell.repeats == 1:
                await _kill(context, shell)
            raise
        finally:
            shell.repeats -= waits
    if isinstance(answer, BackgroundResult):
        answer.status = shell.status.value
    return answer


async def _wait_with_timeout(context: RequestContext, params: BashParams, shell: Shell) -> None:
    """Wait until a command without limits of its own has ended, or has moved to the background.

    At the timeout, kill the command if the timeout policy says so and no other call waits for the
    command. Otherwise, return.
    """

    def is_over() -> bool:
        return shell.is_empty or (shell.has_ended and is_answerable(shell))

    policy, hand_overs = timeout_policy(context, params, None), shell.hand_overs
    assert policy is not None
    with anyio.move_on_after(policy.timeout_ms / 1000):
        await shell.wait_until(lambda: is_over() or shell.hand_overs != hand_overs)
    if shell.hand_overs != hand_overs:
        await wait_for_start(shell)
        return
    if policy.action == "kill" and shell.repeats == 1 and not is_over():
        # Later answers about this command say which timeout has ended the command.
        shell.timeout_ms = policy.timeout_ms
        await shell.end_tree(None, policy.grace_ms, ShellEvent.TIMED_OUT)


def _watch_prompts(context: RequestContext, shell: Shell, params: BashParams) -> None:
    """Start `watch`, if `on_prompt` can have an effect."""
    is_there_already = params.run_in_background and params.on_prompt == "background"
    if params.on_prompt == "wait" or shell.input is None or is_there_already:
        return
    grace, manager = context.daemon.options.grace, context.daemon.manager
    manager.attend(partial(watch, shell, params.on_prompt, grace, manager.check_turns))


async def _kill(context: RequestContext, shell: Shell) -> None:
    """Kill the command of a cancelled request."""
    survivors: list[int] = []
    with anyio.CancelScope(shield=True):
        survivors = await shell.end_tree(None, context.daemon.options.grace)
        if shell.recorder is not None:
            # Settle the state here. Otherwise the session would wait for ever for this command.
            await shell.recorder.settle()
    sessions = context.daemon.manager.sessions
    if shell.sandbox is not None and shell.sandbox.replaced and sessions.has(shell.session):
        # The next result says that the sandbox is new.
        sessions.get(shell.session).last_sandbox = 0
    if survivors:
        context.error_data["survivors"] = survivors


def is_answerable(shell: Shell) -> bool:
    """Return whether the request of a foreground command can be answered now."""
    if shell.is_empty:
        return True
    if shell.has_ended:
        # If the daemon has killed the command, answer once the daemon knows whether any process
        # survives.
        has_our_reason = shell.reason in LIMIT_REASONS or shell.reason == "prompt"
        is_our_kill = shell.status is ShellStatus.TIMEOUT or (
            shell.status is ShellStatus.KILLED and has_our_reason
        )
        return not is_our_kill or bool(shell.survivors)
    # If the command has moved to the background, answer once the command has started.
    return shell.released and shell.pid is not None


async def dry_run(context: RequestContext, params: BashParams) -> DryRunResult:
    """Validate and judge a command. Raises `RpcError` (invalid_params, blocked)."""
    verdict = (await _admitted(context, params)).verdict.verdict
    _log(context, params, "dry_run", verdict)
    return DryRunResult(
        dry_run=True,
        command=params.command,
        stdout=f"[Dry Run] Would execute: {params.command}",
        verdict=verdict,
        description=params.description,
    )


async def _admitted(context: RequestContext, params: BashParams) -> Admitted:
    """Validate and judge a command. Raises `RpcError` (invalid_params, blocked)."""
    # Text that was decoded from base64 is always valid, so do not check it.
    stdin = params.stdin if params.stdin_base64 is None else None
    check_text(params.command, params.cwd, params.env, stdin)
    sessions = context.daemon.manager.sessions
    await sessions.peek(params.session).settle_all()
    # Look up the session again, because it may have been closed during this wait.
    state = sessions.peek(params.session).state
    try:
        verdict = await admit(context, params)
        typed = await typed_first(context, params) if params.stdin else NOTHING_TYPED
        return Admitted(verdict, typed, state)
    except RpcError as error:
        if error.kind is ErrorKind.BLOCKED:
            _log(context, params, "blocked", "block")
        raise


def _log(context: RequestContext, params: BashParams, status: str, verdict: GuardVerdict) -> None:
    """Write a record to the audit log, for a command that does not run."""
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
