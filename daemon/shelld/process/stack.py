"""Reserves memory for the frames of a program, so that a call does not need new memory.

CPython keeps the frames of a thread in chunks of 16 KiB. It maps another chunk when the calls get
deep, and unmaps this chunk when the calls return. If memory is short at that moment, the call
fails. Python 3.11 then may crash or raise SystemError, although it should raise MemoryError.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

# The size of a chunk is a power of two. A frame of `_POINTERS` pointers needs a bit more than half
# of 1 MiB, so its chunk has 512 KiB left: enough for a thousand frames, which is the limit of
# recursion. The system provides only the pages of the chunk that are used.
_POINTERS: Final = 64 * 1024


def with_room_for_frames(function: Callable[..., T]) -> Callable[..., T]:
    """Return a wrapper of `function`. The wrapper first gets memory for the frames of all calls in
    `function`, and then calls `function`.

    The wrapper raises MemoryError if it cannot get this memory.
    """

    def call(*args: Any) -> T:
        return function(*args)

    # The frame of a function with a large stack cannot share a chunk with its callers.
    code = call.__code__.replace(co_stacksize=_POINTERS)
    large = FunctionType(code, call.__globals__, call.__name__, None, call.__closure__)
    return cast("Callable[..., T]", large)
