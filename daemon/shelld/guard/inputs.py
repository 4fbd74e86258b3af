"""Provides the input of a program: its stdin, and files of known content."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shelld.guard.markers import UNKNOWN
from shelld.guard.paths import normalized


class Inputs:
    """The stdin of a program, the content of files, and the working directory.

    `stdin` is None if it is unknown.
    """

    def __init__(self, stdin: str | None, content_at: Callable[[str], str], cwd: str) -> None:
        self.stdin = stdin
        self.cwd = cwd
        self._content_at = content_at

    def read(self, operands: Sequence[str]) -> str | None:
        """Return the text of the files in the operands, or else stdin. None means unknown."""
        names = list(operands) or ["-"]
        contents = [self._content(name) for name in names]
        known = [content for content in contents if content is not None]
        return "".join(known) if len(known) == len(names) else None

    def _content(self, name: str) -> str | None:
        if name in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            return self.stdin
        content = self._content_at(normalized(name, self.cwd))
        return None if content == UNKNOWN else content


# A function that takes the arguments of a program, and returns what the program writes to stdout.
# It returns None if the output is unknown.
Output = Callable[[Sequence[str], Inputs], str | None]
