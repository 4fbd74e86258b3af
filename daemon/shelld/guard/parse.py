"""Parses scripts with tree-sitter-bash, which is imported on first use.

Pure. Answers questions that need more than a node's type, such as which substitutions a node
contains and which functions a body calls. Walks are iterative, because scripts can nest to any
depth.
"""

from __future__ import annotations

import math
import mmap
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from shelld.process import faults

Node = Any

# Bytes. The parser takes at most a few milliseconds for any text of this size.
_MAX_SHORT: Final = 1024

# Bytes of memory that must be free to parse a text: a minimum, and more for each byte of the text.
# Of the texts that we tried, none took more than half of `_MEMORY_PER_BYTE`. No text takes more
# than `_MAX_MEMORY`, because the time for parsing ends before that.
_LEAST_MEMORY: Final = 256 * 1024
_MEMORY_PER_BYTE: Final = 512
_MAX_MEMORY: Final = 256 * 1024 * 1024


@cache
def _language() -> Any:
    # Imported here, because the import takes 20 ms and the first answer should not wait for it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Language(tree_sitter_bash.language())


class _Parsers(threading.local):
    """One parser per thread: threads cannot share a parser."""

    def __init__(self) -> None:
        try:
            import tree_sitter  # noqa: PLC0415

            self.parser: Any = tree_sitter.Parser(_language())
        except ModuleNotFoundError:
            raise
        except Exception as error:
            if faults.shortage(error) is not None:
                raise
            # If memory is short, an import can raise many kinds of exceptions, also in other
            # threads that import the same module.
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

    The parser blocks all other threads, and on invalid text its time grows with the square of the
    length. Raises `TooSlow` after `seconds`, unless the text is short. Raises MemoryError if memory
    is short.
    """
    if "\n\\" in text:
        # The parser reads a newline before a backslash as a blank, as in "ls\n\\rm x".
        text = text.replace("\n\\", "\n \\")
    parser, data = _parsers().parser, text.encode("utf-8", "replace")
    _require_memory_for(len(data))
    if len(data) <= _MAX_SHORT:
        return parser.parse(data).root_node
    # CPU time of this thread, so that a busy machine does not change a verdict.
    reading = Reading(data, time.thread_time() + seconds)
    try:
        # Parsing can only be cancelled if the parser reads the text through a callback.
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
    """The callbacks of the parser while it reads a long text.

    The parser crashes if a callback raises. So the callbacks keep the exception, and end the text.
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
        """Whether the parser must stop."""
        try:
            return self.error is not None or time.thread_time() > self._stop_at
        except BaseException as error:
            self.error = error
            return True


def _require_memory_for(length: int) -> None:
    """Raise MemoryError unless there is memory to parse a text of `length` bytes.

    The parser crashes when it gets no memory.
    """
    size = min(_LEAST_MEMORY + _MEMORY_PER_BYTE * length, _MAX_MEMORY)
    try:
        # This only checks that there is memory, and frees it again. Other threads hardly have time
        # to take it, because the parser blocks them.
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError from error


def text_of(node: Node) -> str:
    return str(node.text.decode("utf-8", "replace"))


_FUNCTION_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
# Bash requires a command after these words. The parser does not.
_BEFORE_COMMANDS: Final = frozenset({"{", "do", "then", "else"})
# Reserved words that the parser accepts as the name of a command.
_RESERVED: Final = frozenset({"}", "do", "done", "elif", "else", "esac", "fi", "in", "then"})


def is_function(name: str, value: str, seconds: float) -> bool:
    """Whether bash certainly imports a function of this name from an environment entry.

    If bash refuses the function, the name runs a program, which the guard must judge.
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


_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})


def substitutions_of(node: Node) -> list[str]:
    """Return the scripts of all substitutions in a node, except nested ones."""
    scripts: list[str] = []
    todo = [node]
    while todo:
        current = todo.pop()
        if current.type in _SUBSTITUTIONS:
            text = text_of(current)
            scripts.append(text[1:-1] if text.startswith("`") else text[2:-1])
        else:
            todo += reversed(current.children)
    return scripts


_PARALLEL: Final = frozenset({"pipeline", "process_substitution"})
_CONDITIONAL: Final = frozenset({"if_statement", "case_statement", "list", "function_definition"})


def _started(node: Node, name: str) -> str:
    """Return the name of the program that a command starts, skipping ``exec`` and the like."""
    words = [text_of(each) for each in node.named_children if each.type in _WORDS]
    while name in ("exec", "command", "builtin", "eval", "nohup", "sudo", "coproc") and words:
        name = words.pop(0)
    return name.strip("\"'")


_SHELLS: Final = frozenset({"bash", "sh"})
# Seconds to parse the text of ``eval`` in the body of a function.
_NESTED_SECONDS: Final = 0.005


def _script_of(node: Node) -> Node | None:
    """Return the parsed text that ``eval`` or ``bash -c`` runs, None if there is none."""
    words = [text_of(each) for each in node.named_children if each.type != "command_name"]
    name = text_of(node.named_children[0]) if node.named_children else ""
    if name in _SHELLS and words[:1] == ["-c"]:
        words = words[1:2]
    elif name != "eval":
        return None
    try:
        return parse(" ".join(each.strip("\"'") for each in words), _NESTED_SECONDS)
    except TooSlow:
        return None


def _is_always_true(node: Node) -> bool:
    """Whether a statement is ``if true`` without ``else``."""
    members = node.named_children
    has_others = any(each.type in ("elif_clause", "else_clause") for each in members)
    return node.type == "if_statement" and not has_others and text_of(members[0]) in ("true", ":")


_LOOPS: Final = frozenset({"for_statement", "while_statement", "c_style_for_statement"})


def calls_of(body: Node) -> list[tuple[str, bool]]:
    """Return the commands that a function's body always runs, and whether each one multiplies.

    A command multiplies if it runs repeatedly in the background or in a pipeline.
    """
    found: list[tuple[str, bool]] = []
    counts: Counter[str] = Counter()
    todo = [(body, False, 1)]
    while todo:
        node, spawned, times = todo.pop()
        if node.type == "command":
            name = next((each for each in node.children if each.type == "command_name"), None)
            if name is not None:
                found.append((_started(node, text_of(name)), spawned))
                counts[found[-1][0]] += times
            if (script := _script_of(node)) is not None:
                todo.append((script, spawned, times))
        if node.type in _CONDITIONAL and not _is_always_true(node):
            continue
        times = 2 if node.type in _LOOPS else times
        members = list(node.children)
        for index, child in enumerate(members):
            following = members[index + 1].type if index + 1 < len(members) else ""
            beside = spawned or node.type in _PARALLEL or following == "&"
            beside = beside or (child.type == "command" and child.text.startswith(b"coproc"))
            todo.append((child, beside, times))
    return [(name, spawned and counts[name] > 1) for name, spawned in found]


_GROUPS: Final = frozenset({"subshell", "compound_statement"})
_FRAME: Final = frozenset({"do", "done", "{", "}", "comment", "\n"})


def only_starts(body: Node) -> bool:
    """Whether a loop's body only starts commands without waiting for them."""
    children = [each for each in body.children if each.type not in _FRAME]
    statements = 0
    for index, child in enumerate(children):
        if child.type == "ERROR":
            # In ``do (a &) done``, the parser reports a missing separator.
            return len(children) == 1 and only_starts(child)
        if not child.is_named:
            continue
        statements += 1
        following = children[index + 1].type if index + 1 < len(children) else ""
        if following != "&" and not (child.type in _GROUPS and only_starts(child)):
            return False
    return statements > 0


def is_in_background(node: Node) -> bool:
    """Whether `&` follows a statement, which then runs in a child of the shell."""
    after = node.next_sibling
    return after is not None and after.type == "&" and node.parent.type != "binary_expression"


def is_always_reached(node: Node) -> bool:
    """Whether a command is outside of every condition, loop, pipeline, group and function."""
    while (parent := node.parent) is not None:
        following = node.next_sibling
        if following is not None and following.type == "&":
            return False
        if parent.type == "program":
            return not parent.has_error
        if parent.type != "list" or parent.children[0] != node:
            return False
        node = parent
    return False


def redirection(node: Node) -> tuple[str, str | None]:
    operator, word = "", None
    for child in node.children:
        if operator == "<" and child.type == "ERROR" and text_of(child) == ">":
            # The parser does not know ``<>``.
            operator = "<>"
        if child.type in ("file_descriptor", "ERROR"):
            continue
        if not operator and not child.is_named:
            operator = child.type
        elif child.is_named and word is None:
            word = text_of(child)
    return operator, word


def is_of_stdout(node: Node) -> bool:
    """Whether an output redirection redirects stdout, perhaps among other descriptors."""
    descriptor = node.children[0]
    return descriptor.type != "file_descriptor" or text_of(descriptor) == "1"


def is_herestring(node: Node) -> bool:
    """Whether a redirection is the end of a ``<<<`` that the parser did not recognize."""
    before = node.prev_sibling
    errors = [each for each in (before, *node.children) if each is not None]
    return any(each.type == "ERROR" and text_of(each) == "<<" for each in errors)


def descriptor(node: Node) -> str:
    """Return the number of the descriptor that a redirection for reading opens."""
    first = node.children[0]
    return text_of(first) if first.type == "file_descriptor" else "0"


def words_behind(node: Node) -> list[str]:
    """Return the words that follow a redirection. The parser puts them below the redirection."""
    if node.type == "herestring_redirect":
        return []
    words = [each for each in node.named_children if each.type in _WORDS]
    return [text_of(each) for each in words[1:]] if node.type == "file_redirect" else []


def words_of(node: Node) -> list[str]:
    """Return the words of a command. Join adjacent nodes: the parser can split a word."""
    words: list[str] = []
    end = -1
    for child in node.named_children:
        if child.type in ("variable_assignment", "comment"):
            continue
        if child.type.endswith("_redirect"):
            words += words_behind(child)
            continue
        if child.start_byte == end:
            words[-1] += text_of(child)
        else:
            words.append(text_of(child))
        end = child.end_byte
    return words


def words_between(body: Node, redirect: Node) -> list[str]:
    """Return the words that have no node: a ``-`` before a here-document."""
    whole = body.parent
    start = whole.start_byte
    between = whole.text[body.end_byte - start : redirect.start_byte - start]
    return [] if redirect.type != "heredoc_redirect" else str(between.decode()).split()


def heredoc_body(redirect: Node) -> str | None:
    """Return the text of a here-document, None if it has none."""
    start = next((each for each in redirect.children if each.type == "heredoc_start"), None)
    body = next((each for each in redirect.children if each.type == "heredoc_body"), None)
    end = next((each for each in redirect.children if each.type == "heredoc_end"), None)
    if start is None or body is None:
        return None
    if body.start_byte < body.end_byte or end is None:
        return text_of(body)
    # The parser reads a body that begins with a backslash as words.
    text: bytes = redirect.text[
        start.end_byte - redirect.start_byte : end.start_byte - redirect.start_byte
    ]
    return text.partition(b"\n")[2].decode("utf-8", "replace")


def heredoc_tails(redirects: Sequence[Node]) -> tuple[list[Node], list[Node], list[str]]:
    """Return the nodes that the parser puts below a here-document although they belong beside it.

    These are further redirections and words of the command, and everything after ``|``, ``&&`` and
    the like.
    """
    inner: list[Node] = []
    tails: list[Node] = []
    words: list[str] = []
    for redirect in redirects:
        if redirect.type != "heredoc_redirect":
            continue
        for child in redirect.named_children:
            if child.type.startswith("heredoc_") or child.type == "comment":
                continue
            if child.type.endswith("_redirect"):
                inner.append(child)
            elif child.type in _WORDS:
                if text_of(child).startswith("\n"):
                    # The parser treats the body as words.
                    break
                words.append(text_of(child))
            else:
                tails.append(child)
    return inner, tails, words


_WORDS: Final = frozenset(
    {
        *("word", "string", "raw_string", "concatenation", "number", "ansi_c_string"),
        *("simple_expansion", "expansion", "command_substitution", "translated_string"),
    }
)
