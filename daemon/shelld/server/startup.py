"""The first steps of the program: take over the streams, and restore the environment.

After `claim_stdio`, fd 0 is the null device and fd 1 is stderr. So neither this process nor a child
can read a request or write into an answer by accident. Commands inherit no descriptor that the
parent left open.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import resource
import stat
import sys
from contextlib import suppress
from typing import Final, cast

from shelld.keeper.inherited import environment
from shelld.keeper.proc import proc_is_usable

_EXAMPLE: Final = '{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"echo hello"}}'

# The hint for a person who starts the daemon on a terminal.
_GREETING: Final = """\
shelld {version} serves JSON-RPC 2.0 on stdin and stdout, one message per line.
Programs start it, but you can also type. Paste this line to run a command:

{example}

Ctrl-D ends the daemon. `shelld --help` lists its options, and `shelld doctor`
checks what works on this machine.
"""

# The hint after a line that is not a request, such as "help".
_HINT: Final = """\
That is not a JSON-RPC request. Paste this line to run a command:

{example}

Ctrl-D ends the daemon.
"""

# Time for the program of `--bash` to prove that it is bash. The proof takes milliseconds.
_BASH_TRIAL_S: Final = 5.0
# An exit code that no other program is likely to return.
_IS_BASH: Final = 42


class StartupError(Exception):
    """Raised if the daemon cannot start. The message is a sentence for the user."""


def claim_stdio() -> tuple[int, int]:
    """Move the protocol's streams to new descriptors; return them (in, out).

    Raises StartupError. If fd 0 or fd 1 is closed, there is no client, and the next file that is
    opened would get the number 0 or 1.
    """
    try:
        return _claim()
    except OSError as error:
        if error.errno == errno.EBADF:
            raise StartupError("stdin and stdout must be open") from error
        what = error.filename or "another descriptor"
        raise StartupError(f"cannot open {what}: {error.strerror}") from error


def require_proc() -> None:
    """On Linux, raise StartupError unless the /proc of this PID namespace is mounted.

    Without this /proc, shelld cannot find the processes that a command leaves behind, and a
    session's state cannot pass through /proc/self/fd.
    """
    if sys.platform == "linux" and not proc_is_usable():
        raise StartupError("the /proc of this PID namespace must be mounted")


def _claim() -> tuple[int, int]:
    for descriptor, useless in ((0, os.O_WRONLY), (1, os.O_RDONLY)):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == useless:
            raise StartupError("stdin must be readable, and stdout writable")
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    # The descriptors 0, 1 and 2 are in use, so the new descriptors are higher.
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(null, 0)
    os.dup2(2, 1)
    if null > 2:
        os.close(null)
    # Tools may print. On a pipe, Python would buffer the text until the daemon ends.
    cast("io.TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    for descriptor in _open_descriptors():
        with suppress(OSError):
            os.set_inheritable(descriptor, False)
    return incoming, outgoing


def undo_locale_coercion() -> None:
    """Restore the parent's LC_CTYPE, so that commands do not see the value that Python has set."""
    given = given_environment().get("LC_CTYPE")
    if given is None:
        os.environ.pop("LC_CTYPE", None)
    else:
        os.environ["LC_CTYPE"] = given


def given_environment() -> dict[str, str]:
    """Return the environment of this process with the parent's LC_CTYPE.

    In the C locale, Python sets LC_CTYPE for itself and its children (PEP 538). /proc still shows
    the original environment. If /proc cannot be read, the variable stays. Entries without a name
    are left out, because Python cannot start a program with such an entry.
    """
    now = {name: value for name, value in os.environ.items() if name}
    try:
        # Do not use pathlib here, because nothing else in this module needs that import.
        with open("/proc/self/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return now
    now.pop("LC_CTYPE", None)
    for variable in variables:
        if variable.startswith(b"LC_CTYPE="):
            now["LC_CTYPE"] = os.fsdecode(variable.removeprefix(b"LC_CTYPE="))
    return now


def raise_file_limit() -> int:
    """Raise our soft limit on open files. Return the old limit, with which commands must run.

    A running shell needs about five descriptors, and more during its start. The usual soft limit of
    1,024 is meant for programs that use select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def _open_descriptors() -> list[int]:
    directory = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    return [descriptor for name in os.listdir(directory) if (descriptor := int(name)) > 2]


def greeting_for(incoming: int) -> str:
    """Return the greeting for a person, or "" if requests do not come from a terminal."""
    if not os.isatty(incoming):
        return ""
    from shelld import __version__  # noqa: PLC0415

    return _GREETING.format(version=__version__, example=_EXAMPLE)


def hint_for(incoming: int) -> str:
    """Return the hint to show after a line that is not a request.

    Return "" if `incoming` is not a terminal, because then no person types.
    """
    return _HINT.format(example=_EXAMPLE) if os.isatty(incoming) else ""


def problem_with_bash(path: str, *, is_trusted: bool) -> str | None:
    """Return the reason why `path` cannot run commands, or None if it can.

    If `is_trusted`, does not run the file, because the run would delay the daemon.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.strerror
    if not stat.S_ISREG(mode):
        return "not a file"
    if not os.access(path, os.X_OK):
        return "not executable"
    return None if is_trusted else _problem_when_run(path)


def _problem_when_run(path: str) -> str | None:
    import subprocess  # noqa: PLC0415

    # Remove BASH_ENV, because a startup file could do anything.
    env = {name: value for name, value in environment().items() if name != b"BASH_ENV"}
    try:
        ended = subprocess.run(
            ["bash", "-c", f'test -n "$BASH_VERSION" && exit {_IS_BASH}'],
            executable=path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_BASH_TRIAL_S,
            check=False,
        )
    except OSError as error:
        return error.strerror
    except subprocess.TimeoutExpired:
        return "not bash"
    return None if ended.returncode == _IS_BASH else "not bash"
