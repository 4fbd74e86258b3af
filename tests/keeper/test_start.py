"""A restricted program starts like any other, but never runs without its restrictions."""

from __future__ import annotations

import os
import resource
import select
import signal
from types import FrameType
from typing import Any

import pytest

from shelld.keeper.start import Program, Restrictions, StartUnknownError, start
from support import DEADLINE_S

NOFILE, FSIZE = resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE

# This script prints everything from which a program can tell how it was started. Signals 32 and 33
# belong to the C library, whose posix_spawn ignores them.
LOOK = (
    # While bash starts and reaps a child, the blocked and caught signals of bash change. So bash
    # reads them itself, before it starts a child.
    b"while read -r name value; do [[ $name =~ ^(SigBlk|SigCgt|ShdPnd) ]] && echo $name $value;"
    b"done < /proc/$$/status; ulimit -Sa; ulimit -Ha; ls /proc/$$/fd;"
    b"read -r _ ignored < <(grep SigIgn /proc/$$/status); echo $((16#$ignored & ~(3 << 31)));"
    b"read -r _ _ _ _ group session terminal _ < /proc/$$/stat;"
    b"echo $((group == $$)) $((session == $$)) $terminal $PWD; env; trap; trap '' INT; exit 3"
)


def program(command: bytes, *, terminal: bytes | None = None, stdout: int) -> Program:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    descriptors = [null, stdout, null]
    env = {b"PATH": os.environb[b"PATH"], b"A": b"b c\xff"}
    return Program(b"/bin/bash", [b"bash", b"-c", command], env, descriptors, terminal)


def seen(command: bytes, restrictions: Restrictions | None) -> tuple[str, int, tuple[int, ...]]:
    """Return the output and the exit code of a command, and the indexes of the cgroups that it
    could not enter.
    """
    read, write = os.pipe()
    started = program(command, stdout=write)
    pid, refused = start(started, restrictions)
    os.close(write)
    os.close(started.descriptors[0])
    output = b""
    while data := os.read(read, 65_536):
        output += data
    os.close(read)
    _, status = os.waitpid(pid, 0)
    return output.decode(errors="replace"), os.waitstatus_to_exitcode(status), refused


def test_restricted_program_starts_like_any_other() -> None:
    assert seen(LOOK, Restrictions()) == seen(LOOK, None)


def test_program_has_its_limits_from_the_start() -> None:
    plain = seen(LOOK, None)[0].splitlines()
    limited = seen(LOOK, Restrictions(((NOFILE, 64), (FSIZE, 4_096))))[0].splitlines()
    changed = [new for old, new in zip(plain, limited, strict=True) if old != new]
    assert [line.rpartition(")")[2].strip() for line in changed] == ["4", "64"] * 2
    assert (resource.getrlimit(FSIZE), resource.getrlimit(NOFILE)[0] > 64) == ((-1, -1), True)


def test_higher_limit_changes_nothing() -> None:
    assert seen(LOOK, Restrictions(((NOFILE, 2**62),))) == seen(LOOK, None)


def test_cgroup_that_refuses_is_reported() -> None:
    paths = (b"/nonexistent", os.fsencode(os.getcwd()))
    assert seen(b"echo here", Restrictions((), paths)) == ("here\n", 0, (0, 1))


@pytest.mark.parametrize("cgroups", [(), (b"/nonexistent",)])
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"path": b"/nonexistent"}, FileNotFoundError),
        ({"path": b"/etc/passwd"}, PermissionError),
        ({"argv": [b"bash", b"-c", b"tr\0ue"]}, ValueError),
        ({"env": {b"A=B": b""}}, ValueError),
        ({"env": {b"A": b"x" * 200_000}}, OSError),
        ({"descriptors": [9_999]}, OSError),
    ],
)
def test_failed_start_leaves_no_process(
    changes: dict[str, Any], error: type[Exception], cgroups: tuple[bytes, ...]
) -> None:
    stdout = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    complete = program(b"true", stdout=stdout)
    with pytest.raises(error):
        start(complete._replace(**changes), Restrictions((), cgroups))
    for descriptor in complete.descriptors[:2]:
        os.close(descriptor)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_terminal_becomes_the_controlling_terminal() -> None:
    master, slave = os.openpty()
    path = b"/proc/self/fd/%d" % slave
    command = b"tty; read -r _ _ _ _ _ _ _ group _ < /proc/$$/stat; echo $((group == $$))"
    started = program(command, stdout=slave, terminal=path)
    pid, _ = start(started, Restrictions())
    os.waitpid(pid, 0)
    output = b""
    while output.count(b"\n") < 2:
        assert select.select([master], [], [], DEADLINE_S)[0]
        output += os.read(master, 4_096)
    assert output.decode().split() == [os.ttyname(slave), "1"]
    for descriptor in (master, slave, started.descriptors[0]):
        os.close(descriptor)


def test_no_handler_of_this_process_runs_in_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    fork = os.fork

    def handle(_number: int, _frame: FrameType | None) -> None:
        os.write(write, b"x")

    def fork_and_signal() -> int:
        if not (pid := fork()):
            os.kill(os.getpid(), signal.SIGUSR1)
        return pid

    monkeypatch.setattr(os, "fork", fork_and_signal)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        # The signal stays pending until its action is the default action.
        assert seen(b"echo here", Restrictions())[:2] == ("", -signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)


def test_unreadable_report_is_no_failed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError

    stdout = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    started = program(b"exit 4", stdout=stdout)
    monkeypatch.setattr(os, "read", fail)
    # The error tells the caller that the program may have started.
    with pytest.raises(StartUnknownError):
        start(started, Restrictions())
    assert os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) == 4
    monkeypatch.undo()
    for descriptor in started.descriptors[:2]:
        os.close(descriptor)
