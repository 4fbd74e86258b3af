"""Defines the options of the daemon and their defaults."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from shelld_protocol.sandboxes import SandboxEngine, SandboxPolicy
from shelld_protocol.structs import NO_LIMITS, ResourceLimits

# The mechanisms of containment, from the strongest to the weakest.
Mechanism = Literal["cgroup", "subreaper", "process-group"]

# How the guard treats a dangerous command. "strict" also refuses commands that it cannot analyse.
GuardMode = Literal["block", "strict", "warn", "off"]

# Which variables of the daemon's environment a session gets: all, or a few usual variables.
EnvironmentMode = Literal["inherit", "core"]

DEFAULT_TIMEOUT_MS: Final = 120_000


class Options(NamedTuple):
    """The options of the daemon.

    Sizes are in bytes. Durations are in milliseconds, unless the name says otherwise.
    """

    parent_pid: int | None = None
    log_level: str = "warning"
    log_file: str | None = None
    audit_log: str | None = None
    audit_max_bytes: int = 10 * 1024 * 1024
    bash: str = "/bin/bash"
    containment: Mechanism = "cgroup"
    env: EnvironmentMode = "inherit"
    limits: ResourceLimits = NO_LIMITS
    sandbox: SandboxPolicy | None = None
    sandbox_engine: SandboxEngine = "auto"
    default_timeout: int = DEFAULT_TIMEOUT_MS
    guard: GuardMode = "block"
    guard_rules: str | None = None
    grace: int = 1_000
    max_shells: int = 256
    spare_shells: int = 4
    max_retained: int = 1_000
    retain_seconds: int = 3_600
    retain_bytes: int = 64 * 1024 * 1024
    retain_total_bytes: int = 256 * 1024 * 1024
    spool_dir: str | None = None
    max_message_bytes: int = 64 * 1024 * 1024
    max_in_flight: int = 4_096
    interactive_tools: bool = False
    task_after: int = 10_000
    # The name and the command line of each target.
    targets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # The name and the command line of each target to which the daemon copies shelld.
    bootstraps: tuple[tuple[str, tuple[str, ...]], ...] = ()
