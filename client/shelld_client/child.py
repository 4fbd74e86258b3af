"""What both clients need of a daemon: to start it, its last words, how long to wait for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Final, Self

from shelld_client.errors import DaemonExited, SpawnFailed

# After stdin was closed, for the daemon to stop by itself (it promises 2 s, 5 s when it has a
# thousand shells); then after SIGTERM; SIGKILL needs no patience.
CLOSE_TIMEOUT_S: Final = 6.0
TERMINATE_TIMEOUT_S: Final = 3.0

# For the exit code once the daemon's stdout has ended, and for its stderr to end too.
POST_MORTEM_S: Final = 1.0
LAST_WORDS_S: Final = 0.2

# What a pipe holds; more would be a large allocation for each answer.
READ_BYTES: Final = 64 * 1024
STDERR_TAIL_BYTES: Final = 8192


class Child:
    """The process and our ends of its pipes."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | None
    ) -> None:
        """Start the program. Raises `SpawnFailed` if that is impossible."""
        try:
            process = subprocess.Popen(
                list(command),
                bufsize=0,
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
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr
        self._stderr_tail = bytearray()

    def keep_stderr(self, data: bytes) -> None:
        self._stderr_tail += data
        del self._stderr_tail[:-STDERR_TAIL_BYTES]

    def post_mortem(self, exit_code: int | None) -> DaemonExited:
        """What calls fail with once the daemon has ended by itself."""
        ended = "the daemon has ended" if exit_code is None else f"the daemon exited: {exit_code}"
        stderr = self._stderr_tail.decode("utf-8", "replace").strip()
        return DaemonExited(ended, stderr=stderr, exit_code=exit_code)


class SpawnedClient:
    """What both clients have in common: the daemon that they start, not how they wait for it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._child: Child | None = None

    @classmethod
    def spawn(
        cls,
        command: Sequence[str] | None = None,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Self:
        """Return a client whose daemon starts when the client is entered.

        `command` is any argv that ends in a shelld (``["ssh", "host", "shelld"]``), by default
        the daemon that is installed beside this client; `args` are options of the daemon,
        appended to it. `env` and `cwd` are the daemon's, and so those its commands start from.
        """
        # -P: the daemon's working directory is somebody's project, whose modules are not ours.
        argv = [*(command or (sys.executable, "-P", "-m", "shelld")), *args]
        return cls(argv, env=env, cwd=cwd)

    @property
    def pid(self) -> int:
        """The pid of the process that was started."""
        if self._child is None:
            raise DaemonExited("the client was not entered")
        return self._child.process.pid

    def _start_child(self) -> Child:
        self._child = Child(self._command, env=self._env, cwd=self._cwd)
        return self._child
