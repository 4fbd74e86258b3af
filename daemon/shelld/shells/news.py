"""Reads messages about a command, and updates the record of the command's shell. The messages come
from a runner, or from the keeper that does the runner's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    FAILED,
    LEFTOVER,
    LOST,
    STARTED,
    STOPPED,
    SURVIVORS,
    Message,
)
from shelld.process.logs import Log
from shelld.shells.course import Event
from shelld.shells.outcome import Outcome
from shelld.shells.shell import CommandUsage, Shell

logger = Log("shelld.shells")

_EVENTS: Final[Mapping[int, Event]] = {
    STARTED: Event.STARTED,
    FAILED: Event.START_FAILED,
    STOPPED: Event.STOPPED,
    SURVIVORS: Event.SURVIVED,
    EMPTY: Event.EMPTY,
    LOST: Event.LOST,
}


def apply_message(message: Message, shell: Shell, outcome: Outcome) -> Event | None:
    """Update the record with the content of a message. Return the event that the message causes, or
    None.
    """
    kind = message[0]
    if kind == STARTED:
        shell.pid = message[1]
        if outcome.member is not None:
            outcome.member.refused(message[2])
            outcome.show_limits(shell)
    elif kind == EXITED:
        return _note_exit(message, shell, outcome)
    elif kind == FAILED:
        shell.failure = message[1:]
    elif kind == LEFTOVER:
        shell.leftover = message[1]
    elif kind == SURVIVORS:
        shell.survivors = shell.leftover = message[1]
    elif kind == EMPTY:
        shell.leftover = []
    elif kind == LOST:
        logger.info("%s lost its runner", shell.id)
    return _EVENTS.get(kind)


def _note_exit(message: Message, shell: Shell, outcome: Outcome) -> Event:
    _, wait_status, user, system, rss, was_signalled, leftover, is_empty = message
    shell.leftover = leftover or []
    shell.left_processes = leftover != []
    if not outcome.is_known:
        shell.stop_clock()
        shell.usage = CommandUsage(user, system, rss)
        outcome.bash_exited(shell, wait_status, was_signalled=was_signalled)
    if leftover is None:
        # The runner could not list the leftover processes. So the runner ends, and the keeper kills
        # these processes.
        shell.reason = "lost"
    return Event.EXITED_EMPTY if is_empty else Event.BASH_EXITED
