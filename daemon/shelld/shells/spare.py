"""Bashes that are started before their command is known, one for each session of late.

Owns what it takes to start one, to have it wait, and to let it run a command; and which sessions
have one: never more than `limit`. What is started for a session makes that session's state, runs
nothing else, and is used once. Who supervises it from its start is who supervises its command.

A bash that waits is ``bash -c PLACEHOLDER``, held up by the last line but one of its startup file.
It keeps a pointer to its argument and looks at that only afterwards; so to be told its command, the
argument is overwritten, where execve(2) has put it in its memory (`arg_start` in proc(5)), and then
bash is let go. It cannot be told from one that was started with that command, by `$0`, `$-`, a
trace, the words and line numbers of an error, or in any other way but those that the README lists.
This takes the rights of a debugger, which a process has over its descendants unless the system
forbids it (ptrace(2), "Ptrace access mode checking"). Where it cannot be done, no bash waits.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import anyio

from shelld.keeper.channel import write_all
from shelld.shells.dumps import CAN_RECORD
from shelld.shells.harmless import changes_nothing
from shelld.shells.launch import Launch, StartRequest
from shelld.shells.life import Life
from shelld.shells.prelude import last_lines, startable, waiting_prelude
from shelld.shells.session import Session
from shelld.shells.text import to_bytes

DEFAULT_SPARE_SHELLS: Final = 4

# A longer command is given to a bash of its own.
MAX_COMMAND_BYTES: Final = 4_096

# After that long a session is not one of late any more.
IDLE_S: Final = 300.0
# Where more sessions take turns than there may be bashes, each would be ended before it is used.
MIN_AGE_S: Final = 15.0

# From the request for a bash to its start: half a millisecond here. Where it takes so much longer,
# and so many times as long as the fastest has taken, the processors are busy.
SLOW_START_S: Final = 0.004
SLOW_START_FACTOR: Final = 8
# A command waits this long for a spare that has not started. Its timeout begins after that.
MAX_START_WAIT_S: Final = 0.25
# By so many, those that started slowly, or too late, may outnumber the others.
MAX_SLOW_STARTS: Final = 4

# Where commands follow one another within that time, those for the next ones are started while one
# runs. Otherwise it is left alone.
IN_A_ROW_S: Final = 0.005
IN_A_ROW_SPARES: Final = 2
# After that long without a command, the processors are no longer taken to be busy.
PAUSE_S: Final = 0.1
# After that long they may be no longer, even without a pause; it takes one to find out.
RETRY_S: Final = 1.0

# So many in a row that could not be used, and it is the system that does not let it be.
MAX_FAILURES: Final = 3

# Its descriptors, after the three that every command has.
_PRELUDE: Final = 3

# Of /proc/PID/stat, whose second field is a name in parentheses.
_ARG_START: Final = 48 - 3
_ENV_END: Final = 51 - 3
_STAT_BYTES: Final = 4_096
_ARGUMENTS: Final = (b"bash", b"-c")

# What its last lines are made of. Aliases may have the names of reserved words.
_NEEDED: Final = frozenset(
    b"! [[ ]] { } builtin case do done elif else esac exec fi for if in then".split()
)
_serial_numbers: Final = itertools.count(1)


def arguments_address(stat: bytes) -> int | None:
    """Return where a process has its arguments, from /proc/PID/stat; None before they are there.

    A process that is told to have started, as vfork(2) does, may still be in execve(2): the kernel
    counts the bytes of arguments and environment, one after the other, and would take what is
    written too early for their end. The end of the environment is what it sets last.
    """
    fields = stat.rpartition(b")")[2].split()
    return int(fields[_ARG_START]) if int(fields[_ENV_END]) else None


class SpareLaunch(Launch):
    """A bash that is started to wait, in the state that its session has now."""

    is_waiting = True

    def __init__(self, session: Session, bash: str) -> None:
        super().__init__(session, bash)
        self.state = session.state
        # When it was started, as of time.monotonic(), and how long that took.
        self.since = time.monotonic()
        self.start_took = math.inf
        # Bash runs; and it can be told its command. Asked for while a command is to be started.
        self.has_started = False
        self.is_ready = False
        self._pid = 0
        # Of its process: the descriptor, open once it can be used, and where the argument is.
        self._memory: int | None = None
        self._address = 0
        # Tells it from any other process. Should a bash have taken a copy of its argument, it still
        # runs the command.
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
        last_word = self._session.base.env.get(b"_", b"bash")
        self._add_file(waiting_prelude(self.state, _PRELUDE, self._withheld, last_word))
        # Empty as long as it waits.
        self._last_lines = self._add_file(b"")
        read, self._gate = os.pipe()
        self._theirs.append(read)
        self._theirs.append(self._gate)
        self._descriptors.append(read)

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
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self._theirs.append(memory)
        if os.pread(memory, len(self._name), self._address) != self._name:
            raise ProcessLookupError(errno.ESRCH, "another process")
        self._memory = memory
        self.is_ready = True

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
        assert self._memory is not None
        command = to_bytes(request.command)
        recording = b""
        if not changes_nothing(request.command, self.state.names):
            recording = self._record(request, self._session.state)
        lines = last_lines(self.state, command, _PRELUDE, self._withheld, recording)
        write_all(self._last_lines, lines)
        text = command.ljust(MAX_COMMAND_BYTES, b"\0")
        if os.pwrite(self._memory, text, self._address) != MAX_COMMAND_BYTES:
            raise ProcessLookupError(errno.ESRCH, "it has ended")
        # It goes on now.
        os.close(self._theirs.pop(self._theirs.index(self._gate)))
        self.is_waiting = False

    def is_in_place(self, request: StartRequest) -> bool:
        """Whether the path of the request's directory leads to where this bash is.

        False once that directory was deleted, renamed or replaced. Raises OSError if the bash is
        gone.
        """
        if not self._cwd and request.cwd is None:
            return True
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
    def age(self) -> float:
        """In seconds."""
        return time.monotonic() - self.launch.since

    def suits(self, session: Session, request: StartRequest) -> bool:
        """Whether it can run this request, and is not being ended."""
        return not self.life.is_being_ended and self.launch.suits(session, request)


class StartTimes:
    """Tells which starts were slow, by those that there were before."""

    def __init__(self) -> None:
        self._fastest = math.inf

    def is_slow(self, seconds: float) -> bool:
        self._fastest = min(self._fastest, seconds)
        return seconds > max(SLOW_START_S, SLOW_START_FACTOR * self._fastest)


class Spares:
    """Those that wait, by session. `limit` 0: none.

    `start` starts one. Nothing here raises: without a bash that waits, one is
    started for the command.
    """

    def __init__(
        self, start: Callable[[Session], Spare], limit: int = DEFAULT_SPARE_SHELLS
    ) -> None:
        self._start = start
        self._limit = limit if CAN_RECORD else 0
        self._failures = 0
        self._start_times = StartTimes()
        # In the order of their start.
        self._waiting: list[Spare] = []

    def command_started(self, session: Session, spare: Spare) -> None:
        """Get ready for the next one already if commands follow at once.

        And if this one surely does not change what the next ones start from.
        """
        if time.monotonic() - session.used_at < IN_A_ROW_S and spare.launch.recorder is None:
            self._provide(session, IN_A_ROW_SPARES)

    def command_ended(self, session: Session) -> None:
        """Get ready for the next one, as there is time for it now."""
        session.used_at = time.monotonic()
        if not session.when_settled(lambda: self._provide(session, 1)):
            self._provide(session, 1)

    def _provide(self, session: Session, count: int) -> None:
        """See to it that so many wait for the next commands of a session, if they may."""
        waiting = 0
        for spare in self._of(session.name):
            if spare.launch.state is session.state:
                waiting += 1
            else:
                self._end(spare)
        if session.slow_starts >= MAX_SLOW_STARTS:
            # There is more to do than there are processors: to do it ahead only costs more.
            return
        while waiting < count and self._has_room(waiting) and _can_wait(session):
            waiting += 1
            # What the system is short of is for what was asked for.
            with contextlib.suppress(OSError):
                self._waiting.append(self._start(session))

    def _of(self, name: str | None) -> list[Spare]:
        return [spare for spare in self._waiting if spare.launch.session_name == name]

    def _has_room(self, waiting: int) -> bool:
        """Whether one may be started for a session that has so many, another giving way for it."""
        if 0 < self._limit == len(self._waiting) and not waiting:
            for spare in [*self._extra(), *self._older_than(MIN_AGE_S)][:1]:
                self._end(spare)
        return len(self._waiting) < self._limit

    def _extra(self) -> list[Spare]:
        """Return those whose sessions have others that came before them."""
        names = [spare.launch.session_name for spare in self._waiting]
        return [spare for index, spare in enumerate(self._waiting) if names[index] in names[:index]]

    def _older_than(self, seconds: float) -> list[Spare]:
        return [spare for spare in self._waiting if spare.age >= seconds]

    async def take(self, session: Session, request: StartRequest) -> Spare | None:
        """Return one that can run this request now; it is the caller's."""
        _forgive(session)
        for spare in self._waiting:
            if spare.suits(session, request):
                break
        else:
            return None
        launch = spare.launch
        if not launch.is_ready:
            _look(launch)
        is_slow = self._start_times.is_slow(launch.start_took) or not launch.is_ready
        session.slow_starts = max(0, session.slow_starts + (1 if is_slow else -1))
        session.slow_since = time.monotonic()
        if not launch.has_started:
            shell = spare.life.shell
            with anyio.move_on_after(MAX_START_WAIT_S) as wait:
                await shell.wait_until(lambda: launch.has_started or shell.is_empty)
            # Others have had their turn meanwhile.
            if spare not in self._waiting or not spare.suits(session, request):
                return None
            if wait.cancelled_caught:
                # So that the next command does not wait for it, too.
                self._end(spare)
                return None
            _look(launch)
        if not launch.is_ready:
            return None
        self._waiting.remove(spare)
        return spare

    def note_use(self, *, succeeded: bool) -> None:
        """Learn whether one could be used."""
        self._failures = 0 if succeeded else self._failures + 1
        if self._failures == MAX_FAILURES:
            self.close()

    def has_ended(self, life: Life) -> None:
        """Learn that one is gone, perhaps without having been told to."""
        for spare in self._waiting:
            if spare.life is life:
                self._waiting.remove(spare)
                if life.shell.failure is None:
                    self.note_use(succeeded=False)
                return

    def _end(self, spare: Spare) -> None:
        spare.life.discard()
        self._waiting.remove(spare)

    def end(self, name: str | None) -> None:
        """End those that wait for a session's next command."""
        for spare in self._of(name):
            self._end(spare)

    def trim(self) -> None:
        """End those of sessions that have not been used lately, and those that are too many."""
        extra = [spare for spare in self._extra() if spare.age >= MIN_AGE_S]
        for spare in {*extra, *self._older_than(IDLE_S)}:
            self._end(spare)

    def close(self) -> None:
        """End all, and start no more."""
        self._limit = 0
        for spare in list(self._waiting):
            self._end(spare)


def _look(launch: SpareLaunch) -> None:
    # When its start was told, it may not have been where it can be told its command.
    with contextlib.suppress(OSError):
        launch.look()


def _forgive(session: Session) -> None:
    """Forget slow starts of a while ago, all or, if commands still come without a pause, one."""
    now = time.monotonic()
    if now - session.used_at > PAUSE_S:
        session.slow_starts = 0
    elif now - session.slow_since > RETRY_S:
        session.slow_starts = min(session.slow_starts, MAX_SLOW_STARTS - 1)


def _can_wait(session: Session) -> bool:
    """Whether what makes the session's state can be run at another time than its command.

    A startup file of the user's own cannot; and no function or alias must be in the way of the last
    lines.
    """
    return b"BASH_ENV" not in session.base.env and _NEEDED.isdisjoint(session.state.names)
