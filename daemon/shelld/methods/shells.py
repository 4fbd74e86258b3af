"""The methods ``kill_shell``, ``background`` and ``list_shells``."""

from __future__ import annotations

import signal

from anyio.lowlevel import checkpoint

from shelld.audit import timestamp
from shelld.methods.context import RequestContext
from shelld.methods.here import check_is_here
from shelld.sessions.text import beginning, shown
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.shell import Shell
from shelld.shells.starting import raise_failure
from shelld.waits.prompts import run_state_of
from shelld_protocol.errors import invalid_params, no_such_call
from shelld_protocol.input_methods import ResizeShellParams, WriteStdinParams
from shelld_protocol.shell_methods import (
    BackgroundParams,
    HandOverResult,
    KillShellParams,
    KillShellResult,
    ListShellsParams,
    ListShellsResult,
    ShellInfo,
)


async def kill_shell(context: RequestContext, params: KillShellParams) -> KillShellResult:
    manager = context.daemon.manager
    shell = manager.get(params.shell_id)
    grace = manager.options.grace_ms if params.grace is None else params.grace
    was_running, had_leftover = not shell.has_ended, bool(shell.leftover)
    survivors = await shell.end_tree(signal.Signals[f"SIG{params.signal}"], grace)
    # During the kill, the shell may have ended by itself and left no processes.
    ended_by_itself = shell.status not in {ShellStatus.KILLED, ShellStatus.TIMEOUT}
    ended_empty = ended_by_itself and not shell.left_processes
    stopped = not had_leftover and (not was_running or ended_empty)
    return KillShellResult(
        shell_id=shell.id,
        command=shell.command,
        status=shell.status.value,
        already_stopped=stopped,
        exit_code=shell.exit_code,
        signal=shell.signal,
        duration_ms=shell.elapsed_ms,
        survivors=survivors,
        message=_kill_message(shell.id, stopped, survivors),
        reason=shell.reason,
    )


async def background(context: RequestContext, params: BackgroundParams) -> HandOverResult:
    """Answer a foreground call now. Raises `RpcError` (shell_not_found, invalid_params)."""
    name = "request_id" if params.bash_id is None else "bash_id"
    shell = await shell_named_by(context, params)
    too_late = invalid_params(f"Shell {shell.id} has ended, or is being ended", name)
    if not (shell.has_ended or shell.is_in_foreground):
        # The call that started the command was answered. Repeated calls may still wait for the
        # command.
        if not shell.repeats:
            raise invalid_params(f"Shell {shell.id} is in the background already", name)
        if not shell.hand_over_repeats():
            raise too_late
        return HandOverResult(shell.id)
    if not shell.release():
        raise too_late
    # If the command could not be started, the shell is empty.
    await shell.wait_until(lambda: shell.released or shell.has_ended or shell.is_empty)
    raise_failure(shell)
    if not shell.released:
        raise invalid_params(f"Shell {shell.id} has ended", name)
    return HandOverResult(shell.id)


async def shell_named_by(
    context: RequestContext, params: BackgroundParams | WriteStdinParams | ResizeShellParams
) -> Shell:
    """Return the shell with the `bash_id`, or the shell that the request `request_id` starts.

    Waits until that request has started its command. Raises `RpcError` (shell_not_found,
    invalid_params).
    """
    if params.bash_id is not None and params.request_id is None:
        return context.daemon.manager.get(params.bash_id)
    if params.request_id is None or params.bash_id is not None:
        raise invalid_params("Give either request_id or bash_id", "bash_id")
    for request in context.find_requests(params.request_id):
        if (shell := await request.wait_for_command()) is not None:
            return shell
    raise no_such_call()


def _kill_message(shell_id: str, stopped: bool, survivors: list[int]) -> str:
    if survivors:
        return f"Shell {shell_id} was signalled, but {len(survivors)} of its processes survive"
    return f"Shell {shell_id} {'already stopped' if stopped else 'terminated'}"


async def list_shells(context: RequestContext, params: ListShellsParams) -> ListShellsResult:
    check_is_here(params.target)
    shells = context.daemon.manager.list_shells()
    if params.session is not None:
        shells = [shell for shell in shells if shell.session == params.session]
    found: list[ShellInfo] = []
    for shell in shells:
        found.append(_info(shell))
        if shell.input is not None:
            # Looking at the processes of this shell takes a while, so let other requests run.
            await checkpoint()
    return ListShellsResult(found)


def _info(shell: Shell) -> ShellInfo:
    state = run_state_of(shell)
    return ShellInfo(
        bash_id=shell.id,
        command=beginning(shell.command),
        description=shell.description and beginning(shell.description),
        session=shell.session,
        status=shell.status.value,
        is_running=not shell.has_ended,
        exit_code=shell.exit_code,
        signal=shell.signal,
        pid=shell.pid,
        cwd=shown(shell.working_dir),
        started_at=timestamp(shell.started_at or shell.created_at),
        duration_ms=shell.elapsed_ms,
        unread_bytes=shell.stdout.unread_bytes + shell.stderr.unread_bytes,
        leftover=shell.leftover,
        in_foreground=shell.is_in_foreground,
        is_stopped=state.is_stopped,
        prompt=state.prompt,
        reason=shell.reason,
    )
