"""Parses scripts with tree-sitter-bash, which is imported on first use.

Pure. The time and the memory for parsing are limited. `nodes` and `callees` answer questions about
the syntax tree.
"""

from __future__ import annotations

import math
import mmap
import re
import threading
import time
from functools import cache
from typing import Any, Final

from shelld.process import faults

Node = Any

# The maximum length of a short text, in bytes. The parser takes at most a few milliseconds for a
# short text.
_MAX_SHORT: Final = 1024

# To parse a text, `_LEAST_MEMORY` bytes must be free, and `_MEMORY_PER_BYTE` more for each byte of
# the text. In tests, no text needed more than half of `_MEMORY_PER_BYTE` for each byte. No text
# needs more than `_MAX_MEMORY`, because the time for parsing is limited.
_LEAST_MEMORY: Final = 256 * 1024
_MEMORY_PER_BYTE: Final = 512
_MAX_MEMORY: Final = 256 * 1024 * 1024


@cache
def _language() -> Any:
    # The import is in this function, because it takes 20 ms, and the first answer should not wait
    # for it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Language(tree_sitter_bash.language())


class _Parsers(threading.local):
    """Holds one parser for each thread, because threads cannot share a parser."""

    def __init__(self) -> None:
        try:
            import tree_sitter  # noqa: PLC0415

            self.parser: Any = tree_sitter.Parser(_language())
        except ModuleNotFoundError:
            raise
        except Exception as error:
            if faults.shortage(error) is not None:
                raise
            # If memory is short, an import can raise many kinds of exceptions. At the same time, an
            # import of the same module in another thread can also fail.
            raise MemoryError from error


@cache
def _parsers() -> _Parsers:
    return _Parsers()


def load() -> None:
    """Import the parser early."""
    _parsers()


class TooSlow(Exception):
    """The parser ran out of time."""


def parse(text: str, seconds: float = math.inf) -> Node:
    """Return the root of the syntax tree, with error nodes where the text is invalid.

    While the parser runs, all other threads wait. For invalid text, the parsing time grows with the
    square of the length. Raises `TooSlow` after `seconds`, unless the text is short. Raises
    MemoryError if memory is short.
    """
    if "\n\\" in text:
        # The parser reads a newline before a backslash as a blank, as in "ls\n\\rm x".
        text = text.replace("\n\\", "\n \\")
    parser, data = _parsers().parser, text.encode("utf-8", "replace")
    _require_memory_for(len(data))
    if len(data) <= _MAX_SHORT:
        return parser.parse(data).root_node
    # Measure the CPU time of this thread, so that a busy machine does not change a verdict.
    reading = Reading(data, time.thread_time() + seconds)
    try:
        # The parser can be stopped only if it reads the text through a callback.
        tree = parser.parse(reading.read, progress_callback=reading.is_over)
    except Exception as error:
        # Without a reset, the next call would resume parsing this text.
        parser.reset()
        if reading.error is None and isinstance(error, ValueError):
            raise TooSlow from error
        raise reading.error or error from None
    if reading.error is not None:
        raise reading.error
    return tree.root_node


class Reading:
    """The callbacks through which the parser reads a long text.

    The parser crashes if a callback raises an exception. So a callback stores the exception in
    `error`, and tells the parser that the text ends.
    """

    def __init__(self, data: bytes, stop_at: float) -> None:
        self._data = data
        self._stop_at = stop_at
        self.error: BaseException | None = None

    def read(self, offset: int, _point: object) -> bytes:
        try:
            return self._data[offset:] if self.error is None else b""
        except BaseException as error:
            self.error = error
            return b""

    def is_over(self, _offset: int, _has_error: bool) -> bool:
        """Return whether the parser must stop before the end of the text."""
        try:
            return self.error is not None or time.thread_time() > self._stop_at
        except BaseException as error:
            self.error = error
            return True


def _require_memory_for(length: int) -> None:
    """Raise MemoryError unless there is memory to parse a text of `length` bytes.

    Without this check, the parser would crash when it gets no memory.
    """
    size = min(_LEAST_MEMORY + _MEMORY_PER_BYTE * length, _MAX_MEMORY)
    try:
        # Allocate the memory only as a check, and free it immediately. Other threads can hardly
        # take this memory before the parser does, because they wait while the parser runs.
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError from error


def text_of(node: Node) -> str:
    return str(node.text.decode("utf-8", "replace"))


_FUNCTION_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
# Bash requires a command after these words, but the parser does not.
_BEFORE_COMMANDS: Final = frozenset({"{", "do", "then", "else"})
# Reserved words that the parser accepts as the name of a command.
_RESERVED: Final = frozenset({"}", "do", "done", "elif", "else", "esac", "fi", "in", "then"})


def is_function(name: str, value: str, seconds: float) -> bool:
    """Return whether bash certainly imports the function `name` from an environment entry with
    `value`.

    If bash refuses the function, a command of this name runs a program, which the guard must judge.
    """
    if not _FUNCTION_NAME.fullmatch(name) or not re.match(r"\(\) \{\s", value):
        return False
    try:
        root = parse(f"{name} {value}", seconds)
    except TooSlow:
        return False
    if root.has_error or [each.type for each in root.children] != ["function_definition"]:
        return False
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type == "command_name" and text_of(node) in _RESERVED:
            return False
        members = [each for each in node.children if each.type != "comment"]
        for child, following in zip(members, [*members[1:], None], strict=False):
            if child.type in _BEFORE_COMMANDS and not (following and following.is_named):
                return False
        todo += members
    return True
