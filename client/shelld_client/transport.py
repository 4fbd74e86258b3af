"""The daemon as a child process: its three streams, and an end that takes a bounded time.

Owns the process. The last stderr lines are kept for the one who asks why it died.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc

from shelld_client.errors import DaemonExited, SpawnFailed

# After stdin was closed, for the daemon to stop by itself (it promises 2 s, 5 s when it has a
# thousand shells); then after SIGTERM; SIGKILL needs no patience.
CLOSE_TIMEOUT_S: Final = 6.0
TERMINATE_TIMEOUT_S: Final = 3.0

STDERR_TAIL_BYTES: Final = 8192
_READ_BYTES: Final = 256 * 1024


class Transport:
    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._stderr_tail = bytearray()
        self._sending = anyio.Lock(fast_acquire=True)

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Transport:
        """Start the daemon. Raises `SpawnFailed` if the program cannot be started."""
        try:
            process = await anyio.open_process(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                # A Ctrl-C at the terminal is the harness's to handle, not the daemon's.
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SpawnFailed(f"cannot start {command[0]}: {reason}") from error
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        return self._stderr_tail.decode("utf-8", "replace").strip()

    async def send(self, data: bytes) -> None:
        """Write all of `data`. Raises `DaemonExited` if there is nobody to read it.

        Not to be cancelled half-way: the next message would be appended to half of this one.
        """
        with anyio.CancelScope(shield=True):
            async with self._sending:
                try:
                    await self._stdin.send(data)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    raise DaemonExited("the daemon does not read its stdin") from None

    async def receive(self) -> bytes:
        """Return the next bytes, b"" when the daemon has closed its stdout."""
        try:
            return await self._stdout.receive(_READ_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def collect_stderr(self) -> None:
        """Keep the end of stderr, until it is closed."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                self._stderr_tail += await self._stderr.receive()
                del self._stderr_tail[:-STDERR_TAIL_BYTES]

    async def exit_code(self, seconds: float = math.inf) -> int | None:
        """Wait for the process's end; None if it is not there in time."""
        with anyio.move_on_after(seconds):
            return await self._process.wait()
        return None

    async def close(self) -> None:
        """End the daemon: end of file, then SIGTERM, then SIGKILL; returns once it is reaped."""
        with anyio.CancelScope(shield=True):
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await self._stdin.aclose()
            if await self.exit_code(CLOSE_TIMEOUT_S) is None:
                with suppress(ProcessLookupError):
                    self._process.terminate()
                if await self.exit_code(TERMINATE_TIMEOUT_S) is None:
                    with suppress(ProcessLookupError):
                        self._process.kill()
                    await self._process.wait()
            await self._stdout.aclose()
            await self._stderr.aclose()
