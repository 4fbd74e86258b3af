"""A lasting daemon as a child process. The test itself does what `shelld attach` does."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shelld.lasting.handshake import (
    HANDSHAKE,
    HandshakeError,
    Hello,
    Reply,
    decode,
    receive,
    send,
)
from shelld.lasting.views import View, ViewRequest, decoded, encoded
from shelld_protocol.about import PROTOCOL
from shelld_protocol.framing import FrameReader
from support import RawDaemon

# The daemon may take this long to reply or to exit. It may need ten seconds if it must first drop
# another client.
REPLY_S = 20.0


class LastingDaemon(RawDaemon):
    """A daemon whose socket is below `runtime`. At first, no client is attached."""

    def __init__(
        self, *args: str, runtime: Path, command: Sequence[str], env: dict[str, str]
    ) -> None:
        directory = runtime / "shelld"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / "main.sock"
        self._path.unlink(missing_ok=True)
        # The connection and the streams of the attached client.
        self._connection: socket.socket | None = None
        self._requests = self._answers = -1
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self._path))
            listener.listen()
            number = listener.fileno()
            super().__init__(
                *("lasting", "main", "3600", str(number)),
                *args,
                command=command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**env, "XDG_RUNTIME_DIR": str(runtime)},
                pass_fds=(number,),
            )

    # -- clients ----------------------------------------------------------------------------

    def attach(self, *, steal: bool = False) -> str:
        """Attach another client; return the reply, or "gone" if there was none.

        If the daemon accepts this client, this client replaces the client that was attached.
        """
        requests, far_requests = _pair()
        answers, far_answers = _pair()
        try:
            connection, reply = self._say("attach", (far_requests, far_answers), steal=steal)
        finally:
            os.close(far_requests)
            os.close(far_answers)
        if reply == "attached":
            self.vanish()
            self._connection, self._requests, self._answers = connection, requests, answers
            self._frames = FrameReader()
            self.forget_answers()
        else:
            connection.close()
            os.close(requests)
            os.close(answers)
        return reply

    def ask_about(self) -> str:
        """Ask for the information that `shelld list` shows; return the state in the reply."""
        connection, reply = self._say("info")
        connection.close()
        return reply

    def watch(self) -> str:
        """Ask once for the view that `shelld watch` shows, then leave; return the reply to the
        greeting.
        """
        connection, reply = self._say("watch")
        with connection, contextlib.suppress(ConnectionError):
            if reply == "watching":
                connection.send(encoded(ViewRequest(shells=9, lines=9)))
                data, _ = receive(connection)
                return reply if data and decoded(data, View).shells else "gone"
        return reply

    def say_nothing(self) -> None:
        """Connect, and disconnect without sending anything."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(self._path))

    def _say(
        self, wants: Any, descriptors: tuple[int, ...] = (), *, steal: bool = False
    ) -> tuple[socket.socket, str]:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(REPLY_S)
            connection.connect(str(self._path))
            hello = Hello(handshake=HANDSHAKE, protocol=PROTOCOL, wants=wants, steal=steal)
            with contextlib.suppress(ConnectionError):
                send(connection, hello, descriptors)
                data, _ = receive(connection)
                return connection, _reply_in(data).state if data else "gone"
        except BaseException:
            connection.close()
            raise
        return connection, "gone"

    def end_requests(self) -> None:
        """Close the stream of requests. The client still reads."""
        if self._requests >= 0:
            _hang_up(self._requests)
            self._requests = -1

    def last_words(self) -> bytes:
        """Return the last message of the daemon to the attached client, or b"" if there is none."""
        assert self._connection is not None
        with contextlib.suppress(ConnectionError):
            return receive(self._connection)[0]
        return b""

    def vanish(self) -> None:
        """Close the connection and the streams of the attached client, as if its machine were
        lost.
        """
        self.end_requests()
        if self._answers >= 0:
            _hang_up(self._answers)
            self._answers = -1
        if self._connection is not None:
            _hang_up(self._connection.detach())
            self._connection = None

    # -- as a daemon with one client --------------------------------------------------------

    def send_raw(self, data: bytes) -> None:
        # The daemon may have noticed that the client is lost, and closed this stream.
        with contextlib.suppress(BrokenPipeError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._requests, view) :]

    def read_bytes(self, seconds: float = REPLY_S) -> bytes:
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        assert poll.poll(seconds * 1000), f"no answer in {seconds:.0f} s"
        return os.read(self._answers, 1 << 20)

    def close(self) -> None:
        self.vanish()
        state = "gone"
        with contextlib.suppress(OSError, AssertionError):
            connection, state = self._say("stop")
            connection.close()
        if state == "gone":
            # The daemon did not reply, so it cannot be asked to stop.
            self.process.terminate()
        super().close()


def _pair() -> tuple[int, int]:
    """Return two ends of a stream: ours, and the daemon's."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def _hang_up(descriptor: int) -> None:
    """Close a socket.

    The other end notices this at once, although a child that another thread has just forked may
    have a copy of the descriptor until execve(2).
    """
    with socket.socket(fileno=descriptor) as stream, contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


def _reply_in(data: bytes) -> Reply:
    try:
        return decode(data, Reply)
    except HandshakeError:
        raise AssertionError(f"a reply of another form: {data[:200]!r}") from None
