"""The check for input that relays have passed on, but that has not yet reached the program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from shelld.inspection.delivery import Hop, has_unread_output, is_on_its_way, wait_on
from shelld.inspection.kernel import TERMINAL_MASTER
from shelld.inspection.member import Member, member_of
from shelld.terminals.pty import Size, open_pty
from shelld.terminals.source import Source
from support import wait_for


def seen(pid: int) -> Member:
    return member_of(pid, lambda: False, with_reads=True, known=None)


@contextmanager
def reader(command: str) -> Generator[tuple[int, Hop]]:
    """Run a command that reads a line, and yield the master side of its terminal."""
    pty = open_pty(Size(24, 80))
    source = Source(None, (os.fstat(pty.slave).st_rdev,))
    try:
        with subprocess.Popen(
            ["setsid", "-c", "bash", "-c", command],
            stdin=pty.slave,
            stdout=subprocess.DEVNULL,
            stderr=pty.slave,
        ) as child:
            try:
                wait_for(lambda: wait_on(seen(child.pid), source), "the read")
                yield pty.master, Hop(seen(child.pid), source)
            finally:
                child.kill()
    finally:
        for descriptor in pty:
            os.close(descriptor)


def test_input_in_the_kernels_buffers_counts_as_on_its_way() -> None:
    # Each program ends as soon as it has read its line, so it never waits a second time. The kernel
    # usually takes longer to pass on the input than the search takes. If the search did not check
    # for input on its way, one of the attempts would find a program that seems to wait.
    for _ in range(10):
        with reader("read -r line") as (master, hop):
            assert not is_on_its_way([hop, hop])
            os.write(master, b"text\n")
            assert is_on_its_way([hop, hop])


def test_unfinished_line_is_not_on_its_way() -> None:
    with reader("read -r line") as (master, hop):
        os.write(master, b"text")
        assert not is_on_its_way([hop, hop])


def test_reader_of_dev_tty_is_found_by_its_other_descriptors() -> None:
    for _ in range(10):
        with reader("read -r line < /dev/tty") as (master, hop):
            assert not is_on_its_way([hop, hop])
            os.write(master, b"text\n")
            assert is_on_its_way([hop, hop])


def test_relay_that_has_woken_up_may_have_input() -> None:
    with reader("read -r line") as (master, hop):
        relay = hop
        with reader("read -r line") as (_, last):
            assert not is_on_its_way([relay, last])
            os.write(master, b"text\n")
            wait_for(lambda: is_on_its_way([relay, last]), "the end of the relay")


def test_output_that_a_relay_has_not_read_is_on_its_way() -> None:
    pty = open_pty(Size(24, 80))
    # This relay goes back to sleep although there is output that it has not read. Every relay is in
    # this state for a moment.
    code = (
        "import select; e = select.epoll();"
        f" e.register({pty.master}, select.EPOLLIN | select.EPOLLET)\nwhile True: e.poll()"
    )
    try:
        with subprocess.Popen([sys.executable, "-c", code], pass_fds=[pty.master]) as relay:
            try:
                wait_for(lambda: (TERMINAL_MASTER,) in (seen(relay.pid).reads or {}), "the relay")
                source = Source(None, (os.fstat(pty.slave).st_rdev,))
                members = [seen(relay.pid)]
                hops = [Hop(each, source) for each in members * 2]
                assert not has_unread_output(hops, members)
                os.write(pty.slave, b"Name? ")
                assert has_unread_output(hops, members)
                os.read(pty.master, 99)
                wait_for(lambda: not has_unread_output(hops, members), "the relay to sleep again")
            finally:
                relay.kill()
    finally:
        for descriptor in pty:
            os.close(descriptor)
