"""Provides the base of both clients. It starts the daemon, and says why calls are not possible.

Never waits for the daemon. Invariant: a client is entered only once, and only the process that has
entered it uses it.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final, NoReturn, Self

from shelld_client.child import Child
from shelld_client.command_lines import (
    attach_command,
    daemon_command,
    message_limit,
    words_of,
)
from shelld_client.errors import (
    DaemonExited,
    NoAnswer,
    ProtocolError,
    ShellError,
    SpawnFailed,
)
from shelld_client.reconnects import Reconnect

# How long to wait for the first answer. A daemon starts in 0.2 s, but on a busy machine or over
# ssh, the start takes seconds.
START_TIMEOUT_S: Final = 10.0

# When the `with` block of a job ends, wait at most this long until the command has ended, even if
# the caller is cancelled.
FINISH_TIMEOUT_S: Final = 10.0
# When the `with` block of a client ends, wait at most this long for answers that the daemon has
# sent already.
LAST_ANSWERS_S: Final = 2.0


class SpawnedClient:
    """The base of both clients. It starts the daemon, but never waits for the daemon."""

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        reconnect: Reconnect | None = None,
    ) -> None:
        if start_timeout is not None:
            if isinstance(start_timeout, bool):
                raise TypeError("start_timeout must be a number of seconds, or None")
            if not start_timeout > 0:
                raise ValueError("start_timeout must be more than 0 seconds, or None")
        self._command = words_of("command", command)
        if not self._command:
            raise ValueError("command must have at least one word")
        self._message_limit = message_limit(self._command)
        self._env = env
        self._cwd = cwd
        self._reconnect = reconnect
        self._start_timeout = None if start_timeout == math.inf else start_timeout
        self._child: Child | None = None
        self._entered_in: int | None = None
        # The error that calls raise, or None while calls are possible.
        self._failure: ShellError | None = DaemonExited("the client was not entered")

    @classmethod
    def spawn(
        cls,
        command: Sequence[str | PathLike[str]] | None = None,
        *,
        args: Sequence[str | PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
    ) -> Self:
        """Return a client that starts its daemon when entered.

        `command` is a command line that starts a shelld, such as ``["ssh", "host", "shelld"]``. The
        default is the daemon that is installed with this client. `args` are options of the daemon,
        appended to `command`. The daemon and its commands start with the environment `env` and in
        the directory `cwd`.

        A client can be entered once. It then waits `start_timeout` seconds (None: without limit)
        for the daemon's first answer, and skips up to 64 KiB of other text before it. It raises
        `SpawnFailed` or `DaemonExited`, and `ProtocolError` if the program is not a shelld.
        """
        argv = daemon_command(command, args)
        return cls(argv, env=env, cwd=cwd, start_timeout=start_timeout)

    @classmethod
    def attach(
        cls,
        name: str = "main",
        *,
        linger: int | None = None,
        steal: bool = False,
        args: Sequence[str | PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        reconnect: bool = False,
    ) -> Self:
        """Return a client that joins the lasting daemon `name`. If none runs, it starts one.

        When the `with` block of the client ends, the daemon and its shells continue to run. The
        daemon ends after `linger` seconds without a client. If `linger` is None, a running daemon
        keeps its current limit, and a new daemon gets 3,600 seconds. `steal` takes the daemon away
        from another client. `args` (options of the daemon), `env` and `cwd` have an effect only if
        the daemon is started.

        When the client is entered, it raises the errors that `spawn` describes. If another client
        is attached, the error is `DaemonExited` with `exit_code` 4.

        With `reconnect`, if the connection is lost, the client tries to reconnect for up to 30
        seconds. Then the client repeats the calls in flight that have an `idempotency_key`. It also
        repeats calls that have no further effect the second time: `kill_shell`, `bash_output` with
        an offset, and calls that only read. All other calls in flight raise `TargetLost`.
        Iterations over events and jobs continue after the last event that they received. If the
        daemon has died, or another client has taken it, the client does not reconnect, and calls
        raise `DaemonExited`.
        """
        command = attach_command(name, linger=linger, steal=steal, args=args)
        again = attach_command(name, linger=None, steal=False, args=())
        return cls(
            command,
            env=env,
            cwd=cwd,
            start_timeout=start_timeout,
            reconnect=Reconnect(name, [*again, "--no-start"]) if reconnect else None,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client cannot be pickled, because its daemon belongs to the process that entered "
            "it: create one where it is needed"
        )

    @property
    def pid(self) -> int:
        """The pid of the started process."""
        if self._child is None:
            raise DaemonExited("the client was not entered")
        return self._child.process.pid

    def _enter_once(self) -> None:
        if self._entered_in is not None:
            raise RuntimeError("a client can be entered only once")
        self._entered_in = os.getpid()

    def _start_child(self) -> Child:
        self._child = Child(self._command, env=self._env, cwd=self._cwd)
        return self._child

    @property
    def _is_forked(self) -> bool:
        """Tells whether this process is a fork of the process that entered the client."""
        return self._entered_in is not None and self._entered_in != os.getpid()

    def _raise_if_forked(self) -> None:
        if self._is_forked:
            raise DaemonExited("the client was entered in another process")

    def _raise_if_unusable(self) -> None:
        """Raise an error if calls are not possible."""
        self._raise_if_forked()
        if self._failure is not None:
            # Raise a copy, because raising an exception writes a traceback into it.
            raise copy.copy(self._failure)

    def _no_answer(self, said: str) -> NoAnswer:
        """Return the exception for a peer that has not answered within `start_timeout`."""
        assert self._child is not None
        sentence = f"the peer did not answer within {self._start_timeout:g} s (start_timeout){said}"
        last_words = self._child.last_words
        return NoAnswer(f"{sentence}\n{last_words}" if last_words else sentence)


def no_shelld(error: ShellError) -> ShellError:
    """Return the exception for a start whose first call has failed with `error`."""
    if isinstance(error, (DaemonExited, ProtocolError, SpawnFailed)):
        return error
    return ProtocolError(f"the peer refuses a ping, so it is not shelld: {error}")
