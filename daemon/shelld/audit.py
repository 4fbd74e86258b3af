"""The audit log. It has one JSON line for each command, and one for each input to a command.

The log never holds output, input or values of the environment.

Owns the log file and rotates it at `max_bytes`: FILE becomes FILE.1, FILE.1 becomes FILE.2, and
FILE.2 becomes FILE.3. Creates files with mode 0600. FILE may also be a device, or a FIFO that has a
reader. A device or FIFO is not rotated, and keeps its mode. If a FIFO, for example, replaces a
regular FILE, the log continues in the old file. A line that cannot be written at once is dropped
with a warning, so the log never delays a command or makes it fail. After an incomplete line, the
next record begins on a new line. If FILE cannot be rotated, it grows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from shelld.process.logs import Log, open_log
from shelld.shells.shell import Shell
from shelld_protocol.encoding import encode

OLD_FILES: Final = 3

logger = Log("shelld.audit")


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one command.

    `bash_id` is None if the command was blocked or was only a dry run.
    """

    time: str
    session: str | None
    bash_id: str | None = None
    command: str
    description: str | None
    status: str
    exit_code: int | None = None
    signal: str | None = None
    duration_ms: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    guard: str

    @classmethod
    def of_shell(cls, shell: Shell) -> AuditRecord:
        """Return the record of a command that has ended."""
        return cls(
            time=timestamp(shell.created_at),
            session=shell.session,
            bash_id=shell.id,
            command=shell.command,
            description=shell.description,
            status=shell.status.value,
            exit_code=shell.exit_code,
            signal=shell.signal,
            duration_ms=shell.elapsed_ms,
            stdout_bytes=shell.stdout.store.written,
            stderr_bytes=shell.stderr.store.written,
            guard=shell.verdict,
        )


class InputRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a write to a running command's input.

    It has the size of the input, never the content.
    """

    time: str
    event: Literal["input"] = "input"
    session: str | None
    bash_id: str
    bytes: int
    secret: bool

    @classmethod
    def of(cls, shell: Shell, count: int, *, secret: bool) -> InputRecord:
        now = timestamp(time.time())
        return cls(time=now, session=shell.session, bash_id=shell.id, bytes=count, secret=secret)


class AuditLog:
    """Writes the log to a file. Raises OSError if `path` cannot be opened for appending."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        # The operations that fail at present: "written", "rotated", "opened again". Each failure is
        # reported once, not for every line.
        self._failing: set[str] = set()
        # The device and inode of the file. If they have changed, another daemon has rotated the
        # file.
        self._identity = 0, 0
        self._is_file = False
        self._descriptor = self._open()

    def _open(self) -> int:
        descriptor = open_log(str(self._path), 0o600, os.O_NOFOLLOW)
        status = os.fstat(descriptor)
        is_file = stat.S_ISREG(status.st_mode)
        if self._is_file and not is_file:
            # Refuse to replace a regular file by a file of another kind. With a FIFO, for example,
            # the log would end when the reader of the FIFO ends.
            os.close(descriptor)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._is_file = is_file
        self._identity = status.st_dev, status.st_ino
        self._size = status.st_size
        # The log holds commands, so a file that exists already gets mode 0600 as well.
        if self._is_file:
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, 0o600)
        # True if the file ends with an incomplete line.
        self._is_cut = self._is_file and self._size > 0 and not _ends_with_line(self._path)
        return descriptor

    def write(self, record: AuditRecord | InputRecord) -> None:
        try:
            line = encode(record) + b"\n"
            if self._is_file:
                self._follow()
                if self._size and self._size + len(line) > self._max_bytes:
                    self._rotate()
            self._append(b"\n" + line if self._is_cut else line)
            self._failing.discard("written")
        except (OSError, MemoryError) as error:
            self._warn("written", error)

    def _warn(self, verb: str, error: OSError | MemoryError) -> None:
        if verb not in self._failing:
            number = error.errno if isinstance(error, OSError) else errno.ENOMEM
            logger.warning("the audit log cannot be %s (errno %s)", verb, number)
        self._failing.add(verb)

    def _append(self, line: bytes) -> None:
        """Append a line. Raises OSError if the whole line cannot be written."""
        view = memoryview(line)
        while view:
            # If an error stops a write in the middle of the line, the next write raises this error.
            written = os.write(self._descriptor, view)
            self._size += written
            view = view[written:]
            self._is_cut = line[len(line) - len(view) - 1] != ord("\n")

    def _follow(self) -> None:
        """Update the size of the file, because other daemons may have written lines.

        If another daemon has rotated the log, use the new file.
        """
        try:
            try:
                status = os.stat(self._path, follow_symlinks=False)
            except FileNotFoundError:
                self._reopen()
            else:
                if (status.st_dev, status.st_ino) == self._identity:
                    self._size = status.st_size
                else:
                    self._reopen()
            self._failing.discard("opened again")
        except OSError as error:
            # Keep the old file in use.
            self._warn("opened again", error)

    def _reopen(self) -> None:
        descriptor = self._open()
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _rotate(self) -> None:
        try:
            # Hold the lock until the old file is closed. Do not wait for the lock, because the
            # daemon that holds it rotates the log for all daemons.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            # The file system has no locks. Rotate the log although another daemon may do so at the
            # same time.
            pass
        try:
            self._begin_new_file()
            self._failing.discard("rotated")
        except OSError as error:
            self._warn("rotated", error)

    def _begin_new_file(self) -> None:
        # The last rotation may have renamed FILE, and then failed to open a new file. In this case,
        # FILE is still missing, or somebody has made another file with this name. In both cases, do
        # not rename the files again.
        for number in range(OLD_FILES, 0, -1) if self._is_at_its_path() else ():
            source = self._path if number == 1 else self._numbered(number - 1)
            with contextlib.suppress(FileNotFoundError):
                source.rename(self._numbered(number))
        self._reopen()

    def _is_at_its_path(self) -> bool:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        os.close(self._descriptor)


def _ends_with_line(path: Path) -> bool:
    """Return whether a non-empty file ends with a newline; True if the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    except OSError:
        return True


def timestamp(seconds: float) -> str:
    """Return `seconds` since the epoch as RFC 3339 in UTC, with milliseconds."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
