"""Sends marshalled tuples and descriptors over a stream socket.

`marshal` is a suitable format, because both ends are parts of one program, run under the same
Python, and are on one machine. `marshal` is built in and fast.

A frame is a 4-byte length and the marshalled tuple. A tuple of more than `INLINE_BYTES` travels as
a temporary file, so that a send never waits for the reader. Descriptors belong to the frame with
which they were sent.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import marshal
import os
import resource
import socket
from typing import Any, Final, NamedTuple, Self

from shelld.keeper.transient import TRANSIENT

SPAWN_RUNNER: Final = 1
RUN: Final = 2
KILL: Final = 3
STARTED: Final = 4
FAILED: Final = 5
EXITED: Final = 6
LEFTOVER: Final = 7
SURVIVORS: Final = 8
EMPTY: Final = 9
READY: Final = 10
LOST: Final = 11
STOP_RUNNER: Final = 12
# No process sends a message of this kind. `receive` returns it in place of a long message whose
# file did not arrive.
FILE_LOST: Final = 13
STOPPED: Final = 14
RETIRES: Final = 15
ENTERED: Final = 16

# After the grace, a runner tries to kill the tree for this long before it reports survivors.
KILL_DEADLINE_MS: Final = 1_000

# The maximum size of a tuple inside a frame. The smallest default send buffer (Linux: 208 KiB) has
# room for several such frames.
INLINE_BYTES: Final = 32 * 1024
_MAX_DESCRIPTORS: Final = 8
# The highest descriptor that `Channel.pair` uses. The kernel keeps a table with 8 bytes for each
# number up to the highest descriptor.
_MAX_FILES: Final = 1 << 16
_FILE_FRAME: Final = 0xFFFFFFFF
_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_INT_SIZE: Final = array.array("i").itemsize

Message = tuple[Any, ...]

# The result of recvmsg(2): the data, and ancillary data as (level, type, content).
_Read = tuple[bytes, list[tuple[int, int, bytes]], int, Any]


class RunnerInfo(NamedTuple):
    """The report of a runner about itself.

    `subreaper` says whether it became a subreaper, and `cgroup` says whether it has its own cgroup.
    """

    pid: int
    subreaper: bool
    cgroup: bool


def anonymous_file(content: bytes) -> int:
    """Return a descriptor of an unnamed file that holds `content`, with its offset at 0."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("shelld", os.MFD_CLOEXEC)
    else:  # pragma: no cover - not Linux
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_all(descriptor: int, content: bytes) -> None:
    """Write `content` to a file. Raises OSError if not all of it can be written."""
    written = os.write(descriptor, content)
    while written < len(content):
        # A short write does not report its reason, but the next write raises the error.
        written += os.write(descriptor, memoryview(content)[written:])


class Channel:
    """One end of a connection. Owns its socket, and also the data and descriptors that have
    arrived, until `receive` returns them.

    `peer` is the READY report of the runner at the other end. `keeper` is the pid of the keeper
    that the daemon asked for this runner.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        # If `receive` fails for lack of memory, the next call continues where this one has stopped.
        # For this, it needs the result of the read, the messages that were already complete, and
        # whether the buffer may hold more messages.
        self._read: _Read | None = None
        self._messages: list[tuple[Message, list[int]]] = []
        self._is_behind = False
        self.peer: RunnerInfo | None = None
        self.keeper: int | None = None

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """Return the daemon's end, which never blocks, and the socket for the other process.

        If this process is killed, the kernel closes its descriptors from the highest number down.
        If a command holds the lock of a pipe, the kernel waits for ever when it closes that pipe.
        The descriptor of the daemon's end has a high number, so the kernel closes this descriptor
        before any pipe. Then the other process reads end of file, and kills the command.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MAX_FILES)
        with contextlib.suppress(OSError):
            raised = _socket_at(fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, limit // 2))
            ours.close()
            ours = raised
        return cls(ours), theirs

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send one message. Raises OSError if the peer is gone or does not read, or memory is
        short.

        After an error, either no part of the message was sent, or both ends read end of file.
        """
        body = marshal.dumps(message)
        if len(body) <= INLINE_BYTES:
            self._send(len(body).to_bytes(4, "little") + body, descriptors)
            return
        spilled = anonymous_file(body)
        try:
            self._send(_FILE_FRAME.to_bytes(4, "little"), (spilled, *descriptors))
        finally:
            os.close(spilled)

    def _send(self, frame: bytes, descriptors: tuple[int, ...]) -> None:
        if descriptors:
            rights = array.array("i", descriptors)
            sent = self._socket.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        else:
            sent = self._socket.send(frame)
        try:
            while sent < len(frame):
                # On a blocking socket, a short send means that a signal has interrupted the call.
                sent += self._socket.send(frame[sent:])
        except BaseException:
            # Otherwise the peer would read the next message as the rest of this frame.
            self.shut_down()
            raise

    def shut_down(self) -> None:
        """Shut down the connection. From then on, a read at either end returns end of file."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def receive(self) -> list[tuple[Message, list[int]]] | None:
        """Return the complete messages that have arrived, with their descriptors; None at end of
        file.

        Reads once. On a blocking socket, call this only when the socket is readable. If this
        process has no room for a descriptor, the kernel drops the descriptor. A message whose file
        was dropped becomes `FILE_LOST`.

        If this raises MemoryError, call it again, even if the socket is not readable. No message is
        lost, because the next call begins with the bytes that were already read.
        """
        read = self._read
        if read is None and not self._is_behind:
            try:
                read = self._read = self._socket.recvmsg(
                    65536, socket.CMSG_SPACE(_MAX_DESCRIPTORS * _INT_SIZE), _CLOEXEC
                )
            except OSError as error:
                # After a transient error, a later call can read the data.
                return [] if error.errno in TRANSIENT else None
        if read is not None:
            data, ancillary, _flags, _address = read
            if not data:
                self._read = None
                return None
            descriptors = self._with_received(ancillary) if ancillary else self._descriptors
            self._buffer += data
            self._descriptors = descriptors
            self._read = None
            self._is_behind = True
        # After a MemoryError, the next call repeats the step that has failed, unless the step has
        # already had its effect.
        while self._buffer and (found := self._next_message()) is not None:
            message, size = found
            if message[0] == READY:
                self.peer = RunnerInfo(*message[1:])
            else:
                self._messages.append((message, []))
            del self._buffer[:size]
        messages = self._messages
        if messages and self._descriptors:
            # If data was sent with descriptors, a read returns no data that was sent later. So the
            # descriptors belong to the last frame of the read.
            messages[-1][1].extend(self._descriptors)
            self._descriptors.clear()
        self._complete(messages)
        self._messages = []
        self._is_behind = False
        return messages

    def _complete(self, messages: list[tuple[Message, list[int]]]) -> None:
        """Change the messages before `receive` returns them.

        If this method raises MemoryError, the next call of `receive` calls it again with the same
        list.
        """

    def _with_received(self, ancillary: list[tuple[int, int, bytes]]) -> list[int]:
        """Return all descriptors that were read, now or earlier, and that are not assigned to a
        message yet.
        """
        descriptors = self._descriptors.copy()
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(content[: len(content) - len(content) % _INT_SIZE])
                if not _CLOEXEC:
                    for descriptor in received:
                        os.set_inheritable(descriptor, False)
                descriptors.extend(received)
        return descriptors

    def _next_message(self) -> tuple[Message, int] | None:
        """Return the first message in the buffer and its size; None if it is not complete."""
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        length = int.from_bytes(buffer[:4], "little")
        if length == _FILE_FRAME:
            return self._read_spilled(), 4
        if len(buffer) < 4 + length:
            return None
        return _tuple(marshal.loads(buffer[4 : 4 + length])), 4 + length

    def _read_spilled(self) -> Message:
        if not self._descriptors:
            return (FILE_LOST,)
        descriptor = self._descriptors.pop(0)
        try:
            size = os.fstat(descriptor).st_size
            # Use `pread`, because the sender shares the file offset.
            return _tuple(marshal.loads(os.pread(descriptor, size, 0)))
        except (OSError, MemoryError, EOFError, ValueError, TypeError):
            return (FILE_LOST,)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._socket.close()
        if self._read is not None:
            # The last call of `receive` read these descriptors, but failed before it had assigned
            # them to a message.
            self._descriptors = self._with_received(self._read[1])
            self._read = None
        for _, descriptors in self._messages:
            self._descriptors += descriptors
        self._messages = []
        while self._descriptors:
            os.close(self._descriptors.pop())


def _socket_at(descriptor: int) -> socket.socket:
    """Return a socket object that owns the descriptor from now on. Raises OSError."""
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _tuple(value: Any) -> Message:
    if not isinstance(value, tuple):
        raise TypeError("a frame holds a tuple")
    return value  # pyright: ignore[reportUnknownVariableType]
