"""Lists error texts that show a shortage of memory. Imports nothing that takes time."""

from __future__ import annotations

from typing import Final

# An import may raise an ImportError with one of these texts, which are from dlopen(3).
IMPORT_TEXTS: Final = (
    "failed to map segment",
    "cannot map zero-fill pages",
    "cannot allocate ",
    "cannot create ",
    "cannot change memory protections",
)
