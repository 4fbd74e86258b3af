"""Only the lines that a pattern matches, by an engine whose time is linear in the text.

RE2 has no backtracking, so no pattern can stall the daemon. Its syntax has no lookaround and no
backreferences: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, cast

from shelld_protocol.errors import invalid_params

# Of one compiled pattern. RE2's own default; said here because it is a promise.
MAX_PATTERN_MEMORY_BYTES: Final = 8 * 1024 * 1024
MAX_PATTERN_CHARACTERS: Final = 10_000

# RE2 costs some microseconds a call, which is a line, however short.
SLICE_CHARACTERS: Final = 2_048


class LineFilter:
    """Raises `RpcError` (invalid_params) for a pattern that RE2 does not take."""

    def __init__(self, pattern: str) -> None:
        self._search = _compile(pattern).search

    def slices(self, text: str) -> Iterator[str]:
        """Yield the matching lines of one slice of `text` after the other.

        A slice takes a few milliseconds even if its lines are empty, or one line's time.
        """
        position = 0
        while position < len(text):
            end = text.find("\n", position + SLICE_CHARACTERS) + 1 or len(text)
            yield self.lines(text[position:end])
            position = end

    def lines(self, text: str) -> str:
        """Return the lines of `text` that match, each with the line end it had."""
        # Only "\\n" ends a line: splitlines() would also split at U+2028 and others.
        return "".join(
            line
            for line in _with_ends(text)
            if self._search(line.removesuffix("\n").removesuffix("\r"))
        )


def _with_ends(text: str) -> list[str]:
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


@lru_cache(maxsize=64)
def _compile(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        reason = f"longer than {MAX_PATTERN_CHARACTERS} characters"
        raise invalid_params(f"Invalid filter regex: {reason}", "filter")
    # Here and not above: most clients never filter, and none should wait for this import. The
    # module has no types.
    re2: Any = importlib.import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        # RE2's own words about the peer's own pattern: nothing of ours is in them.
        reason = cast("Exception", error).args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise invalid_params(f"Invalid filter regex: {shown}", "filter") from None
