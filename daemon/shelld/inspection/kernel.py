"""Asks the kernel about a process: from which descriptors its threads wait to read.

Reads /proc only. A thread that sleeps in a system call shows the call's number and arguments in
/proc/PID/task/TID/syscall. The arguments of poll and select lead to a set of descriptors in the
memory of the process; the set of epoll is in /proc/PID/fdinfo. An epoll set may be a member of
another set. All of this needs the rights of a debugger, which a parent has over processes of its
own user.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import platform
import re
import struct
import termios
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from shelld.inspection.files import access_mode, file_in, is_socket
from shelld.keeper.tree import fields_of, read_file, stat_fields
from shelld.terminals.source import OWN_TERMINAL

# Descriptors of one process or set beyond this number are ignored.
_MAX_DESCRIPTORS: Final = 1_024
# How many threads of a process count for what the process writes. The main thread is listed first.
_MAX_WRITERS: Final = 256
# Epoll sets can be members of other sets. The maximum depth to which they are followed.
_MAX_DEPTH: Final = 2
# At each depth, the maximum number of descriptors that are examined to find epoll sets. Examining a
# descriptor takes up to 30 us.
_MAX_EXAMINED: Final = 64
# At each depth, the maximum number of epoll sets that are followed.
_MAX_INNER_SETS: Final = 8
# How much of the list of an epoll set is read. A descriptor takes about 50 bytes.
_EPOLL_BYTES: Final = 64 * 1024
# The stack of a 32-bit program is below this address. That of a 64-bit program is so very seldom.
_32_BITS: Final = 1 << 32
# The fifth byte of a program tells its class. This is the class of 32-bit programs (elf(5)).
_ELF_CLASS: Final = 4
_ELF_32: Final = 1

# The system calls in which a program waits for a child: wait4, waitid and rt_sigsuspend.
_WAITS_FOR_CHILD: Final = {
    "x86_64": frozenset([b"61", b"247", b"130"]),
    "aarch64": frozenset([b"260", b"95", b"133"]),
}.get(platform.machine())

_POLLFD: Final = struct.Struct("ihh")
# An entry of /proc/PID/pagemap, and the bits of a page that is in memory, or swapped out.
_PAGE: Final = struct.Struct("=Q")
_LOADED: Final = 0b11 << 62
# POLLIN and POLLRDNORM; EPOLLIN and EPOLLRDNORM have the same values.
_READABLE: Final = 0x41
# The device that makes terminals.
TERMINAL_MASTER: Final = os.makedev(5, 2)
# The first of the major numbers of pseudo-terminals.
_PTS_MAJOR: Final = 136
# The indexes of these members in the result of termios.tcgetattr.
_LOCAL_MODES: Final = 3
_CHARACTERS: Final = 6
_EPOLL_FILE: Final = "anon_inode:[eventpoll]"
# The values of /proc/PID/wchan for a thread that may be waiting for room in a pipe. Before Linux
# 5.8, "pipe_wait" can also be a wait for data. "0" means that the kernel does not tell.
_MAY_WRITE: Final = frozenset([b"pipe_wait_writable", b"pipe_wait", b"0"])
_EPOLL_ENTRY: Final = re.compile(
    rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)(?:.*\sino:([0-9a-f]+))?", re.MULTILINE
)
_WRITTEN: Final = re.compile(rb"^wchar:\s*(\d+)", re.MULTILINE)
_MASTER_INDEX: Final = re.compile(r"^tty-index:\s*(\d+)", re.MULTILINE)


class Process(NamedTuple):
    """A line of /proc/PID/stat. `state`: that of another thread if the first thread has ended.
    `terminal`: the device of its controlling terminal, or 0.

    `terminal_group`: the process group in the foreground of that terminal. `threads`: the number of
    threads.
    """

    state: str
    parent: int
    group: int
    terminal: int
    terminal_group: int
    threads: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it. A tracer such as strace stops it at other times, too."""
        return self.state == "T"

    @property
    def is_held(self) -> bool:
        """Whether it can do nothing, because of a signal or of a tracer."""
        return self.state in "Tt"

    @property
    def is_dead(self) -> bool:
        return self.state in "XZ"

    @property
    def is_in_foreground(self) -> bool:
        return self.group == self.terminal_group


class Wait(NamedTuple):
    """A thread sleeps until it can read from one of `descriptors`.

    `place`: the thread's directory in /proc. `has_limit`: whether its system call has a time limit.
    `is_read`: the thread waits in read(2) or a similar call, so it can do nothing else.

    `inodes`: the files of those descriptors that an epoll set names, as pairs of descriptor and
    inode. The set keeps a file even if its number means another file by now.
    """

    place: str
    descriptors: frozenset[int]
    has_limit: bool
    is_read: bool = False
    inodes: frozenset[tuple[int, int]] = frozenset()


def process(pid: int) -> Process:
    """Raises OSError if the process is gone or cannot be seen.

    Raises ValueError if the process ends during the call.
    """
    fields = stat_fields(pid)
    if len(fields) < 18:
        raise ValueError
    state, threads = fields[0], int(fields[17])
    parent, group, _, terminal, terminal_group = map(int, fields[1:6])
    if state == b"Z" and threads > 1:
        state = _state_of_another_thread(pid)
    return Process(state.decode(), parent, group, terminal, terminal_group, threads)


def _state_of_another_thread(pid: int) -> bytes:
    """Return the state of a thread that has not ended. Raises OSError or ValueError."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = fields_of(read_file(f"/proc/{pid}/task/{thread}/stat"))[0]
            if state not in b"ZX":
                return state
    raise ValueError


def waits(pid: int, is_spent: Callable[[], bool] = lambda: False) -> Iterator[Wait]:
    """Yield what the threads of a process wait for, until `is_spent`.

    Raises PermissionError or FileNotFoundError if no thread can be seen, and another OSError if the
    process ends during the call.
    """
    failure: OSError | None = None
    has_seen = False
    for thread in os.listdir(f"/proc/{pid}/task"):
        if is_spent():
            return
        place = f"/proc/{pid}/task/{thread}"
        try:
            words = read_file(f"{place}/syscall").split()
        except OSError as error:
            # The thread may have ended.
            failure = error
            continue
        has_seen = True
        # Fewer words: the thread runs, or sleeps outside a system call.
        if len(words) < 9 or (look := _LOOKS.get(int(words[0]))) is None:
            continue
        arguments = tuple(int(word, 16) for word in words[1:8])
        if arguments[6] < _32_BITS and _is_32_bit(place):
            # A 32-bit program has other numbers for its calls.
            continue
        # Another thread may unmap memory or close a descriptor. An address may be invalid.
        with contextlib.suppress(OSError, ValueError, OverflowError, struct.error):
            yield look(place, arguments)
    if failure is not None and not has_seen:
        raise failure


def waits_for_child(pid: int) -> bool:
    """Whether a process waits for a child, as far as can be seen."""
    try:
        number = read_file(f"/proc/{pid}/syscall").split(b" ", 1)[0]
    except OSError:
        return True
    return _WAITS_FOR_CHILD is None or number in _WAITS_FOR_CHILD


def _is_32_bit(place: str) -> bool:
    try:
        with open(f"{place}/exe", "rb", buffering=0) as file:
            return file.read(_ELF_CLASS + 1)[_ELF_CLASS:] == bytes([_ELF_32])
    except OSError:
        return True


def can_end(wait: Wait, descriptor: int) -> bool:
    """Whether input for a descriptor of a wait can end the wait. Raises OSError.

    Input never arrives at the write end of a pipe.
    """
    inodes = {inode for number, inode in wait.inodes if number == descriptor}
    if inodes and os.stat(f"{wait.place}/fd/{descriptor}").st_ino not in inodes:
        return False
    return access_mode(wait.place, descriptor) != os.O_WRONLY


def read_has_limit(terminal: int) -> bool:
    """Whether a read(2) from a terminal has a time limit. Raises OSError.

    See MIN and TIME in termios(3). `terminal`: a descriptor.
    """
    try:
        attributes = termios.tcgetattr(terminal)
    except termios.error as error:
        raise OSError(*error.args) from error
    is_in_line_mode = attributes[_LOCAL_MODES] & termios.ICANON
    return not is_in_line_mode and attributes[_CHARACTERS][termios.VMIN] == 0


def file_behind(place: str, descriptor: int, own_terminal: int) -> tuple[int, ...]:
    """Return the file behind a descriptor of a thread, as `file_in` does. Raises OSError.

    `own_terminal` takes the place of /dev/tty.
    """
    found = file_in(place, descriptor)
    return (own_terminal,) if found == (OWN_TERMINAL,) else found


def network_sockets(wait: Wait) -> set[int]:
    """Return the inodes of the TCP and UDP sockets from which a thread waits to read."""
    found: set[int] = set()
    for descriptor in wait.descriptors:
        with contextlib.suppress(OSError):
            protocol = _protocol(wait.place, descriptor)
            if protocol.startswith((b"TCP", b"UDP", b"MPTCP")):
                found.add(os.stat(f"{wait.place}/fd/{descriptor}").st_ino)
    return found


def has_local_socket(place: str) -> bool:
    """Whether a thread has a Unix socket. Raises OSError."""
    for name in os.listdir(f"{place}/fd")[:_MAX_DESCRIPTORS]:
        with contextlib.suppress(OSError):
            if _protocol(place, name).startswith(b"UNIX"):
                return True
    return False


def _protocol(place: str, descriptor: int | str) -> bytes:
    """Return the protocol of a socket; b"" for other files. Raises OSError."""
    if not is_socket(place, descriptor):
        return b""
    return os.getxattr(f"{place}/fd/{descriptor}", "system.sockprotoname")


def may_read(pid: int, but: str = "") -> bool:
    """Whether a thread of a process runs or may be reading: all but waits for other events.

    `but`: the directory of a thread that does not count. Returns True if a thread cannot be seen.
    """
    try:
        for thread in os.listdir(f"/proc/{pid}/task")[:_MAX_WRITERS]:
            place = f"/proc/{pid}/task/{thread}"
            number = b"" if place == but else read_file(f"{place}/syscall").split(b" ", 1)[0]
            if number and number.strip() not in _IDLE:
                return True
    except OSError:
        return True
    return False


def inner_terminals(place: str) -> tuple[list[int], bool]:
    """Return the devices of the terminals whose master side a thread holds, and whether all its
    descriptors were examined. Raises OSError.
    """
    names = os.listdir(f"{place}/fd")
    found = [inner_terminal(place, int(name)) for name in names[:_MAX_DESCRIPTORS]]
    devices = [device for device in found if device is not None]
    return devices, len(names) <= _MAX_DESCRIPTORS


def inner_terminal(place: str, descriptor: int) -> int | None:
    """Return the device of the terminal whose master side a descriptor is; None for other files.

    `place`: the directory of a process or thread in /proc. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        # Whatever its directory is, the device that makes terminals has this name.
        if os.readlink(f"{place}/fd/{descriptor}").endswith("/ptmx"):
            # Only the master side of a terminal has an index.
            index = _MASTER_INDEX.search(read_file(f"{place}/fdinfo/{descriptor}").decode())
            if index is not None:
                return os.makedev(_PTS_MAJOR, int(index[1]))
    return None


def written_by(pid: int) -> int:
    """Return how many bytes the threads of a process have written; -1 if that cannot be seen."""
    count = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task")[:_MAX_WRITERS]:
            found = _WRITTEN.search(read_file(f"/proc/{pid}/task/{thread}/io"))
            count += 0 if found is None else int(found[1])
    except OSError:
        return -1
    return count


def name_of(pid: int) -> str:
    """Return the name of a process, as ps(1) shows it; "" if it is gone."""
    try:
        name = read_file(f"/proc/{pid}/comm").removesuffix(b"\n").decode("utf-8", "replace")
    except OSError:
        return ""
    return "".join(filter(str.isprintable, name))


def _memory(place: str, address: int, size: int) -> bytes:
    if not size:
        return b""
    if not _is_loaded(place, address, size):
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
    descriptor = os.open(f"{place}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)


def _is_loaded(place: str, address: int, size: int) -> bool:
    """Whether memory is loaded, or swapped out. Raises OSError or OverflowError.

    Otherwise, to read it can mean to wait for a server, if a file is mapped there.
    """
    first, last = address // mmap.PAGESIZE, (address + size - 1) // mmap.PAGESIZE
    count = last - first + 1
    try:
        descriptor = os.open(f"{place}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # A kernel without this file.
        return True
    try:
        content = os.pread(descriptor, count * _PAGE.size, first * _PAGE.size)
    finally:
        os.close(descriptor)
    entries = [entry for (entry,) in _PAGE.iter_unpack(content)]
    return len(entries) == count and all(entry & _LOADED for entry in entries)


# -- system calls -----------------------------------------------------------------------------

# The first six arguments of a call, and the address of the stack.
_Arguments = tuple[int, ...]


def _from_read(place: str, arguments: _Arguments) -> Wait:
    return Wait(place, frozenset(arguments[:1]), has_limit=False, is_read=True)


def _from_splice(place: str, arguments: _Arguments) -> Wait:
    # The call also sleeps while its output has no room.
    may_write = read_file(f"{place}/wchan") in _MAY_WRITE
    return Wait(place, frozenset(() if may_write else arguments[:1]), has_limit=False, is_read=True)


def _from_sendfile(place: str, arguments: _Arguments) -> Wait:
    return _from_splice(place, arguments[1:])


def _from_poll(place: str, arguments: _Arguments) -> Wait:
    # The timeout is a C int: negative means none.
    has_limit = not arguments[2] & 0x80000000
    return _with_inner_sets(Wait(place, _polled(place, arguments), has_limit))


def _from_restart(place: str, arguments: _Arguments) -> Wait:
    # After a stop, the kernel restarts poll, and also sleeps, with the same arguments.
    if b"poll" not in read_file(f"{place}/wchan"):
        return Wait(place, frozenset(), has_limit=False)
    return _from_poll(place, arguments)


def _from_ppoll(place: str, arguments: _Arguments) -> Wait:
    return _with_inner_sets(Wait(place, _polled(place, arguments), has_limit=arguments[2] != 0))


def _polled(place: str, arguments: _Arguments) -> frozenset[int]:
    count = min(arguments[1], _MAX_DESCRIPTORS)
    entries = _memory(place, arguments[0], count * _POLLFD.size)
    return frozenset(
        descriptor
        for descriptor, events, _ in _POLLFD.iter_unpack(entries)
        if descriptor >= 0 and events & _READABLE
    )


def _from_select(place: str, arguments: _Arguments) -> Wait:
    count = min(arguments[0], _MAX_DESCRIPTORS)
    # A set is an array of words of 64 bits.
    words = _memory(place, arguments[1], (count + 63) // 64 * 8) if arguments[1] else b""
    bits = int.from_bytes(words, "little")
    chosen = frozenset(number for number in range(count) if bits >> number & 1)
    return _with_inner_sets(Wait(place, chosen, has_limit=arguments[4] != 0))


def _from_epoll_wait(place: str, arguments: _Arguments) -> Wait:
    return _in_epoll(place, arguments, has_limit=not arguments[3] & 0x80000000)


def _from_epoll_pwait2(place: str, arguments: _Arguments) -> Wait:
    return _in_epoll(place, arguments, has_limit=arguments[3] != 0)


def _in_epoll(place: str, arguments: _Arguments, *, has_limit: bool) -> Wait:
    descriptors, inodes = _registered(place, arguments[0])
    return _with_inner_sets(Wait(place, descriptors, has_limit, inodes=inodes))


def _registered(place: str, epoll: int) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    """Return the descriptors that an epoll set watches for input, and their inodes, if known."""
    with open(f"{place}/fdinfo/{epoll}", "rb", buffering=0) as file:
        entries = _EPOLL_ENTRY.findall(file.read(_EPOLL_BYTES))
    watched = [
        (int(descriptor), inode)
        for descriptor, events, inode in entries[:_MAX_DESCRIPTORS]
        if int(events, 16) & _READABLE
    ]
    inodes = frozenset((descriptor, int(inode, 16)) for descriptor, inode in watched if inode)
    return frozenset(descriptor for descriptor, _ in watched), inodes


def _with_inner_sets(wait: Wait) -> Wait:
    """Add the members of the epoll sets among the descriptors of a wait."""
    place, found, inodes = wait.place, wait.descriptors, wait.inodes
    added = found
    for _ in range(_MAX_DEPTH):
        examined = sorted(added)[:_MAX_EXAMINED]
        inner = islice((each for each in examined if _is_epoll(place, each)), _MAX_INNER_SETS)
        added = frozenset[int]()
        for descriptors, more in [_registered(place, each) for each in inner]:
            # The call itself waits for the descriptors that were known before.
            added |= descriptors - found
            inodes |= {pair for pair in more if pair[0] not in found}
        found |= added
    return wait._replace(descriptors=found, inodes=inodes)


def _is_epoll(place: str, descriptor: int) -> bool:
    # The descriptor may be closed.
    with contextlib.suppress(OSError):
        return os.readlink(f"{place}/fd/{descriptor}") == _EPOLL_FILE
    return False


_Look = Callable[[str, _Arguments], Wait]

_BY_MACHINE: Final[dict[str, dict[int, _Look]]] = {
    "x86_64": {
        0: _from_read,
        19: _from_read,  # readv
        45: _from_read,  # recvfrom
        47: _from_read,  # recvmsg
        327: _from_read,  # preadv2
        275: _from_splice,
        276: _from_splice,  # tee
        40: _from_sendfile,
        7: _from_poll,
        219: _from_restart,
        271: _from_ppoll,
        23: _from_select,
        270: _from_select,  # pselect6
        232: _from_epoll_wait,
        281: _from_epoll_wait,  # epoll_pwait
        441: _from_epoll_pwait2,
    },
    "aarch64": {
        63: _from_read,
        65: _from_read,  # readv
        207: _from_read,  # recvfrom
        212: _from_read,  # recvmsg
        286: _from_read,  # preadv2
        76: _from_splice,
        77: _from_splice,  # tee
        71: _from_sendfile,
        73: _from_ppoll,
        128: _from_restart,
        72: _from_select,  # pselect6
        22: _from_epoll_wait,  # epoll_pwait
        441: _from_epoll_pwait2,
    },
}
_LOOKS: Final = _BY_MACHINE.get(platform.machine(), {})
# The numbers of calls that wait, but never for input: for a child or a signal, futex, and sleeps.
_IDLE: Final = frozenset(
    {
        "x86_64": [b"61", b"247", b"130", b"34", b"128", b"202", b"35", b"230"],
        "aarch64": [b"260", b"95", b"133", b"137", b"98", b"101", b"115"],
    }.get(platform.machine(), [])
)
