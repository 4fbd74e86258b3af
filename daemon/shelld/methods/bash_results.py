"""Makes the results of ``bash``, and the errors after a timeout.

The output in a result counts as read. No function here waits for the command.
"""

from __future__ import annotations

import msgspec

from shelld.methods.context import RequestContext
from shelld.output.head import Head, read_head
from shelld.output.retention import OutputStream
from shelld.output.text import STEP_BYTES
from shelld.sessions.text import shown
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.shell import Shell
from shelld.shells.starting import check_started
from shelld.waits.prompts import run_state_of
from shelld_protocol.errors import RpcError, timed_out
from shelld_protocol.shell_methods import BackgroundResult, BashParams, BashResult

MAX_RESULT_BYTES = 1024 * 1024


async def result_of(
    context: RequestContext, params: BashParams, shell: Shell
) -> BashResult | BackgroundResult:
    """Return the result for a request that can be answered now.

    Raises `RpcError` (timeout, or resource_exhausted if the answer would be too large).
    """
    # A repeated request may have waited for a command that began in the background.
    goes_on = shell.released or not (shell.in_foreground or shell.is_empty)
    if params.run_in_background or (goes_on and not shell.has_ended):
        return _background_result(context, shell, params)
    result = await _foreground_result(context, shell, params)
    timeout_ms = shell.idle_timeout_ms if shell.reason == "idle" else shell.timeout_ms
    # If a command began in the background, use the timeout of the request that waits for it.
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
            # Add the id of the shell, so that the client can still read the command's output.
            error.data["bash_id"] = shell.id
            raise
    final, strip = shell.output_is_complete, params.strip_ansi

    async def head(stream: OutputStream) -> Head:
        if not stream.store.written:
            return Head("", 0, is_cut=False)
        return await read_head(stream.store, MAX_RESULT_BYTES, strip=strip, final=final)

    stdout, stderr = await head(shell.stdout), await head(shell.stderr)
    # The output stays unread if the request is cancelled.
    await context.end_if_cancelled()
    # The output in the answer counts as read, so ``bash_output`` continues after this output. But
    # if the client is lost, perhaps nobody gets the answer.
    if not context.is_left:
        for stream, read in ((shell.stdout, stdout), (shell.stderr, stderr)):
            stream.read_position = max(stream.read_position, read.end)
    session_cwd: str | None = None
    if shell.session is not None:
        session_cwd = shown(context.daemon.manager.sessions.peek(shell.session).resolve(None))
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
        denied=shell.denials.shown,
    )


def _background_result(
    context: RequestContext, shell: Shell, params: BashParams
) -> BackgroundResult:
    check_started(shell)
    return BackgroundResult(
        bash_id=shell.id,
        command=params.command,
        status="running",
        pid=shell.pid,
        message=f"Started background shell {shell.id}",
        prompt=run_state_of(shell, shell.released_at).prompt,
        description=params.description,
        warning=shell.warning,
        reason=shell.reason,
        limits=shell.limits,
        subscription=context.subscription,
        sandbox=shell.sandbox,
        denied=shell.denials.shown,
    )
