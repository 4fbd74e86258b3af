"""Finds the commands that a function always starts.

Also finds loops that only start commands, and loops that only print.

Pure. The functions walk the syntax tree without recursion, because scripts can nest to any depth.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from shelld.guard.nodes import WORDS
from shelld.guard.parse import TooSlow, parse, text_of

Node = Any
_PARALLEL: Final = frozenset({"pipeline", "process_substitution"})
_CONDITIONAL: Final = frozenset({"if_statement", "case_statement", "list", "function_definition"})


class Call(NamedTuple):
    """A command that always runs when a certain function or script runs.

    `is_spawned` is true if the command runs in the background or in a pipeline. `times` is 2 if the
    command is in a loop, else 1.
    """

    name: str
    is_spawned: bool
    times: int = 1


_SHELLS: Final = frozenset({"bash", "sh"})


def _started(node: Node, name: str) -> str:
    """Return the name of the program or script that a command starts.

    Skips words such as ``exec`` and ``sudo``, and the name of a shell before the name of a script.
    """
    words = [text_of(each) for each in node.named_children if each.type in WORDS]
    while name in ("exec", "command", "builtin", "eval", "nohup", "sudo", "coproc") and words:
        name = words.pop(0)
    if name in _SHELLS and words and not words[0].startswith("-"):
        name = words[0]
    return name.strip("\"'")


# The maximum time in seconds for parsing the text of ``eval`` in the body of a function.
_NESTED_SECONDS: Final = 0.005


def _script_of(node: Node) -> Node | None:
    """Return the parsed script of ``eval`` or ``bash -c``, or None for any other command."""
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
    """Return whether a statement is ``if true`` without ``else``."""
    members = node.named_children
    has_others = any(each.type in ("elif_clause", "else_clause") for each in members)
    return node.type == "if_statement" and not has_others and text_of(members[0]) in ("true", ":")


_LOOPS: Final = frozenset({"for_statement", "while_statement", "c_style_for_statement"})


def calls_of(body: Node) -> list[Call]:
    """Return the commands that a function's body always runs."""
    found: list[Call] = []
    todo = [(body, False, 1)]
    while todo:
        node, spawned, times = todo.pop()
        if node.type == "command":
            name = next((each for each in node.children if each.type == "command_name"), None)
            if name is not None:
                found.append(Call(_started(node, text_of(name)), spawned, times))
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
    return found


_GROUPS: Final = frozenset({"subshell", "compound_statement"})
_FRAME: Final = frozenset({"do", "done", "{", "}", "comment", "\n"})


def only_starts(body: Node) -> bool:
    """Return whether a loop's body only starts commands, and does not wait for them."""
    children = [each for each in body.children if each.type not in _FRAME]
    statements = 0
    for index, child in enumerate(children):
        if child.type == "ERROR":
            # The parser wrongly reports a missing separator in ``do (a &) done``.
            return len(children) == 1 and only_starts(child)
        if not child.is_named:
            continue
        following = children[index + 1].type if index + 1 < len(children) else ""
        if following == "&" or _starts_only(child):
            statements += 1
        elif not _is_instant(child):
            return False
    return statements > 0


# Builtins that end immediately: they do not wait for anything, and they do not leave a loop.
_INSTANT: Final = frozenset({":", "true", "echo", "printf", "disown", "let", "export", "local"})


def _is_instant(node: Node) -> bool:
    """Return whether a statement ends immediately, and does not leave the loop that contains it."""
    if node.type == "variable_assignment":
        return b"$(" not in node.text and b"`" not in node.text
    name = text_of(node.named_children[0]) if node.named_children else ""
    return node.type == "command" and name in _INSTANT


def _starts_only(node: Node) -> bool:
    """Return whether a statement only starts commands, and does not wait for them.

    No ``&`` follows the statement.
    """
    if node.type in _GROUPS:
        return only_starts(node)
    if node.type != "command":
        return False
    words = [text_of(each) for each in node.named_children]
    if _DETACHED.match(" ".join(words)):
        return True
    script = _script_of(node)
    return script is not None and only_starts(script)


# Programs that start a command, and exit while the command is still running.
_DETACHED: Final = re.compile(
    r"setsid (?:-\w*f|--fork)|screen (?:-\w*d\w*m|-d -m)|daemonize |start-stop-daemon .*-b"
    r"|tmux new\S* .*-d|systemd-run (?!.*(?:--wait|--scope|--pty|-P|-t))"
    r"|(?:docker|podman) run .*(?:-[ti]*d\b|--detach)"
)
# Programs that only write text, and start no other program.
_PRINTERS: Final = frozenset({"echo", "printf", "cat", "true", ":"})


def only_prints(body: Node) -> bool:
    """Return whether a loop's body only writes text.

    An endless loop with such a body writes without end.
    """
    return all(each.name in _PRINTERS for each in calls_of(body))
