"""``shelld watch [-n LINES] [NAME]``: show the shells of a lasting daemon.

Owns the connection to the daemon. Asks for views of the daemon's shells, one after the other. Never
attaches to the daemon, so it does not disturb the daemon's client. On a terminal, it shows a
picture that changes (`watch_screen`). Otherwise, it prints changes as lines (`watch_lines`).

Exit codes:

* 0: the user has pressed Ctrl-C, or somebody has stopped the daemon
* 2: arguments, the socket or stdout cannot be used, or the daemon has no room for a watcher
* 5: the daemon is of another version
* 6: the daemon has died, or does not run
* 128 + N after signal N
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FrameType
from typing import Final, Literal, Protocol, TypeAlias

from shelld import __version__
from shelld.cli.arguments import ArgumentParser
from shelld.cli.attach import DEFAULT_NAME, add_name
from shelld.cli.join import DIED, MAX_TRIES, JoinError, connect, read_reply
from shelld.cli.join import PAUSE_S as RETRY_S
from shelld.cli.numbers import integer_type
from shelld.cli.show import USAGE_ERROR, note, refuse, show
from shelld.cli.watch_lines import Changes
from shelld.lasting.directory import DirectoryError
from shelld.lasting.handshake import (
    HANDSHAKE,
    PROTOCOL,
    HandshakeError,
    Hello,
    close_all,
    receive,
    send,
)
from shelld.lasting.views import MAX_LINES, MAX_SHELLS, View, ViewRequest, decoded, encoded

# How long to wait for the first answer, how long to pause between two views, and how long the
# daemon may send nothing before it counts as silent.
ANSWER_S: Final = 5.0
PAUSE_S: Final = 0.5
SILENT_S: Final = 5.0

DEFAULT_LINES: Final = 3

# The signals that end the program.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Why the watching has ended: the daemon has stopped or died, or its views cannot be written.
Outcome: TypeAlias = Literal["ended", "died", "unwritable"]


class Sight(Protocol):
    """Shows a watched daemon, from the `View` objects that the daemon sends."""

    def wanted(self) -> ViewRequest:
        """Return the next request to the daemon."""
        ...

    def show(self, view: View, silent_s: float) -> bool:
        """Show a view. Return False if it cannot be written.

        `silent_s`: the time since the daemon last sent something.
        """
        ...


def watch(arguments: Sequence[str]) -> int:
    """Show the daemon until it ends, or until a signal such as Ctrl-C arrives; return the exit
    code.
    """
    given = _parser().parse_args(arguments)
    for number in _ENDING:
        # A parent may ignore a signal, as nohup does.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    try:
        connection = _joined(given.name)
    except JoinError as error:
        if str(error):
            note(f"shelld: {error}")
        return error.exit_code
    except DirectoryError as error:
        return refuse(str(error))
    try:
        with connection, _sight(given.name, given.lines) as sight:
            outcome = _follow(connection, sight)
    except KeyboardInterrupt:
        return 0
    # The picture is gone now, so a message stays visible.
    if outcome == "unwritable":
        return USAGE_ERROR
    if outcome == "ended":
        note(f"shelld: the daemon {given.name} has ended")
        return 0
    note(f"shelld: the daemon {given.name} has died, and all its shells have ended")
    return DIED


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="shelld watch",
        usage="%(prog)s [-h] [-n LINES] [NAME]",
        description="Show the shells of a lasting daemon, and the last lines of each, until "
        "Ctrl-C. The client that is attached does not notice it.",
    )
    add_name(parser, "name", default=DEFAULT_NAME, nargs="?", help="the daemon (default: main)")
    parser.add_argument(
        "-n",
        "--lines",
        type=integer_type(0, MAX_LINES),
        default=DEFAULT_LINES,
        metavar="LINES",
        help=f"how many lines of each shell to show (default: {DEFAULT_LINES})",
    )
    return parser


def _leave(number: int, _frame: FrameType | None) -> None:
    # Raise an exception, so that `with` blocks restore the terminal. Another signal must not
    # interrupt them, not even one that has already arrived.
    for each in _ENDING:
        signal.signal(each, _do_nothing)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _joined(name: str) -> socket.socket:
    """Return a connection on which the daemon answers `ViewRequest`s. Raises JoinError and
    DirectoryError.
    """
    hello = Hello(handshake=HANDSHAKE, protocol=PROTOCOL, version=__version__, wants="watch")
    for _ in range(MAX_TRIES):
        connection = connect(name, ANSWER_S)
        if connection is None:
            raise JoinError(DIED, f"the daemon {name} does not run")
        try:
            if _is_taken(connection, name, hello):
                connection.settimeout(None)
                return connection
        except BaseException:
            connection.close()
            raise
        # The daemon has ended, or has an earlier version, which does not know this message. If it
        # has ended, a later attempt to connect fails.
        connection.close()
        time.sleep(RETRY_S)
    raise JoinError(USAGE_ERROR, f"the daemon {name} cannot be watched")


def _is_taken(connection: socket.socket, name: str, hello: Hello) -> bool:
    """Ask the daemon to let this process watch it. Return False if the daemon closes the
    connection. Raises JoinError.
    """
    try:
        send(connection, hello)
        data, descriptors = receive(connection)
    except TimeoutError:
        raise JoinError(USAGE_ERROR, f"the daemon {name} does not answer") from None
    except OSError:
        return False
    close_all(descriptors)
    if data and read_reply(data, name).state != "watching":
        raise JoinError(USAGE_ERROR, f"the daemon {name} has too many watchers already")
    return bool(data)


def _sight(name: str, lines: int) -> AbstractContextManager[Sight]:
    """Return a `Sight` that draws a picture on a terminal, or prints lines to any other stdout."""
    if os.isatty(1) and os.environ.get("TERM", "dumb") != "dumb":
        try:
            from shelld.cli.watch_screen import on_screen  # noqa: PLC0415
        except ImportError:
            note(
                "shelld: for a picture instead of lines, install rich: pip install 'shelld[watch]'"
            )
        else:
            return on_screen(name, lines, _ENDING)
    return nullcontext(LineSight(name, lines))


class LineSight:
    """Prints what has changed since the last view, as lines."""

    def __init__(self, name: str, lines: int) -> None:
        self._changes = Changes(name)
        self._lines = lines

    def wanted(self) -> ViewRequest:
        return ViewRequest(shells=MAX_SHELLS, lines=self._lines)

    def show(self, view: View, silent_s: float) -> bool:
        lines = self._changes.since(view, is_silent=silent_s > SILENT_S)
        return not lines or show("\n".join(lines), 0) == 0


def _follow(connection: socket.socket, sight: Sight) -> Outcome:
    """Show views until the daemon ends, or a view cannot be written."""
    view: View | None = None
    heard_at = time.monotonic()
    _ask(connection, sight)
    is_asked = True
    while True:
        if not _has_news(connection):
            silent_s = time.monotonic() - heard_at
            if not is_asked:
                _ask(connection, sight)
                is_asked = True
            elif view is not None and not sight.show(view, silent_s):
                return "unwritable"
            continue
        try:
            data, descriptors = receive(connection)
        except OSError:
            data, descriptors = b"", []
        close_all(descriptors)
        if not data:
            return "died"
        try:
            view = decoded(data, View)
        except HandshakeError:
            return "ended"
        heard_at, is_asked = time.monotonic(), False
        if not sight.show(view, 0):
            return "unwritable"


def _ask(connection: socket.socket, sight: Sight) -> None:
    # If the daemon is gone, the next `receive` shows how it has ended.
    with suppress(OSError):
        send(connection, encoded(sight.wanted()))


def _has_news(connection: socket.socket) -> bool:
    """Wait up to `PAUSE_S` seconds. Return whether the daemon has sent a message, or is gone."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(PAUSE_S * 1000))
