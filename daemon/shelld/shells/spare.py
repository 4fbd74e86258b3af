"""Spare shells: bashes that are started before their command is known.

Owns what it takes to start one, to have it wait, and to let it run a command. What is started for a
session makes that session's state, runs nothing else, and is used once. Who supervises it from its
start is who supervises its command.

A bash that waits is ``bash -c PLACEHOLDER``, held up by the last line of its startup file, which
reads a pipe to its end. Bash keeps a pointer to its argument and looks at that only afterwards. So
the command is written over the argument, where execve(2) has put it in memory (`arg_start` in
proc(5)), and then the pipe is closed. It cannot be told from one that was started with that
command, by `$0`, `$-`, a trace, the words and line numbers of an error, or in any other way but
those that docs/sessions.md lists.

This takes the rights of a debugger, which a process has over its descendants unless the system
forbids it (ptrace(2), "Ptrace access mode checking"). Where it cannot be done, no bash waits.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
import signal
import time
from typing import Final, NamedTuple

from shelld.keeper.channel import write_all
from shelld.sessions.prelude import last_lines, startable, waiting_prelude
from shelld.sessions.session import Session
from shelld.sessions.side_effects import changes_nothing
from shelld.sessions.text import to_bytes
from shelld.shells.launch import Launch, StartRequest
from shelld.shells.life import Life

# A longer command is given to a bash of its own.
MAX_COMMAND_BYTES: Final = 4_096

# Its descriptors, after the three that every command has.
_PRELUDE: Final = 3

# Of /proc/PID/stat, whose second field is a name in parentheses.
_ARG_START: Final = 48 - 3
_ENV_END: Final = 51 - 3
_STAT_BYTES: Final = 4_096
_ARGUMENTS: Final = (b"bash", b"-c")

_PENDING: Final = re.compile(rb"\nSigPnd:\s*(\w+)\nShdPnd:\s*(\w+)\n")
_HARMLESS: Final = sum(
    1 << number - 1 for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)
)

_serial_numbers: Final = itertools.count(1)


def arguments_address(stat: bytes) -> int | None:
    """Return where a process has its arguments, from /proc/PID/stat; None before they are there.

    A process whose start was reported, as vfork(2) does, may still be in execve(2). The kernel then
    counts the bytes of arguments and environment, and would take text that is written too early for
    their end. It sets the end of the environment last.
    """
    fields = stat.rpartition(b")")[2].split()
    return int(fields[_ARG_START]) if int(fields[_ENV_END]) else None


def has_signals(status: bytes) -> bool:
    """Whether signals that can end a process are pending, from its /proc/PID/status.

    For most of these signals the kernel makes SIGKILL pending for each thread. Signals that write a
    core file stay pending for the process.
    """
    found = _PENDING.search(status)
    pending = 0 if found is None else int(found[1], 16) | int(found[2], 16)
    return bool(pending & ~_HARMLESS)


class SpareLaunch(Launch):
    """A bash that is started to wait, in the state that its session has now."""

    is_waiting = True
    working_dir: str

    def __init__(self, session: Session, bash: str) -> None:
        super().__init__(session, bash)
        self.state = session.state
        # When it was started, as of time.monotonic(), and how long that took.
        self.since = time.monotonic()
        self.start_took = math.inf
        # Whether bash runs, and whether it can be told its command.
        self.has_started = False
        self.is_ready = False
        self._pid = 0
        # Of its process: descriptors, and where the argument is.
        self._status: int | None = None
        self._memory: int | None = None
        self._address = 0
        # Identifies the process. If a bash copied its argument, it still runs the command.
        number = next(_serial_numbers)
        self._name = b'eval "$BASH_EXECUTION_STRING" # shelld %d.%d ' % (os.getpid(), number)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self._open_streams(None)
        self._argv = [*_ARGUMENTS, self._name.ljust(MAX_COMMAND_BYTES)]
        self._go_to(None)
        self.working_dir = self._session.resolve(None)
        self._env, self._withheld = startable(self._session.environment(None))
        self._env[b"BASH_ENV"] = b"/proc/self/fd/%d" % _PRELUDE
        last_word = self._session.base.env.get(b"_", b"bash")
        self._add_file(waiting_prelude(self.state, _PRELUDE, self._withheld, last_word))
        # Its last lines come from here. It waits for them.
        read, self._pipe = os.pipe()
        self._theirs.append(read)
        self._theirs.append(self._pipe)
        self._descriptors.append(read)
        # Never wait for a bash that does not read.
        os.set_blocking(self._pipe, False)

    @property
    def session_name(self) -> str | None:
        return self._session.name

    def bash_runs(self, pid: int) -> None:
        self._pid = pid
        self.has_started = True
        self.start_took = time.monotonic() - self.since
        self.look()

    def look(self) -> None:
        """See whether it can be told a command now. Raises OSError if it never can."""
        if self.is_ready or not self.has_started:
            return
        stat = os.open(f"/proc/{self._pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            arguments = arguments_address(os.read(stat, _STAT_BYTES))
        finally:
            os.close(stat)
        if arguments is None:
            return
        self._address = arguments + sum(len(word) + 1 for word in _ARGUMENTS)
        self._memory = self._open("mem", os.O_RDWR)
        self._status = self._open("status", os.O_RDONLY)
        if os.pread(self._memory, len(self._name), self._address) != self._name:
            raise ProcessLookupError(errno.ESRCH, "another process")
        self.is_ready = True

    def _open(self, name: str, flags: int) -> int:
        """Open a file of its process in /proc."""
        descriptor = os.open(f"/proc/{self._pid}/{name}", flags | os.O_CLOEXEC)
        self._theirs.append(descriptor)
        return descriptor

    def suits(self, session: Session, request: StartRequest) -> bool:
        """Whether it is as a bash would be that is started for this request now."""
        return (
            self.state is session.state
            and self._session is session
            and request.env is None
            and request.stdin is None
            and (request.cwd is None or request.cwd == session.cwd)
            and len(to_bytes(request.command)) <= MAX_COMMAND_BYTES
            # In a trap on EXIT, this variable is right only if bash has run nothing before.
            and "BASH_COMMAND" not in request.command
        )

    def run(self, request: StartRequest) -> None:
        """Let it run a command. Raises OSError if it cannot; then it has not."""
        assert self._memory is not None
        assert self._status is not None
        command = to_bytes(request.command)
        recording = b""
        if not changes_nothing(request.command, self.state.names):
            recording = self._record(request, self._session.state)
        lines = last_lines(self.state, command, _PRELUDE, self._withheld, recording)
        write_all(self._pipe, lines)
        text = command.ljust(MAX_COMMAND_BYTES, b"\0")
        if os.pwrite(self._memory, text, self._address) != MAX_COMMAND_BYTES:
            raise ProcessLookupError(errno.ESRCH, "it has ended")
        if has_signals(os.pread(self._status, _STAT_BYTES, 0)):
            raise ProcessLookupError(errno.ESRCH, "it is being killed")
        # It goes on now.
        os.close(self._theirs.pop(self._theirs.index(self._pipe)))
        self.is_waiting = False

    def is_in_place(self, request: StartRequest) -> bool:
        """Whether the path of the request's directory leads to where this bash is.

        False once that directory was deleted, renamed or replaced. Raises OSError if the bash is
        gone.
        """
        if not self._cwd and request.cwd is None:
            return True
        if self._session.is_remote:
            return False
        bash_is_in = os.stat(f"/proc/{self._pid}/cwd")
        try:
            leads_to = os.stat(to_bytes(self._session.resolve(request.cwd)))
        except OSError:
            return False
        return os.path.samestat(bash_is_in, leads_to)


class Spare(NamedTuple):
    launch: SpareLaunch
    life: Life

    @property
    def session_name(self) -> str | None:
        return self.launch.session_name

    @property
    def since(self) -> float:
        return self.launch.since

    def suits(self, session: Session, request: StartRequest) -> bool:
        """Whether it can run this request; not if it is being ended, or has lost its runner."""
        is_doomed = self.life.is_being_ended or self.life.runner_is_lost
        return not is_doomed and self.launch.suits(session, request)
