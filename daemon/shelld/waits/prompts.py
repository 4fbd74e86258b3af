"""Finds out whether a running shell waits for input, and describes the wait as a `Prompt`."""

from __future__ import annotations

import contextlib
import time
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import anyio

from shelld.inspection import input_reader, kernel
from shelld.inspection.input_reader import InputState
from shelld.output.excerpt import last_line
from shelld.process.faults import answer_for
from shelld.shells.shell import SeenPrompt, Shell
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.waits.pauses import Pauses
from shelld_protocol.structs import Prompt

_MAX_TEXT: Final = 500
# The time that a terminal may need to pass on its input. During this time, a program that has got
# an answer still seems to wait.
_DELIVERY_S: Final = 0.05
# If a program waits for more than input, it counts as waiting for the user only after this many
# milliseconds without output. Until then, it may be waiting for an answer from its terminal.
_TIMER_MS: Final = 100
# Checks of a shell in quick succession count as one: each check adds the cost of the earlier check
# to its own cost. The pause between such checks is at most this many times the earlier cost. Many
# waits may end at the same time, and even cheap checks would together hold up other requests.
_SUCCESSION: Final = 2
# A check that costs more than this is expensive. Later calls of `run_state_of` reuse its result for
# a limited time. This time is the cost multiplied by `_REUSED`, and at most `_LONGEST_REUSE_S`.
_EXPENSIVE_S: Final = 0.002
_REUSED: Final = 10
_LONGEST_REUSE_S: Final = 0.2
# While the output does not stop, a wait checks the processes once in this time.
CHECK_ANYWAY_S: Final = 1.0


class PromptIdentity(NamedTuple):
    """Distinguishes prompts by the process, its terminal's modes, and the time of the last answer.

    `wrote`: the number of bytes that the process has written; -1 if this number is unknown. `text`:
    the last line of output, from any process.
    """

    pid: int
    certainty: str
    line_mode: bool | None
    echo: bool | None
    written_at: float
    wrote: int
    text: str

    def has_same_reader(self, other: PromptIdentity | None) -> bool:
        """Return whether the same process still waits, with the same modes and the same certainty.

        If somebody has written input between the two checks, return False.
        """
        return other is not None and self[:_CERTAIN] == other[:_CERTAIN]

    def is_same(self, other: PromptIdentity | None) -> bool:
        """Return whether this is the prompt that an earlier check has found.

        If the program has written no output since that check, the prompt is the same, even if other
        processes have written output. If the program has written output, the prompt is the same if
        the last line is the same.
        """
        if other is None or not self.has_same_reader(other):
            return False
        return 0 <= self.wrote == other.wrote or self.text == other.text

    def since(self, other: PromptIdentity) -> PromptIdentity:
        """Return the identity that the caller should compare with the prompt of the next check.

        `other` is an earlier identity of this prompt.

        After the check that found `other`, the program may have written another question, and the
        kernel may not have delivered this output yet. So the returned identity takes `wrote` from
        `other`. Then the next check treats this output as new.
        """
        return self._replace(wrote=other.wrote)


# The number of fields that `has_same_reader` compares.
_CERTAIN: Final = 5


class RunState(NamedTuple):
    """The state of a running shell. `is_stopped`: a signal has stopped it."""

    prompt: Prompt | None
    is_stopped: bool


_NOTHING: Final = RunState(None, is_stopped=False)


class _Check(NamedTuple):
    """The result of a check. `cost_s`: the cost of this check and of the checks just before it.

    If the cost is high, the result is used again until `good_until` (time.monotonic()), or until
    output or input comes.
    """

    state: RunState
    activity: object
    cost_s: float
    ended_at: float

    @property
    def good_until(self) -> float:
        if self.cost_s <= _EXPENSIVE_S:
            return self.ended_at
        return self.ended_at + min(_REUSED * self.cost_s, _LONGEST_REUSE_S)

    def is_just_before(self, began_at: float) -> bool:
        """Whether a check that began at `began_at` follows this check in quick succession."""
        return began_at - self.ended_at <= _SUCCESSION * self.cost_s


_checks: Final[WeakKeyDictionary[Shell, _Check]] = WeakKeyDictionary()


def run_state_of(shell: Shell, seen: SeenPrompt | None = None) -> RunState:
    """Return the state of a shell.

    If the shell waits for input, and can get input, the state has a prompt.

    `seen` is a prompt from an earlier check. A program may wake up only for a moment. So if no
    output or input has come since the earlier check, the state has this prompt, even if the program
    does not wait now. If the program also waits for something other than input, the state keeps
    this prompt for at most `_TIMER_MS`.

    This function checks at once, not in turn with other checks. So if a check is expensive, later
    calls share its result.
    """
    last = _checks.get(shell)
    is_good = last is not None and last.activity == shell.activity and not shell.has_ended
    if last is not None and is_good and time.monotonic() < last.good_until:
        state = last.state
    else:
        state = _check(shell)
    if seen is None or shell.has_ended or seen.activity != shell.activity:
        return state
    if not seen.prompt.blocking and time.monotonic() - seen.seen_at > _TIMER_MS / 1000:
        return state
    return state if state.prompt or state.is_stopped else state._replace(prompt=seen.prompt)


def prompt_of(shell: Shell) -> Prompt | None:
    """Return the prompt of a shell; None if the shell takes no input or does not wait for it."""
    return _check(shell).prompt


def _check(shell: Shell) -> RunState:
    began, began_at, activity = time.thread_time(), time.monotonic(), shell.activity
    try:
        state = _run_state_of(shell)
    except Exception as error:
        # A check of unusual processes may fail. The answer to the client must still contain the
        # output.
        answer_for(error, "the check of a command's processes")
        state = _NOTHING
    cost_s, last = time.thread_time() - began, _checks.get(shell)
    if last is not None and last.is_just_before(began_at):
        cost_s += last.cost_s
    _checks[shell] = _Check(state, activity, cost_s, time.monotonic())
    return state


def _run_state_of(shell: Shell) -> RunState:
    if shell.has_ended or shell.pid is None:
        return _NOTHING
    silent_s = shell.silent_s
    input_state: InputState | None = None
    if (open_input := shell.open_input) is not None:
        with contextlib.suppress(OSError):
            input_state = _state_of_input(open_input, silent_s)
    found, is_stopped = input_reader.inspect(shell.pid, input_state, silent_s)
    if found is None:
        return RunState(None, is_stopped)
    # The kernel may still be passing on the question that the program has just written.
    shell.catch_up()
    modes = input_state and input_state.modes
    asked = Prompt(
        certainty="proved" if found.is_proved else "likely",
        blocking=found.is_blocking,
        line_mode=modes and modes.line_mode,
        echo=modes and modes.echo,
        pid=found.pid,
        program=found.program,
        since_ms=round(shell.silent_s * 1000),
        text=last_line(shell.latest_stream.store, _MAX_TEXT),
    )
    return RunState(asked, is_stopped)


def _state_of_input(stdin: PipeInput | TerminalInput, silent_s: float) -> InputState:
    """Return the state of the input. Raises OSError if the input is closed during the call."""
    is_under_way = 0 <= time.monotonic() - stdin.written_at < min(silent_s, _DELIVERY_S)
    # If input is unread, the program is about to wake up, or is busy.
    is_pending = is_under_way or stdin.unread_bytes() > 0
    modes = stdin.modes() if isinstance(stdin, TerminalInput) else None
    return InputState(stdin.source(), modes, is_pending)


def settled_prompt_of(shell: Shell) -> Prompt | None:
    """Return the prompt of a shell.

    If the kernel was still passing output on, return None, because a result that reports the prompt
    must include this output.
    """
    before = shell.output.written
    found = prompt_of(shell)
    shell.catch_up()
    return found if shell.output.written == before else None


def sentence_of(found: Prompt, secret: str) -> str:
    """Return a sentence that describes a prompt.

    `secret`: the advice if the prompt asks for a secret.
    """
    waits = "waits" if found.certainty == "proved" else "probably waits"
    who = f"{found.program or 'A program'} {waits}"
    if found.line_mode and not found.echo:
        return f"{who} for a secret: {secret}"
    return f'{who} for input: "{found.text}"' if found.text else f"{who} for input"


def is_settled(found: Prompt) -> bool:
    """Return whether a command waits for its user, and not for an answer from its terminal."""
    return found.blocking or found.since_ms >= _TIMER_MS


def identity_of(shell: Shell, found: Prompt) -> PromptIdentity:
    _, written_at = shell.activity
    return PromptIdentity(
        found.pid,
        found.certainty,
        found.line_mode,
        found.echo,
        written_at,
        kernel.written_by(found.pid),
        found.text,
    )


def takes_input(shell: Shell) -> bool:
    """Return whether a running shell can get input.

    If the input is a pipe and all of the shell's processes have closed it, close the daemon's side
    as well.
    """
    stdin = shell.open_input
    if isinstance(stdin, PipeInput):
        with contextlib.suppress(OSError):
            stdin.close_if_unreadable()
    return stdin is not None and stdin.is_open


async def wait_for_prompt(shell: Shell, give_up_at: float, pauses: Pauses) -> Prompt | None:
    """Wait until a shell waits for input, and return the prompt.

    Return None if the shell ends or takes no input.

    `give_up_at` is a time of the event loop's clock. If this time has passed, check once.
    """
    # The time from which the command has been writing without a pause; None while it is silent.
    flows_from: float | None = anyio.current_time()
    while takes_input(shell):
        if (now := anyio.current_time()) >= give_up_at:
            return run_state_of(shell).prompt
        # The deadline also applies while this task waits for its turn to check.
        with anyio.CancelScope(deadline=give_up_at):
            if not await shell.wait_for_news(now + pauses.next(shell)):
                # If the command has been silent for less than `_TIMER_MS`, a program that waits
                # with a time limit may still be waiting for its terminal.
                is_silent = shell.silent_s >= _TIMER_MS / 1000
                found = await pauses.check(settled_prompt_of, shell)
                if found is not None and is_settled(found):
                    return found
                flows_from = None if is_silent else flows_from
            elif flows_from is None:
                flows_from = anyio.current_time()
            elif anyio.current_time() - flows_from > CHECK_ANYWAY_S:
                # The output does not stop, but a silent process of the command may wait for input.
                flows_from = anyio.current_time()
                if (found := await pauses.check(prompt_of, shell)) is not None:
                    return found
    return None
