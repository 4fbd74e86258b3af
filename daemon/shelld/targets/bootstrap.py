"""Sends the bundle over the connection to a machine that has Python, but no shelld. Pure.

The command line of such a target, such as ``ssh host`` or ``docker exec -i box``, connects to the
machine or container. `command_for` appends a shell, which looks for a Python. That Python asks for
the bundle if its cache does not have it, and then runs the shelld in the bundle.

The shell and Python may read more of their input than they need. So nothing is sent before they ask
for it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from shelld.targets.bundle import PLATFORM, PYTHON, Bundle
from shelld.targets.greeting import MAX_BANNER_BYTES, NoGreetingError
from shelld_protocol.errors import RpcError, unavailable

_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh"})
_PYTHON: Final = re.compile(r"python(?:[0-9.]*)")
_VERSION: Final = ".".join(map(str, PYTHON))

# The shell runs the first of these programs that has the right version.
_NAMES: Final = f"python{_VERSION} python3 python"


def command_for(argv: Sequence[str]) -> list[str]:
    """Return the command line `argv`, extended so that it runs a shell or a Python."""
    words = list(argv)
    while len(words) > 1 and words[-1].startswith("-"):
        words.pop()
    last = os.path.basename(words[-1])
    if last in _SHELLS:
        return list(argv)
    if _PYTHON.fullmatch(last):
        # A Python that is not interactive reads all its input before it runs the first line. With
        # the option -I, Python imports no module from the working directory, and does not load
        # readline, which would add LINES and COLUMNS to the environment of all commands.
        return [*argv, "-I", "-i", "-q"]
    return [*argv, "sh"]


class Over(NamedTuple):
    """The dialogue is over.

    `rest` holds the bytes that came after the dialogue, and that belong to the protocol.
    """

    rest: bytes


class Bootstrap:
    """Conducts the dialogue that brings the bundle to the target.

    `text` is all received text that is not part of the dialogue.

    Send `first`. Pass all received bytes to `receive`, and send the bytes that it returns, until it
    returns `Over`.
    """

    def __init__(self, target: str, argv: Sequence[str], bundle: Bundle) -> None:
        self._target = target
        self._bundle = bundle
        marker = f"bootstrap-{os.urandom(8).hex()}"
        self._answer = re.compile(
            rb"(?m)^%b (send|ready|none|failed) ?([^\r\n]*)\r?\n" % marker.encode()
        )
        program = Path(__file__).with_name("bundle_main.py").read_text()
        words = [marker, PLATFORM, bundle.hash, str(len(bundle.data))]
        is_python = command_for(argv)[-1] == "-q"
        self.first = _for_python(program, words) if is_python else _for_shell(program, words)
        self._received = b""
        self.text = b""

    def receive(self, data: bytes) -> bytes | Over:
        """Return the bytes to send, or `Over` at the end of the dialogue.

        Raises `RpcError` (unavailable) if shelld cannot run at the target, and NoGreetingError if
        the received bytes make no sense.
        """
        received = self._received + data
        if (found := self._answer.search(received)) is None:
            self._received = self.text = received
            if len(received) > MAX_BANNER_BYTES:
                raise NoGreetingError
            return b""
        self.text, rest = received[: found.start()], received[found.end() :]
        self._received = b""
        word, details = found[1], found[2].decode("utf-8", "replace")[:200].strip()
        if word == b"send":
            return self._bundle.data
        if word == b"ready":
            return Over(rest)
        raise self._refusal(details) if word == b"none" else self._failure(details)

    def _refusal(self, found: str) -> RpcError:
        found = found or "no Python"
        hint = f"Found: {found}. The bundle needs {PLATFORM}."
        error = unavailable(f"target {self._target}", f"Python {_VERSION}", hint)
        error.data["found"] = found
        return error

    def _failure(self, details: str) -> RpcError:
        return unavailable(f"target {self._target}", "a place for the bundle", f"There, {details}.")


def _for_shell(program: str, words: list[str]) -> bytes:
    """Return one command for any POSIX shell.

    Some shells read one command at a time. If a script had several commands, Python might start
    before the shell has read all of them. Python would read the other commands as the beginning of
    the bundle.
    """
    test = f"import sys; sys.exit(sys.version_info[:2] != {PYTHON!r})"
    found = '$(for p in python3 python; do command -v "$p" >/dev/null && "$p" --version 2>&1; done)'
    fits = f'"$p" -I -S -c {shlex.quote(test)}'
    lines = (
        f"{{ for p in {_NAMES}; do",
        f'if command -v "$p" >/dev/null 2>&1 && {fits} 2>/dev/null; then',
        f'exec "$p" -I -S -c {shlex.quote(program)} {shlex.join(words)}; fi; done',
        f'printf "\\n%s none %s\\n" {words[0]} "$(echo {found})"; exit 3; }}\n',
    )
    return "\n".join(lines).encode()


def _for_python(program: str, words: list[str]) -> bytes:
    # `__name__` is "__main__" in an interactive Python as well, so the program runs its main part.
    return f"import sys; sys.argv = ['-c', *{words!r}]; exec({program!r})\n".encode()
