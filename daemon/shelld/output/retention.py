"""Limits the kept output of each shell, and of all shells together.

Owns the spool, and knows every shell's output from the shell's start until the shell is forgotten.
A shell that exceeds its own limit loses the oldest bytes of its tail. If all shells together exceed
their common limit, or the disk is full, ended shells lose output first, in the order in which they
ended. If a request is reading the output of an ended shell, this shell loses output only after the
other ended shells. After the ended shells, the running shell that stores the most output loses some
of it. So the output of other shells never prevents a shell from storing its own output. This module
never forgets a shell by itself.
"""

from __future__ import annotations

import errno
import math
import time
from typing import Final, Literal

from shelld.output.spool import Spool
from shelld.output.store import Blocks, StreamStore
from shelld.process.options import Options

_DEFAULT: Final = Options()

# The head of each stream gets 1/_HEAD_SHARE of a shell's limit. The tails of the two streams share
# the rest of the limit.
_HEAD_SHARE: Final = 4

# A running shell gives up 1/_RECLAIM_SHARE of its blocks at a time. Otherwise, the daemon would
# have to look for the largest shell again for each block.
_RECLAIM_SHARE: Final = 8

StreamName = Literal["stdout", "stderr"]

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class OutputStream:
    """The output of one stream, and the position that plain readers share."""

    def __init__(self, store: StreamStore) -> None:
        self.store = store
        self.read_position = 0
        # The time.monotonic() at which the command last wrote to this stream.
        self.written_at = -math.inf

    @property
    def unread_bytes(self) -> int:
        return self.store.written - self.read_position


class ShellOutput:
    """The output of one shell: two streams, which together keep at most `retain_bytes`."""

    def __init__(
        self, retain_bytes: int = _DEFAULT.retain_bytes, blocks: Blocks | None = None
    ) -> None:
        self._retain_bytes = retain_bytes
        self._blocks = blocks
        head_limit = retain_bytes // _HEAD_SHARE
        self.stdout = OutputStream(StreamStore(head_limit, blocks))
        self.stderr = OutputStream(StreamStore(head_limit, blocks))
        self._stores = (self.stdout.store, self.stderr.store)
        # The number of requests that are reading this output.
        self._pins = 0

    def pin(self) -> None:
        """Protect this output until `unpin`. Ended shells that are not pinned lose output before
        this shell does.

        Calls can nest, so each call needs its own `unpin`.
        """
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1

    @property
    def written(self) -> int:
        """The number of bytes that the command has written to both streams."""
        return sum(store.written for store in self._stores)

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    @property
    def stored_blocks(self) -> int:
        return sum(store.stored_blocks for store in self._stores)

    @property
    def error(self) -> str | None:
        """If an error has made a store drop output that the limits allow, the name of this error,
        such as "ENOSPC". Otherwise, None.
        """
        return self._stores[0].error or self._stores[1].error

    def append(self, stream: OutputStream, data: bytes | memoryview) -> None:
        # Drop bytes before the append, because the append needs free room. Drop bytes again after
        # the append, because `data` may be larger than the limit.
        self._drop_excess(len(data))
        stream.store.append(data)
        if len(data):
            # The last read of a pipe may return no data.
            stream.written_at = time.monotonic()
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
        """Replace all output of the stream with `data`."""
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
    """Limits the output of all shells.

    Without `spool_directory`, it uses the directory for temporary files.
    """

    def __init__(
        self,
        retain_bytes: int = _DEFAULT.retain_bytes,
        total_bytes: int = _DEFAULT.retain_total_bytes,
        spool_directory: str | None = None,
    ) -> None:
        self._retain_bytes = retain_bytes
        self._spool = Spool(total_bytes, spool_directory)
        # Running shells in the order in which they started, and ended shells in the order in which
        # they ended. `_ended` has only shells with blocks to give up.
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
        """Record that the shell will write no more output."""
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
        """Store a block. If there is no room, make a shell give up blocks."""
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
