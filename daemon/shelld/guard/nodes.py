"""Finds the words, redirections and substitutions of a node in the syntax tree.

Pure. Knows the parts of a script that the parser attaches to a wrong node. The functions walk the
syntax tree without recursion, because scripts can nest to any depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shelld.guard.parse import text_of

Node = Any
_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})


def substitutions_of(node: Node) -> list[str]:
    """Return the scripts of all substitutions in a node, except nested substitutions."""
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


def is_in_background(node: Node) -> bool:
    """Return whether `&` follows a statement, so that it runs in a child of the shell."""
    after = node.next_sibling
    return after is not None and after.type == "&" and node.parent.type != "binary_expression"


def is_always_reached(node: Node) -> bool:
    """Return whether a command is outside of conditions, loops, pipelines, groups and functions."""
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
    # The parser does not know ``<>``.
    operator, word = "<>" if is_open_for_both(node.prev_sibling, node) else "", None
    for child in node.children:
        if operator == "<" and child.type == "ERROR" and text_of(child) == ">":
            operator = "<>"
        if child.type in ("file_descriptor", "ERROR"):
            continue
        if not operator and not child.is_named:
            operator = child.type
        elif child.is_named and word is None:
            word = text_of(child)
    return operator, word


def is_open_for_both(before: Node | None, node: Node | None) -> bool:
    """Return whether an error node ``<`` and the redirection after it form one ``<>``."""
    if before is None or node is None or node.type != "file_redirect":
        return False
    return before.type == "ERROR" and before.text == b"<" and text_of(node).startswith(">")


def is_of_stdout(node: Node) -> bool:
    """Return whether an output redirection redirects stdout, alone or together with stderr."""
    descriptor = node.children[0]
    return descriptor.type != "file_descriptor" or text_of(descriptor) == "1"


def is_herestring(node: Node) -> bool:
    """Return whether a redirection is the end of a ``<<<`` that the parser did not recognize."""
    before = node.prev_sibling
    errors = [each for each in (before, *node.children) if each is not None]
    return any(each.type == "ERROR" and text_of(each) == "<<" for each in errors)


def descriptor(node: Node) -> str:
    """Return the number of the descriptor that an input redirection opens."""
    first = node.children[0]
    return text_of(first) if first.type == "file_descriptor" else "0"


def words_behind(node: Node) -> list[str]:
    """Return the words that follow a redirection.

    The parser puts these words into the node of the redirection.
    """
    if node.type == "herestring_redirect":
        return []
    words = [each for each in node.named_children if each.type in WORDS]
    return [text_of(each) for each in words[1:]] if node.type == "file_redirect" else []


def words_of(node: Node) -> list[str]:
    """Return the words of a command. Join adjacent nodes, because the parser can split a word."""
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
    """Return the words between `body` and `redirect`, if `redirect` is a here-document.

    The parser makes no nodes for these words, such as a ``-``.
    """
    whole = body.parent
    start = whole.start_byte
    between = whole.text[body.end_byte - start : redirect.start_byte - start]
    return [] if redirect.type != "heredoc_redirect" else str(between.decode()).split()


def heredoc_body(redirect: Node) -> str | None:
    """Return the text of a here-document, or None if it has no text."""
    start = next((each for each in redirect.children if each.type == "heredoc_start"), None)
    body = next((each for each in redirect.children if each.type == "heredoc_body"), None)
    end = next((each for each in redirect.children if each.type == "heredoc_end"), None)
    if start is None or body is None:
        return None
    if body.start_byte < body.end_byte or end is None:
        return text_of(body)
    # If the body begins with a backslash, the parser reads it as words.
    text: bytes = redirect.text[
        start.end_byte - redirect.start_byte : end.start_byte - redirect.start_byte
    ]
    return text.partition(b"\n")[2].decode("utf-8", "replace")


def heredoc_tails(redirects: Sequence[Node]) -> tuple[list[Node], list[Node], list[str]]:
    """Return the nodes that the parser wrongly puts into the node of a here-document.

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
            elif child.type in WORDS:
                if text_of(child).startswith("\n"):
                    # This word and all later words belong to the body of the here-document.
                    break
                words.append(text_of(child))
            else:
                tails.append(child)
    return inner, tails, words


# The types of nodes that are words.
WORDS: Final = frozenset(
    {
        *("word", "string", "raw_string", "concatenation", "number", "ansi_c_string"),
        *("simple_expansion", "expansion", "command_substitution", "translated_string"),
    }
)
