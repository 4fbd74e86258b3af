"""Freed memory returns to the system, even if it lies below memory that is still in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import RawDaemon, wait_for

# Run in a separate process, so that nothing else uses its memory.
SCRIPT = """
import anyio
from shelld.eventloop import memory

def resident_mb():
    with open("/proc/self/status") as file:
        (line,) = [line for line in file if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024

async def main():
    # One that is large enough has glibc keep room for the others.
    bytearray(30_000_000)
    memory.GIVE_BACK_S = 0.01
    before = resident_mb()
    freed = [bytearray(b"x" * 100_000) for _ in range(500)]
    above = bytearray(100_000)
    del freed
    kept = resident_mb()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.give_back_regularly)
        with anyio.move_on_after(10):
            while resident_mb() > before + 5:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    print(int(kept - before), int(resident_mb() - before))

anyio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_freed_memory_returns_to_the_system() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, timeout=100
    )
    kept_mb, left_mb = map(int, shown.stdout.split())
    assert kept_mb > 40, "nothing was kept, so nothing is shown"
    assert left_mb <= 5


@pytest.mark.slow
def test_daemon_starts_returning_freed_memory(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    script = f"""
import pathlib
from shelld.eventloop import memory
async def give_back_regularly():
    pathlib.Path({str(asked)!r}).touch()
memory.give_back_regularly = give_back_regularly
import shelld.__main__ as program
program.sys.exit(program.main())
"""
    daemon = RawDaemon(command=[sys.executable, "-c", script])
    try:
        wait_for(asked.exists, "the first time")
    finally:
        daemon.close()
