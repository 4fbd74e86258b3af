"""Keeps the idle runners of a pool. A runner is idle while it has no command.

Decides which runner is used next, and how many are kept.
"""

from __future__ import annotations

from typing import Final

from shelld.keeper.channel import Channel

# With this many idle runners, a client that runs 64 commands at a time need not wait for new
# runners. An idle runner costs about 1.3 MiB, until `trim` ends it.
MAX_IDLE: Final = 64
# The number of idle runners that `trim` keeps even if no command has needed them.
SPARE: Final = 2


class IdleRunners:
    def __init__(self) -> None:
        # The idle runners. The most recently used runner is at the end of the list, and gets the
        # next command.
        self._channels: list[Channel] = []
        self._fewest = 0

    def take(self) -> Channel | None:
        """Return an idle runner that is alive; None if there is none."""
        while self._channels:
            channel = self._channels.pop()
            self._fewest = min(self._fewest, len(self._channels))
            # An idle runner sends no message except READY. If the channel has another message or
            # has ended, the runner has died.
            if channel.receive() == []:
                return channel
            channel.close()
        return None

    def add(self, channel: Channel) -> None:
        """Keep a runner whose tree is empty, or end it if there are enough idle runners."""
        if channel.is_open and len(self._channels) < MAX_IDLE:
            self._channels.append(channel)
        else:
            channel.close()

    def trim(self) -> None:
        """End the runners that no command has needed since the last call; keep `SPARE` of them."""
        for channel in self._channels[: max(0, self._fewest - SPARE)]:
            self._channels.remove(channel)
            channel.close()
        self._fewest = len(self._channels)

    def close(self) -> None:
        """End all idle runners."""
        while self._channels:
            self._channels.pop().close()
