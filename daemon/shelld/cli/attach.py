"""``shelld attach [--name NAME] [--linger SECONDS] [--steal] [--no-start] [-- OPTION ...]``: join
the lasting daemon of that name, or start it.

Hands stdin and stdout over to the daemon, and waits until the daemon no longer serves the client.
Never reads a request or writes an answer. Exit codes:

* 0: the client has closed its stream, a signal has arrived, or somebody has stopped the daemon
* 2: arguments, files or streams cannot be used, or the daemon cannot start
* 3: answers could not be written to stdout, or the client has not read them in time
* 4: another client is attached, or has taken the daemon
* 5: the daemon is of another version
* 6: the daemon has died, or it does not run and `--no-start` is given
* the exit code of the daemon, if the client has ended the daemon
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from shelld import __version__
from shelld.cli.arguments import ArgumentParser
from shelld.cli.commands import split_options
from shelld.cli.join import (
    DEFAULT_LINGER_S,
    DIED,
    OCCUPIED,
    JoinError,
    join,
    wait_readable,
)
from shelld.cli.numbers import integer_type
from shelld.cli.show import note, refuse
from shelld.lasting.directory import DirectoryError, check_name
from shelld.lasting.handshake import (
    HANDSHAKE,
    PROTOCOL,
    STDOUT_FAILED,
    End,
    HandshakeError,
    Hello,
    close_all,
    decode,
    receive,
)

DEFAULT_NAME: Final = "main"

# After a signal, how long to wait until the daemon has stopped serving the client.
LEAVE_S: Final = 3.0
# How often to check whether the time `LEAVE_S` is over.
_POLL_S: Final = 1.0


def add_name(parser: argparse.ArgumentParser, *flags: str, **settings: str) -> None:
    """Add the argument that names a daemon."""

    def name(text: str) -> str:
        try:
            return check_name(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    parser.add_argument(*flags, type=name, metavar="NAME", **settings)  # type: ignore[arg-type]


def attach(arguments: Sequence[str]) -> int:
    """Attach stdin and stdout to a lasting daemon; return the exit code."""
    arguments, options = split_options(arguments)
    given = _parser().parse_args(arguments)
    if options or any(name.startswith("SHELLD_") for name in os.environ):
        # Report mistakes in the options here, because nobody sees the daemon's messages. Loading
        # the option parser takes time, and the client waits while it loads. So load it only if
        # there are options.
        from shelld.cli.parser import parse_options  # noqa: PLC0415

        if parse_options(options).parent_pid is not None:
            return refuse("a lasting daemon outlives its client: put --parent-pid before --")
    if sys.platform != "linux":
        return refuse("attach needs Linux")
    try:
        for descriptor in (0, 1):
            os.fstat(descriptor)
    except OSError:
        return refuse("stdin and stdout must be open")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end_quietly)
    hello = Hello(
        handshake=HANDSHAKE,
        protocol=PROTOCOL,
        version=__version__,
        wants="attach",
        steal=given.steal,
        linger_s=given.linger,
    )
    try:
        connection = join(given.name, hello, options, may_start=not given.no_start)
    except JoinError as error:
        note(f"shelld: {error}")
        return error.exit_code
    except DirectoryError as error:
        return refuse(str(error))
    with connection:
        return _wait(connection, given.name, given.parent_pid)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="shelld attach",
        usage="%(prog)s [-h] [--name NAME] [--linger SECONDS] [--steal] [--no-start] "
        "[-- OPTION ...]",
        description="Serve stdin and stdout by a lasting daemon, which outlives its client. The "
        "daemon is started if it does not run. Options after -- become its options.",
    )
    add_name(parser, "--name", default=DEFAULT_NAME, help="the name of the daemon (default: main)")
    parser.add_argument(
        "--linger",
        type=integer_type(0, 2**31 - 1),
        metavar="SECONDS",
        help="end the daemon after so many seconds without a client "
        f"(default: {DEFAULT_LINGER_S}, or the running daemon's current value)",
    )
    parser.add_argument(
        "--steal", action="store_true", help="take the daemon from a client that is attached"
    )
    parser.add_argument(
        "--no-start", action="store_true", help="do not start a daemon if none runs (exit code 6)"
    )
    parser.add_argument("--stdio", action="store_true", help="serve stdin and stdout (the default)")
    parser.add_argument(
        "--parent-pid",
        "--clientProcessId",
        dest="parent_pid",
        type=integer_type(1, 2**31 - 1),
        metavar="PID",
        help="detach when this process ends",
    )
    return parser


def _end_quietly(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


def _wait(connection: socket.socket, name: str, parent_pid: int | None) -> int:
    """Wait until the daemon no longer serves the client; return the exit code."""
    # The daemon has the client's streams now. This process must not hold them open.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    deadline = [float("inf")]

    def leave(_number: int = 0, _frame: FrameType | None = None) -> None:
        deadline[0] = min(deadline[0], time.monotonic() + LEAVE_S)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
    watched: list[int] = []
    if parent_pid is not None:
        try:
            watched.append(os.pidfd_open(parent_pid))
        except OSError:
            leave()
    while True:
        # A signal handler may set the deadline at any time, so check it again soon.
        if time.monotonic() > deadline[0]:
            return 0
        readable = wait_readable(connection.fileno(), *watched, seconds=_POLL_S)
        if connection.fileno() in readable:
            break
        if readable:
            watched.clear()
            leave()
    try:
        data, descriptors = receive(connection)
        close_all(descriptors)
        end = decode(data, End)
    except (OSError, HandshakeError):
        note(f"shelld: the daemon {name} has died, and all its shells have ended")
        return DIED
    if end.reason == "stolen":
        note(f"shelld: another client has taken the daemon {name}")
        return OCCUPIED
    if end.exit_code == STDOUT_FAILED:
        note("shelld: cannot write all answers to stdout")
    return end.exit_code
