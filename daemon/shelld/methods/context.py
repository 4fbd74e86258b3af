"""What a method body is given besides its params: the daemon's parts, and its own request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from shelld.audit import AuditLog, AuditRecord, timestamp
from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.options import Options
from shelld.shells.manager import ShellManager
from shelld.shells.process import ShellProcess


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


@dataclass(slots=True)
class Context:
    """One request. `error_data` is added to the error if the request ends cancelled."""

    daemon: Daemon
    error_data: dict[str, Any] = field(default_factory=dict[str, Any])


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
