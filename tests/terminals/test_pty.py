"""Terminals: opening, size and modes."""

from __future__ import annotations

import errno
import os
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from shelld.terminals.pty import (
    NEW_MODES,
    Pty,
    Size,
    foreground_group,
    modes,
    open_pty,
    resize,
    unread_bytes,
)
from shelld_protocol.errors import ErrorKind, RpcError


@pytest.fixture
def pty() -> Iterator[Pty]:
    pty = open_pty(Size(24, 80))
    yield pty
    for descriptor in pty:
        os.close(descriptor)


def test_new_terminal_has_its_size_and_echoes_lines(pty: Pty) -> None:
    assert os.get_terminal_size(pty.slave) == (80, 24)
    assert not os.get_blocking(pty.master)
    found = modes(pty.master)
    assert found == NEW_MODES
    assert foreground_group(pty.master) is None


def test_modes_follow_the_program(pty: Pty) -> None:
    attributes = termios.tcgetattr(pty.slave)
    attributes[0] = termios.ISTRIP | termios.IGNCR | termios.INLCR
    attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    attributes[3] |= termios.NOFLSH
    attributes[6][termios.VEOF] = b"\0"
    termios.tcsetattr(pty.slave, termios.TCSANOW, attributes)
    found = modes(pty.master)
    assert (found.echo, found.line_mode, found.eof, found.flushes) == (False, False, b"", False)
    assert (found.erase, found.werase, found.lnext, found.intr) == (b"\x7f", b"", b"", b"")
    assert (found.istrip, found.igncr, found.icrnl, found.inlcr) == (True, True, False, True)


def test_size_can_be_changed(pty: Pty) -> None:
    resize(pty.master, Size(1, 1_000))
    assert os.get_terminal_size(pty.slave) == (1_000, 1)


def test_modes_of_a_closed_terminal_are_an_error(pty: Pty) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        modes(99_999)


@pytest.mark.parametrize(
    ("number", "kind", "data"),
    [
        (errno.ENOSPC, ErrorKind.RESOURCE_EXHAUSTED, {"limit": "ptys"}),
        (errno.ENOENT, ErrorKind.UNAVAILABLE, {"what": "tty", "missing": "/dev/pts"}),
        (errno.EIO, ErrorKind.UNAVAILABLE, {"what": "tty", "missing": "/dev/pts"}),
        (errno.EACCES, ErrorKind.UNAVAILABLE, {"what": "tty", "missing": "/dev/pts"}),
    ],
)
def test_missing_terminal_is_refused(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: ErrorKind, data: dict[str, Any]
) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "openpty", fail)
    with pytest.raises(RpcError) as refused:
        open_pty(Size(24, 80))
    assert refused.value.kind is kind
    assert data.items() <= refused.value.data.items()


@pytest.mark.parametrize("its_size", [Size(24, 80), None])
def test_slave_of_another_terminal_is_refused(
    monkeypatch: pytest.MonkeyPatch, its_size: Size | None
) -> None:
    ours, others = os.openpty(), os.openpty()
    if its_size is not None:
        resize(others[0], its_size)
    attributes = termios.tcgetattr(others[0])
    pair = os.dup(ours[0]), os.dup(others[1])
    monkeypatch.setattr(os, "openpty", lambda: pair)
    with pytest.raises(RpcError) as refused:
        open_pty(Size(24, 80))
    assert refused.value.kind is ErrorKind.UNAVAILABLE
    assert termios.tcgetattr(others[0]) == attributes
    for descriptor in (*ours, *others):
        os.close(descriptor)
    # The refused call has closed both descriptors that it got.
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pair[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pair[1])


def test_other_shortage_stays_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "openpty", fail)
    with pytest.raises(OSError, match="Too many open files"):
        open_pty(Size(24, 80))


@pytest.mark.parametrize(
    ("is_in_line_mode", "least", "has_limit"),
    [(True, 0, False), (False, 0, True), (False, 1, False)],
)
def test_read_has_a_limit_if_it_may_return_no_byte(
    pty: Pty, is_in_line_mode: bool, least: int, has_limit: bool
) -> None:
    attributes = termios.tcgetattr(pty.slave)
    if not is_in_line_mode:
        attributes[3] &= ~termios.ICANON
    attributes[6][termios.VMIN] = least
    termios.tcsetattr(pty.slave, termios.TCSANOW, attributes)
    assert modes(pty.master).read_has_limit is has_limit


def test_bytes_on_their_way_count_as_unread(pty: Pty) -> None:
    for _ in range(50):
        os.write(pty.master, b"x\n")
        assert unread_bytes(pty.master) == 2
        assert os.read(pty.slave, 10) == b"x\n"
