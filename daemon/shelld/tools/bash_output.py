"""Implements ``BashOutput``: the output of a shell since the last read, and its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from msgspec import to_builtins

from shelld.methods.bash_output import (
    bash_output,
    result_of,
    wait_then_read,
)
from shelld.methods.context import RequestContext
from shelld.output.excerpt import count_lines, last_lines
from shelld.shells.shell import Shell
from shelld.tools.execution import ShellTool
from shelld.tools.text import (
    MAX_OUTPUT_SIZE,
    cut_in_the_middle,
    denied_lines,
    dropped_notice,
    excerpt_readers,
    legible,
    output_of,
    with_lines,
)
from shelld.waits.prompts import sentence_of
from shelld.waits.until import PreparedWait, preparing
from shelld_protocol.shell_methods import BashOutputParams, BashOutputResult
from shelld_protocol.structs import (
    MAX_READ_BYTES,
    EndReason,
    Listener,
    Prompt,
    UntilName,
)
from shelld_protocol.tools import ExecutionContext, ToolResult

NO_NEW_OUTPUT: Final = "(no new output)"

# How long to wait if the model says only what to wait for.
DEFAULT_WAIT_MS: Final = 30_000

# If the shell has ended and no line matched, a model sees at most this many characters from the end
# of each stream. These characters often tell why the shell ended.
MAX_LAST_CHARACTERS: Final = 1_000

# How many characters of a line, and how many ports, a model sees.
MAX_MATCHED_CHARACTERS: Final = 200
MAX_LISTENERS: Final = 10

# These lines say that the condition of a wait was not met in time.
_CONDITIONS: Final[Mapping[UntilName, str]] = {
    "prompt": "[The command did not wait for input within {}ms]",
    "match": "[No line matched the pattern within {}ms]",
    "quiet": "[The command went on writing for {}ms]",
    "listening": "[Nothing listened within {}ms]",
}

# Sentences that say why a command has ended.
REASONS: Final[Mapping[EndReason, str]] = {
    "oom": "There was not enough memory for the command.",
    "lost": "Its helper process was killed, and the command with it.",
    "idle": "It had written nothing for too long.",
    "prompt": "It waited for input.",
    "memory": "It used more memory than its limit.",
    "processes": "It started more processes than its limit.",
    "cpu": "It used more processor time than its limit.",
    "file_size": "It wrote a larger file than its limit.",
}

_DESCRIPTION: Final = """\
Returns what a shell wrote since it was last read, its status and, once it has ended, its exit code.
- wait=MS returns as soon as there is news; until waits for "exit", "match" (of pattern), "quiet" \
or "listening" (a port is open). Never sleep or poll.
- filter returns only lines that match; the rest counts as read, too."""


class BashOutputTool(ShellTool):
    """A read without an offset returns all new output. If the output is long, the result has only
    its head and tail.
    """

    aliases = ("bash_output",)
    annotations: ClassVar[Mapping[str, Any]] = {
        "title": "Read output",
        "readOnlyHint": True,
        "openWorldHint": False,
    }
    params_type = BashOutputParams
    exposed: ClassVar[Mapping[str, str]] = {
        "bash_id": "ID of the background shell",
        "filter": "Regex to filter output lines",
        "wait": f"Milliseconds to wait at most (default: {DEFAULT_WAIT_MS} with until)",
        "until": "What to wait for",
        "pattern": "Regex, for until=match",
        "quiet_ms": "Milliseconds, for until=quiet",
        "port": "For until=listening (default: any)",
        "stdout_offset": "Byte to read again from",
        "stderr_offset": "As stdout_offset",
    }
    without_default = frozenset({"wait", "until"})

    @property
    def name(self) -> str:
        return "BashOutput"

    @property
    def description(self) -> str:
        return _DESCRIPTION

    async def _run(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        if "until" in params:
            params.setdefault("wait", DEFAULT_WAIT_MS)
        read_params = BashOutputParams(**params)
        # Round only after `min`. A large timeout can overflow to infinity when it is multiplied by
        # 1000, and `round` fails on infinity.
        read_params.wait = round(min(read_params.wait, context.timeout * 1000))
        limit = min(MAX_OUTPUT_SIZE, context.max_output_size)
        shell = request.concerns(request.daemon.manager.get(read_params.bash_id))
        offsets = (read_params.stdout_offset, read_params.stderr_offset)
        streams = sum(offset is not None for offset in offsets)
        if streams:
            return await _page(request, shell, read_params, max(1, limit // streams))
        if read_params.filter is not None:
            return await _lines(request, shell, read_params, limit)
        async with preparing(read_params, request.daemon.manager) as prepared:
            return await news(request, shell, read_params, prepared, limit)


async def news(
    request: RequestContext,
    shell: Shell,
    read_params: BashOutputParams,
    prepared: PreparedWait,
    limit: int,
) -> ToolResult:
    """Wait as `read_params` say. Return the new output in at most `limit` characters."""
    readers = excerpt_readers(shell, limit)
    with request.daemon.manager.reading(shell):
        reads, reached = await wait_then_read(shell, read_params, readers, prepared, request)
    is_cut = any(reader.is_cut for reader in readers.values())
    result = result_of(shell, reads, reached)
    lines = [*dropped_notice(reads), *wait_lines(read_params, result)]
    return output_result(shell, result, lines, is_cut=is_cut)


async def _page(
    request: RequestContext, shell: Shell, read_params: BashOutputParams, max_bytes: int
) -> ToolResult:
    """Return one page of output from an offset."""
    read_params.max_bytes = max_bytes
    result = await bash_output(request, read_params)
    pages = (
        ("stdout_offset", read_params.stdout_offset, result.stdout_range),
        ("stderr_offset", read_params.stderr_offset, result.stderr_range),
    )
    lines = [
        f"[More: {name}={page.end}]"
        for name, offset, page in pages
        if result.more and offset is not None and page.end > page.start
    ]
    lines += wait_lines(read_params, result)
    nothing = await _without_match(shell, read_params, result, max_bytes)
    return output_result(shell, result, lines, is_cut=result.more, nothing=nothing)


async def _lines(
    request: RequestContext, shell: Shell, read_params: BashOutputParams, limit: int
) -> ToolResult:
    read_params.max_bytes = MAX_READ_BYTES
    result = await bash_output(request, read_params)
    lines = ["[There is more to search: call again]"] if result.more else []
    lines += wait_lines(read_params, result)
    is_cut = False
    half = limit // 2
    for name, other, start in (
        ("stdout", result.stderr, result.stdout_range.start),
        ("stderr", result.stdout, result.stderr_range.start),
    ):
        text = getattr(result, name)
        room = max(half, limit - len(other))
        notice = f"[Output truncated: narrow the filter, or read from {name}_offset={start}]"
        is_cut = is_cut or len(text) > room
        setattr(result, name, cut_in_the_middle(text, room, notice))
    nothing = await _without_match(shell, read_params, result, half)
    return output_result(shell, result, lines, is_cut=is_cut, nothing=nothing)


async def _without_match(
    shell: Shell, read_params: BashOutputParams, result: BashOutputResult, limit: int
) -> str:
    """Return the text that a model sees if there is no output.

    If the filter matched no line, the text has the number of skipped lines. If the shell has ended,
    the text also has the last characters of the output. `limit` is the maximum number of characters
    for each stream.
    """
    if read_params.filter is None or result.stdout or result.stderr:
        return NO_NEW_OUTPUT
    skipped = {
        name: (stream.store, read)
        for name, stream, read in (
            ("stdout", shell.stdout, result.stdout_range),
            ("stderr", shell.stderr, result.stderr_range),
        )
        if read.end > read.start
    }
    count = sum(
        [await count_lines(store, read.start, read.end) for store, read in skipped.values()]
    )
    if not count:
        return NO_NEW_OUTPUT
    offsets = " ".join(f"{name}_offset={read.start}" for name, (_, read) in skipped.items())
    lines = "1 line was" if count == 1 else f"{count} lines were"
    text = f"(no line matched the filter; {lines} skipped; without it, {offsets} reads them)"
    if result.is_running or result.more:
        return text
    last = {
        name: last_lines(store, read.start, read.end, min(limit, MAX_LAST_CHARACTERS))
        for name, (store, read) in skipped.items()
    }
    shown = output_of(shell, last.get("stdout", ""), last.get("stderr", ""))
    return f"{text}\n[The last lines]\n{shown}"


def output_result(
    shell: Shell,
    result: BashOutputResult,
    lines: list[str],
    *,
    is_cut: bool,
    nothing: str = NO_NEW_OUTPUT,
) -> ToolResult:
    """Return the result of a read, as a model sees it. `lines`: notices about the read."""
    sizes = [each.end - each.start for each in (result.stdout_range, result.stderr_range)]
    stdout, stderr = map(legible, (result.stdout, result.stderr), sizes)
    output = output_of(shell, stdout, stderr) or nothing
    lines = [*lines, *denied_lines(result.denied)]
    text = with_lines(output, [*lines, *status_lines(result)])
    metadata: dict[str, Any] = {
        "bash_id": result.bash_id,
        "command": result.command,
        "status": result.status,
        "is_running": result.is_running,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "duration_ms": result.duration_ms,
        "truncated": is_cut,
        "more": result.more,
        "stdout_range": to_builtins(result.stdout_range),
        "stderr_range": to_builtins(result.stderr_range),
        "dropped_bytes": result.dropped_bytes,
    }
    if result.reason is not None:
        metadata["reason"] = result.reason
    if result.denied is not None:
        metadata["denied"] = to_builtins(result.denied)
    if result.prompt is not None:
        metadata["prompt"] = to_builtins(result.prompt)
    return ToolResult.ok(text, **metadata)


def status_lines(result: BashOutputResult) -> list[str]:
    """Return the lines below the output. If the shell waits for input, the last line says so."""
    status: str = result.status
    if result.is_stopped:
        status += ", stopped by a signal"
    if result.exit_code is not None:
        status += f", exit code {result.exit_code}"
    elif result.signal is not None:
        status += f" by {result.signal}"
    # "no_input" says why a wait has ended, and not why a command has ended.
    if result.reason is not None and result.reason != "no_input":
        sentences = f"{status}. {REASONS[result.reason]}"
    else:
        sentences = f"{status}."
    lines = [f"[Status: {sentences} Duration: {result.duration_ms}ms]"]
    return lines if result.prompt is None else [*lines, waits_line(result.prompt)]


def wait_lines(params: BashOutputParams, result: BashOutputResult) -> list[str]:
    """Return lines that say how a wait for a condition has ended. Return no lines about a wait for
    output or for the end of the shell.
    """
    if result.matched is not None:
        return [f'[Matched: "{result.matched.line[:MAX_MATCHED_CHARACTERS]}"]']
    if result.listening:
        return [_listens(each) for each in result.listening[:MAX_LISTENERS]]
    if result.reason == "no_input":
        return ["[The command takes no input, so it will never wait for input]"]
    if result.reached is None and params.until in _CONDITIONS:
        return [_CONDITIONS[params.until].format(params.wait)]
    return []


def _listens(listener: Listener) -> str:
    who = listener.program or "A program"
    return f"[{who} listens on {listener.address} port {listener.port}]"


def waits_line(prompt: Prompt) -> str:
    return f"[{sentence_of(prompt, 'ask the user')}]"
