"""Starts the program of a command in a session of its own. Does not wait until the program ends.

posix_spawn(3) is the fastest way to start a program. But it cannot lower limits or enter a cgroup.
To restrict the program after its start would be too late, because it may already have started other
programs. So for a restricted program, this process forks, and the child restricts itself and then
executes the program. The child reports its failures over a pipe. The pipe closes when the program
starts.

dup2(2) gives the program its descriptors, and clears their close-on-exec flags. No other descriptor
above 2 is inheritable in this process. The source of each dup2 has a higher number than all
targets, so no dup2 overwrites a source that is still needed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from shelld.keeper.cgroup import write

_READ_BYTES: Final = 4_096
# A program starts with the default actions of these signals. Otherwise an ignored signal would stay
# ignored after execve(2). The list has every signal, because posix_spawn(3) would ask the system
# about each signal that is not in the list.
_DEFAULT_SIGNALS: Final = sorted(
    map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
)

# Each line of the child's report begins with one of these words.
_REFUSED: Final = b"refused"
_FAILED: Final = b"failed"


class Restrictions(NamedTuple):
    """The restrictions of a program. Each item of `limits` has the number of a limit, such as
    RLIMIT_NOFILE, and a value. The soft and the hard limit are lowered to this value. `cgroups` are
    the directories of the cgroups to enter. `handles` are descriptors of the files `cgroup.procs`
    in these directories, if the program starts in a sandbox that cannot write there.
    """

    limits: tuple[tuple[int, int], ...] = ()
    cgroups: tuple[bytes, ...] = ()
    handles: tuple[int, ...] = ()


class Program(NamedTuple):
    """A program to execute. `descriptors` become the descriptors 0, 1, 2, ... of the program. In
    this process, each of them has a higher number than any descriptor of the program.

    `terminal` is the path of the terminal that becomes descriptor 0 and the controlling terminal.
    """

    path: bytes
    argv: list[bytes]
    env: Mapping[bytes, bytes]
    descriptors: list[int]
    terminal: bytes | None


class StartUnknownError(Exception):
    """It is unknown whether the program runs."""


def start(program: Program, restrictions: Restrictions | None) -> tuple[int, tuple[int, ...]]:
    """Start a program. Return its pid, and the indexes of the cgroups that have refused it.

    Raises OSError, ValueError for strings that execve(2) does not accept, and StartUnknownError.
    """
    return (_spawn(program), ()) if restrictions is None else _fork(program, restrictions)


def _spawn(program: Program) -> int:
    actions: list[tuple[Any, ...]]
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(program.descriptors)]
    if program.terminal is not None:
        # The first terminal that a session leader opens becomes its controlling terminal.
        actions[0] = (os.POSIX_SPAWN_OPEN, 0, program.terminal, os.O_RDWR, 0)
    return os.posix_spawn(
        program.path,
        program.argv,
        program.env,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def _fork(program: Program, restrictions: Restrictions) -> tuple[int, tuple[int, ...]]:
    reader, writer = os.pipe()
    try:
        # Block all signals until the child has set up its signals. Until then, no signal handler of
        # this process may run in the child.
        before = signal.pthread_sigmask(signal.SIG_SETMASK, _DEFAULT_SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                _become(program, restrictions, writer)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    except BaseException:
        os.close(reader)
        os.close(writer)
        raise
    try:
        os.close(writer)
        report = _read_to_the_end(reader)
    except OSError as error:
        raise StartUnknownError from error
    finally:
        os.close(reader)
    refused: tuple[int, ...] = ()
    for word, *numbers in map(bytes.split, report.splitlines()):
        if word == _FAILED:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            number = int(numbers[0])
            raise OSError(number, os.strerror(number)) if number else ValueError
        refused = tuple(map(int, numbers))
    return pid, refused


def _read_to_the_end(descriptor: int) -> bytes:
    content = b""
    while data := os.read(descriptor, _READ_BYTES):
        content += data
    return content


def _become(program: Program, restrictions: Restrictions, pipe: int) -> NoReturn:
    """Turn this process, which was just forked, into the program."""
    try:
        signal.set_wakeup_fd(-1)
        refused = [
            b"%d" % index
            for index, cgroup in enumerate(restrictions.cgroups)
            if not _enter(index, cgroup, restrictions.handles)
        ]
        if refused:
            os.write(pipe, b" ".join((_REFUSED, *refused)) + b"\n")
        for number in _DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        _set_up_descriptors(program)
        for limit, value in restrictions.limits:
            _lower(limit, value)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(program.path, program.argv, program.env)
    except ValueError:
        os.write(pipe, _FAILED + b" 0\n")
    except OSError as error:
        os.write(pipe, _FAILED + b" %d\n" % (error.errno or errno.EIO))
    except MemoryError:
        os.write(pipe, _FAILED + b" %d\n" % errno.ENOMEM)
    finally:
        # Exit even after an unexpected exception, because this process must not continue as a
        # second runner.
        os._exit(127)


def _enter(index: int, cgroup: bytes, handles: tuple[int, ...]) -> bool:
    """Enter a cgroup; return whether this has worked."""
    if not handles:
        return write(cgroup + b"/cgroup.procs", b"0")
    with contextlib.suppress(OSError):
        os.write(handles[index], b"0")
        return True
    return False


def _set_up_descriptors(program: Program) -> None:
    for target, descriptor in enumerate(program.descriptors):
        if target == 0 and program.terminal is not None:
            terminal = os.open(program.terminal, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(terminal, 0)
        else:
            os.dup2(descriptor, target)


def _lower(limit: int, value: int) -> None:
    """Lower the soft and the hard limit to `value`. A limit that is already lower does not change.

    Raises OSError.
    """
    infinity = resource.RLIM_INFINITY
    soft, hard = (
        value if now == infinity else min(value, now) for now in resource.getrlimit(limit)
    )
    resource.setrlimit(limit, (soft, hard))
