"""``shelld attach [--name NAME] [--linger SECONDS] [--steal] [--no-start] [-- OPTION ...]``: join
the lasting daemon of that name, or start it.

Hands stdin and stdout over to the daemon, and waits until the daemon no longer serves the client.
Owns the start of the daemon. Never reads a request or writes an answer.

Exit codes:

* 0: the client has closed its stream, a signal has arrived, or the daemon was stopped
* 2: arguments, files or streams cannot be used, or the daemon cannot start
* 4: another client is attached, or has taken the daemon
* 5: the daemon is of another version
* 6: the daemon has died, or does not run and must not be started
* the exit code of the daemon, if the client has ended the daemon
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from shelld import __version__
from shelld.cli.parser import parse_options, split_options
from shelld.cli.show import note, refuse
from shelld.lasting.handshake import (
    HANDSHAKE,
    End,
    HandshakeError,
    Hello,
    Reply,
    Version,
    close_all,
    decode,
    receive,
    send,
)
from shelld.lasting.place import Place, PlaceError, check_name, locked
from shelld_protocol.about import PROTOCOL

DEFAULT_NAME: Final = "main"
DEFAULT_LINGER_S: Final = 3_600
MAX_LINGER_S: Final = 2**31 - 1

OCCUPIED: Final = 4
OTHER_VERSION: Final = 5
DIED: Final = 6

# How long to wait for the answer of a daemon that runs, or that has just been started. A daemon
# that loses another client first may need ten seconds.
ANSWER_S: Final = 20.0
# How long to wait for the end of the daemon's service after a signal.
LEAVE_S: Final = 3.0
# How often to look whether that time is over.
_POLL_S: Final = 1.0
# How often to try again if the daemon ends while it is asked.
MAX_TRIES: Final = 20
PAUSE_S: Final = 0.05


class RefusedError(Exception):
    """Nothing was attached. The message is a sentence, or empty if it was shown already."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def add_name(parser: argparse.ArgumentParser, *flags: str, **settings: str) -> None:
    """Add the argument with the name of a daemon."""

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
    # Find mistakes now, rather than in a daemon that nobody sees.
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
        connection = _join(given.name, hello, options, may_start=not given.no_start)
    except RefusedError as error:
        if str(error):
            note(f"shelld: {error}")
        return error.exit_code
    except PlaceError as error:
        return refuse(str(error))
    with connection:
        return _wait(connection, given.name, given.parent_pid)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shelld attach",
        usage="%(prog)s [-h] [--name NAME] [--linger SECONDS] [--steal] [--no-start] "
        "[-- OPTION ...]",
        description="Serve stdin and stdout by a daemon that outlives its client. The daemon is "
        "started if it does not run. Options after -- become its options.",
        allow_abbrev=False,
    )
    add_name(parser, "--name", default=DEFAULT_NAME, help="the name of the daemon (default: main)")

    def seconds(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) > MAX_LINGER_S:
            raise ValueError
        return int(text)

    seconds.__name__ = f"integer from 0 to {MAX_LINGER_S}"
    parser.add_argument(
        "--linger",
        type=seconds,
        metavar="SECONDS",
        help="end the daemon after this time without a client, in seconds "
        f"(default: {DEFAULT_LINGER_S}, or the current value of a daemon that runs)",
    )
    parser.add_argument(
        "--steal", action="store_true", help="take the daemon from a client that is attached"
    )
    parser.add_argument(
        "--no-start", action="store_true", help="do not start a daemon if none runs (exit code 6)"
    )
    parser.add_argument("--stdio", action="store_true", help="serve stdin and stdout (the default)")

    def pid(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 2**31:
            raise ValueError
        return int(text)

    pid.__name__ = "pid"
    parser.add_argument(
        "--parent-pid",
        "--clientProcessId",
        dest="parent_pid",
        type=pid,
        metavar="PID",
        help="detach when this process ends",
    )
    return parser


def _end_quietly(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


# -- joining ----------------------------------------------------------------------------------


def _join(name: str, hello: Hello, options: Sequence[str], *, may_start: bool) -> socket.socket:
    """Attach to the daemon. Start it if it does not run and `may_start`. Return the connection.

    Raises RefusedError and PlaceError.
    """
    for _ in range(MAX_TRIES):
        connection = _connect(name)
        if connection is None and not may_start:
            raise RefusedError(DIED, f"the daemon {name} does not run")
        if connection is None:
            connection = _start(name, hello, options)
            if connection is not None:
                return connection
        elif _say(connection, name, hello):
            if options:
                note(f"shelld: the daemon {name} runs already, so it keeps its options")
            return connection
        # The daemon has ended meanwhile.
        time.sleep(PAUSE_S)
    raise RefusedError(2, f"the daemon {name} ends again and again")


def _connect(name: str) -> socket.socket | None:
    """Connect to the daemon. Return None if it does not run. Raises PlaceError."""
    place = Place.open(create=False)
    if place is None:
        return None
    try:
        return place.connect(name, ANSWER_S)
    finally:
        place.close()


def _say(connection: socket.socket, name: str, hello: Hello) -> bool:
    """Ask the daemon to take the client. Return False if it ends. Raises RefusedError."""
    try:
        connection.settimeout(ANSWER_S)
        send(connection, hello, (0, 1))
        data, descriptors = receive(connection)
        close_all(descriptors)
    except TimeoutError:
        connection.close()
        raise RefusedError(2, f"the daemon {name} does not answer") from None
    except OSError:
        data = b""
    if not data:
        connection.close()
        return False
    try:
        reply = read_reply(data, name)
        if reply.state == "busy":
            sentence = f"another client is attached to {name}; --steal takes its place"
            raise RefusedError(OCCUPIED, sentence)
        if reply.state != "attached":
            raise RefusedError(2, f"the daemon {name} has no room for a client now")
    except RefusedError:
        connection.close()
        raise
    return True


def read_reply(data: bytes, name: str) -> Reply:
    """Return the answer of a daemon of this version. Raises RefusedError."""
    try:
        version = decode(data, Version)
        if (version.handshake, version.protocol) != (HANDSHAKE, PROTOCOL):
            sentence = (
                f"the daemon {name} is shelld {version.version} (protocol {version.protocol}), "
                f"and this is shelld {__version__} (protocol {PROTOCOL})"
            )
            raise RefusedError(OTHER_VERSION, sentence)
        return decode(data, Reply)
    except HandshakeError:
        raise RefusedError(2, f"what listens as {name} is no shelld") from None


# -- starting ---------------------------------------------------------------------------------


def _start(name: str, hello: Hello, options: Sequence[str]) -> socket.socket | None:
    """Start a daemon and attach to it. Return None if another process was faster.

    Raises RefusedError and PlaceError.
    """
    with locked() as place:
        # Nobody makes or removes a socket while this process holds the lock.
        connection = place.connect(name, ANSWER_S)
        if connection is not None:
            connection.close()
            return None
        identity = place.identity(name)
        if identity is not None:
            note(f"shelld: the earlier daemon {name} was killed, and all its shells have ended")
            place.remove(name, identity)
            if place.is_removed:
                return None
        linger_s = DEFAULT_LINGER_S if hello.linger_s is None else hello.linger_s
        with place.listen(name) as listener:
            identity = place.identity(name)
            errors = _spawn(listener, [name, str(linger_s), str(listener.fileno()), *options])
    # Others need not wait for the lock until this daemon runs.
    try:
        connection = _connect(name)
        if connection is not None and _say(connection, name, hello):
            return connection
        _show_rest(errors)
        with locked() as place:
            place.remove(name, identity)
        raise RefusedError(2, f"the daemon {name} could not start")
    finally:
        os.close(errors)


def _spawn(listener: socket.socket, arguments: Sequence[str]) -> int:
    """Start a daemon that is no child of this process. Return the descriptor of its errors.

    The daemon keeps nothing open that belongs to the client.
    """
    # Without -P, Python would import modules from the working directory.
    command = [sys.executable, "-P", "-m", "shelld", "lasting", *arguments]
    errors, far_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                null = os.open(os.devnull, os.O_RDWR)
                for descriptor, source in ((0, null), (1, null), (2, far_end)):
                    os.dup2(source, descriptor)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                os.set_inheritable(listener.fileno(), True)
                for each in map(int, os.listdir("/proc/self/fd")):
                    if each > 2 and each != listener.fileno():
                        with suppress(OSError):
                            os.close(each)
                os.execv(sys.executable, command)
        finally:
            os._exit(127)
    os.close(far_end)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return errors


def _show_rest(errors: int) -> None:
    """Show what the daemon has written to stderr before it ended."""
    text = b""
    while _readable(errors, seconds=PAUSE_S) and (data := os.read(errors, 8192)):
        text += data
    if text:
        note(text.decode("utf-8", "replace").rstrip())


# -- waiting ----------------------------------------------------------------------------------


def _wait(connection: socket.socket, name: str, parent_pid: int | None) -> int:
    """Wait until the daemon no longer serves the client; return the exit code."""
    # The daemon has the client's streams. Nothing else may hold them open.
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
        # A signal handler may set the deadline at any time, so look again soon.
        if time.monotonic() > deadline[0]:
            return 0
        readable = _readable(connection.fileno(), *watched, seconds=_POLL_S)
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
    return end.exit_code


def _readable(*descriptors: int, seconds: float) -> list[int]:
    """Wait until one of the descriptors is readable; return those that are."""
    # Not `select`, which knows no descriptor above 1023.
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return [each for each, _ in poll.poll(seconds * 1000)]
