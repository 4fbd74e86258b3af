"""Finds out whether a command waits for input, or has been stopped.

The proof comes from the kernel: it shows that a process of the command sleeps until it can read the
command's input. This input is the command's terminal, or its stdin if that is open. The text of the
output proves nothing. The kernel does not show everything, for example about programs of another
user. In such cases, silence and the modes of the terminal can make a wait likely, but can never
prove it.

A program such as script or tmux reads the terminal only to pass the input on. Such a program does
not count as waiting for input, but the programs to which it passes the input do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from shelld.inspection.delivery import Hop, has_unread_output, is_on_its_way, wait_on
from shelld.inspection.kernel import Process, has_timer, name_of, network_sockets
from shelld.inspection.member import Member, member_of
from shelld.inspection.members import members
from shelld.inspection.relays import NOT_PASSED, passes_on
from shelld.inspection.sockets import listening
from shelld.inspection.stops import is_stopped
from shelld.terminals.pty import Modes
from shelld.terminals.source import Source

# The maximum processor time of one check of the processes of a command. Other requests wait during
# this time. The time is enough for several hundred processes.
MAX_CHECK_S: Final = 0.02
# A terminal must be silent for this time before a wait for input counts as likely.
LIKELY_AFTER_S: Final = 1.0
# These programs pass their input on to programs that the daemon cannot see.
_REMOTE: Final = frozenset(
    {
        *("ssh", "dbclient", "mosh-client", "rsh", "rlogin"),
        *("nc", "ncat", "netcat", "adb", "session-manager"),
        *("docker", "docker-compose", "podman", "nerdctl", "ctr", "crictl", "kubectl"),
        *("machinectl", "lxc", "incus", "virsh", "dtach", "abduco"),
        # These programs pass keys on to a virtual machine, or to a machine on a serial line.
        *("qemu-kvm", "firecracker", "picocom", "minicom", "tio", "cu"),
    }
)
# QEMU has an emulator for each kind of machine. The names of all these emulators begin with this
# prefix.
_EMULATOR: Final = "qemu-system-"
# These programs pass their input on to another machine once they have a connection. Before they
# have a connection, they ask for input themselves, or pass it on to programs of this machine.
_REMOTE_IF_CONNECTED: Final = frozenset({"telnet", "socat", "websocat", "openssl", "busybox"})


class Found(NamedTuple):
    """A process that waits for input. `is_blocking`: the process waits without a time limit, and
    does not also wait for the network. `is_proved`: the kernel's information proves that the
    process waits.
    """

    pid: int
    program: str
    is_blocking: bool
    is_proved: bool


class Seen(NamedTuple):
    """`reader`: the process that waits for the input. `is_stopped`: a signal has stopped the
    command's bash, or the foreground processes of its terminal.
    """

    reader: Found | None
    is_stopped: bool


class InputState(NamedTuple):
    """The input of a command. `modes`: the modes of its terminal; None for a pipe.

    `is_pending`: unread input is available, so no process can be blocked waiting for input.
    """

    source: Source
    modes: Modes | None
    is_pending: bool = False

    @property
    def read_has_limit(self) -> bool:
        """Whether a read(2) of the input has a time limit."""
        return self.modes is not None and self.modes.read_has_limit


class _Budget:
    """Measures how much processor time is left to check the processes of a command.

    The check ignores the processes for which no time is left.
    """

    def __init__(self) -> None:
        self._until = time.thread_time() + MAX_CHECK_S

    @property
    def is_spent(self) -> bool:
        return time.thread_time() > self._until


def inspect(top: int, input_state: InputState | None, silent_s: float) -> Seen:
    """Check the processes of a command once.

    `top` is the pid of the command's bash. `input_state` is the input of the command, or None if
    the command takes no input. `silent_s`: how long the command has not written anything.
    """
    budget = _Budget()
    if input_state is None:
        return Seen(None, is_stopped(top, None, []))
    group, can_wait = input_state.source.group, not input_state.is_pending
    members: list[Member] = []
    if group is not None or can_wait:
        members = list(_members(top, budget, with_reads=can_wait, known=input_state.source.mount))
    stopped = is_stopped(top, None if budget.is_spent else group, members)
    return Seen(_found(members, input_state, silent_s, budget) if can_wait else None, stopped)


def _found(
    members: list[Member], input_state: InputState, silent_s: float, budget: _Budget
) -> Found | None:
    """Return the process that waits for the input; None if there is none."""
    source, modes, *_ = input_state
    found = _reader(members, input_state, budget)
    if found is not None and found.is_proved:
        return found
    # Every terminal begins in line mode with echo, so these modes do not suggest that a program
    # waits.
    is_unusual = modes is None or not (modes.line_mode and modes.echo)
    if silent_s < LIKELY_AFTER_S or not is_unusual:
        return None
    return found or (None if modes is None else _hidden_reader(members, source))


def _members(top: int, budget: _Budget, *, with_reads: bool, known: int | None) -> Iterator[Member]:
    """Yield the living processes of a command, with the files that they wait to read.

    Without `with_reads`, these files are left out.
    """
    for pid in members(top):
        if pid is not None:
            with contextlib.suppress(OSError, ValueError):
                yield member_of(pid, lambda: budget.is_spent, with_reads=with_reads, known=known)
        if budget.is_spent:
            return


def _reader(members: list[Member], input_state: InputState, budget: _Budget) -> Found | None:
    """Return the process that reads the input; None if there is none.

    Another program may pass the input on to this process through another terminal.
    """
    wanted, seen = [input_state.source], {input_state.source}
    # The terminals behind a relay that has several inner terminals. The input may go to any of the
    # inner terminals.
    beside = set[Source]()
    # Maps each source to the relays through which the input reaches this source.
    relays: dict[Source, list[Hop]] = {input_state.source: []}
    while wanted:
        source = wanted.pop()
        for member in members:
            waited = wait_on(member, source)
            if waited is None or member.process is None:
                continue
            wait, _ = waited
            hops = [*relays[source], Hop(member, source)]
            # If there are other threads, one of them may pass on what this thread reads.
            is_only_read = wait.is_read and member.process.threads == 1
            if budget.is_spent and not is_only_read:
                return None
            if is_only_read and len(members) == 1 and not budget.is_spent:
                # There is no other process to which this process could pass the input on.
                passed = NOT_PASSED
            else:
                passed = passes_on(member, wait, members, seen, lambda: budget.is_spent)
            wanted += [each for each in passed.inner if each not in seen]
            relays |= {each: hops for each in passed.inner if each not in relays}
            seen.update(passed.inner)
            beside.update(passed.inner if len(passed.inner) > 1 else ())
            if not passed.inner:
                if len(hops) > 1 and (is_on_its_way(hops) or has_unread_output(hops, members)):
                    return None
                program = name_of(member.pid)
                is_timed = (
                    input_state.read_has_limit and source == input_state.source
                    if wait.is_read
                    else has_timer(wait, lambda: budget.is_spent)
                )
                is_sure = not passed.is_uncertain and source not in beside
                has_else = not is_only_read and _has_far_end(member, budget)
                is_blocking = is_sure and not (wait.has_limit or is_timed or has_else)
                is_remote = _is_remote(program, has_far_end=has_else)
                is_proved = is_sure and (is_only_read or not is_remote)
                return Found(member.pid, program, is_blocking, is_proved)
    return None


def _is_remote(program: str, *, has_far_end: bool) -> bool:
    """Return whether a program's name shows that the program passes its input on to another
    program, which the daemon cannot see.
    """
    is_emulator = program.startswith(_EMULATOR)
    return is_emulator or program in _REMOTE or (has_far_end and program in _REMOTE_IF_CONNECTED)


def _has_far_end(member: Member, budget: _Budget) -> bool:
    """Return whether a process also waits for network data. For example, a process that passes its
    input on to another machine also waits for data from there.

    A listening socket does not count, because a server may also read keys from its user. Returns
    True if there is no time to find out.
    """
    proc_dir, found = "", set[int]()
    for wait in {wait for reads in (member.reads or {}).values() for wait, _ in reads}:
        if budget.is_spent:
            return True
        proc_dir = wait.proc_dir
        found |= network_sockets(wait)
    if not found:
        return False
    try:
        return not found <= {each.inode for each in listening(proc_dir)}
    except OSError:
        return True


def _hidden_reader(members: list[Member], source: Source) -> Found | None:
    """Return a process that cannot be inspected, but may wait for the input. Such a process sleeps
    in the foreground, or its state is hidden as well.
    """
    if _is_relayed(members, source):
        return None
    for pid, about, reads in members:
        if reads is None and (about is None or _sleeps_in_foreground(about, source)):
            return Found(pid, name_of(pid), is_blocking=False, is_proved=False)
    return None


def _is_relayed(members: list[Member], source: Source) -> bool:
    """Return whether a process that cannot be inspected has a child on another terminal.

    In that case, the process (often sudo) probably passes its input on to that terminal. The
    process sets the modes of our terminal for its own needs. So these modes say nothing about the
    program that gets the input.
    """
    parents = {
        each.process.parent
        for each in members
        if each.process is not None and each.process.terminal and not _is_on(each.process, source)
    }
    return any(each.reads is None and each.pid in parents for each in members)


def _is_on(about: Process, source: Source) -> bool:
    """Return whether our terminal is the terminal of a process.

    A terminal in a container may have the same number as our terminal, but another group is in its
    foreground.
    """
    return (about.terminal,) == source.file and about.terminal_group == source.group


def _sleeps_in_foreground(about: Process, source: Source) -> bool:
    return about.state == "S" and _is_on(about, source) and about.is_in_foreground
