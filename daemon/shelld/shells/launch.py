"""A command on its way to a runner: everything that must exist before it can start.

Owns the pipes and files of one command until it has started: a runner may be lost before that, and
another one be given the same. Knows nothing of what becomes of the command.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Final, Literal

from msgspec import Struct

from shelld.keeper.channel import RUN, Channel, anonymous_file
from shelld.shells.harmless import changes_nothing
from shelld.shells.session import DEFAULT_SESSION, Recorder, Session
from shelld.shells.state import prelude, startable

# execve(2) takes no argument of 128 KiB or more (MAX_ARG_STRLEN). A longer command is read by
# bash from a descriptor, which is closed again before the command runs.
MAX_ARGUMENT_BYTES: Final = 131_071
_READ_COMMAND: Final = b'eval "exec 3<&-;$(</dev/fd/3)"'

# Whether a path leads to a descriptor, of this process or another one.
CAN_RECORD: Final = os.path.isdir("/proc/self/fd")


class TimeoutPolicy(Struct, frozen=True):
    """What happens after `timeout_ms`: a kill with `grace_ms`, or release to the background."""

    timeout_ms: int
    action: Literal["kill", "background"]
    grace_ms: int


class StartRequest(Struct, frozen=True):
    """One command to start.

    `session` None: of no session. `timeout` None: without end. `verdict` is the guard's.
    `keeps_state`: what the command leaves behind is what the session's next one starts from.
    """

    command: str
    description: str | None = None
    session: str | None = DEFAULT_SESSION
    cwd: str | None = None
    env: dict[str, str | None] | None = None
    stdin: str | None = None
    keeps_state: bool = False
    timeout: TimeoutPolicy | None = None
    verdict: str = "unresolved"


class Launch:
    """`stdout` and `stderr` are the read ends. They never block, and once handed over are not ours.

    Raises OSError where the system is short of something.
    """

    def __init__(self, request: StartRequest, session: Session, bash: str) -> None:
        # Ours: closed unless the command is handed over. Theirs: closed in any case, as a runner
        # gets copies.
        self._ours = ExitStack()
        self._theirs = ExitStack()
        # Once handed over it belongs, like `stdout` and `stderr`, to who supervises the command.
        self.recorder: Recorder | None = None
        try:
            self._prepare(request, session, bash)
        except BaseException:
            self.close()
            raise

    def _prepare(self, request: StartRequest, session: Session, bash: str) -> None:
        if request.stdin is None:
            stdin = os.open(os.devnull, os.O_RDONLY)
            self._theirs.callback(os.close, stdin)
        else:
            stdin = self._file(request.stdin.encode())
        self.stdout, stdout_end = self._pipe()
        self.stderr, stderr_end = self._pipe()
        self._descriptors = [stdin, stdout_end, stderr_end]
        command = request.command.encode()
        self._program = os.fsencode(bash)
        # $0 is what messages begin with: the same wherever this bash lies.
        self._argv = [b"bash", b"-c", command]
        if len(command) > MAX_ARGUMENT_BYTES:
            self._argv[-1] = _READ_COMMAND
            self._descriptors.append(self._file(command))
        self._env = session.environment(request.env)
        # Only a path if the request or an earlier command has named one: the daemon's own directory
        # may have been deleted or renamed meanwhile, and is used all the same.
        here = request.cwd is None and session.state.cwd == session.base.cwd
        cwd = session.resolve(request.cwd)
        self._cwd = b"" if here else os.fsencode(cwd)
        self._remember(request, session, cwd)

    def _remember(self, request: StartRequest, session: Session, cwd: str) -> None:
        """Let bash make the session's state first, and tell what has become of it at the end."""
        state = session.state
        keeps = request.keeps_state and CAN_RECORD and session.name is not None
        # A BASH_ENV may define functions.
        startup_file = self._env.get(b"BASH_ENV", b"")
        if keeps and (startup_file or not changes_nothing(request.command, state.names)):
            self.recorder = Recorder(session, request.cwd and cwd, request.env)
            self._ours.callback(self.recorder.close)
        if self.recorder is None and state is session.base:
            return
        self._env, withheld = startable(self._env)
        # One that an earlier command has set is for the programs it starts.
        is_for_bash = "BASH_ENV" in (request.env or {}) or b"BASH_ENV" in session.base.env
        text = prelude(
            state,
            descriptor=len(self._descriptors),
            withheld=withheld,
            startup_file=startup_file if is_for_bash else b"",
            dump_to="" if self.recorder is None else self.recorder.path,
            shares_exit_trap="trap" in request.command,
        )
        self._env[b"BASH_ENV"] = b"/proc/self/fd/%d" % len(self._descriptors)
        self._descriptors.append(self._file(text))

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        self._ours.callback(os.close, read)
        self._theirs.callback(os.close, write)
        os.set_blocking(read, False)
        return read, write

    def _file(self, content: bytes) -> int:
        descriptor = anonymous_file(content)
        self._theirs.callback(os.close, descriptor)
        return descriptor

    def hand_over(self, channel: Channel) -> None:
        """Give the command to a runner. If that fails, the channel is closed too."""
        descriptors = tuple(self._descriptors)
        message = (RUN, self._program, self._argv, self._env, self._cwd, len(descriptors))
        try:
            channel.send(message, descriptors)
        except BaseException:
            # Who knows what has arrived of it.
            channel.close()
            raise
        self._ours.pop_all()

    def close(self) -> None:
        """The command has started, or never will."""
        self._theirs.close()
        self._ours.close()
