"""Lists names in the sentences that a model reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# The maximum number of names in one line.
MAX_NAMES: Final = 10


def listed(names: Iterable[str]) -> str:
    """Return names as a short list."""
    names = list(names)
    more = f", and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
