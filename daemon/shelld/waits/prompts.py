"""What a running shell waits for, in the form that results have."""

from __future__ import annotations

import time
from typing import Final

import anyio

from shelld.output.excerpt import last_line
from shelld.process.faults import answer_for
from shelld.prompts import prompt
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.pty import Modes
from shelld_protocol.structs import Prompt

_MAX_TEXT: Final = 500
# A terminal may take so long to pass on what was written to it. Until then, a program that has
# been answered looks like one that waits.
_DELIVERY_S: Final = 0.05
# `wait_for_prompt` looks again after a pause, which doubles from the first number to the second
# while nothing is written.
_FIRST_PAUSE_S: Final = 0.01
_LAST_PAUSE_S: Final = 4.0
# While a program writes now and then, a pause is this many times as long as the last look took.
_PAUSE_SHARE: Final = 20
# A program that also waits for time to pass counts only if it has been silent for so long. It may
# wait for an answer of its terminal.
_TIMER_MS: Final = 100
# If the output does not stop, it looks after this time anyway.
_LOOK_ANYWAY_S: Final = 1.0


def prompt_of(shell: Shell) -> Prompt | None:
    """Return what a shell waits for; None if it does not wait for input, or takes none."""
    try:
        return _prompt_of(shell)
    except Exception as error:
        # No result may fail, and lose its output, because of processes that are odd.
        answer_for(error, "the look for a prompt")
        return None


def _prompt_of(shell: Shell) -> Prompt | None:
    target = _open_input(shell)
    if target is None or shell.pid is None:
        return None
    stream = max((shell.stdout, shell.stderr), key=lambda each: each.written_at)
    now = time.monotonic()
    silent_s = min(now - stream.written_at, shell.elapsed_ms / 1000)
    if target.written_at > stream.written_at and now - target.written_at < _DELIVERY_S:
        return None
    modes: Modes | None = None
    try:
        source = target.source()
        if target.unread_bytes():
            # It is about to wake up, or does something else.
            return None
        if isinstance(target, TerminalInput):
            modes = target.modes()
    except OSError:
        return None
    found = prompt.find(shell.pid, source, modes, silent_s)
    if found is None or _output_was_under_way(shell):
        return None
    return Prompt(
        certainty="proved" if found.is_proved else "likely",
        blocking=found.is_blocking,
        line_mode=modes and modes.line_mode,
        echo=modes and modes.echo,
        pid=found.pid,
        program=found.program,
        since_ms=round(silent_s * 1000),
        text=last_line(stream.store, _MAX_TEXT),
    )


def _output_was_under_way(shell: Shell) -> bool:
    """Store what the command has written by now; return whether that was anything.

    A program that waits now may have written just before. Who waits for its prompt wants to see
    that output first.
    """
    before = shell.output.written
    shell.catch_up()
    return shell.output.written != before


def takes_input(shell: Shell) -> bool:
    """Whether something can be written to a running shell."""
    return _open_input(shell) is not None


async def wait_for_prompt(shell: Shell, give_up_at: float) -> bool:
    """Return True once a shell waits for input; False if it has ended, or takes no input.

    `give_up_at` is a moment of the event loop's clock. If it is over, this looks once.
    """
    first_pause = pause = _FIRST_PAUSE_S
    looked_at = anyio.current_time()
    while _open_input(shell) is not None:
        now = anyio.current_time()
        if now >= give_up_at:
            return prompt_of(shell) is not None
        before = shell.output.written

        def has_news(before: int = before) -> bool:
            return shell.has_ended or shell.output.written != before

        with anyio.move_on_after(min(pause, give_up_at - now)):
            await shell.wait_until(has_news)
        is_quiet = not has_news()
        pause = min(2 * pause, _LAST_PAUSE_S) if is_quiet else first_pause
        if is_quiet or anyio.current_time() - looked_at > _LOOK_ANYWAY_S:
            looked_at = anyio.current_time()
            began = time.thread_time()
            found = prompt_of(shell)
            first_pause = max(_FIRST_PAUSE_S, _PAUSE_SHARE * (time.thread_time() - began))
            if found is None:
                continue
            if found.blocking or found.since_ms >= _TIMER_MS or not is_quiet:
                return True
    return False


def is_stopped(shell: Shell) -> bool:
    """Whether a signal has stopped a running shell."""
    if shell.has_ended or shell.pid is None:
        return False
    target = _open_input(shell)
    group: int | None = None
    if isinstance(target, TerminalInput):
        try:
            group = target.source().group
        except OSError:
            return False
    return prompt.is_stopped(shell.pid, group)


def _open_input(shell: Shell) -> PipeInput | TerminalInput | None:
    target = shell.input
    return target if target is not None and target.is_open and not shell.has_ended else None
