"""Joins a lasting daemon, or starts it and then joins it.

Owns the start of the daemon. This process takes the lock (see `lasting.directory`) before it looks
for the daemon's socket, and holds the lock until it has started the new daemon. `attach`, and not
this module, waits until the daemon no longer serves the client.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from shelld import __version__
from shelld.cli.program import own_command
from shelld.cli.show import note
from shelld.lasting.directory import SocketDirectory, locked
from shelld.lasting.handshake import (
    HANDSHAKE,
    PROTOCOL,
    HandshakeError,
    Hello,
    Reply,
    Version,
    close_all,
    decode,
    receive,
    send,
)
from shelld.lasting.start import Lasting
from shelld.server.startup import given_environment

DEFAULT_LINGER_S: Final = 3_600

# Exit codes of `shelld attach`.
OCCUPIED: Final = 4
OTHER_VERSION: Final = 5
DIED: Final = 6

# How long to wait for the answer of a daemon. The daemon may first have to drop another client,
# which can take ten seconds.
ANSWER_S: Final = 20.0
# How many times to try again if the daemon ends before it answers.
MAX_TRIES: Final = 20
PAUSE_S: Final = 0.05


class JoinError(Exception):
    """The client was not attached. The message says why. `exit_code`: the exit code of `shelld
    attach`.
    """

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def join(name: str, hello: Hello, options: Sequence[str], *, may_start: bool) -> socket.socket:
    """Attach to the daemon, and return the connection.

    If the daemon does not run and `may_start` is True, start the daemon. Raises JoinError and
    DirectoryError.
    """
    for _ in range(MAX_TRIES):
        connection = connect(name)
        if connection is None and not may_start:
            raise JoinError(DIED, f"the daemon {name} does not run")
        if connection is None:
            connection = _start(name, hello, options)
            if connection is not None:
                return connection
        elif _ask(connection, name, hello):
            if options:
                note(f"shelld: the daemon {name} runs already, so the given options have no effect")
            return connection
        # The daemon has ended before it answered.
        time.sleep(PAUSE_S)
    raise JoinError(2, f"the daemon {name} ends again and again")


def connect(name: str, seconds: float = ANSWER_S) -> socket.socket | None:
    """Connect to the daemon. Return None if the daemon does not run. Raises DirectoryError."""
    directory = SocketDirectory.open(create=False)
    if directory is None:
        return None
    try:
        return directory.connect(name, seconds)
    finally:
        directory.close()


def _ask(connection: socket.socket, name: str, hello: Hello) -> bool:
    """Ask the daemon to attach the client. Return False if the daemon ends before it answers.
    Raises JoinError.
    """
    try:
        connection.settimeout(ANSWER_S)
        send(connection, hello, (0, 1))
        data, descriptors = receive(connection)
        close_all(descriptors)
    except TimeoutError:
        connection.close()
        raise JoinError(2, f"the daemon {name} does not answer") from None
    except OSError:
        data = b""
    if not data:
        connection.close()
        return False
    try:
        reply = read_reply(data, name)
        if reply.state == "busy":
            sentence = f"another client is attached to {name}; --steal takes its place"
            raise JoinError(OCCUPIED, sentence)
        if reply.state != "attached":
            raise JoinError(2, f"the daemon {name} has no room for a client now")
    except JoinError:
        connection.close()
        raise
    return True


def read_reply(data: bytes, name: str) -> Reply:
    """Decode a daemon's answer. Raises JoinError for a daemon of another version."""
    try:
        version = decode(data, Version)
        if (version.handshake, version.protocol) != (HANDSHAKE, PROTOCOL):
            sentence = (
                f"the daemon {name} is shelld {version.version} (protocol {version.protocol}), "
                f"and this is shelld {__version__} (protocol {PROTOCOL})"
            )
            raise JoinError(OTHER_VERSION, sentence)
        return decode(data, Reply)
    except HandshakeError:
        raise JoinError(2, f"the program that listens as {name} is not shelld") from None


# -- starting ---------------------------------------------------------------------------------


def _start(name: str, hello: Hello, options: Sequence[str]) -> socket.socket | None:
    """Start a daemon and attach to it. Return None if another process has already started the
    daemon.

    Raises JoinError and DirectoryError.
    """
    with locked() as directory:
        # No other process makes or removes a socket while this process holds the lock.
        connection = directory.connect(name, ANSWER_S)
        if connection is not None:
            connection.close()
            return None
        identity = directory.identity(name)
        if identity is not None:
            note(f"shelld: the earlier daemon {name} was killed, and all its shells have ended")
            directory.remove(name, identity)
            if directory.is_removed:
                return None
        linger_s = DEFAULT_LINGER_S if hello.linger_s is None else hello.linger_s
        with directory.listen(name) as listener:
            identity = directory.identity(name)
            try:
                errors = _spawn(Lasting(name, listener, linger_s), options)
            except OSError as error:
                # Remove the socket. Otherwise, the next client would conclude that a daemon was
                # killed.
                directory.remove(name, identity)
                reason = f"cannot start the daemon {name}: {error.strerror}"
                raise JoinError(2, reason) from error
    # The lock is released now. Otherwise, other processes would wait until this daemon has started.
    try:
        connection = connect(name)
        if connection is not None and _ask(connection, name, hello):
            return connection
        _show_errors(errors)
        with locked() as directory:
            directory.remove(name, identity)
        raise JoinError(2, f"the daemon {name} could not start")
    finally:
        os.close(errors)


def _spawn(lasting: Lasting, options: Sequence[str]) -> int:
    """Start a daemon that is not a child of this process. Return the descriptor of a pipe with the
    daemon's stderr.

    The daemon does not inherit the client's descriptors. Raises OSError.
    """
    command = [*own_command(), *lasting.words, *options]
    environment = given_environment()
    listening = lasting.listener.fileno()
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
                os.set_inheritable(listening, True)
                for each in map(int, os.listdir("/proc/self/fd")):
                    if each > 2 and each != listening:
                        with suppress(OSError):
                            os.close(each)
                os.execve(sys.executable, command, environment)
        finally:
            os._exit(127)
    os.close(far_end)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return errors


def _show_errors(errors: int) -> None:
    """Show the text that the daemon has written to stderr before it ended."""
    text = b""
    while wait_readable(errors, seconds=PAUSE_S) and (data := os.read(errors, 8192)):
        text += data
    if text:
        note(text.decode("utf-8", "replace").rstrip())


def wait_readable(*descriptors: int, seconds: float) -> list[int]:
    """Wait until one of the descriptors is readable. Return all readable descriptors."""
    # Do not use `select.select`, which accepts no descriptor above 1023.
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return [each for each, _ in poll.poll(seconds * 1000)]
