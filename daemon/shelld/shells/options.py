"""The options of a manager. Their defaults are those of the daemon."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from shelld.process.options import EnvironmentMode, Options
from shelld.sandbox.policy import ResolvedPolicy
from shelld_protocol.structs import ResourceLimits

_DEFAULT: Final = Options()


class ManagerOptions(Struct, frozen=True):
    """The limits of a manager, the bash that runs its commands (`bash`), and their environment
    (`env`).

    Sizes are in bytes. `limits` applies to each session, and to each command without a session.
    `sandbox` is the sandbox policy for these sessions and commands.
    """

    bash: str = _DEFAULT.bash
    env: EnvironmentMode = _DEFAULT.env
    limits: ResourceLimits = _DEFAULT.limits
    max_shells: int = _DEFAULT.max_shells
    max_retained: int = _DEFAULT.max_retained
    retain_seconds: int = _DEFAULT.retain_seconds
    retain_bytes: int = _DEFAULT.retain_bytes
    retain_total_bytes: int = _DEFAULT.retain_total_bytes
    spool_directory: str | None = _DEFAULT.spool_dir
    spare_shells: int = _DEFAULT.spare_shells
    grace_ms: int = _DEFAULT.grace
    sandbox: ResolvedPolicy | None = None
