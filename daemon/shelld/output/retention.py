"""How much output is kept: of one shell, and of all shells together.

Owns the spool, and knows every shell's output from its start until it is forgotten. What runs over
the limit of its own shell gives up its tail; what runs over that of all, or over what the disk
holds, is taken first from the shells that ended, the longest ago first, and then from whichever
holds the most. Of the shells that ended, those that a request reads come last. No shell is refused
room because of others, and none is forgotten here.
"""

from __future__ import annotations

import errno
from typing import Final

from shelld.output.spool import Spool
from shelld.output.store import Blocks, StreamStore

DEFAULT_RETAIN_BYTES: Final = 64 * 1024 * 1024
DEFAULT_RETAIN_TOTAL_BYTES: Final = 256 * 1024 * 1024

# The part of a shell's room that each stream's head may take. The rest is tail, of whichever
# stream has more to keep.
_HEAD_SHARE: Final = 4

# A running shell that has to give up something gives up this part of it, so that looking for the
# one that holds the most is not done for every block.
_RECLAIM_SHARE: Final = 8

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class OutputStream:
    """What one stream wrote, and the position that plain reads share."""

    def __init__(self, store: StreamStore) -> None:
        self.store = store
        self.read_position = 0

    @property
    def unread_bytes(self) -> int:
        return self.store.written - self.read_position


class ShellOutput:
    """Both streams of one shell, which together keep at most `retain_bytes`."""

    def __init__(
        self, retain_bytes: int = DEFAULT_RETAIN_BYTES, blocks: Blocks | None = None
    ) -> None:
        self._retain_bytes = retain_bytes
        self._blocks = blocks
        head_limit = retain_bytes // _HEAD_SHARE
        self.stdout = OutputStream(StreamStore(head_limit, blocks))
        self.stderr = OutputStream(StreamStore(head_limit, blocks))
        self._stores = (self.stdout.store, self.stderr.store)
        # How many requests read it.
        self._pins = 0

    def pin(self) -> None:
        """Give others what this holds only after the output of all other ended shells.

        Until `unpin` was called as often.
        """
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    @property
    def stored_blocks(self) -> int:
        return sum(store.stored_blocks for store in self._stores)

    @property
    def error(self) -> str | None:
        """The errno name for which output was dropped that the limits would have kept."""
        return self._stores[0].error or self._stores[1].error

    def append(self, stream: OutputStream, data: bytes | memoryview) -> None:
        # Before and after: the room that is needed is free when it is, and one append can be more
        # than all of it.
        self._drop_excess(len(data))
        stream.store.append(data)
        self._drop_excess(0)

    def _drop_excess(self, more: int) -> None:
        stdout, stderr = self._stores
        excess = stdout.kept + stderr.kept + more - self._retain_bytes
        while excess > 0:
            longer = stdout if stdout.tail_bytes >= stderr.tail_bytes else stderr
            dropped = longer.drop(excess)
            if not dropped:
                return
            excess -= dropped

    def replace(self, stream: OutputStream, data: bytes) -> None:
        """Make `data` all that the stream has ever written."""
        stream.store.forget()
        stream.store = StreamStore(self._retain_bytes // _HEAD_SHARE, self._blocks)
        self._stores = (self.stdout.store, self.stderr.store)
        self.append(stream, data)

    def finish(self) -> None:
        for store in self._stores:
            store.finish()

    def give_up(self, count: int, error: str | None) -> None:
        first, second = sorted(self._stores, key=lambda store: store.stored_blocks, reverse=True)
        left = count - first.stored_blocks
        first.give_up(count, error)
        if left > 0:
            second.give_up(left, error)

    def forget(self) -> None:
        for store in self._stores:
            store.forget()


class Retention:
    """`spool_directory` None: where temporary files belong."""

    def __init__(
        self,
        retain_bytes: int = DEFAULT_RETAIN_BYTES,
        total_bytes: int = DEFAULT_RETAIN_TOTAL_BYTES,
        spool_directory: str | None = None,
    ) -> None:
        self._retain_bytes = retain_bytes
        self._spool = Spool(total_bytes, spool_directory)
        # In the order of starting, and of ending; of the ended only those that have blocks to give.
        self._running: dict[ShellOutput, None] = {}
        self._ended: dict[ShellOutput, None] = {}

    @property
    def spool_bytes(self) -> int:
        return self._spool.size

    def open(self) -> ShellOutput:
        output = ShellOutput(self._retain_bytes, self)
        self._running[output] = None
        return output

    def finish(self, output: ShellOutput) -> None:
        """Nothing more will be written."""
        del self._running[output]
        output.finish()
        if output.stored_blocks:
            self._ended[output] = None

    def forget(self, output: ShellOutput) -> None:
        self._running.pop(output, None)
        self._ended.pop(output, None)
        output.forget()
        self._spool.shrink()

    def close(self) -> None:
        self._spool.close()

    # -- Blocks -----------------------------------------------------------------------------

    def put(self, data: bytes | bytearray | memoryview) -> int | None:
        """Store a block. If there is no room, take it from another shell."""
        try:
            block = self._spool.put(data)
        except OSError as error:
            if error.errno not in _NO_SPACE or not self._reclaim(errno.errorcode[error.errno]):
                raise
            return self._spool.put(data)
        if block is None and self._reclaim(None):
            block = self._spool.put(data)
        return block

    def get(self, block: int, offset: int, length: int) -> bytes:
        return self._spool.get(block, offset, length)

    def free(self, block: int) -> None:
        self._spool.free(block)

    def _reclaim(self, error: str | None) -> bool:
        unread = (output for output in self._ended if not output.is_pinned)
        oldest = next(unread, None) or next(iter(self._ended), None)
        if oldest is not None:
            del self._ended[oldest]
            oldest.give_up(oldest.stored_blocks, error)
            return True
        largest = max(self._running, key=lambda output: output.stored_blocks, default=None)
        if largest is None or not largest.stored_blocks:
            return False
        largest.give_up(max(1, largest.stored_blocks // _RECLAIM_SHARE), error)
        return True
