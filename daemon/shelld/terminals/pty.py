"""Pseudo-terminals: opening one, its size, and its modes.

The daemon has the master side, a command the slave side. The two share one set of modes (termios),
so the daemon reads from its own side what the command has set.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import termios
from typing import Final, NamedTuple

from shelld_protocol.errors import RpcError, resource_exhausted, unavailable

# Lets the line editor of the kernel erase a whole character of UTF-8. `termios` has no name for it.
_IUTF8: Final = 0o40000
# What the kernel answers if all pseudo-terminals are in use (/proc/sys/kernel/pty/max).
_NO_MORE: Final = errno.ENOSPC
_NOT_HERE: Final = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENODEV, errno.ENXIO})

_LOCAL_MODES: Final = 3
_CHARACTERS: Final = 6


class Size(NamedTuple):
    """A terminal's size in characters: 1 to 1,000 each."""

    rows: int
    cols: int


class Modes(NamedTuple):
    """`line_mode`: the kernel collects a line before a program can read it.

    `end_of_file`, `kill`: the characters that do this in line mode; b"" if none does.
    `interrupts`: those that interrupt, quit or stop the program.
    """

    echo: bool
    line_mode: bool
    end_of_file: bytes
    kill: bytes
    interrupts: frozenset[bytes]


class Pty(NamedTuple):
    """Both descriptors. The master never blocks."""

    master: int
    slave: int


def open_pty(size: Size) -> Pty:
    """Open a new pseudo-terminal. The caller owns both descriptors.

    Raises `RpcError` (resource_exhausted if none is free, unavailable if the system has none), and
    OSError for another shortage.
    """
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise _refusal(error) from error
    try:
        os.set_blocking(master, False)
        resize(master, size)
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
        return unavailable("tty", "/dev/pts", "Mount devpts on /dev/pts")
    return error


def resize(master: int, size: Size) -> None:
    """Set the size. The kernel sends SIGWINCH to the terminal's foreground group if it differs."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))


def modes(master: int) -> Modes:
    """Return the modes that the command has set. Raises OSError once the terminal is gone."""
    try:
        attributes = termios.tcgetattr(master)
    except termios.error as error:
        raise OSError(*error.args) from error
    local, characters = attributes[_LOCAL_MODES], attributes[_CHARACTERS]
    disabled = os.fpathconf(master, "PC_VDISABLE")

    def character(index: int) -> bytes:
        value = characters[index]
        assert isinstance(value, bytes)
        return b"" if value[0] == disabled else value

    interrupts = (termios.VINTR, termios.VQUIT, termios.VSUSP) if local & termios.ISIG else ()
    return Modes(
        echo=bool(local & termios.ECHO),
        line_mode=bool(local & termios.ICANON),
        end_of_file=character(termios.VEOF),
        kill=character(termios.VKILL),
        interrupts=frozenset(character(index) for index in interrupts) - {b""},
    )


def foreground_group(master: int) -> int | None:
    """Return the process group in the terminal's foreground; None if there is none."""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(master) or None
    return None
