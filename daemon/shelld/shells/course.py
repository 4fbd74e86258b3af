"""Defines the life of a command as a table. The life begins with the request for a runner, and ends
when no process is left.

This module is pure. It does no I/O, reads no clock and never waits. `supervisor` reports events and
performs actions.

Theory
======

Who takes part
--------------

*bash* runs the command. Its parent is a *runner*, which reaps bash, finds and kills the processes
that bash has started, and proves that no such process is left. The *keeper* is the parent of all
runners. When a runner dies, the keeper does the runner's work and reports on the same channel. When
the keeper is dead as well, the daemon itself *kills orphans*: the processes that the command has
left.

What each state means
---------------------

=========== ====================================================================================
SPARE       A runner has been asked to start a spare shell. Nobody waits for it.
WAITING     The spare shell runs, and has no command yet.
STARTING    A runner has been asked to start the command. Its pid is unknown.
RUNNING     Bash runs the command.
EXITED      Bash has ended, and the outcome is known. The answer waits for the last output.
LEFTOVER    The answer was sent. Processes that bash has started may be alive.
OVER        No process is left, or the record names the survivors. All events are ignored.
=========== ====================================================================================

A command goes through SPARE, WAITING and RUNNING, or through STARTING and RUNNING. EXITED, LEFTOVER
and OVER follow; the command may skip EXITED, LEFTOVER or both. An unused spare shell goes from
SPARE or WAITING to OVER and has no outcome. A step leads to the same state, or to a later one in
`State`.

Why each deadline exists
------------------------

START_DUE    A command can suspend the keeper, as a debugger does. Without this deadline,
             every later command would wait for ever.
TIMEOUT_DUE  The command's own time limit. This limit has no effect after bash has ended, even if
             the answer still waits for the last output.
IDLE_DUE     The caller's limit on silence. Output postpones it.
OUTPUT_DUE   With ``> >(tee log)``, bash does not wait for tee. If the answer did not wait for the
             output, the last lines would be missing. Without this deadline, a background process
             that keeps the pipe open would delay the answer.
KILL_DUE     A command can suspend its runner. Then the runner does not perform a kill.
KEEPER_DUE   When the runner is lost, the keeper must kill the remaining processes. But a command
             can also suspend the keeper.

`DEADLINES` lists the deadlines that have an effect in each state. Each change of state drops all
other deadlines, so no deadline can act too late.

What can race with what
-----------------------

* A kill and the end of bash. The runner decides which of them came first. The runner also reports
  whether it had signalled bash, so a kill that arrives after bash has ended does not change the
  outcome.
* The death of the runner and its messages. The channel keeps the messages of a dead runner, so the
  end of bash is known before LOST or CHANNEL_ENDED. A command may have run although its runner died
  before it could send STARTED. So the command ends as killed.
* LOST and CHANNEL_ENDED. The keeper reports LOST before it reports any other fact about the runner.
  If the keeper also dies, the channel ends, and only ORPHANS_KILLED can follow.
* The request for a runner and the death of the keeper. If no runner has sent READY, the command has
  not run. Then the event is RUNNER_ABSENT, and it is safe to ask another keeper.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class State(enum.StrEnum):
    SPARE = enum.auto()
    WAITING = enum.auto()
    STARTING = enum.auto()
    RUNNING = enum.auto()
    EXITED = enum.auto()
    LEFTOVER = enum.auto()
    OVER = enum.auto()


class Event(enum.StrEnum):
    # The runner reports these events.
    STARTED = enum.auto()
    """Bash was started."""
    START_FAILED = enum.auto()
    """Bash could not be started, and no process of the attempt is left."""
    STOPPED = enum.auto()
    """Bash was stopped by a signal."""
    BASH_EXITED = enum.auto()
    """Bash has ended. Processes that it has started may be alive."""
    EXITED_EMPTY = enum.auto()
    """Bash has ended, and no process of the command is left."""
    EMPTY = enum.auto()
    """No process of the command is left. If bash was running, it has been killed."""
    SURVIVED = enum.auto()
    """The kill deadline has passed, and some processes are alive. The record names them."""
    # The keeper or the end of the channel causes these events.
    LOST = enum.auto()
    """The runner has died. The keeper takes its place."""
    CHANNEL_ENDED = enum.auto()
    """No process has the other end of the channel open."""
    RUNNER_ABSENT = enum.auto()
    """No runner has come for this request. The daemon may ask for another runner."""
    # The daemon causes these events.
    KILL_ASKED = enum.auto()
    """Somebody has asked for a kill of the command, or its timeout has passed."""
    TOLD = enum.auto()
    """The spare shell has received its command."""
    PIPES_CLOSED = enum.auto()
    """No process can write any more output."""
    ORPHANS_KILLED = enum.auto()
    """The daemon has killed the remaining processes, or the record names the survivors."""
    NEVER_STARTED = enum.auto()
    """No runner was available, so the command was not started."""
    # Each of these deadlines has passed.
    START_DUE = enum.auto()
    TIMEOUT_DUE = enum.auto()
    IDLE_DUE = enum.auto()
    OUTPUT_DUE = enum.auto()
    KILL_DUE = enum.auto()
    KEEPER_DUE = enum.auto()


class Action(enum.StrEnum):
    NOTE_WAITING = enum.auto()
    """Record that the spare shell can receive a command."""
    NOTE_START = enum.auto()
    """Record that the command runs, or has run."""
    NOTE_FAILURE = enum.auto()
    """Record that the command could not be started, because no runner was available."""
    SEND_KILL = enum.auto()
    """Ask the runner for a kill, and set KILL_DUE."""
    DISCARD = enum.auto()
    """Kill a spare shell that cannot be used."""
    ASK_AGAIN = enum.auto()
    """Ask for another runner."""
    TIME_OUT = enum.auto()
    """Kill the command, or move it to the background."""
    TIME_OUT_IDLE = enum.auto()
    """Kill the command, or move it to the background, because it is silent."""
    AWAIT_OUTPUT = enum.auto()
    """Set OUTPUT_DUE, so that the processes that bash has left have a moment to write."""
    ASSUME_KILLED = enum.auto()
    """Count bash as ended by SIGKILL, because nobody has reported how bash ended."""
    END = enum.auto()
    """Settle the outcome and report it."""
    NOTE_LOST_LEFTOVER = enum.auto()
    """Record that the runner is lost and that the keeper kills the processes that bash has left."""
    AWAIT_KEEPER = enum.auto()
    """Set KEEPER_DUE, because the keeper now kills the remaining processes."""
    STOP_RUNNER = enum.auto()
    """Make the keeper kill an unresponsive runner."""
    GIVE_UP_ON_KEEPER = enum.auto()
    """Name the processes that may be alive, or kill orphans."""
    KILL_ORPHANS = enum.auto()
    """Kill the remaining processes, without the help of a runner or a keeper."""


class Step(NamedTuple):
    state: State
    actions: tuple[Action, ...] = ()


# The deadlines that have an effect in each state.
DEADLINES: Final[dict[State, frozenset[Event]]] = {
    State.SPARE: frozenset({Event.START_DUE, Event.KILL_DUE, Event.KEEPER_DUE}),
    State.WAITING: frozenset({Event.KILL_DUE, Event.KEEPER_DUE}),
    State.STARTING: frozenset(
        {Event.START_DUE, Event.TIMEOUT_DUE, Event.IDLE_DUE, Event.KILL_DUE, Event.KEEPER_DUE}
    ),
    State.RUNNING: frozenset({Event.TIMEOUT_DUE, Event.IDLE_DUE, Event.KILL_DUE, Event.KEEPER_DUE}),
    State.EXITED: frozenset({Event.OUTPUT_DUE, Event.KILL_DUE, Event.KEEPER_DUE}),
    State.LEFTOVER: frozenset({Event.KILL_DUE, Event.KEEPER_DUE}),
    State.OVER: frozenset(),
}

_KILLED: Final = (Action.ASSUME_KILLED, Action.END)

# The usual actions for an event. If the steps of a state do not name the event, the shell takes
# these actions and stays in this state. OVER is an exception: it has neither steps nor actions.
_USUAL: Final[dict[Event, tuple[Action, ...]]] = {
    Event.KILL_ASKED: (Action.SEND_KILL,),
    Event.KILL_DUE: (Action.STOP_RUNNER,),
    Event.KEEPER_DUE: (Action.GIVE_UP_ON_KEEPER,),
    Event.LOST: (Action.AWAIT_KEEPER,),
    Event.CHANNEL_ENDED: (Action.KILL_ORPHANS,),
    Event.SURVIVED: (),
    Event.PIPES_CLOSED: (),
}

_STEPS: Final[dict[State, dict[Event, Step]]] = {
    State.SPARE: {
        Event.STARTED: Step(State.WAITING, (Action.NOTE_WAITING,)),
        Event.START_FAILED: Step(State.OVER),
        Event.EMPTY: Step(State.OVER),
        Event.RUNNER_ABSENT: Step(State.SPARE, (Action.ASK_AGAIN,)),
        Event.ORPHANS_KILLED: Step(State.OVER),
        Event.NEVER_STARTED: Step(State.OVER),
        Event.START_DUE: Step(State.SPARE, (Action.STOP_RUNNER,)),
    },
    State.WAITING: {
        Event.TOLD: Step(State.RUNNING, (Action.NOTE_START,)),
        # A spare shell that was stopped by a signal would not run its command.
        Event.STOPPED: Step(State.WAITING, (Action.DISCARD,)),
        Event.BASH_EXITED: Step(State.WAITING),
        Event.EXITED_EMPTY: Step(State.OVER),
        Event.EMPTY: Step(State.OVER),
        Event.ORPHANS_KILLED: Step(State.OVER),
    },
    State.STARTING: {
        Event.STARTED: Step(State.RUNNING, (Action.NOTE_START,)),
        Event.START_FAILED: Step(State.OVER),
        Event.EMPTY: Step(State.OVER, (Action.NOTE_START, *_KILLED)),
        Event.RUNNER_ABSENT: Step(State.STARTING, (Action.ASK_AGAIN,)),
        # The command may have killed its runner before the runner reported the start.
        Event.ORPHANS_KILLED: Step(State.OVER, (Action.NOTE_START, *_KILLED)),
        # The runner died before it reported the start, and the keeper cannot kill every process. So
        # leave STARTING, because the deadlines of this state are only for a runner that is alive.
        Event.SURVIVED: Step(State.LEFTOVER, (Action.NOTE_START, *_KILLED)),
        Event.NEVER_STARTED: Step(State.OVER, (Action.NOTE_FAILURE,)),
        Event.START_DUE: Step(State.STARTING, (Action.STOP_RUNNER,)),
        Event.TIMEOUT_DUE: Step(State.STARTING, (Action.TIME_OUT,)),
        Event.IDLE_DUE: Step(State.STARTING, (Action.TIME_OUT_IDLE,)),
    },
    State.RUNNING: {
        Event.STOPPED: Step(State.RUNNING),
        Event.BASH_EXITED: Step(State.EXITED, (Action.AWAIT_OUTPUT,)),
        Event.EXITED_EMPTY: Step(State.OVER, (Action.END,)),
        Event.EMPTY: Step(State.OVER, _KILLED),
        # Bash has survived the kill.
        Event.SURVIVED: Step(State.LEFTOVER, _KILLED),
        Event.ORPHANS_KILLED: Step(State.OVER, _KILLED),
        Event.TIMEOUT_DUE: Step(State.RUNNING, (Action.TIME_OUT,)),
        Event.IDLE_DUE: Step(State.RUNNING, (Action.TIME_OUT_IDLE,)),
    },
    State.EXITED: {
        Event.EMPTY: Step(State.OVER, (Action.END,)),
        Event.LOST: Step(State.EXITED, (Action.NOTE_LOST_LEFTOVER, Action.AWAIT_KEEPER)),
        Event.CHANNEL_ENDED: Step(State.EXITED, (Action.NOTE_LOST_LEFTOVER, Action.KILL_ORPHANS)),
        Event.PIPES_CLOSED: Step(State.LEFTOVER, (Action.END,)),
        Event.ORPHANS_KILLED: Step(State.OVER, (Action.END,)),
        Event.OUTPUT_DUE: Step(State.LEFTOVER, (Action.END,)),
    },
    State.LEFTOVER: {
        # Bash survived the kill deadline, and ended later.
        Event.BASH_EXITED: Step(State.LEFTOVER),
        Event.EXITED_EMPTY: Step(State.OVER),
        Event.EMPTY: Step(State.OVER),
        Event.STOPPED: Step(State.LEFTOVER),
        Event.LOST: Step(State.LEFTOVER, (Action.NOTE_LOST_LEFTOVER, Action.AWAIT_KEEPER)),
        Event.CHANNEL_ENDED: Step(State.LEFTOVER, (Action.NOTE_LOST_LEFTOVER, Action.KILL_ORPHANS)),
        Event.ORPHANS_KILLED: Step(State.OVER),
    },
}

TABLE: Final[dict[State, dict[Event, Step]]] = {
    **{
        state: {event: Step(state, actions) for event, actions in _USUAL.items()} | steps
        for state, steps in _STEPS.items()
    },
    State.OVER: {},
}


def next_step(state: State, event: Event) -> Step:
    """Return the next state and the actions. Raises ValueError if the event is impossible."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise ValueError(f"{event.name} cannot happen in the state {state.name}") from None
