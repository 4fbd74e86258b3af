"""Defines the result of ``server_info``. All sizes are in bytes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from shelld_protocol.structs import Result


def _said(text: str) -> Meta:
    return Meta(description=text)


class Limits(Result):
    """The limits set by the daemon's options."""

    max_message_bytes: Annotated[int, _said("Maximum size of one request.")]
    max_in_flight: Annotated[int, _said("Maximum number of unanswered requests.")]
    max_shells: Annotated[int, _said("Maximum number of running shells.")]
    max_retained: Annotated[int, _said("Maximum number of retained ended shells.")]
    retain_seconds: Annotated[int, _said("How long an ended shell is retained.")]
    retain_bytes: Annotated[int, _said("Output kept per shell.")]
    retain_total_bytes: Annotated[int, _said("Output kept of all shells together.")]
    default_timeout_ms: Annotated[int, _said("Default timeout of a foreground command.")]
    grace_ms: Annotated[int, _said("Time between SIGTERM and SIGKILL.")]


class Counters(Result):
    """Totals since the daemon started, and current values."""

    requests: Annotated[int, _said("Accepted requests.")]
    shells_started: Annotated[int, _said("Started commands.")]
    spares_used: Annotated[int, _said("Started commands that ran in a spare shell.")]
    shells_running: Annotated[int, _said("Shells running now.")]
    shells_retained: Annotated[int, _said("Ended shells retained now.")]
    spool_bytes: Annotated[int, _said("Disk space reserved for output now, in blocks of 64 KiB.")]
    internal_errors: Annotated[
        int,
        _said(
            "Unexpected errors in the daemon's own code. Each ended only one request, shell or "
            "background task."
        ),
    ]


class Containment(Result):
    """How the daemon ensures on this machine that no process outlives its command.

    `mechanism` is "subreaper" or "process-group". "subreaper" (Linux) covers all descendants, even
    detached ones, and proves that the last one has ended. "process-group" (elsewhere) covers the
    processes that stay in the command's session or can be traced to the command. With
    `cgroup_kill`, the kernel kills all processes of a command at once, even those that have changed
    their user, or that fork faster than the daemon can list them.
    """

    mechanism: Literal["subreaper", "process-group"]
    cgroup_kill: bool


class Attachment(Result):
    """How the client is attached to a lasting daemon."""

    name: Annotated[str, _said("The name of the daemon.")]
    generation: Annotated[int, _said("1 for the first client of the daemon, then 2, ...")]
    detached_ms: Annotated[int, _said("How long the daemon had no client before this one.")]
    linger_s: Annotated[
        int,
        Meta(description="Seconds without a client after which the daemon ends."),
    ]


# Increment this number for a change that breaks clients, not for new members, values or methods.
PROTOCOL: Final = 1


class ServerInfoResult(Result):
    """`containment` is null while the daemon cannot start a process to detect it."""

    name: str
    version: str
    protocol: Annotated[
        int, _said("Protocol version; increases with a change that breaks clients.")
    ]
    pid: int
    uptime_ms: int
    limits: Limits
    containment: Containment | None
    counters: Counters
    attachment: Annotated[
        Attachment | None, _said("Only if the client has attached to a lasting daemon.")
    ] = None
