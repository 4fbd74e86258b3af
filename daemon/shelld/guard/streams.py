"""Stores the text that one part of a command writes and another part reads.

The parts exchange the text through files, descriptors and coprocesses.

An input is known text that several commands read one after the other. Unknown content is `UNKNOWN`.
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
        # The scripts of ``>(...)`` and of coprocesses. The keys are the paths to which commands
        # write the input of these scripts.
        self.consumers: dict[str, str] = {}
        # The contents of files that the command itself has written. The keys are paths. For a
        # descriptor that the command has opened, the path is /dev/fd/N.
        self.files: dict[str, str] = {}
        # The links that the command has made, see `links`. A descriptor that is open for writing is
        # a link to its file.
        self.links: dict[str, str] = {}
        # The paths of named pipes. `awaited` has the pipes that a command reads before another
        # command has written to them.
        self.pipes: set[str] = set()
        self.awaited: set[str] = set()
        # The input that ``exec`` has opened, or None if ``exec`` has opened no input.
        self.input: str | None = None
        # The file to which ``exec`` has redirected the output, or None if there is none. A copy of
        # the shell does not inherit this file.
        self.output: str | None = None
        # The input that a command has read most recently, and how many of its characters have been
        # read.
        self._consumed = ("", 0)
        # How many times commands have read from a known input, and whether the latest read has left
        # some of the input unread.
        self.reads, self.has_more = 0, False

    @abc.abstractmethod
    def copy(self) -> Self: ...

    @abc.abstractmethod
    def run_script(self, text: str, stdin: str) -> str: ...

    @abc.abstractmethod
    def written_late(self, path: str, text: str) -> None:
        """Follow the text of a file if another program will run the file, see `late_files`."""

    def take_streams(self, other: Streams, *, shares: bool) -> None:
        """Copy the streams of another shell. If `shares` is true, the shells share their files."""
        self.input, self._consumed = other.input, other._consumed
        if shares:
            self.files, self.consumers = other.files, other.consumers
            self.links, self.pipes, self.awaited = other.links, other.pipes, other.awaited

    def content(self, path: str) -> str:
        """Return the content of a file, or `UNKNOWN` if it is unknown."""
        path = resolved(path, self.links, is_followed=True)
        if path in self.pipes and path not in self.files:
            self.awaited.add(path)
        return self.files.get(path, UNKNOWN)

    def link(self, name: str, target: str) -> None:
        """Record that the path `name` is a link to the path `target`."""
        if len(self.links) < MAX_LINKS:
            self.links[name] = target

    def unread(self, text: str) -> str:
        """Return the part of an input that no command has read yet."""
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
        """Follow a coprocess.

        The array `name` gets the descriptors of the coprocess's output and input.
        """
        self.arrays[name] = list(_COPROCESS)
        self.consumers[f"/dev/fd/{_COPROCESS[1]}"] = script
        self.files[f"/dev/fd/{_COPROCESS[0]}"] = self.copy().run_script(script, UNKNOWN)

    def written(self, output: str) -> str:
        """If ``exec`` has redirected the output to a file, write it to this file.

        Return output that does not go to a file.
        """
        return output if self.output is None or not output else self.write(self.output, output)

    def write(self, path: str, text: str) -> str:
        """Record text that a command writes to a file.

        If a process reads the text, return the output of that process, else "".
        """
        path = resolved(path, self.links, is_followed=True)
        if text == UNKNOWN and path in self.pipes:
            # Ignore unknown text: it would hide known text that another program writes to the pipe.
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
