"""What connects the daemon with one command: a channel to its runner, and its two pipes.

Owns the pipes, and the poller that stands for all three. The channel goes back to the runner pool
once the command is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shelld.keeper.channel import Channel, Message
from shelld.readiness import READABLE, PollerPool, WatchedPoller
from shelld.shells.pipe import Pipe


class Links:
    """`pipes` are registered from the start, also those of a command that is not handed over."""

    def __init__(self, channel: Channel, pipes: list[Pipe], pollers: PollerPool) -> None:
        self.channel = channel
        self._pipes = {pipe.descriptor: pipe for pipe in pipes}
        self._pollers = pollers
        # None once it was given back.
        self._watched: WatchedPoller | None = pollers.take()
        self._poller, self._watch = self._watched
        try:
            for descriptor in (channel.fileno(), *self._pipes):
                self._poller.register(descriptor, READABLE)
        except BaseException:
            self._watched.close()
            raise

    async def wait(self, on_readable: Callable[[], bool], until: float) -> None:
        """Wait until `on_readable` returns True, or until a moment of the event loop's clock."""
        await self._watch.wait(on_readable, until)

    def wake_at(self, moment: float) -> None:
        """Let `wait` end no later than that."""
        self._watch.hurry(moment)

    def read(self) -> Iterator[Message | None]:
        """Take what has arrived: output goes to its store, messages are returned.

        None stands for the end of the channel.
        """
        for descriptor, _ in self._poller.poll(0):
            pipe = self._pipes.get(descriptor)
            if pipe is None:
                messages = self.channel.receive()
                for message, _ in messages or ():
                    yield message
                if messages is None:
                    self._poller.unregister(descriptor)
                    yield None
            elif not pipe.pump():
                self._poller.unregister(descriptor)
                pipe.close()

    @property
    def pipes_are_closed(self) -> bool:
        return all(pipe.closed for pipe in self._pipes.values())

    def drain(self) -> None:
        """Take all output that was written by now."""
        for pipe in self._pipes.values():
            pipe.drain()

    def replace_channel(self, channel: Channel) -> None:
        """Go on with another runner. The old channel is at its end, or was given up."""
        self.channel.close()
        self.channel = channel
        self._poller.register(channel.fileno(), READABLE)

    def give_back_poller(self, *, is_intact: bool) -> None:
        """Let go of the poller, before any descriptor is closed. `is_intact`: it can be reused."""
        watched, self._watched = self._watched, None
        if watched is None:
            return
        try:
            if is_intact and self._pollers.has_room:
                watched.poller.unregister(self.channel.fileno())
                for pipe in self._pipes.values():
                    if not pipe.closed:
                        watched.poller.unregister(pipe.descriptor)
                self._pollers.give_back(watched)
            else:
                watched.close()
        except BaseException:
            watched.close()
            raise

    def close_pipes(self) -> None:
        for pipe in self._pipes.values():
            pipe.close()
