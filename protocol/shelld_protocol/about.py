"""What the daemon tells of itself: the result of ``server_info``. Sizes in bytes."""

from __future__ import annotations

from typing import Literal

from shelld_protocol.structs import Result


class Limits(Result):
    max_message_bytes: int
    max_in_flight: int
    max_shells: int
    max_retained: int
    retain_seconds: int
    retain_bytes: int
    retain_total_bytes: int
    default_timeout_ms: int
    grace_ms: int


class Counters(Result):
    """Since the daemon started; but `shells_running`, `shells_retained` and `spool_bytes`, the disk
    space that output takes, are of this moment.
    """

    requests: int
    shells_started: int
    # Of those, how many had a bash that was waiting for them.
    spares_used: int
    shells_running: int
    shells_retained: int
    spool_bytes: int


class Containment(Result):
    """What guarantees that nothing outlives its command, as found out on this machine.

    `mechanism`: "subreaper" (Linux: all descendants, wherever they hide, and the end of the last
    one is proved) or "process-group" (elsewhere: what stays in the command's session, or can be
    traced to it). `cgroup_kill`: the kernel ends all of a command's processes at once, also those
    that fork faster than they are found or have changed their user.
    """

    mechanism: Literal["subreaper", "process-group"]
    cgroup_kill: bool


class ServerInfoResult(Result):
    """`containment` is null while no process can be started to find it out."""

    name: str
    version: str
    pid: int
    uptime_ms: int
    limits: Limits
    containment: Containment | None
    counters: Counters
