"""In-process ways to run commands: `subprocess`, asyncio and anyio."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import cast

import anyio

from compare.contestant import (
    LIMIT_S,
    Answer,
    Contestant,
    NoAnswer,
    NotOffered,
    seconds_since,
)

BASH = "/bin/bash"


class OwnProgram(Contestant):
    """A program that starts its commands itself. `program` is the source of a Python program that
    runs the command in `sys.argv[1]`. `crash_during` starts this program and kills it.
    """

    version = platform.python_version()
    program: str

    def open(self) -> None:
        """Do nothing, because the program needs no preparation."""

    def close(self) -> None:
        """Do nothing, because no process is left."""

    def server_pids(self) -> list[int]:
        return []

    def ping(self) -> None:
        raise NotOffered("no server to ask")

    def begin(self, command: str) -> object:
        return subprocess.Popen([BASH, "-c", command], stdout=subprocess.PIPE)

    def kill(self, begun: object) -> None:
        process = cast("subprocess.Popen[bytes]", begun)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def crash_during(self, command: str, wait_for_start: Callable[[], object]) -> None:
        crashing = subprocess.Popen(
            [sys.executable, "-c", self.program, command], stdout=subprocess.DEVNULL
        )
        wait_for_start()
        crashing.kill()
        crashing.wait()


class SubprocessRun(OwnProgram):
    name = "subprocess.run"
    program = (
        "import subprocess, sys; subprocess.run(['/bin/bash', '-c', sys.argv[1]],"
        " capture_output=True)"
    )

    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        began = time.perf_counter()
        try:
            ended = subprocess.run(
                [BASH, "-c", command], capture_output=True, timeout=timeout_s, check=True
            )
        except subprocess.SubprocessError as error:
            raise NoAnswer(f"no answer in {timeout_s:g} s") from error
        return Answer(seconds_since(began), ended.stdout)


class OnALoop(OwnProgram):
    """A program that needs an event loop, and keeps it between calls."""

    def open(self) -> None:
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def run_all(self, commands: Sequence[str], *, timeout_s: float = LIMIT_S) -> list[Answer]:
        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(*(self._run(command, timeout_s) for command in commands))

        return self._runner.run(all_of_them())

    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        return self.run_all([command], timeout_s=timeout_s)[0]

    async def _run(self, command: str, timeout_s: float) -> Answer:
        began = time.perf_counter()
        try:
            output = await self.output_of(command, timeout_s)
        except TimeoutError as error:
            raise NoAnswer(f"no answer in {timeout_s:g} s") from error
        return Answer(seconds_since(began), output)

    @abstractmethod
    async def output_of(self, command: str, timeout_s: float) -> bytes:
        """Return the output of a command. Raise TimeoutError after `timeout_s`."""


class Asyncio(OnALoop):
    name = "asyncio"
    program = (
        "import asyncio, subprocess, sys\n"
        "async def main():\n"
        "    process = await asyncio.create_subprocess_exec(\n"
        "        '/bin/bash', '-c', sys.argv[1], stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
        "    await process.communicate()\n"
        "asyncio.run(main())"
    )

    async def output_of(self, command: str, timeout_s: float) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            BASH, "-c", command, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(timeout_s):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            # Limit this wait, because otherwise it lasts until no process has the pipes open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await process.wait()
            raise
        return output


class Anyio(OnALoop):
    name = "anyio.run_process"
    version = version("anyio")
    program = "import anyio, sys; anyio.run(anyio.run_process, ['/bin/bash', '-c', sys.argv[1]])"

    async def output_of(self, command: str, timeout_s: float) -> bytes:
        with anyio.fail_after(timeout_s):
            return (await anyio.run_process([BASH, "-c", command])).stdout
