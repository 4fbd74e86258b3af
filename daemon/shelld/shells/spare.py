"""Runs spare shells. A spare shell is a bash that starts before its command is known.

This module starts a spare shell and later gives it a command. A spare shell restores the state of
one session, and runs one command. It gets a supervisor when it starts. The same supervisor later
supervises the command.

If the session has changed since the start, bash first reads lines that make the same changes. A
spare shell that has restored the state of a new session can serve any session that was not
configured. Any other spare shell serves only its own session. Its bash has started with the
environment of this session, and a command of another session could read that environment.

A spare shell is ``bash -c PLACEHOLDER``. The last line of its startup file reads from a pipe until
the end of file, and so makes bash wait. Bash keeps a pointer to its argument, and reads the
argument only after that line. So the daemon overwrites the argument with the command, in the memory
where execve(2) has put the argument (`arg_start` in proc(5)). Then it closes the pipe. The command
sees what it would see in a newly started bash: the same `$0`, `$-` and traces, and the same wording
and line numbers in errors. docs/sessions.md lists the exceptions.

To write into the memory of bash, the daemon needs the rights of a debugger. A process has these
rights over its descendants, unless the system forbids it (ptrace(2), "Ptrace access mode
checking"). On a system that forbids it, there are no spare shells.
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
from shelld.keeper.proc import fields_of
from shelld.keeper.start import Restrictions
from shelld.sessions.differences import goes_elsewhere
from shelld.sessions.dumps import DumpFiles
from shelld.sessions.prelude import last_lines, startable, waiting_prelude
from shelld.sessions.session import Session
from shelld.sessions.side_effects import NOTHING, changes_of
from shelld.sessions.text import to_bytes
from shelld.shells.launch import Launch, StartRequest
from shelld.shells.life import Life

# A command longer than this gets a new bash.
MAX_COMMAND_BYTES: Final = 4_096

# The descriptor of the prelude in bash. It is the first after stdin, stdout and stderr.
_PRELUDE: Final = 3

# `fields_of` returns the fields of /proc/PID/stat from the third field on. These are the indexes of
# two fields in its result.
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
    """Return the address of a process's arguments, from /proc/PID/stat; None if it has no arguments
    yet.

    A process may still be in execve(2) when its start is reported, for example after vfork(2).
    During execve(2), the kernel counts the bytes of the arguments and the environment. If the
    daemon overwrote the arguments during execve(2), the count would be wrong. The kernel sets the
    end of the environment last, so the arguments can be overwritten once this end is set.
    """
    fields = fields_of(stat)
    return int(fields[_ARG_START]) if int(fields[_ENV_END]) else None


def has_signals(status: bytes) -> bool:
    """Whether /proc/PID/status of a process shows pending signals that can end the process.

    For most of these signals, the kernel makes SIGKILL pending for each thread. Signals that write
    a core file stay pending for the process. So this function checks both the thread and the
    process.
    """
    found = _PENDING.search(status)
    pending = 0 if found is None else int(found[1], 16) | int(found[2], 16)
    return bool(pending & ~_HARMLESS)


class SpareLaunch(Launch):
    """Starts a spare shell in the present state of a session, and later gives the spare shell a
    command.
    """

    is_waiting = True

    def __init__(
        self,
        session: Session,
        bash: str,
        restrictions: Restrictions | None = None,
        files: DumpFiles | None = None,
    ) -> None:
        super().__init__(session, bash, restrictions, files)
        self.state = session.state
        # When the spare shell was started (time.monotonic()), and how many seconds the start took.
        self.since = time.monotonic()
        self.start_took = math.inf
        # Whether bash runs, and whether it can take its command.
        self.has_started = False
        self.is_ready = False
        self._pid = 0
        # The open files `status` and `mem` of bash in /proc, and the address of bash's argument.
        self._status: int | None = None
        self._memory: int | None = None
        self._address = 0
        # The placeholder begins with this text, which identifies the process. If a version of bash
        # copies its argument, the copy still makes bash run the command.
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
        self._env, self._withheld = startable(self._session.environment(None))
        self._env[b"BASH_ENV"] = b"/proc/self/fd/%d" % _PRELUDE
        last_word = self._env.get(b"_", b"bash")
        self._add_file(waiting_prelude(self.state, _PRELUDE, self._withheld, last_word))
        # Bash waits for its last lines from this pipe.
        read, self._pipe = os.pipe()
        self._theirs.append(read)
        self._theirs.append(self._pipe)
        self._descriptors.append(read)
        # A write must never wait for a bash that does not read.
        os.set_blocking(self._pipe, False)

    @property
    def session_name(self) -> str | None:
        """The session that the spare shell serves; None if it serves all unconfigured sessions."""
        return self._session.name

    def bash_runs(self, pid: int) -> None:
        self._pid = pid
        self.has_started = True
        self.start_took = time.monotonic() - self.since
        self.check()

    def check(self) -> None:
        """Check whether bash can take a command now. Raises OSError if bash will never be able to
        take a command.
        """
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
        """Open a file of the bash process in /proc."""
        descriptor = os.open(f"/proc/{self._pid}/{name}", flags | os.O_CLOEXEC)
        self._theirs.append(descriptor)
        return descriptor

    def can_serve(self, session: Session) -> bool:
        """Whether this bash can run a command of the session. The command must be allowed to see
        the environment of this bash. This bash must have the session's limits. There must also be
        lines that bring this bash into the session's present state.
        """
        is_shared = self.state is session.base and not session.is_limited
        suits = is_shared or self._session is session
        return suits and session.lines_from(self.state) is not None

    def suits(self, session: Session, request: StartRequest) -> bool:
        """Whether this bash is equivalent to a new bash that would start for this request."""
        return (
            request.env is None
            and request.stdin is None
            and request.terminal is None
            and not request.open_stdin
            and not request.merge
            and request.sandbox is None
            and (request.cwd is None or request.cwd == session.cwd)
            and len(to_bytes(request.command)) <= MAX_COMMAND_BYTES
            # A new bash would read such a command as options.
            and not request.command.startswith(("-", "+"))
            # In a trap on EXIT, BASH_COMMAND is right only in a bash that has run nothing before.
            and "BASH_COMMAND" not in request.command
            and self.can_serve(session)
            and (not goes_elsewhere(self.state, session.state) or self._can_enter(session))
        )

    def run(self, session: Session, request: StartRequest) -> None:
        """Let bash run a command. Raises OSError if bash does not run the command."""
        assert self._memory is not None
        assert self._status is not None
        differences = session.lines_from(self.state)
        assert differences is not None
        self._session = session
        state, command = session.state, to_bytes(request.command)
        recording = b""
        changes = changes_of(request.command, state)
        if changes != NOTHING:
            recording = self._record(request, state, changes)
        lines = last_lines(
            state, command, _PRELUDE, self._withheld, recording, differences=differences
        )
        write_all(self._pipe, lines)
        text = command.ljust(MAX_COMMAND_BYTES, b"\0")
        if os.pwrite(self._memory, text, self._address) != MAX_COMMAND_BYTES:
            raise ProcessLookupError(errno.ESRCH, "it has ended")
        if has_signals(os.pread(self._status, _STAT_BYTES, 0)):
            raise ProcessLookupError(errno.ESRCH, "it is being killed")
        # Bash reads end of file from the pipe, and runs the last lines and the command.
        os.close(self._theirs.pop(self._theirs.index(self._pipe)))
        self.is_waiting = False

    def is_in_place(self, session: Session, request: StartRequest) -> bool:
        """Whether this bash would run the command in the directory that the request asks for.

        False if the directory of this bash was deleted. Also false if the command should run in the
        present directory of bash, but the path in the request no longer leads there. Raises OSError
        if the bash is gone.
        """
        will_go = goes_elsewhere(self.state, session.state)
        if not (will_go or self._cwd) and request.cwd is None:
            return True
        bash_is_in = os.stat(f"/proc/{self._pid}/cwd")
        if will_go:
            # Bash will change to another directory. But if its present directory was deleted, bash
            # may have started in the deleted directory, and printed errors.
            return bash_is_in.st_nlink > 0
        try:
            leads_to = os.stat(self._path_of(session, session.resolve(request.cwd)))
        except OSError:
            return False
        return os.path.samestat(bash_is_in, leads_to)

    def _can_enter(self, session: Session) -> bool:
        """Whether the session's directory exists, and this bash can change to it."""
        cwd = session.cwd
        return session.resolve(None) == cwd and os.access(self._path_of(session, cwd), os.X_OK)

    def _path_of(self, session: Session, path: str) -> bytes:
        """Return the path at which the daemon finds a path of a session's commands."""
        # In a sandbox, /tmp may be another directory than outside, so start from the root directory
        # of this bash. An absolute symbolic link leads outside of it. If no directory is there,
        # this only costs the command its spare shell.
        root = b"" if session.sandbox is None else b"/proc/%d/root" % self._pid
        return root + to_bytes(path)


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
        """Whether the spare shell can run this request: bash is in a suitable state, nobody has
        asked to end it, and its runner is not lost.
        """
        is_doomed = self.life.is_being_ended or self.life.runner_is_lost
        return not is_doomed and self.launch.suits(session, request)
