"""Implements the tools of ``--interactive-tools``. These are a ``Bash`` that can give a command a
terminal, ``BashInput`` and ``BashScreen``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import anyio
from msgspec.structs import replace

from shelld.methods.bash_output import result_of, wait_and_read
from shelld.methods.context import RequestContext
from shelld.methods.input import write
from shelld.methods.screen import read_screen
from shelld.shells.shell import Shell
from shelld.tools.bash import BashTool
from shelld.tools.bash_output import output_result, status_lines
from shelld.tools.execution import ShellTool
from shelld.tools.text import (
    MAX_OUTPUT_SIZE,
    cut_in_the_middle,
    dropped_notice,
    excerpt_readers,
    with_lines,
)
from shelld_protocol.input_methods import WriteStdinParams
from shelld_protocol.screen_methods import ReadScreenParams
from shelld_protocol.shell_methods import BashOutputParams
from shelld_protocol.structs import MAX_WAIT_MS
from shelld_protocol.tools import ExecutionContext, ToolParameter, ToolResult

# A program that has been silent for this time has probably finished its answer.
QUIET_MS: Final = 300
DEFAULT_INPUT_WAIT_MS: Final = 5_000
DEFAULT_SCREEN_WAIT_MS: Final = 1_000

_BLANK: Final = "(blank screen)"
_CUT: Final = "[Screen truncated: it does not fit]"

_INPUT: Final = f"""\
Types into a shell that Bash started with tty=true, and returns what it wrote until it was quiet \
for a moment. First text is typed, then keys.
- text is typed as it is: end a line with \\n. Or name keys: ["Enter"], ["Up", "Enter"], ["C-c"]. \
["C-d"] ends the input.
- Waits at most wait ms (default {DEFAULT_INPUT_WAIT_MS}, at most {MAX_WAIT_MS}) for an answer. \
For more: BashOutput.
- A program that has the whole screen (an editor, a pager, a menu): look with BashScreen.
- Never invent a password: ask the user."""

_SCREEN: Final = """\
Shows the screen of a shell that Bash started with tty=true, as a person would see it: for \
editors, pagers and menus, whose output cannot be read as lines. Waits up to wait ms until it no \
longer changes."""


class InteractiveBashTool(BashTool):
    """With this tool, a model can give a command a terminal."""

    exposed: ClassVar[Mapping[str, str]] = {
        **BashTool.exposed,
        "tty": "Give the command a terminal, to type into it with BashInput",
    }
    PROMPTS = """\
A program that asks gets no answer: use flags such as -y, or stdin. If it has to be answered, or \
draws on the screen: tty=true with run_in_background=true, then BashInput and BashScreen."""


class _TerminalTool(ShellTool):
    """A tool with its own default for the parameter `wait`."""

    default_wait: ClassVar[int]

    @cached_property
    def _parameters(self) -> Sequence[ToolParameter]:
        return [
            replace(each, default=self.default_wait) if each.name == "wait" else each
            for each in super()._parameters
        ]


class BashInputTool(_TerminalTool):
    aliases = ("bash_input",)
    annotations: ClassVar[Mapping[str, Any]] = {
        "title": "Type into a shell",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    params_type = WriteStdinParams
    exposed: ClassVar[Mapping[str, str]] = {
        "bash_id": "ID of the shell",
        "text": "Text to type, with \\n at the end of a line",
        "keys": "Keys by tmux's names: Enter, Tab, Escape, BSpace, Up, PageDown, F1, C-c, M-x",
        "wait": "Maximum milliseconds to wait for an answer",
    }
    default_wait = DEFAULT_INPUT_WAIT_MS

    @cached_property
    def _parameters(self) -> Sequence[ToolParameter]:
        # The method accepts `bash_id` or the id of a request. A model does not know the ids of
        # requests, so require `bash_id`.
        return [
            replace(each, required=True) if each.name == "bash_id" else each
            for each in super()._parameters
        ]

    @property
    def name(self) -> str:
        return "BashInput"

    @property
    def description(self) -> str:
        return _INPUT

    async def _run(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        write_params = WriteStdinParams(**params)
        if not write_params.text and not write_params.keys:
            return ToolResult.fail("Nothing to type: give text or keys")
        wait_s = min(write_params.wait / 1000, context.timeout)
        manager = request.daemon.manager
        shell = request.concerns(manager.get(params["bash_id"]))
        readers = excerpt_readers(shell, min(MAX_OUTPUT_SIZE, context.max_output_size))
        with manager.reading(shell):
            before = shell.output.written
            written = await write(request, shell, write_params)
            await _wait_until_quiet(shell, before, wait_s)
            reads = await wait_and_read(shell, BashOutputParams(shell.id), readers, request)
        lines = dropped_notice(reads)
        pending = 0 if shell.input is None else shell.input.pending_bytes
        if pending:
            lines.append(f"[{pending} bytes of input wait: the program does not read]")
        is_cut = any(reader.is_cut for reader in readers.values())
        result = output_result(shell, result_of(shell, reads), lines, is_cut=is_cut)
        result.metadata |= {"written": written, "pending_bytes": pending}
        return result


async def _wait_until_quiet(shell: Shell, before: int, seconds: float) -> None:
    """Wait for output. Then wait until no more output has arrived for `QUIET_MS`.

    `before`: the number of bytes that were written before the wait.
    """
    give_up_at = deadline = anyio.current_time() + seconds
    while not shell.has_ended and await shell.wait_for_news(deadline, before):
        before = shell.output.written
        deadline = min(give_up_at, anyio.current_time() + QUIET_MS / 1000)


class BashScreenTool(_TerminalTool):
    aliases = ("bash_screen",)
    annotations: ClassVar[Mapping[str, Any]] = {
        "title": "Look at a screen",
        "readOnlyHint": True,
        "openWorldHint": False,
    }
    params_type = ReadScreenParams
    exposed: ClassVar[Mapping[str, str]] = {
        "bash_id": "ID of the shell",
        "wait": "Maximum milliseconds to wait until the screen no longer changes",
        "scrollback": "How many of the lines above the screen to show",
    }
    default_wait = DEFAULT_SCREEN_WAIT_MS

    @property
    def name(self) -> str:
        return "BashScreen"

    @property
    def description(self) -> str:
        return _SCREEN

    async def _run(
        self, request: RequestContext, context: ExecutionContext, params: dict[str, Any]
    ) -> ToolResult:
        screen_params = ReadScreenParams(**params)
        # Round only after `min`, because a large timeout may be infinite in milliseconds, and
        # `round` fails on infinity.
        screen_params.wait = round(min(screen_params.wait, context.timeout * 1000))
        limit = min(MAX_OUTPUT_SIZE, context.max_output_size)
        screen = await read_screen(request, screen_params)
        text = "\n".join(screen.lines).rstrip("\n")
        cursor = screen.cursor
        lines = [
            f"[Screen: {screen.rows} rows, {screen.cols} columns. "
            f"Cursor: row {cursor.row}, column {cursor.col}, counted from 0]",
        ]
        shell = request.shell
        if shell is not None:
            lines += status_lines(result_of(shell, {}))
        return ToolResult.ok(
            with_lines(cut_in_the_middle(text, limit, _CUT) or _BLANK, lines),
            bash_id=screen.bash_id,
            rows=screen.rows,
            cols=screen.cols,
            cursor={"row": cursor.row, "col": cursor.col, "visible": cursor.visible},
            alt_screen=screen.alt_screen,
            title=screen.title,
            version=screen.version,
            is_running=screen.is_running,
            exit_code=screen.exit_code,
            signal=screen.signal,
            truncated=len(text) > limit,
        )
