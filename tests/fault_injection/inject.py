"""Make one call or one line of shelld's own code fail, in a process that installs this module.

`launcher` installs the module in the daemon, its keeper and its runners. The test arms one *point*
at a time, such as "the n-th time that this role gets to this line" or "the n-th time that it makes
this system call from this line". The test arms a point through a small file that all of these
processes map. The first process that reaches the point raises an exception there.

Like the keeper, this module imports only the standard library.
"""

from __future__ import annotations

import _thread
import builtins
import errno
import fcntl
import gc
import inspect
import json
import mmap
import os
import select
import signal
import socket
import sys
import termios
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

SIZE: Final = 4096
# The first byte changes whenever another point is armed. The second byte is 1 if the point has
# fired. The bytes from 4 to 7 are the pid of the process in which the point has fired. Then comes
# the point as JSON, with a null byte at the end.
_VERSION: Final = 0
_FIRED: Final = 1
_PID: Final = slice(4, 8)
_TEXT: Final = 8

# The errors that each system call can be made to raise. EINTR is left out because Python repeats
# the call (PEP 475), and ECHILD because it is an answer and not a failure. close(2) is left out
# because it never fails for our descriptors.
FAILURES: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("read", "readv", "pread"), (errno.EIO, errno.ENOMEM, errno.EAGAIN)),
    **dict.fromkeys(
        ("write", "pwrite"), (errno.EIO, errno.ENOSPC, errno.EPIPE, errno.EAGAIN, errno.ENOMEM)
    ),
    "open": (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EIO, errno.ENOENT),
    **dict.fromkeys(
        ("pipe", "memfd_create", "dup", "socketpair", "epoll"),
        (errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    ),
    "posix_spawn": (errno.EAGAIN, errno.ENOMEM, errno.EACCES),
    "fork": (errno.EAGAIN, errno.ENOMEM),
    **dict.fromkeys(("kill", "killpg", "pidfd_send_signal"), (errno.ESRCH, errno.EPERM)),
    **dict.fromkeys(("getsid", "getpgid"), (errno.ESRCH, errno.EPERM)),
    "pidfd_open": (errno.ESRCH, errno.EMFILE, errno.ENOMEM),
    "send": (errno.EPIPE, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM),
    "sendmsg": (errno.EPIPE, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS),
    "recvmsg": (errno.ECONNRESET, errno.ENOMEM, errno.EAGAIN),
    **dict.fromkeys(("listdir", "scandir"), (errno.EACCES, errno.EMFILE, errno.ENOENT, errno.EIO)),
    **dict.fromkeys(("chdir", "fchdir"), (errno.EACCES, errno.ENOENT, errno.EIO)),
    **dict.fromkeys(("fcntl", "ioctl"), (errno.EINVAL, errno.EIO, errno.EPERM)),
    "openpty": (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EIO, errno.ENOENT),
    **dict.fromkeys(("tcgetattr", "tcsetattr"), (errno.EIO, errno.ENOTTY)),
    **dict.fromkeys(("tcgetpgrp", "get_terminal_size", "fpathconf"), (errno.EIO, errno.ENOTTY)),
    **dict.fromkeys(("fstat", "stat", "access"), (errno.EACCES, errno.EIO, errno.ENOENT)),
    **dict.fromkeys(("ftruncate", "lseek", "fstatvfs"), (errno.EIO, errno.ENOSPC)),
    **dict.fromkeys(("mkdir", "rmdir", "unlink"), (errno.EACCES, errno.ENOSPC, errno.EROFS)),
    "set_blocking": (errno.EBADF,),
    **dict.fromkeys(("register", "poll"), (errno.ENOMEM, errno.ENOSPC)),
}


# This signal makes the injector trace again and collect garbage. A process ignores the signal if it
# has no handler for it, or has removed the handler because the process is ending.
COLLECT: Final = signal.SIGURG

# The parser calls these methods, and crashes if they raise. They catch every exception that
# is raised inside their `try` block, but not one that is injected at the line of `try` itself.
_CALLED_BY_THE_PARSER: Final = frozenset(("Reading.read", "Reading.is_over"))

# The original functions, before any replacement.
_open, _write = os.open, os.write
_start_new_thread = _thread.start_new_thread


class InjectedError(Exception):
    """An exception that no code of shelld expects."""


def _caller() -> FrameType:
    """Return the frame that called the caller of this function."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    assert frame.f_back.f_back is not None
    return frame.f_back.f_back


class Control:
    """The control file, mapped into memory. `path` must exist and be `SIZE` bytes long."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def arm(self, point: dict[str, Any] | None) -> None:
        text = json.dumps(point).encode()
        self._map[_TEXT : _TEXT + len(text) + 1] = text + b"\0"
        self._map[_FIRED] = 0
        self._map[_VERSION] = (self._map[_VERSION] + 1) % 256

    @property
    def version(self) -> int:
        return self._map[_VERSION]

    @property
    def fired(self) -> int:
        return self._map[_FIRED]

    @property
    def hit(self) -> int:
        """The pid of the process in which the point has fired, in the pid namespace of that
        process.
        """
        return int.from_bytes(self._map[_PID], "little")

    def point(self) -> dict[str, Any] | None:
        end = self._map.find(b"\0", _TEXT)
        found: dict[str, Any] | None = json.loads(self._map[_TEXT:end])
        return found

    def take(self) -> bool:
        """Return whether this process is the first to reach the point.

        If it is, disarm the point.
        """
        if self._map[_FIRED]:
            return False
        self._map[_PID] = os.getpid().to_bytes(4, "little")
        self._map[_FIRED] = 1
        return True


class Injector:
    """The injector of a process. `folder` contains shelld's code. `record` names a file for points,
    or is None.
    """

    def __init__(self, role: str, control: Control, folder: str, record: str | None) -> None:
        self.role = role
        self._control = control
        self._folder = folder
        self._version = -1
        self._left = 0
        self._line: tuple[str, int] | None = None
        self._call: tuple[str, int, str] | None = None
        self._errno = 0
        self._seen: dict[tuple[str, int, str], int] = {}
        self._record = record

    # -- the armed point --------------------------------------------------------------------

    def _refresh(self) -> None:
        version = self._control.version
        if version == self._version:
            return
        self._version = version
        self._line = self._call = None
        point = self._control.point()
        if point is None or point["role"] != self.role:
            return
        self._left = point["time"]
        if point["call"] is None:
            self._line = (point["file"], point["line"])
        else:
            self._call = (point["file"], point["line"], point["call"])
            self._errno = point["errno"]

    def _is_due(self) -> bool:
        self._left -= 1
        if self._left > 0 or not self._control.take():
            return False
        self._line = self._call = None
        return True

    def _note(self, file: str, line: int, call: str) -> None:
        if self._record is None:
            return
        version = self._control.version
        if version != self._version:
            self._version = version
            self._seen.clear()
        key = (file, line, call)
        count = self._seen[key] = self._seen.get(key, 0) + 1
        if count & (count - 1) == 0:
            text = json.dumps([version, self.role, file, line, call, count])
            # Open the file each time, because the keeper closes every descriptor that it inherits.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            record = _open(self._record, flags, 0o600)
            _write(record, text.encode() + b"\n")
            os.close(record)

    # -- lines ------------------------------------------------------------------------------

    def name_of(self, code: CodeType) -> str | None:
        if code.co_qualname in _CALLED_BY_THE_PARSER:
            return None
        name = code.co_filename
        return name[len(self._folder) + 1 :] if name.startswith(self._folder) else None

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        name = self.name_of(frame.f_code)
        if name is None:
            return None
        if self._record is not None:
            return self._trace_recording
        self._refresh()
        return self._trace_lines if self._line is not None and name == self._line[0] else None

    def _trace_recording(self, frame: FrameType, event: str, _argument: object) -> Any:
        name = self.name_of(frame.f_code)
        if event == "line" and name is not None:
            self._note(name, frame.f_lineno, "")
        return self._trace_recording

    def _trace_lines(self, frame: FrameType, event: str, _argument: object) -> Any:
        line = self._line
        is_there = event == "line" and line == (self.name_of(frame.f_code), frame.f_lineno)
        if is_there and self._is_due():
            # Python forgets a trace function that raises.
            self._restart_tracing()
            raise InjectedError(f"injected at line {frame.f_lineno}")
        return self._trace_lines

    def _restart_tracing(self) -> None:
        # Tracing cannot restart here, because Python is about to forget the trace function.
        if threading.current_thread() is threading.main_thread():
            timer = threading.Timer(0.02, os.kill, (os.getpid(), COLLECT))
            timer.daemon = True
            timer.start()

    def start_tracing(self) -> None:
        signal.signal(COLLECT, self._on_signal)
        setattr(_thread, "start_new_thread", self._start_traced)  # noqa: B010
        sys.settrace(self.trace)

    def _start_traced(self, function: Callable[..., object], args: tuple[Any, ...]) -> int:
        def run() -> None:
            sys.settrace(self.trace)
            function(*args)

        return _start_new_thread(run, ())

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        sys.settrace(self.trace)
        # Free the objects that only tracebacks refer to, above all the traceback of the injected
        # error.
        gc.collect()

    # -- system calls -----------------------------------------------------------------------

    def wrap(
        self, name: str, function: Callable[..., Any], error: type[Exception] = OSError
    ) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            frame = _caller()
            file = self.name_of(frame.f_code)
            if file is not None:
                self._refresh()
                self._note(file, frame.f_lineno, name)
                if self._call == (file, frame.f_lineno, name) and self._is_due():
                    raise error(self._errno, os.strerror(self._errno))
            return function(*args, **options)

        return call

    def patch(self) -> None:
        """Wrap the functions that make system calls, in the modules (such as `os`) through which
        shelld's code calls them.
        """
        for module in (os, fcntl, signal, termios):
            # The functions of `termios` raise `termios.error`, which is not an OSError.
            error = termios.error if module is termios else OSError
            for name in FAILURES:
                if name in vars(module) and name not in ("poll", "register"):
                    setattr(module, name, self.wrap(name, getattr(module, name), error))
        setattr(builtins, "open", self.wrap("open", open))  # noqa: B010
        for name in ("send", "sendmsg", "recvmsg"):
            setattr(socket.socket, name, self.wrap(name, getattr(socket.socket, name)))
        setattr(socket, "socketpair", self.wrap("socketpair", socket.socketpair))  # noqa: B010
        make_epoll = self.wrap("epoll", _Epoll)
        injector, real = self, select.epoll

        class _Wrapped:
            def __init__(self) -> None:
                self._epoll = real()
                for name in ("unregister", "fileno", "close", "modify"):
                    setattr(self, name, getattr(self._epoll, name))
                for name in ("register", "poll"):
                    setattr(self, name, injector.wrap(name, getattr(self._epoll, name)))

        _Epoll.make = _Wrapped
        setattr(select, "epoll", _OursOnly(make_epoll, real, self))  # noqa: B010


class _Epoll:
    make: Any = None

    def __new__(cls) -> Any:
        return cls.make()


class _OursOnly:
    """In shelld's code, `select.epoll` is the wrapped class. In all other code, it is the real
    class.
    """

    def __init__(self, ours: Any, real: Any, injector: Injector) -> None:
        self._ours, self._real, self._injector = ours, real, injector

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._injector.name_of(_caller().f_code) is None:
            return self._real(*args, **options)
        return self._ours()


def install(role: str) -> Injector:
    """Start to inject faults in this process, as the environment says. Call this function before
    importing shelld.
    """
    control = Control(os.environ["SHELLD_FAULTS_CONTROL"])
    injector = Injector(
        role,
        control,
        os.environ["SHELLD_FAULTS_FOLDER"],
        os.environ.get("SHELLD_FAULTS_RECORD"),
    )
    injector.patch()
    injector.start_tracing()
    return injector
