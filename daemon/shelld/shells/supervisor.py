"""Supervises one command, or one spare shell, until none of its processes is left.

Each shell has a task that waits for output, messages and deadlines, and passes them to the `Life`
of the shell. An exception in this task ends only this shell, as "lost".
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Final

import anyio

from shelld.keeper.channel import EMPTY, EXITED, FAILED, Message
from shelld.keeper.runners import Runners
from shelld.process import faults
from shelld.shells.course import Event
from shelld.shells.deadlines import KILL_TIMEOUT_S, LAST_KILL_S, START_TIMEOUT_S
from shelld.shells.life import Life
from shelld.shells.links import SHORTAGE_PAUSE_S
from shelld.shells.moments import Moment
from shelld.shells.orphans import kill_orphans

# If the daemon notices a deadline more than this number of seconds late, the daemon itself was
# suspended.
PAUSE_S: Final = 1.0

# Deadlines by which another process must act, with their times in seconds. If the daemon was
# suspended, these deadlines begin again: the other processes may also have been suspended, and a
# busy machine may resume them late.
_OF_OTHERS: Final[Mapping[Event, float]] = {
    Event.START_DUE: START_TIMEOUT_S,
    Event.KILL_DUE: KILL_TIMEOUT_S,
    Event.KEEPER_DUE: KILL_TIMEOUT_S,
}

_EMPTY: Final = frozenset({EMPTY, FAILED})


class Supervisor:
    def __init__(self, life: Life, pool: Runners) -> None:
        self.life = life
        self._links = life.links
        self._pool = pool

    async def run(self) -> None:
        """Supervise the command until none of its processes is left.

        A cancelled `run` first kills the command. If the code of shelld fails, `run` kills the
        command, ends its shell as "lost" and raises. The caller must then call `give_up`.
        """
        try:
            await self._supervise()
        except anyio.get_cancelled_exc_class():
            await self._end_in_time()
            raise
        except Exception:
            self.life.runner_is_lost = True
            try:
                with anyio.CancelScope(shield=True):
                    await self._kill_unseen()
            finally:
                self.life.end_as_lost()
            raise
        finally:
            self._finish()

    def give_up(self, _error: BaseException) -> None:
        """Report that `run` has failed, and finish its work. This closes the channel, so the runner
        kills the tree.
        """
        faults.report("the supervision of a shell")
        if not self.life.moments.is_told(Moment.EMPTY):
            self.life.runner_is_lost = True
        self.life.end_as_lost()
        self._finish()

    async def _supervise(self) -> None:
        life = self.life
        while not life.is_over:
            if not (life.has_orphans or self._links.is_shortage):
                # `_advance` wakes waiters first, so the answer goes out before the clean-up.
                await self._links.wait(self._advance, life.deadlines.next)
            if self._links.is_shortage:
                # A shortage does not mean that the command has failed. Output and messages that
                # have arrived can be read after a pause.
                await faults.pause(SHORTAGE_PAUSE_S)
            if life.has_orphans:
                shell = life.shell
                peer = self._links.channel.peer
                life.orphans_killed(await kill_orphans(self._pool, peer, shell.pid))
            if not life.is_over:
                self._meet_deadlines()
                self._advance()

    async def _end_in_time(self) -> None:
        """Kill the tree, wait a moment until it is dead, and end the shell as killed."""
        self.life.discard()
        with anyio.move_on_after(LAST_KILL_S, shield=True):
            await self._supervise()
        if not self.life.is_over:
            # The runner kills the tree when its channel ends.
            self.life.runner_is_lost = True
            self.life.take(Event.ORPHANS_KILLED)

    def _advance(self) -> bool:
        """Process the output and messages that have arrived. Return whether the wait is over."""
        life = self.life
        if not life.is_over:
            self._read()
        if life.shell.failure is None:
            # Do not wake the waiters of a shell whose start failed. They wake later, after the
            # manager has forgotten the shell.
            life.shell.notify()
        return life.is_over or life.has_orphans or self._links.is_shortage

    def _read(self) -> None:
        for message in self._links.read():
            if message is None:
                self.life.channel_ended()
            else:
                self.life.receive(message)
        self.life.time_limits.note_output()
        if self._links.pipes_are_closed:
            self.life.take(Event.PIPES_CLOSED)

    def _meet_deadlines(self) -> None:
        """Act on each deadline that has passed."""
        deadlines = self.life.deadlines
        while (passed := deadlines.passed()) is not None:
            name, late_by = passed
            if late_by > PAUSE_S and name in _OF_OTHERS:
                deadlines.set(name, _OF_OTHERS[name])
                continue
            # Output or a message that arrived in time may still be unread, and may postpone the
            # deadline.
            self._read()
            if deadlines.take(name):
                self.life.take(name)

    async def _kill_unseen(self) -> None:
        """Make the runner kill the tree, and wait until the runner reports that no process is left.

        Without that report, the runner kills the tree when its channel ends.
        """
        channel = self._links.channel
        self._links.send_kill(signal.SIGKILL, 0)
        with anyio.move_on_after(KILL_TIMEOUT_S):
            is_empty = self.life.is_over
            while not is_empty:
                await anyio.wait_readable(channel)
                try:
                    messages = channel.receive()
                except MemoryError:
                    # The messages stay in the channel until there is memory for them.
                    await faults.pause(SHORTAGE_PAUSE_S)
                    continue
                if messages is None:
                    shell = self.life.shell
                    shell.survivors = await kill_orphans(self._pool, channel.peer, shell.pid)
                    return
                is_empty = any(_tells_empty(message) for message, _ in messages)

    def _finish(self) -> None:
        """Release everything. Every step runs even if another one raises.

        A second call is safe.
        """
        life = self.life
        try:
            life.moments.tell(Moment.STARTED)
        finally:
            try:
                self._close()
            finally:
                try:
                    life.shell.become_empty()
                finally:
                    life.moments.tell(Moment.EMPTY)

    def _close(self) -> None:
        is_intact = self.life.is_intact
        launch = self.life.launch
        self._links.give_back_poller(is_intact=is_intact)
        self._links.close_pipes()
        if launch.recorder is not None:
            launch.recorder.close()
        self._links.let_go_of_channel(is_intact=is_intact)
        launch.close()


def _tells_empty(message: Message) -> bool:
    """Whether a message says that no process is left."""
    kind = message[0]
    return kind in _EMPTY or (kind == EXITED and bool(message[-1]))
