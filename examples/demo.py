"""A short session with a real daemon, with the JSON that goes over the wire.

Run it with `make demo`.
"""

from __future__ import annotations

import logging
import os
import sys

import anyio

from shelld_client import AsyncClient, CommandTimedOut

# Where somebody looks, headings are bold, the wire is dimmed, and what is new replaces what was.
ON_A_TERMINAL = sys.stdout.isatty() and "NO_COLOR" not in os.environ
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if ON_A_TERMINAL else ("", "", "")


def heading(text: str) -> None:
    print(f"\n{BOLD}# {text}{PLAIN}")


def wire() -> logging.Logger:
    return logging.getLogger("shelld_client.wire")


def show_the_wire() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"{DIM}  %(message)s{PLAIN}"))
    wire().addHandler(handler)
    wire().setLevel(logging.DEBUG)


async def follow(shell: AsyncClient, bash_id: str) -> None:
    """Show what a shell writes as it comes; on a terminal on one line, without the wire."""
    if ON_A_TERMINAL:
        wire().setLevel(logging.INFO)
    running = True
    while running:
        read = await shell.bash_output(bash_id, wait=10_000)
        running = read.is_running
        news = f"{read.status}: {read.stdout!r}"
        print(f"\r\033[K{news}" if ON_A_TERMINAL else news, end="" if ON_A_TERMINAL else "\n")
        sys.stdout.flush()
    if ON_A_TERMINAL:
        print()
        wire().setLevel(logging.DEBUG)


async def main() -> None:
    show_the_wire()
    async with AsyncClient.spawn() as shell:
        heading("A command")
        result = await shell.bash("echo hello from $BASH_VERSION", description="Say hello")
        print(f"exit code {result.exit_code} after {result.duration_ms} ms: {result.stdout!r}")

        heading("A command that fails is a result, not an exception")
        result = await shell.bash("ls /nonexistent")
        print(f"exit code {result.exit_code}: {result.stderr!r}")

        heading("A background job, followed until it ends: no polling, each read waits")
        job = await shell.bash(
            "for i in 1 2 3; do echo step $i; sleep 0.3; done", run_in_background=True
        )
        await follow(shell, job.bash_id)

        heading("A job that hides a child in a session of its own, killed with everything it left")
        job = await shell.bash("setsid sleep 300 & sleep 300", run_in_background=True)
        killed = await shell.kill_shell(job.bash_id)
        print(f"{killed.message}; survivors: {killed.survivors}")

        heading("A timeout gives back what was written so far")
        try:
            await shell.bash("echo working; sleep 300", timeout=1000)
        except CommandTimedOut as error:
            print(f"{error}; it had written {error.stdout!r}")

        heading("And the end: the daemon stops, and nothing is left of any of it")


if __name__ == "__main__":
    anyio.run(main)
