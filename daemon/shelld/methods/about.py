"""The methods about the daemon itself: ``server_info`` and ``rpc.discover``."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any, Literal

from shelld import __version__
from shelld.methods.context import Daemon, RequestContext
from shelld.process import faults
from shelld_protocol.about import PROTOCOL, Containment, Counters, Limits, ServerInfoResult
from shelld_protocol.structs import NoParams


async def server_info(context: RequestContext, _params: NoParams) -> ServerInfoResult:
    daemon = context.daemon
    options = daemon.options
    running = len(daemon.manager.list_running())
    return ServerInfoResult(
        name="shelld",
        version=__version__,
        protocol=PROTOCOL,
        pid=os.getpid(),
        uptime_ms=round((time.monotonic() - daemon.started_at) * 1000),
        limits=Limits(
            max_message_bytes=options.max_message_bytes,
            max_in_flight=options.max_in_flight,
            max_shells=options.max_shells,
            max_retained=options.max_retained,
            retain_seconds=options.retain_seconds,
            retain_bytes=options.retain_bytes,
            retain_total_bytes=options.retain_total_bytes,
            default_timeout_ms=options.default_timeout,
            grace_ms=options.grace,
        ),
        containment=await _containment(daemon),
        counters=Counters(
            requests=daemon.requests,
            shells_started=daemon.manager.started_count,
            spares_used=daemon.manager.spares_used,
            shells_running=running,
            shells_retained=len(daemon.manager.list_shells()) - running,
            spool_bytes=daemon.manager.spool_bytes,
            internal_errors=faults.count(),
        ),
        attachment=daemon.attachment,
    )


async def _containment(daemon: Daemon) -> Containment | None:
    runner = await daemon.manager.runner_info()
    if runner is None:
        return None
    mechanism: Literal["subreaper", "process-group"]
    mechanism = "subreaper" if runner.subreaper else "process-group"
    return Containment(mechanism, runner.cgroup)


async def discover(_context: RequestContext, _params: NoParams) -> dict[str, Any]:
    return _openrpc_document()


@cache
def _openrpc_document() -> dict[str, Any]:
    # Import this here, because only this method needs the modules that generate schemas.
    from shelld_protocol.schemas import openrpc_document  # noqa: PLC0415

    return openrpc_document(__version__)
