"""Makes the text and the metadata of the result for a command that `Bash` has started. A model sees
both.

Owns no state. A result is made from three sources: the record of a shell, the shell's output, and
an `EndState`. An `EndState` has the facts that are known only when the answer is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from shelld.methods.bash_output import result_of, wait_and_read
from shelld.output.excerpt import ExcerptReader
from shelld.output.retention import StreamName
from shelld.sessions.text import beginning, shown
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.shell import Shell
from shelld.tools.bash_output import REASONS, output_result, waits_line
from shelld.tools.exit_codes import meaning_of_one
from shelld.tools.text import (
    NO_OUTPUT,
    denied_lines,
    dropped_notice,
    excerpt_readers,
    legible,
    output_of,
    with_lines,
)
from shelld.waits.prompts import run_state_of
from shelld_protocol.shell_methods import BashOutputParams
from shelld_protocol.structs import Unkept
from shelld_protocol.tools import ToolResult

_HINT: Final = "BashOutput reads what it writes, KillShell ends it"
_TERMINAL_HINT: Final = (
    "BashOutput reads what it writes, BashInput types into it, BashScreen shows its screen, "
    "KillShell ends it"
)
_MORE_TIME: Final = (
    '[For more time: a longer timeout, run_in_background=true, or on_timeout="background"]'
)
_NEW_SANDBOX: Final = (
    "[This ran in a new sandbox: files in the private /tmp of the old one are gone, and servers on "
    "its loopback cannot be reached]"
)
_NOT_KEPT: Final = "[The session did not keep what this command set: {}]"


class EndState(NamedTuple):
    """`lines` are notices about the start. `written`: the number of bytes that were written to each
    stream.
    """

    lines: list[str]
    session_cwd: str
    leftover: list[int]
    written: Mapping[StreamName, int]

    @classmethod
    def of(cls, shell: Shell, lines: list[str], session_cwd: str) -> EndState:
        """Return the state of a command that has just ended or moved to the background."""
        written: dict[StreamName, int] = {
            "stdout": shell.stdout.store.written,
            "stderr": shell.stderr.store.written,
        }
        return cls(lines, session_cwd, list(shell.leftover), written)


class DeferredBashResult:
    """The result of a call that is answered before its command has ended.

    This object keeps no output. It keeps only as much of the command's text as the shell does.
    `next_cwd` returns the directory in which the session's next command will start.
    """

    def __init__(self, lines: list[str], limit: int, next_cwd: Callable[[], str]) -> None:
        self._lines = lines
        self._limit = limit
        self._next_cwd: Callable[[], str] | None = next_cwd
        self._end_state = EndState(lines, "", [], {})

    def settle(self, shell: Shell) -> None:
        """Record how the command has ended. After this call, the result does not change."""
        if self._next_cwd is not None:
            self._end_state = EndState.of(shell, self._lines, self._next_cwd())
            self._next_cwd = None

    async def result(self, shell: Shell) -> ToolResult:
        """Return the result of a command that has ended. After this call, the command's output
        counts as read.
        """
        end_state = self._end_state
        readers = excerpt_readers(shell, self._limit, end_state.written)
        if shell.in_foreground and not shell.released:
            result = await ended(shell, shell.command, shell.description, end_state, readers)
        else:
            reads = await wait_and_read(shell, BashOutputParams(shell.id), readers)
            is_cut = any(reader.is_cut for reader in readers.values())
            lines = dropped_notice(reads)
            result = output_result(shell, result_of(shell, reads), lines, is_cut=is_cut)
        for name in {"command", "description"} & result.metadata.keys():
            # Once all processes have ended, the shell keeps only the beginning of these texts. So
            # this result always has only the beginning.
            result.metadata[name] = beginning(result.metadata[name])
        for stream, end in (
            (shell.stdout, end_state.written["stdout"]),
            (shell.stderr, end_state.written["stderr"]),
        ):
            stream.read_position = max(stream.read_position, end)
        return result


def moved(shell: Shell, session_cwd: str | None) -> list[str]:
    """If the session's directory was deleted, the command ran elsewhere. In this case, return a
    line that names both directories.
    """
    if session_cwd is None or session_cwd == shell.working_dir or os.path.isdir(session_cwd):
        return []
    gone, cwd = shown(session_cwd), shown(shell.working_dir)
    return [f"[The session's directory {gone} cannot be entered; this ran in {cwd}]"]


def started(shell: Shell, command: str, description: str | None, lines: list[str]) -> ToolResult:
    """Return the result of a command that runs in the background."""
    lines = [*lines, *_sandbox_lines(shell)]
    text = with_lines(f"Started background shell {shell.id}\n{_hint(shell)}.", lines)
    return ToolResult.ok(text, **_metadata(shell, command, description), pid=shell.pid)


async def ended(
    shell: Shell,
    command: str,
    description: str | None,
    end_state: EndState,
    readers: Mapping[StreamName, ExcerptReader],
) -> ToolResult:
    """Return the result of a command that has ended or moved to the background.

    `command` and `description` are the texts of the call, because `shell` may have shortened its
    own copies.
    """
    reads = await wait_and_read(shell, BashOutputParams(shell.id), readers)
    stdout, stderr = (
        legible(reads[name].text, reads[name].end - reads[name].start)
        for name in ("stdout", "stderr")
    )
    output = output_of(shell, stdout, stderr)
    lines = dropped_notice(reads)
    if end_state.leftover:
        count = len(end_state.leftover)
        lines.append(f"[Left running: {count} of its processes; KillShell {shell.id} ends them]")
    lines += end_state.lines
    denied = shell.denials.shown
    lines += denied_lines(denied)
    lines += _sandbox_lines(shell)
    if (reason := _state_reason(shell)) is not None:
        lines.append(_NOT_KEPT.format(reason.text))
    if shell.status is ShellStatus.TIMEOUT:
        lines.append(_MORE_TIME)
    prompt = run_state_of(shell, shell.released_at).prompt
    if not shell.has_ended:
        lines.append(f"[{_hint(shell)}]")
    if prompt is not None:
        lines.append(waits_line(prompt))
    text = with_lines(output, lines)
    metadata = {
        **_metadata(shell, command, description),
        "truncated": any(reader.is_cut for reader in readers.values()),
        "stdout_bytes": end_state.written["stdout"],
        "stderr_bytes": end_state.written["stderr"],
        "cwd": shown(shell.working_dir),
        "session_cwd": end_state.session_cwd,
        "leftover": end_state.leftover,
    }
    if denied is not None:
        metadata["denied"] = msgspec.to_builtins(denied)
    if (reason := _state_reason(shell)) is not None:
        metadata |= {"state_kept": False, "state_reason": reason}
    if not shell.has_ended:
        moved = f"Still running after {_waited_ms(shell)}ms, now in the background: {shell.id}"
        if prompt is not None:
            metadata["prompt"] = msgspec.to_builtins(prompt)
        return ToolResult.ok(with_lines(moved + "\n" + text, []), **metadata, pid=shell.pid)
    if shell.status is ShellStatus.COMPLETED:
        return ToolResult.ok(text or NO_OUTPUT, **metadata)
    if shell.survivors:
        metadata["survivors"] = shell.survivors
    sentence = _failure(shell)
    is_answer = shell.status is ShellStatus.FAILED and shell.exit_code == 1 and not output
    if is_answer and (meaning := meaning_of_one(command)) is not None:
        sentence = f"{sentence}: {meaning}"
    return ToolResult.fail(f"{sentence}\n{text}" if text else sentence, **metadata)


def _waited_ms(shell: Shell) -> int:
    """Return how long the caller has waited, which is at most the timeout."""
    elapsed = shell.elapsed_ms
    return elapsed if shell.timeout_ms is None else min(elapsed, shell.timeout_ms)


def _state_reason(shell: Shell) -> Unkept | None:
    """Return the reason why the session did not keep the command's changes; None if it has kept
    them.
    """
    return None if shell.recorder is None else shell.recorder.reason


def _sandbox_lines(shell: Shell) -> list[str]:
    is_replaced = shell.sandbox is not None and shell.sandbox.replaced
    return [_NEW_SANDBOX] if is_replaced else []


def _failure(shell: Shell) -> str:
    if shell.status is ShellStatus.TIMEOUT:
        return f"Command timed out after {shell.timeout_ms}ms"
    sentence = f"Command failed with exit code {shell.exit_code}"
    if shell.signal is not None:
        sentence = f"Command was ended by {shell.signal}"
    elif shell.status is ShellStatus.KILLED:
        # A trap of the command may exit with any code, even with 0.
        sentence = f"Command was killed, and exited with code {shell.exit_code}"
    if shell.reason is not None:
        sentence = f"{sentence}. {REASONS[shell.reason]}"
    return sentence


def _hint(shell: Shell) -> str:
    return _TERMINAL_HINT if shell.has_terminal else _HINT


def _metadata(shell: Shell, command: str, description: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "bash_id": shell.id,
        "command": command,
        "status": shell.status.value,
        "is_running": not shell.has_ended,
        "exit_code": shell.exit_code,
        "signal": shell.signal,
        "duration_ms": shell.elapsed_ms,
    }
    if description is not None:
        metadata["description"] = description
    if shell.reason is not None:
        metadata["reason"] = shell.reason
    return metadata
