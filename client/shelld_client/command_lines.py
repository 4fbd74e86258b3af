"""Makes the command lines that start a daemon, or join a lasting daemon. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from os import PathLike
from typing import Final

from shelld_protocol.framing import DEFAULT_MAX_MESSAGE_BYTES

# Suffixes of a size on the daemon's command line.
_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}


def words_of(name: str, words: Sequence[str | PathLike[str]]) -> list[str]:
    """Return the words of a command line as text. Raises TypeError for any other type."""
    if isinstance(words, (str, bytes)):
        raise TypeError(f"{name} must be a list of words, not one text")
    texts = [os.fspath(word) for word in words]
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the words of {name} must be text or paths, not {type(text).__name__}")
    return texts


def daemon_command(
    command: Sequence[str | PathLike[str]] | None, args: Sequence[str | PathLike[str]]
) -> list[str]:
    """Return the command line of a daemon. Raises TypeError."""
    if command is None:
        # -P keeps Python from importing modules from the working directory, which is a user's
        # project.
        command = (sys.executable, "-P", "-m", "shelld")
    # Keep an empty command empty, so that the client refuses it.
    argv = words_of("command", command)
    return argv + words_of("args", args) if argv else argv


def attach_command(
    name: str, *, linger: int | None, steal: bool, args: Sequence[str | PathLike[str]]
) -> list[str]:
    """Return the command line that joins or starts a lasting daemon. Raises TypeError."""
    command = [sys.executable, "-P", "-m", "shelld", "attach", f"--name={name}"]
    if linger is not None:
        command.append(f"--linger={linger}")
    if steal:
        command.append("--steal")
    return [*command, "--", *words_of("args", args)] if args else command


def message_limit(command: Sequence[str]) -> int:
    """Return the daemon's limit of bytes per message.

    This is the limit in the command line, or the default.
    """
    limit = DEFAULT_MAX_MESSAGE_BYTES
    for word, following in zip(command, [*command[1:], ""], strict=True):
        option, _, value = word.partition("=")
        if option == "--max-message-bytes":
            limit = _bytes(value or following) or limit
    return limit


def _bytes(size: str) -> int | None:
    """Parse a size such as ``64M`` as the daemon does.

    Return the number of bytes, or None if the size is invalid.
    """
    factor = _UNITS.get(size[-1:].upper())
    digits = size if factor is None else size[:-1]
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) * (factor or 1)
