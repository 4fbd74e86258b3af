"""The cost of the tool layer.

It compares `call_tool` and MCP's `tools/call` with the plain method, and with a tool without a
daemon. All variants take turns; figures are medians.

Usage: python benchmarks/tools.py [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import time

from measure import RawDaemon, interleaved, milliseconds, report
from shelld.embed import ShellManager
from shelld.tools import BashTool, ExecutionContext
from shelld_client import Client

BASH_TRUE = ["/bin/bash", "-c", "true"]


def over_the_wire(rounds: int, pause: float, name: str) -> None:
    with Client.spawn() as client:
        client.tool_schemas()
        medians = interleaved(
            rounds,
            pause,
            plain=lambda: subprocess.run(BASH_TRUE, capture_output=True, check=True),
            bash=lambda: client.bash("true"),
            call_tool=lambda: client.call_tool("Bash", {"command": "true"}),
        )
    more = medians["call_tool"] - medians["bash"]
    report(f"bash and call_tool, {name}", **medians, more_ms=more)


def over_mcp(rounds: int, pause: float, name: str) -> None:
    """Measure MCP with and without a handshake, but without a client library, which would add its
    own cost.
    """
    meta: dict[str, object] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call: dict[str, object] = {"name": "Bash", "arguments": {"command": "true"}}
    daemon = RawDaemon()
    daemon.request("initialize", {"protocolVersion": "2025-11-25"})
    daemon.request("tools/list")
    medians = interleaved(
        rounds,
        pause,
        bash=lambda: daemon.request("bash", {"command": "true"}),
        handshake=lambda: daemon.request("tools/call", call),
        modern=lambda: daemon.request("tools/call", {**call, "_meta": meta}),
        progress=lambda: daemon.request("tools/call", {**call, "_meta": {"progressToken": 1}}),
    )
    daemon.close()
    more = {f"{key}_more": value - medians["bash"] for key, value in medians.items()}
    del more["bash_more"]
    report(f"bash and tools/call, {name}", bash=medians["bash"], **more)


def first_report(rounds: int) -> None:
    """Measure the time from a call to its first progress notification.

    The documentation promises at least one notification a second.
    """
    daemon = RawDaemon()
    call = {"name": "Bash", "arguments": {"command": "sleep 0.9"}, "_meta": {"progressToken": 1}}
    daemon.request("initialize", {"protocolVersion": "2025-11-25"})
    times: list[float] = []
    for _ in range(rounds):
        times.append(milliseconds(lambda: daemon.request("tools/call", call)))
        # Skip further progress notifications, up to the answer to the call.
        while b'"result"' not in daemon.reader.readline():
            pass
    daemon.close()
    report("first report of progress", median_ms=statistics.median(times), worst_ms=max(times))


async def in_the_program(rounds: int) -> None:
    tool, context = BashTool(), ExecutionContext("")
    times: list[float] = []
    baseline: list[float] = []
    await tool.execute(context, command="true")
    for _ in range(rounds):
        began = time.perf_counter()
        await tool.execute(context, command="true")
        times.append((time.perf_counter() - began) * 1000)
        baseline.append(
            milliseconds(lambda: subprocess.run(BASH_TRUE, capture_output=True, check=True))
        )
    await ShellManager.reset()
    ours, theirs = statistics.median(times), statistics.median(baseline)
    report("Bash in the program", ms=ours, subprocess_ms=theirs, ratio=ours / theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    over_the_wire(rounds, 0, "in a row")
    over_the_wire(rounds, 0.01, "10 ms apart")
    over_mcp(rounds, 0, "in a row")
    over_mcp(rounds, 0.01, "10 ms apart")
    first_report(max(3, rounds // 60))
    asyncio.run(in_the_program(rounds))


if __name__ == "__main__":
    main()
