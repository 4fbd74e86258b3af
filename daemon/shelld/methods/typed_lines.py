"""Gets the guard's verdict on lines that are typed into a shell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from anyio.lowlevel import checkpoint

from shelld.inspection.shell_reader import (
    directories_of_readers,
    interrupt_is_ignored,
    is_handling_interrupt,
)
from shelld.methods.context import RequestContext
from shelld.methods.guard import MAX_PARSING_S, admit
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.typed import TypedLine, readings
from shelld_protocol.errors import ErrorKind, RpcError, blocked, exhausted_limit
from shelld_protocol.session_methods import ExplainCommandParams
from shelld_protocol.shell_methods import BashParams

# If an incomplete command is longer than this, it is not judged together with its next line.
_MAX_SCRIPT: Final = 64 * 1024
_MAX_SHORT_SCRIPT: Final = 1_000
# The cost of judging one write, in characters. Each text costs at least `_MIN_COST`. Above
# `_MAX_COST`, an incomplete command may have only `_MAX_SHORT_SCRIPT` characters. Above
# `_MAX_COST_ALONE`, the remaining lines are judged as one text, which may be longer than the guard
# can follow.
_MAX_COST: Final = 2 * 1024 * 1024
_MAX_COST_ALONE: Final = 16 * 1024 * 1024
_MIN_COST: Final = 200
# The next line may continue one of several commands. This is so if readline has kept incomplete
# commands after an interrupt, or if a shell may have read only a part of a line. The daemon
# remembers at most this many of these commands.
_MAX_KEPT_SCRIPTS: Final = 4
# The number of characters that are judged before other requests can run.
_TURN_COST: Final = 16 * 1024


class Readers(Protocol):
    """The shells that may read the text that is typed into a command."""

    session: str | None

    def directories(self) -> list[str]:
        """Return the working directories of these shells."""
        ...

    def read_now(self) -> bool:
        """Return whether any of these shells may read now."""
        ...

    def ignore_interrupts(self) -> bool:
        """Return whether one of these shells ignores SIGINT. Such a shell keeps the typed line."""
        ...

    def handle_interrupt(self) -> bool:
        """Return whether one of these shells may still be handling a SIGINT."""
        ...


class RunningReaders:
    """The shells that may read the input of a command that runs or is about to start."""

    def __init__(self, shell: Shell, stdin: PipeInput | TerminalInput) -> None:
        self.session = shell.session
        self._shell = shell
        self._stdin = stdin

    def directories(self) -> list[str]:
        if self._shell.pid is None:
            # The shell's bash is about to start, and may read the typed text.
            return [self._shell.working_dir]
        try:
            return directories_of_readers(self._shell.pid, self._stdin.source())
        except OSError as error:
            if exhausted_limit(error.errno or 0):
                # Perhaps a shell reads the text. So let the request fail, because without the list
                # of shells, the guard would not judge the text.
                raise
            return []

    def read_now(self) -> bool:
        return self._shell.pid is not None and bool(self.directories())

    def ignore_interrupts(self) -> bool:
        pid = self._shell.pid
        return pid is not None and interrupt_is_ignored(pid, self._stdin.source())

    def handle_interrupt(self) -> bool:
        if self._stdin.pending_bytes:
            # The interrupt may still be queued.
            return True
        pid = self._shell.pid
        return pid is None or is_handling_interrupt(pid, self._stdin.source())


class FirstReaders:
    """The shells that may read the input of a command that has not started.

    `may_run_stdin`: whether there may be such shells.
    """

    def __init__(self, params: BashParams, *, may_run_stdin: bool) -> None:
        self.session = params.session
        self._cwd = params.cwd or ""
        self._may_run_stdin = may_run_stdin

    def directories(self) -> list[str]:
        return [self._cwd] if self._may_run_stdin else []

    def read_now(self) -> bool:
        return self._may_run_stdin

    def ignore_interrupts(self) -> bool:
        return False

    def handle_interrupt(self) -> bool:
        return True


class _Lines:
    """The lines of one write, in the form in which a line editor passes them on.

    The editor is readline or the terminal.

    `all`: all lines, which are judged as one command. `script`: the lines of a command that is not
    complete yet. `left`: the lines that are not judged yet, because the judgement has cost too
    much.
    """

    def __init__(self, script: str, before: Iterable[str] = (), left: Iterable[str] = ()) -> None:
        self.script = script
        self.all = list(before)
        self.left = list(left)

    def copy(self) -> _Lines:
        return _Lines(self.script, self.all, self.left)


class TypedLines:
    """Judges the text of one write, which comes in pieces. Raises `RpcError` (blocked).

    Each line is judged by itself, because the daemon cannot see how the command before it has
    ended. The line is also judged together with the lines that it may continue.
    """

    def __init__(self, context: RequestContext, readers: Readers, before: TypedLine) -> None:
        self._context = context
        self.readers = readers
        # The directories of the shells that may read the text; None before they are known.
        self._found: list[str] | None = None
        self._typed = _Lines(before.script)
        # The lines that the terminal's own line editor passes on. As long as readline passes on the
        # same lines, this is the same object as `_typed`.
        is_same = before.edited_script == before.script
        self._edited = self._typed if is_same else _Lines(before.edited_script)
        self._kept_scripts = list(before.kept_scripts)
        self._cost = 0
        self._turn_ends_at = _TURN_COST

    def are_read(self) -> bool:
        """Return whether a shell may read the typed text now."""
        return bool(self._directories())

    async def judge(
        self,
        lines: Sequence[bytes | None],
        edited: Sequence[bytes | None],
        kept: Sequence[tuple[int, bytes]] = (),
        *,
        may_go_on: bool = False,
    ) -> None:
        """Judge two forms of the typed lines.

        `lines`: the typed lines, which still contain the editing keys. `edited`: the lines that the
        terminal's own line editor passes on; None means an interrupt. `kept`: see `Typed.kept`.
        `may_go_on`: whether the next write may continue the last of `lines`.
        """
        if not lines and not edited:
            return
        if not self._directories():
            # No shell reads the typed text now.
            self._typed.script = self._edited.script = ""
            self._kept_scripts.clear()
            return
        if self._edited is self._typed and edited != lines:
            self._edited = self._typed.copy()
        scripts = list[str]()
        for number, line in enumerate(lines):
            scripts = [self._typed.script, *self._kept_scripts]
            await self._continue_kept(line)
            await self._judge_line(line, self._typed)
            await self._judge_kept([text for index, text in kept if index == number])
        if may_go_on:
            # If the next write continues the last line, the longer line continues one of the
            # commands before it, or begins a new command.
            found = dict.fromkeys([*scripts, *self._kept_scripts])
            found.pop(self._typed.script, None)
            self._kept_scripts = [*found][:_MAX_KEPT_SCRIPTS]
        if self._edited is not self._typed:
            for line in edited:
                await self._judge_line(line, self._edited)

    async def judge_parts(self, parts: Iterable[bytes]) -> None:
        """Judge parts of a line that is not complete. A program may read each part as a line."""
        for part in parts:
            for text in readings(part) if self._directories() else ():
                await self._admit(text, self._typed)

    async def _judge_kept(self, lines: Iterable[bytes]) -> None:
        """Judge lines without their first byte, because bash may run an interrupted line in this
        form.
        """
        for line in lines:
            for text in readings(line):
                kept = text.encode()[1:].decode("utf-8", "replace")
                await self._admit_alone(kept)
                self._keep(kept)

    async def _continue_kept(self, line: bytes | None) -> None:
        """Judge a line as the continuation of each incomplete command that readline may keep."""
        scripts, self._kept_scripts = self._kept_scripts, []
        for script in scripts if line is not None else ():
            for text in readings(line or b""):
                await self._admit_alone(script + text)
                self._keep(script + text)

    def _keep(self, text: str) -> None:
        """Record a command if it is incomplete. The next line continues such a command."""
        is_new = f"{text}\n" not in self._kept_scripts
        if is_new and len(self._kept_scripts) < _MAX_KEPT_SCRIPTS:
            self._cost += _MIN_COST + len(text)
            longest = _MAX_SCRIPT if self._cost <= _MAX_COST else _MAX_SHORT_SCRIPT
            if _is_incomplete(text, longest):
                self._kept_scripts.append(f"{text}\n")

    async def judge_suffixes(self, line: bytes | None, starts: Iterable[int]) -> None:
        """For each offset in `starts`, judge the line from this offset on. A program may have read
        the text before the offset.
        """
        if line is None or not self._found:
            return
        for start in starts:
            for text in readings(line[start:]):
                await self._admit(text, self._typed)

    async def finish(self, line: TypedLine) -> TypedLine:
        """Judge the remaining lines.

        Returns the line, which holds the incomplete commands that the next write may continue.
        """
        for lines in dict.fromkeys((self._typed, self._edited)):
            if lines.left:
                await self._admit_alone("\n".join(lines.left))
            if len(lines.all) > 1:
                # An earlier line may change the effect of a later line, so judge all lines
                # together.
                await self._admit_alone("\n".join(lines.all)[:_MAX_SCRIPT])
        return line._replace(
            script=self._typed.script,
            edited_script=self._edited.script,
            kept_scripts=tuple(self._kept_scripts),
        )

    def scripts(self) -> list[str]:
        """Return all judged lines as two scripts: as readline would edit the lines, and as the
        terminal would edit them.
        """
        return ["\n".join(lines.all) for lines in (self._typed, self._edited)]

    def _directories(self) -> list[str]:
        if self._found is None:
            self._found = self.readers.directories()
        return self._found

    async def _judge_line(self, line: bytes | None, lines: _Lines) -> None:
        if line is None:
            lines.script = ""
            return
        if not (line or lines.script):
            self._cost += 1
            await self._give_way()
            return
        first, *others = readings(line)
        if self._cost > _MAX_COST_ALONE:
            lines.left.append(first)
            return
        longest = _MAX_SCRIPT
        if self._cost > _MAX_COST:
            longest = _MAX_SHORT_SCRIPT
            if len(lines.script) > longest:
                lines.script = ""
        else:
            lines.all.append(first)
        for text in (first, *others):
            await self._admit(text, lines)
        script = lines.script + first
        self._cost += _MIN_COST + len(script)
        lines.script = f"{script}\n" if _is_incomplete(script, longest) else ""

    async def _admit(self, text: str, lines: _Lines) -> None:
        if self._cost > _MAX_COST_ALONE:
            lines.left.append(text)
            return
        for start in dict.fromkeys(("", _continued(lines.script), lines.script)):
            await self._admit_alone(start + text)

    async def _admit_alone(self, text: str) -> None:
        for directory in self._directories():
            self._cost += _MIN_COST + len(text)
            if text.strip():
                params = ExplainCommandParams(text, self.readers.session, cwd=directory)
                await admit(self._context, params)
        await self._give_way()

    async def _give_way(self) -> None:
        if self._cost > self._turn_ends_at:
            self._turn_ends_at = self._cost + _TURN_COST
            await checkpoint()


def without_secret(error: RpcError) -> RpcError:
    """Return the error for a line that contains a secret. The error does not quote the line."""
    if error.kind is not ErrorKind.BLOCKED:
        return error
    return blocked(
        error.data["rule"], "", "the line is not shown, because a part of the line is secret"
    )


def _continued(script: str) -> str:
    """Return the last lines of a script, if a backslash joins them to the next line."""
    lines = script.splitlines(keepends=True)
    kept = len(lines)
    while kept and _ends_in_backslash(lines[kept - 1].rstrip("\n")):
        kept -= 1
    return "".join(lines[kept:])


def _is_incomplete(script: str, longest: int) -> bool:
    """Return whether the command in `script` goes on in the next line. Return False if the command
    is longer than `longest`.
    """
    if not script.strip() or len(script) > longest:
        return False
    if _ends_in_backslash(script):
        return True
    # Import this here, because most requests never need it, and the first request must not wait for
    # it.
    from shelld.guard.parse import TooSlow, parse  # noqa: PLC0415
    from shelld.guard.units import rewritten  # noqa: PLC0415

    try:
        return bool(parse(rewritten(script), MAX_PARSING_S).has_error)
    except TooSlow:
        return False


def _ends_in_backslash(text: str) -> bool:
    return bool((len(text) - len(text.rstrip("\\"))) % 2)
