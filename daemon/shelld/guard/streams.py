"""What the parts of a command write and read: files, descriptors, inputs and coprocesses.

An input is known text, and its commands read it one after the other. Unknown content is `UNKNOWN`.
"""

from __future__ import annotations

import abc
from typing import Final, Self

from shelld.guard.links import MAX_LINKS, resolved
from shelld.guard.markers import UNKNOWN

# The descriptors of the output and the input of a coprocess.
_COPROCESS: Final = ("63", "60")


class Streams(abc.ABC):
    arrays: dict[str, list[str]]

    def __init__(self) -> None:
        # The scripts of ``>(...)`` and of coprocesses, by the path that passes input to each.
        self.consumers: dict[str, str] = {}
        # Contents of files that the command itself has written, by path. For descriptors that the
        # command has opened, the path is /dev/fd/N.
        self.files: dict[str, str] = {}
        # The other names that the command has given to paths, see `links`. A descriptor that is
        # open for writing is a name of its file.
        self.links: dict[str, str] = {}
        # Named pipes. A pipe is awaited if a command reads it before anything is written to it.
        self.pipes: set[str] = set()
        self.awaited: set[str] = set()
        # The input that ``exec`` has opened, None if none.
        self.input: str | None = None
        # Where ``exec`` has sent the output, None if nowhere. A copy of the shell has an output of
        # its own.
        self.output: str | None = None
        # The input that was last read from, and how many characters of it.
        self._consumed = ("", 0)
        # How many times a known input was read, and whether anything was left the last time.
        self.reads, self.has_more = 0, False

    @abc.abstractmethod
    def copy(self) -> Self: ...

    @abc.abstractmethod
    def run_script(self, text: str, stdin: str) -> str: ...

    @abc.abstractmethod
    def written_late(self, path: str, text: str) -> None:
        """Follow text that is written to a file, if something else runs it, see `late_files`."""

    def take_streams(self, other: Streams, *, shares: bool) -> None:
        """Take the streams of another shell. All shells of the same command share the files."""
        self.input, self._consumed = other.input, other._consumed
        if shares:
            self.files, self.consumers = other.files, other.consumers
            self.links, self.pipes, self.awaited = other.links, other.pipes, other.awaited

    def content(self, path: str) -> str:
        """Return the content of a file, `UNKNOWN` if unknown."""
        path = resolved(path, self.links, is_followed=True)
        if path in self.pipes and path not in self.files:
            self.awaited.add(path)
        return self.files.get(path, UNKNOWN)

    def link(self, name: str, target: str) -> None:
        """Make a path a name of another path."""
        if len(self.links) < MAX_LINKS:
            self.links[name] = target

    def unread(self, text: str) -> str:
        """Return what is left of an input after the reads so far."""
        before, count = self._consumed
        return text[count:] if text == before else text

    def consume(self, text: str, count: int) -> None:
        """Record that the first `count` characters of an input have been read."""
        self._consumed = (text, count)
        self.reads += 1
        self.has_more = count < len(text)

    def file_of(self, script: str, *, is_read: bool) -> str:
        path = f"/dev/fd/{63 - len(self.files)}"
        self.files[path] = self.copy().run_script(script, UNKNOWN)
        if not is_read:
            self.consumers[path] = script
        return path

    def start_coprocess(self, name: str, script: str) -> None:
        """Follow a coprocess. Its input and output are descriptors in the array `name`."""
        self.arrays[name] = list(_COPROCESS)
        self.consumers[f"/dev/fd/{_COPROCESS[1]}"] = script
        self.files[f"/dev/fd/{_COPROCESS[0]}"] = self.copy().run_script(script, UNKNOWN)

    def written(self, output: str) -> str:
        """Pass output of a statement on to where ``exec`` has sent it. Return what is left."""
        return output if self.output is None or not output else self.write(self.output, output)

    def write(self, path: str, text: str) -> str:
        """Record what a command writes to a file.

        Return the output of the process that reads it, "" if none does.
        """
        path = resolved(path, self.links, is_followed=True)
        if text == UNKNOWN and path in self.pipes:
            # Ignore unknown text: another program may write known text to the pipe.
            return ""
        self.files[path] = self.files.get(path, "") + text
        self.written_late(path, text)
        if path not in self.consumers or text == UNKNOWN:
            return ""
        output = self.copy().run_script(self.consumers[path], text)
        if path == f"/dev/fd/{_COPROCESS[1]}":
            self.files[f"/dev/fd/{_COPROCESS[0]}"] = output
            return ""
        return output
