"""Holds the connections of one command: a channel to its runner, and its pipes or its terminal.

Owns the pipes and a poller. The poller watches the pipes and the channel. Once the command is over,
the channel goes back to the runner pool.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from shelld.eventloop.readiness import READABLE, WRITABLE, PollerPool, WatchedPoller
from shelld.keeper.channel import KILL, Channel, Message
from shelld.keeper.runners import Runners
from shelld.shells.launch import Launch
from shelld.shells.pipe import Pipe, Terminal
from shelld.shells.shell import Shell
from shelld.terminals.input import TerminalInput

# How many times to try to hand over a command if no runner sends READY. If a keeper dies, two
# attempts may fail, because the kernel may close the runner's socket before the keeper's socket.
# Between these two moments, the keeper still seems to listen.
MAX_LAUNCHES: Final = 5

# `Links.read` fails when this many reads in a row have run out of memory. The supervisor pauses for
# `SHORTAGE_PAUSE_S` after each of these reads, so a shortage may last a minute.
MAX_SHORTAGES: Final = 600
SHORTAGE_PAUSE_S: Final = 0.1

# A command has at most this many descriptors: its channel, two pipes and its input. Without this
# number, each poll would allocate memory for a thousand descriptors.
_MAX_EVENTS: Final = 4


class Links:
    """Reads the channel and the pipes of one command.

    The constructor registers the pipes with a poller, before the command is handed over.
    """

    def __init__(
        self,
        channel: Channel,
        launch: Launch,
        shell: Shell,
        *,
        pollers: PollerPool,
        pool: Runners,
    ) -> None:
        self.channel = channel
        self._pool = pool
        self._launches_left = MAX_LAUNCHES - 1
        # True until the channel has ended.
        self._channel_is_watched = True
        # The number of reads in a row that have run out of memory.
        self._shortages = 0
        # The open pipes, by descriptor.
        self._pipes: dict[int, Pipe]
        if isinstance(launch.input, TerminalInput):
            terminal = Terminal(launch.stdout, shell.output, shell.stdout)
            terminal.listen = launch.input.see
            self._pipes = {launch.stdout: terminal}
        else:
            self._pipes = {launch.stdout: Pipe(launch.stdout, shell.output, shell.stdout)}
            if launch.stderr is not None:
                self._pipes[launch.stderr] = Pipe(launch.stderr, shell.output, shell.stderr)
        self._input = launch.input
        self._pollers = pollers
        self._has_channel = True
        # The poller; None after it was given back.
        self._watched: WatchedPoller | None = pollers.take()
        try:
            self._poller, self._watch = self._watched
            for descriptor in (channel.fileno(), *self._pipes):
                self._poller.register(descriptor, READABLE)
            if self._input is not None:
                # The first input may already have filled the pipe or the terminal.
                self._input.watch_with(self._watch_input)
        except BaseException:
            self._watched.close()
            raise

    async def wait(self, on_readable: Callable[[], bool], until: float) -> None:
        """Wait until `on_readable` returns True, or the event loop's clock reaches `until`."""
        await self._watch.wait(on_readable, until)

    def wake_at(self, moment: float) -> None:
        """Let the current `wait` end at `moment`, unless it ends earlier."""
        self._watch.set_deadline(moment)

    def read(self) -> Iterator[Message | None]:
        """Store the output that has arrived, and yield the messages.

        None means that the channel has ended. If `is_shortage` is true afterwards, the caller must
        call `read` again after a pause.
        """
        before = self._shortages
        try:
            ready = self._poller.poll(0, _MAX_EVENTS)
        except MemoryError as error:
            self._note_shortage(error)
            ready = []
        if before and self._channel_is_watched:
            # The channel may still hold messages, even if its socket is not readable.
            channel = self.channel.fileno()
            ready = [(channel, READABLE), *(each for each in ready if each[0] != channel)]
        if self._input is not None:
            self._input.flush()
        for descriptor, events in ready:
            pipe = self._pipes.get(descriptor)
            if pipe is not None:
                if events & ~WRITABLE and not pipe.pump():
                    self._end_input_of(descriptor)
                    self._poller.unregister(descriptor)
                    self._close_pipe(descriptor, pipe)
            elif descriptor == self.channel.fileno():
                try:
                    messages = self.channel.receive()
                except MemoryError as error:
                    self._note_shortage(error)
                    continue
                for message, _ in messages or ():
                    yield message
                if messages is None:
                    self._poller.unregister(descriptor)
                    self._channel_is_watched = False
                    yield None
        if self._shortages == before:
            self._shortages = 0

    @property
    def is_shortage(self) -> bool:
        """Whether a resource is short: the last read ran out of memory, or the poller does not
        watch the input although some is queued.
        """
        return self._shortages > 0 or (self._input is not None and self._input.is_unwatched)

    def _note_shortage(self, error: MemoryError) -> None:
        """Count a read that has run out of memory.

        Raises `error` if the shortage has lasted too long.
        """
        self._shortages += 1
        if self._shortages >= MAX_SHORTAGES:
            raise error

    def _watch_input(self, is_full: bool) -> None:
        """If `is_full`, watch the input until it has room, so that `read` passes on queued input.

        Otherwise stop watching.
        """
        assert self._input is not None
        descriptor = self._input.descriptor
        try:
            if descriptor in self._pipes:
                self._poller.modify(descriptor, READABLE | WRITABLE if is_full else READABLE)
            elif is_full:
                self._poller.register(descriptor, WRITABLE)
            else:
                self._poller.unregister(descriptor)
        except (OSError, MemoryError):
            # `is_shortage` is true now. So end the current `wait`, because its caller must check
            # `is_shortage`.
            self.wake_at(0)
            raise

    def end_input(self) -> None:
        """Take no more input, and close the pipe of an open stdin."""
        if self._input is not None:
            self._input.close("ended")

    def _end_input_of(self, descriptor: int) -> None:
        """Take no more input if this descriptor carries the input.

        The caller is about to close the descriptor.
        """
        if self._input is not None and self._input.descriptor == descriptor:
            self.end_input()

    @property
    def pipes_are_closed(self) -> bool:
        return not self._pipes

    def drain(self) -> None:
        """Store all output that was written to the pipes or the terminal before this call."""
        try:
            ready = self._poller.poll(0, _MAX_EVENTS)
        except MemoryError:
            # It is unknown which pipes hold output, so drain all pipes. Draining an empty pipe does
            # no harm.
            ready = [(descriptor, READABLE) for descriptor in self._pipes]
        for descriptor, events in ready:
            if events & READABLE and descriptor in self._pipes:
                self._pipes[descriptor].drain()
        for pipe in self._pipes.values():
            if isinstance(pipe, Terminal):
                # A thread of the kernel handles the output of a terminal. The poller reports output
                # only after this thread has handled it, but a read waits for the thread.
                pipe.drain()

    def launch_again(self, launch: Launch) -> bool:
        """Give the command to another runner. Return False if there is no other runner.

        Call this only if no runner has sent READY, or if the channel was closed before the whole
        command was sent. Otherwise the old runner may run the command.
        """
        while self._launches_left:
            self._launches_left -= 1
            try:
                channel = self._pool.acquire()
                launch.hand_over(channel)
            except ConnectionError:
                # The runner has just ended, or the keeper ended before it could start the runner.
                continue
            except OSError:
                return False
            self.channel.close()
            self.channel = channel
            self._poller.register(channel.fileno(), READABLE)
            self._channel_is_watched = True
            return True
        return False

    def send_kill(self, number: int | None, grace_ms: int) -> None:
        """Ask the runner for a kill. If the runner is gone, the channel ends."""
        with contextlib.suppress(OSError):
            self.channel.send((KILL, number if number is None else int(number), grace_ms))

    def stop_runner(self) -> bool:
        """Make the keeper kill an unresponsive runner. Return False if no runner has sent READY
        yet.

        In that case, this method replaces the keeper, and shuts the channel down, so that no runner
        can take the command. Then the channel ends.
        """
        runner = self.channel.peer
        if runner is not None:
            self._pool.stop_runner(runner.pid)
            return True
        self.channel.shut_down()
        self._pool.replace_keeper_of(self.channel)
        return False

    def give_back_poller(self, *, is_intact: bool) -> None:
        """Give the poller back. Call this before any descriptor is closed.

        If `is_intact` is true, the poller can be reused.
        """
        watched, self._watched = self._watched, None
        if watched is None:
            return
        self.end_input()
        try:
            if is_intact and self._pollers.has_room:
                watched.poller.unregister(self.channel.fileno())
                for descriptor in self._pipes:
                    watched.poller.unregister(descriptor)
                self._pollers.give_back(watched)
            else:
                watched.close()
        except BaseException:
            watched.close()
            raise

    def cancel_start(self, launch: Launch) -> None:
        """Release all resources of a launch that has no supervisor."""
        self.give_back_poller(is_intact=False)
        if launch.is_handed_over:
            self.close_pipes()
            if launch.recorder is not None:
                launch.recorder.close()

    def let_go_of_channel(self, *, is_intact: bool) -> None:
        """Give an intact runner back to the pool, or close the channel.

        Only the first call has an effect.
        """
        if not self._has_channel:
            return
        self._has_channel = False
        try:
            if is_intact:
                self._pool.release(self.channel)
                return
        except BaseException:
            self.channel.close()
            raise
        self.channel.close()

    def close_pipes(self) -> None:
        for descriptor, pipe in list(self._pipes.items()):
            self._close_pipe(descriptor, pipe)

    def _close_pipe(self, descriptor: int, pipe: Pipe) -> None:
        # Forget the pipe last, so that another call closes the pipe if this call fails.
        pipe.close()
        self._pipes.pop(descriptor, None)
