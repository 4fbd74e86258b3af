"""Runs a short session with a real daemon, and prints the JSON that goes over the wire.

Run it with `make demo`. On a terminal, headings are bold, and the JSON is dimmed and wrapped.
Elsewhere, each message is one line, as it is on the wire.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import anyio

from shelld_client import AsyncClient, CommandTimedOut

ON_A_TERMINAL = sys.stdout.isatty()
IN_COLOUR = ON_A_TERMINAL and "NO_COLOR" not in os.environ
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if IN_COLOUR else ("", "", "")

wire = logging.getLogger("shelld_client.wire")


class ShowMessage(logging.Handler):
    """Prints each message, after an arrow: "->" to the daemon, "<-" from it."""

    def emit(self, record: logging.LogRecord) -> None:
        arrow, _, message = record.getMessage().partition(" ")
        if ON_A_TERMINAL:
            # Put spaces between the members, so that lines can break there.
            message = textwrap.fill(
                json.dumps(json.loads(message)),
                shutil.get_terminal_size().columns - 1,
                initial_indent="     ",
                subsequent_indent="     ",
                break_on_hyphens=False,
            ).lstrip()
        print(f"{DIM}  {arrow} {message}{PLAIN}", flush=True)


def heading(text: str) -> None:
    print(f"\n{BOLD}# {text}{PLAIN}", flush=True)


def say(text: str) -> None:
    print(text, flush=True)


async def follow(shell: AsyncClient, bash_id: str) -> None:
    """Print the output of a shell as it arrives, and then how the shell has ended."""
    while True:
        read = await shell.bash_output(bash_id, wait=10_000)
        if read.stdout:
            say(f"after {read.duration_ms} ms: {read.stdout!r}")
        if not read.is_running:
            break
        if wire.isEnabledFor(logging.DEBUG):
            say("  (the other reads look alike and are not shown)")
            wire.setLevel(logging.INFO)
    wire.setLevel(logging.DEBUG)
    say(f"{read.status} with exit code {read.exit_code} after {read.duration_ms} ms")


async def session() -> list[int]:
    """Run the commands. Return the pids of the processes that the last command left behind."""
    wire.addHandler(ShowMessage())
    wire.setLevel(logging.DEBUG)
    async with AsyncClient.spawn() as shell:
        heading("A command")
        result = await shell.bash("echo hello from $BASH_VERSION", description="Say hello")
        say(f"exit code {result.exit_code} after {result.duration_ms} ms: {result.stdout!r}")

        heading("A command that fails is a result, not an exception")
        result = await shell.bash("ls /nonexistent")
        say(f"exit code {result.exit_code}: {result.stderr!r}")

        heading("A background job, followed to its end: each read waits for news")
        job = await shell.bash(
            "for i in 1 2 3; do echo step $i; sleep 0.3; done", run_in_background=True
        )
        await follow(shell, job.bash_id)

        heading("A timeout returns what was written so far")
        try:
            await shell.bash("echo working; sleep 300", timeout=1000)
        except CommandTimedOut as error:
            say(f"{error}; it had written {error.stdout!r}")

        heading("A killed job takes its children along, even one that has detached itself")
        job = await shell.bash("setsid sleep 300 & sleep 300", run_in_background=True)
        killed = await shell.kill_shell(job.bash_id)
        say(f"{killed.message}; survivors: {killed.survivors}")

        heading("A child left behind does not delay the answer, which names it")
        result = await shell.bash("sleep 300 &")
        say(f"{result.status}; left behind: {', '.join(map(str, result.leftover))}")
    return result.leftover


def main() -> None:
    left = anyio.run(session)
    heading("The daemon has stopped, and the child that was left behind is gone, too")
    for pid in left:
        say(f"process {pid}: {'still running' if Path(f'/proc/{pid}').exists() else 'gone'}")


if __name__ == "__main__":
    # End quietly when a pager or `head` stops reading, or at Ctrl-C.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
