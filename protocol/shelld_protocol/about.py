"""What the daemon tells of itself: the result of ``server_info``. Sizes in bytes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from shelld_protocol.structs import Result


def _said(text: str) -> Meta:
    return Meta(description=text)


class Limits(Result):
    """What the options of the daemon have set."""

    max_message_bytes: Annotated[int, _said("Of one request.")]
    max_in_flight: Annotated[int, _said("Requests that may be unanswered.")]
    max_shells: Annotated[int, _said("Shells that may run at once.")]
    max_retained: Annotated[int, _said("Ended shells that are kept.")]
    retain_seconds: Annotated[int, _said("For how long.")]
    retain_bytes: Annotated[int, _said("Output that is kept of a shell.")]
    retain_total_bytes: Annotated[int, _said("Output that is kept of all shells.")]
    default_timeout_ms: Annotated[int, _said("Of a foreground command.")]
    grace_ms: Annotated[int, _said("From SIGTERM to SIGKILL.")]


class Counters(Result):
    """Since the daemon started, or of this moment."""

    requests: Annotated[int, _said("That were accepted.")]
    shells_started: Annotated[int, _said("Commands that were started.")]
    spares_used: Annotated[int, _said("Of those, how many had a bash that was waiting for them.")]
    shells_running: Annotated[int, _said("Now.")]
    shells_retained: Annotated[int, _said("Ended ones that are kept now.")]
    spool_bytes: Annotated[int, _said("Disk space that output takes now.")]
    internal_errors: Annotated[
        int, _said("Unexpected errors in the daemon's own code. Each has ended one thing only.")
    ]


class Containment(Result):
    """What guarantees that nothing outlives its command, as found out on this machine.

    `mechanism`: "subreaper" (Linux: all descendants, wherever they hide, and the end of the last
    one is proved) or "process-group" (elsewhere: what stays in the command's session, or can be
    traced to it). `cgroup_kill`: the kernel ends all of a command's processes at once, also those
    that fork faster than they are found or have changed their user.
    """

    mechanism: Literal["subreaper", "process-group"]
    cgroup_kill: bool


# Rises with a change that breaks clients. What only adds members, values or methods does not.
PROTOCOL: Final = 1


class ServerInfoResult(Result):
    """`containment` is null while no process can be started to find it out."""

    name: str
    version: str
    protocol: Annotated[int, _said("Of this interface; rises with a change that breaks clients.")]
    pid: int
    uptime_ms: int
    limits: Limits
    containment: Containment | None
    counters: Counters
