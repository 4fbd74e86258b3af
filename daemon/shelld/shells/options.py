"""What can be set of a manager."""

from __future__ import annotations

from msgspec import Struct

from shelld.output.retention import DEFAULT_RETAIN_BYTES, DEFAULT_RETAIN_TOTAL_BYTES


class ManagerOptions(Struct, frozen=True):
    """Limits (contract: Retention). `bash` is what runs commands."""

    bash: str = "/bin/bash"
    max_shells: int = 256
    max_retained: int = 1_000
    retain_seconds: int = 3_600
    retain_bytes: int = DEFAULT_RETAIN_BYTES
    retain_total_bytes: int = DEFAULT_RETAIN_TOTAL_BYTES
    spool_directory: str | None = None
    spare_shells: int = 4
    grace_ms: int = 1_000
