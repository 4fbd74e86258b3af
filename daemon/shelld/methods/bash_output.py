"""The method ``bash_output``.

It returns the output of a shell since the last read, or from an offset.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from shelld.filters.filter import LineFilter
from shelld.methods.context import RequestContext
from shelld.output.reader import Read, StreamReader
from shelld.output.retention import OutputStream, StreamName
from shelld.output.text import STEP_BYTES
from shelld.shells.shell import Shell
from shelld.waits.prompts import run_state_of
from shelld.waits.until import PreparedWait, Reached, preparing
from shelld_protocol.errors import invalid_params
from shelld_protocol.shell_methods import BashOutputParams, BashOutputResult, OutputRange

_NOT_REACHED: Final = Reached()


async def bash_output(context: RequestContext, params: BashOutputParams) -> BashOutputResult:
    manager = context.daemon.manager
    shell = context.concerns(manager.get(params.bash_id))
    with manager.reading(shell):
        async with preparing_read(context, shell, params) as read:
            return await read()


@asynccontextmanager
async def preparing_read(
    context: RequestContext, shell: Shell, params: BashOutputParams
) -> AsyncGenerator[Callable[[], Awaitable[BashOutputResult]]]:
    """Check `params`. Yield a function that waits for output and reads it, as `params` say.

    The caller must keep the shell alive with `Manager.reading`. Raises `RpcError`.
    """
    if params.filter is not None and params.encoding == "base64":
        raise invalid_params("Invalid value for filter: output in base64 has no lines", "filter")
    manager = context.daemon.manager
    async with (
        preparing(params, manager) as prepared,
        manager.filters.open(params.filter) as line_filter,
    ):
        readers = _readers(shell, params, line_filter)

        async def read() -> BashOutputResult:
            reads, reached = await wait_then_read(shell, params, readers, prepared, context)
            # Nothing is awaited between the read and this line, so the state in the result matches
            # the output.
            result = result_of(shell, reads, reached)
            if params.encoding == "base64":
                result.encoding = params.encoding
            if line_filter is not None:
                result.filter_engine = line_filter.engine
            return result

        yield read


def _readers(
    shell: Shell, params: BashOutputParams, line_filter: LineFilter | None
) -> dict[StreamName, StreamReader]:
    explicit = params.stdout_offset is not None or params.stderr_offset is not None
    return {
        name: StreamReader(
            stream,
            offset=offset,
            max_bytes=params.max_bytes,
            strip=params.strip_ansi,
            line_filter=line_filter,
            in_base64=params.encoding == "base64",
        )
        for name, stream, offset in _streams(shell, params)
        if offset is not None or not explicit
    }


def _streams(
    shell: Shell, params: BashOutputParams
) -> tuple[tuple[StreamName, OutputStream, int | None], ...]:
    return (
        ("stdout", shell.stdout, params.stdout_offset),
        ("stderr", shell.stderr, params.stderr_offset),
    )


async def wait_then_read(
    shell: Shell,
    params: BashOutputParams,
    readers: Mapping[StreamName, StreamReader],
    prepared: PreparedWait,
    context: RequestContext | None = None,
) -> tuple[dict[StreamName, Read], Reached]:
    """Wait for the condition in `until`, and read the output.

    Return what was read, and how the wait ended.

    See `wait_and_read`.
    """
    if not prepared.is_for_reading:
        starts: dict[StreamName, int] = {name: reader.start for name, reader in readers.items()}
        reached = await prepared.wait(shell, starts)
        return await wait_and_read(shell, replace(params, wait=0), readers, context), reached
    reads = await wait_and_read(shell, params, readers, context)
    if params.until == "output" and any(read.text for read in reads.values()):
        return reads, Reached("output")
    return reads, Reached("exit" if shell.has_ended else None)


async def wait_and_read(
    shell: Shell,
    params: BashOutputParams,
    readers: Mapping[StreamName, StreamReader],
    context: RequestContext | None = None,
) -> dict[StreamName, Read]:
    """Wait until there is output, or the shell has ended.

    Then take the output before another reader can take it.

    Until the next await of the caller, the output matches the state of the shell. If the shell has
    ended, all of its output is returned, or `more` is true.

    Give `context` if the answer may be large, or if the request may be cancelled during the wait.
    """
    give_up_at = anyio.current_time() + params.wait / 1000
    until_output = params.until == "output"

    def is_due() -> bool:
        news = until_output and any(reader.has_news for reader in readers.values())
        return news or shell.has_ended

    while True:
        if context is not None:
            # It may take long until the next output comes. Let other requests make large answers
            # during this wait.
            context.end_large_answer()
        if params.wait:
            with anyio.CancelScope(deadline=give_up_at):
                await shell.wait_until(is_due)
        is_late = anyio.current_time() >= give_up_at
        if is_late and params.wait:
            # If the daemon was busy or suspended, output may have come in time, but not been read.
            shell.catch_up()
        had_ended, reads = await _peek_in_turn(shell, readers, context)
        if context is not None:
            # The output of a cancelled read stays for another reader.
            await context.end_if_cancelled()
        ended_meanwhile = shell.has_ended and not had_ended
        if ended_meanwhile or any(reader.was_overtaken for reader in readers.values()):
            # Read again. An answer that says that the shell has ended must have all output of bash.
            # If the shell has ended by now, all of its output has arrived. If another reader has
            # taken output, these reads are out of date.
            reads.clear()
            continue
        goes_on = any(readers[name].goes_on_after(read) for name, read in reads.items())
        is_last = is_late or (had_ended and not goes_on)
        if is_last or any(read.text for read in reads.values()):
            return {name: _take(shell, readers[name], read) for name, read in reads.items()}
        for name, read in reads.items():
            readers[name].skip(read)
        if goes_on:
            # It is possible that the next round does not wait at all, so let other requests run
            # first.
            await checkpoint()


async def _peek_in_turn(
    shell: Shell, readers: Mapping[StreamName, StreamReader], context: RequestContext | None
) -> tuple[bool, dict[StreamName, Read]]:
    """Read once, without marking the output as read. Before a large answer, wait for the request's
    turn.

    Returns whether the shell had ended when the read began, and what was read.
    """
    if context is not None and any(reader.is_large for reader in readers.values()):
        await context.begin_large_answer()
    had_ended, reads = shell.has_ended, await _peek(shell, readers)
    is_large = any(_is_large(read.text) for read in reads.values())
    if context is None or context.may_make_large_answer or not is_large:
        return had_ended, reads
    # The size after filtering is known only now. Drop the text and read it again later, so that
    # waiting requests do not hold a lot of memory.
    reads.clear()
    await context.begin_large_answer()
    return shell.has_ended, await _peek(shell, readers)


async def _peek(shell: Shell, readers: Mapping[StreamName, StreamReader]) -> dict[StreamName, Read]:
    final = shell.output_is_complete
    return {name: await reader.peek(final=final) for name, reader in readers.items()}


def _take(shell: Shell, reader: StreamReader, read: Read) -> Read:
    """Mark the output in `read` as read. Return `read` with the current value of `more`."""
    if shell.has_ended:
        # During the read, a process that bash left behind may have written something or ended.
        more = reader.has_more_after(read, final=shell.output_is_complete)
        read = read._replace(more=more)
    reader.take(read)
    return read


def _is_large(text: str) -> bool:
    """Return whether a text has more bytes than a read converts in one step."""
    if len(text) > STEP_BYTES or text.isascii():
        return len(text) > STEP_BYTES
    return len(text.encode()) > STEP_BYTES


def result_of(
    shell: Shell, reads: Mapping[StreamName, Read], reached: Reached = _NOT_REACHED
) -> BashOutputResult:
    stdout = reads.get("stdout") or _nothing(shell.stdout)
    stderr = reads.get("stderr") or _nothing(shell.stderr)
    state = run_state_of(shell, reached.prompt)
    return BashOutputResult(
        bash_id=shell.id,
        command=shell.command,
        stdout=stdout.text,
        stderr=stderr.text,
        status=shell.status.value,
        is_running=not shell.has_ended,
        exit_code=shell.exit_code,
        signal=shell.signal,
        duration_ms=shell.elapsed_ms,
        stdout_range=OutputRange(stdout.start, stdout.end, stdout.dropped),
        stderr_range=OutputRange(stderr.start, stderr.end, stderr.dropped),
        dropped_bytes=stdout.dropped + stderr.dropped,
        more=stdout.more or stderr.more,
        is_stopped=state.is_stopped,
        prompt=state.prompt,
        reached=reached.what,
        matched=reached.matched,
        listening=reached.listening,
        reason=reached.reason or shell.reason,
        limits=shell.limits,
        spool_error=shell.output.error,
        invalid_bytes=(stdout.invalid + stderr.invalid) or None,
        sandbox=shell.sandbox,
        denied=shell.denials.shown,
    )


def _nothing(stream: OutputStream) -> Read:
    """Return an empty read, for a stream that the request does not want."""
    return Read("", stream.read_position, stream.read_position, 0, more=False)
