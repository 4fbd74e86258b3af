"""Collects the answers to the members of a batch, and delivers them as one answer. Pure.

Owns the answers until the last answer comes. Invariants: `deliver` gets one message, or None if no
member gets an answer. If there is not enough memory for all answers, errors replace the largest
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shelld.process.faults import answer_for
from shelld_protocol.errors import RpcError
from shelld_protocol.jsonrpc import NULL_ID, encode_batch, encode_error

# When a batch has collected this many bytes of answers, its other members may make only small
# answers.
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024

# A function that delivers an answer. If the argument is None, there is no answer. If the function
# raises, it has written nothing.
Deliver = Callable[[bytes | None], None]


class BatchReply:
    """Collects the answers to the members of one batch, and delivers them as one answer.

    `ids` holds each member's id as JSON text, or None if the member gets no answer.
    """

    def __init__(self, ids: list[bytes | None], deliver: Deliver) -> None:
        self._ids = ids
        self._deliver = deliver
        self._replies: dict[int, bytes | None] = {}
        self._bytes = 0

    def has_room(self) -> bool:
        """Return whether another member may make a large answer.

        This matters because the batch holds all answers until the last answer comes.
        """
        return self._bytes < MAX_BATCH_BYTES

    def take(self, position: int, reply: bytes | None) -> None:
        """Accept the answer for the member at `position`."""
        self._replies[position] = reply
        self._bytes += len(reply or b"")
        while len(self._replies) == len(self._ids):
            answers = [answer for _, answer in sorted(self._replies.items()) if answer is not None]
            try:
                self._deliver(encode_batch(answers) if answers else None)
            except MemoryError as error:
                # No answer was written. The joined answer needs as much memory as the answers
                # themselves.
                if not self._shorten(answer_for(error, "a batch")):
                    raise
            else:
                return

    def _shorten(self, shortage: RpcError) -> bool:
        """Replace the largest answers by `shortage`, to save at least a quarter of all bytes.

        Returns False if no answer is longer than its replacement.
        """

        def size(position: int) -> int:
            return len(self._replies[position] or b"")

        total = left = sum(map(size, self._replies))
        for position in sorted(self._replies, key=size, reverse=True):
            shorter = encode_error(self._ids[position] or NULL_ID, shortage)
            if left <= total * 3 // 4 or len(shorter) >= size(position):
                break
            left -= size(position) - len(shorter)
            self._replies[position] = shorter
        return left < total
