"""Opens pseudo-terminals, sets their sizes, and reads their modes.

The daemon has the master side, and a command has the slave side. The two sides share one set of
modes (termios), so the daemon can read on its own side which modes the command has set.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import sys
import termios
from collections.abc import Generator
from functools import lru_cache
from typing import Final, NamedTuple

from shelld_protocol.errors import RpcError, resource_exhausted, unavailable

# The mode in which the kernel's line editor erases whole characters of UTF-8. `termios` has no name
# for this mode.
_IUTF8: Final = 0o40000
# Some versions of Python have no name for these two modes.
_IUCLC: Final = 0o1000
_ECHOKE: Final = 0o4000
# The ioctl(2) request that opens the slave side of a master, even if devpts is mounted elsewhere.
# `termios` has no name for this request.
_TIOCGPTPEER: Final = 0x5441
# The kernel's error if all pseudo-terminals are in use (/proc/sys/kernel/pty/max).
_NO_MORE: Final = errno.ENOSPC
# The errors if the system has no pseudo-terminals. EIO: the opened slave side belongs to an
# unrelated terminal, which has the same number (see `_resize_both`) and is locked.
_NOT_HERE: Final = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENODEV, errno.ENXIO, errno.EIO}
)

_KILLS_CHARACTERS: Final = termios.ECHO | termios.ECHOE | termios.ECHOK | _ECHOKE
# The character that switches a key off (_POSIX_VDISABLE).
_DISABLED: Final = b"\0"
# The number of different modes that are remembered.
_MAX_KNOWN: Final = 64


class Size(NamedTuple):
    """A terminal's size in characters. Rows and columns each range from 1 to 1,000."""

    rows: int
    cols: int


class Modes(NamedTuple):
    """`line_mode`: the kernel collects a line before a program can read it.

    The keys have the names of termios(3), in lower case and without the V. A key that is off is
    b"". Without IEXTEN, `werase`, `lnext`, `eol2` and `reprint` are off. Without ECHO, `reprint` is
    off. Without IXON, `start` and `stop` are off. Without ISIG, `intr`, `quit` and `susp` are off.
    `flushes`: `intr`, `quit` and `susp` drop the line. `kills_characters`: the key `kill` erases
    one character after another, and not the whole line. `utf8`: a character may have several bytes.
    `read_has_limit`: a read(2) has a time limit; see MIN and TIME in termios(3). The other modes
    change or drop typed bytes, as termios(3) describes.
    """

    echo: bool
    line_mode: bool
    eof: bytes
    eol: bytes
    eol2: bytes
    erase: bytes
    werase: bytes
    kill: bytes
    lnext: bytes
    reprint: bytes
    start: bytes
    stop: bytes
    intr: bytes
    quit: bytes
    susp: bytes
    flushes: bool
    kills_characters: bool
    utf8: bool
    istrip: bool
    iuclc: bool
    igncr: bool
    icrnl: bool
    inlcr: bool
    read_has_limit: bool


# The modes of a new terminal.
NEW_MODES: Final = Modes(
    echo=True,
    line_mode=True,
    eof=b"\x04",
    eol=b"",
    eol2=b"",
    erase=b"\x7f",
    werase=b"\x17",
    kill=b"\x15",
    lnext=b"\x16",
    reprint=b"\x12",
    start=b"\x11",
    stop=b"\x13",
    intr=b"\x03",
    quit=b"\x1c",
    susp=b"\x1a",
    flushes=True,
    kills_characters=True,
    utf8=True,
    istrip=False,
    iuclc=False,
    igncr=False,
    icrnl=True,
    inlcr=False,
    read_has_limit=False,
)


class Pty(NamedTuple):
    """The descriptors of the two sides of a pseudo-terminal. The master never blocks."""

    master: int
    slave: int


def open_pty(size: Size) -> Pty:
    """Open a new pseudo-terminal. The caller owns both descriptors.

    Raises `RpcError`: resource_exhausted if no pseudo-terminal is free, or unavailable if the
    system has none. Raises OSError if the system lacks another resource.
    """
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise _refusal(error) from error
    try:
        os.set_blocking(master, False)
        if not _resize_both(master, slave, size):
            raise _missing()
        attributes = termios.tcgetattr(slave)
        attributes[0] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        return Pty(master, slave)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise


def _refusal(error: OSError) -> RpcError | OSError:
    if error.errno == _NO_MORE:
        return resource_exhausted("ptys", "No pseudo-terminal is free")
    if error.errno in _NOT_HERE:
        return _missing()
    return error


def _missing() -> RpcError:
    return unavailable("tty", "/dev/pts", "Mount devpts on /dev/pts")


def _resize_both(master: int, slave: int, size: Size) -> bool:
    """Set the size of a new terminal. Return whether the two sides belong together.

    If /dev/ptmx and /dev/pts belong to different instances of devpts, the C library may open an
    unrelated terminal that has the same number.
    """
    was_new = os.get_terminal_size(slave) == (0, 0)
    resize(master, size)
    return was_new and os.get_terminal_size(slave) == (size.cols, size.rows)


def resize(master: int, size: Size) -> None:
    """Set the size. If the size differs, the kernel sends SIGWINCH to the terminal's foreground
    group.
    """
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))


def modes(master: int) -> Modes:
    """Return the modes that the command has set. Raises OSError once the terminal is gone."""
    try:
        attributes = termios.tcgetattr(master)
    except termios.error as error:
        raise OSError(*error.args) from error
    flags, _, _, local, _, _, characters = attributes
    return _modes(flags, local, tuple(characters))


@lru_cache(_MAX_KNOWN)
def _modes(flags: int, local: int, characters: tuple[bytes | int, ...]) -> Modes:
    """Return the modes for the values of c_iflag, c_lflag and c_cc (see termios(3)).

    The results for the latest arguments are remembered, because each write asks for the modes
    several times.
    """

    def key(index: int, needed: int = 0, now: int = local) -> bytes:
        value = characters[index]
        assert isinstance(value, bytes)
        return value if value != _DISABLED and now & needed == needed else b""

    is_in_line_mode = bool(local & termios.ICANON)
    is_extended = bool(local & termios.IEXTEN)
    return Modes(
        echo=bool(local & termios.ECHO),
        line_mode=is_in_line_mode,
        eof=key(termios.VEOF),
        eol=key(termios.VEOL),
        eol2=key(termios.VEOL2, termios.IEXTEN),
        erase=key(termios.VERASE),
        werase=key(termios.VWERASE, termios.IEXTEN),
        kill=key(termios.VKILL),
        lnext=key(termios.VLNEXT, termios.IEXTEN),
        reprint=key(termios.VREPRINT, termios.IEXTEN | termios.ECHO),
        start=key(termios.VSTART, termios.IXON, flags),
        stop=key(termios.VSTOP, termios.IXON, flags),
        intr=key(termios.VINTR, termios.ISIG),
        quit=key(termios.VQUIT, termios.ISIG),
        susp=key(termios.VSUSP, termios.ISIG),
        flushes=not local & termios.NOFLSH,
        kills_characters=local & _KILLS_CHARACTERS == _KILLS_CHARACTERS,
        utf8=bool(flags & _IUTF8),
        istrip=bool(flags & termios.ISTRIP),
        iuclc=bool(flags & _IUCLC) and is_extended,
        igncr=bool(flags & termios.IGNCR),
        icrnl=bool(flags & termios.ICRNL),
        inlcr=bool(flags & termios.INLCR),
        read_has_limit=not is_in_line_mode and characters[termios.VMIN] == 0,
    )


def unread_bytes(master: int) -> int:
    """Return how many of the typed bytes a program could read now. Raises OSError."""
    with _opened_slave(master) as slave:
        # Before the kernel answers this call, it delivers the bytes that are still on their way.
        _can_read(slave)
        return readable_bytes(slave)


def left_bytes(master: int) -> int | None:
    """If the program could read any bytes from a terminal now, return None. Otherwise, return the
    number of bytes in the terminal. Raises OSError.

    The number does not include the line that is being typed. If the result is a number, all bytes
    written to the master have passed through the modes and the line editor.
    """
    with _opened_slave(master) as slave:
        return None if _can_read(slave) else readable_bytes(slave)


def _can_read(slave: int) -> bool:
    """Return whether there is something to read.

    Before the kernel answers that there is nothing to read, it delivers all bytes that are on their
    way.
    """
    ready = select.poll()
    ready.register(slave, select.POLLIN)
    return bool(ready.poll(0))


@contextlib.contextmanager
def _opened_slave(master: int) -> Generator[int]:
    slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield slave
    finally:
        os.close(slave)


def readable_bytes(descriptor: int) -> int:
    """Return how many bytes can be read from a terminal or pipe without waiting. Raises OSError."""
    size = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int.from_bytes(size, sys.byteorder)


def foreground_group(master: int) -> int | None:
    """Return the process group in the terminal's foreground; None if there is none."""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(master) or None
    return None
