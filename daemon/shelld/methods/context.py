"""What a method body is given besides its params: the daemon's parts, and its own request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shelld.audit import AuditLog, AuditRecord, timestamp
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.options import Options
from shelld.shells.manager import ShellManager
from shelld.shells.options import ManagerOptions
from shelld.shells.process import ShellProcess
from shelld_protocol.tools import ExecutionContext


@dataclass(slots=True)
class Daemon:
    """The parts that live as long as the daemon. `draining`: new requests are refused."""

    options: Options
    manager: ShellManager
    audit: AuditLog | None = None
    policy: Policy = DEFAULT_POLICY
    started_at: float = field(default_factory=time.monotonic)
    requests: int = 0
    draining: bool = False


Notify = Callable[[str, Mapping[str, Any]], None]


def _tell_nobody(_method: str, _params: Mapping[str, Any]) -> None:
    """Of a request that nobody has sent."""


@dataclass(slots=True)
class Context:
    """One request. `notify` sends its client a notification (method, params) at once.

    `error_data` is added to the error if the request ends cancelled. `shell` is the one that it
    waits for, once there is one. `is_over`: it is cancelled or answered, and nothing more is to be
    sent about it.
    """

    daemon: Daemon
    notify: Notify = _tell_nobody
    error_data: dict[str, Any] = field(default_factory=dict[str, Any])
    shell: ShellProcess | None = None
    is_over: bool = False


class RequestContext(ExecutionContext):
    """The circumstances of a tool's execution that a request has asked for."""

    request: Context | None = None


def manager_options(options: Options) -> ManagerOptions:
    """Return what the daemon's options are for its manager."""
    return ManagerOptions(
        bash=options.bash,
        max_shells=options.max_shells,
        spare_shells=options.spare_shells,
        max_retained=options.max_retained,
        retain_seconds=options.retain_seconds,
        retain_bytes=options.retain_bytes,
        retain_total_bytes=options.retain_total_bytes,
        spool_directory=options.spool_dir,
        grace_ms=options.grace,
    )


def audit_shell(log: AuditLog, shell: ShellProcess) -> None:
    """Log a command that has ended."""
    log.write(
        AuditRecord(
            time=timestamp(shell.created_at),
            session=shell.session,
            bash_id=shell.id,
            command=shell.command,
            description=shell.description,
            status=shell.status.value,
            exit_code=shell.exit_code,
            signal=shell.signal,
            duration_ms=shell.elapsed_ms,
            stdout_bytes=shell.stdout.store.written,
            stderr_bytes=shell.stderr.store.written,
            guard=shell.verdict,
        )
    )
