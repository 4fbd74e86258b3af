"""Recognises commands that cannot change their session.

Pure and conservative. This module looks at the words of a command, knows the common ones, and
assumes that every other word may change something. A wrong guess only costs time.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

# Plain words and variables, redirections to them, and operators.
_NAME: Final = r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[$?#!0-9])"
_WORD: Final = (
    rf"""(?:[A-Za-z0-9_./:=,@%+*?~-]|\\[^\n]|'[^']*'|"(?:[^"$`\\!]|{_NAME})*"|{_NAME})+"""
)
_TOKEN: Final = re.compile(
    rf"""[ \t]+
    | (?P<redirection> [0-9]* (?: &?>>? (?![>(]) | [<>]& | < (?![<(>]) ) [ \t]* {_WORD} )
    | (?P<word> {_WORD} )
    | (?P<operator> && | \|\| | [;|&\n] )""",
    re.VERBOSE,
)
_COMMAND: Final = re.compile(r"[A-Za-z0-9_./:+-]+|\[")
# The builtins and reserved words that do not change bash.
_HARMLESS: Final = frozenset(
    ("[", ":", "echo", "exit", "false", "kill", "pwd", "test", "times", "true", "type")
)
# Those of them that POSIX calls special: with `set -k` in posix mode, bash keeps assignments among
# their arguments.
_SPECIAL: Final = frozenset((":", "exit", "times"))
_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"[^"]*\"""")
_QUOTES: Final = str.maketrans("", "", "'\"\\")
# Expansions that can become several words.
_SPLIT: Final = re.compile(r"(?<!\$)[*?]|\$[A-Za-z0-9_]")
# Longer commands would delay other requests. Few commands that only start programs are longer than
# this.
_MAX_CHARACTERS: Final = 4 * 1024
BUILTINS: Final = frozenset(
    (
        *(".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "case", "cd"),
        *("command", "compgen", "complete", "compopt", "continue", "coproc", "declare", "dirs"),
        *("disown", "do", "done", "echo", "elif", "else", "enable", "esac", "eval", "exec"),
        *("exit", "export", "false", "fc", "fg", "fi", "for", "function", "getopts", "hash"),
        *("help", "history", "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile"),
        *("popd", "printf", "pushd", "pwd", "read", "readarray", "readonly", "return", "select"),
        *("set", "shift", "shopt", "source", "suspend", "test", "then", "time", "times", "trap"),
        *("true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait"),
        "while",
    )
)


def changes_nothing(command: str, names: Container[bytes]) -> bool:
    """Whether a command cannot change the state of its session.

    `names`: the functions and aliases of the session, which may do anything.

    Most commands only start programs, one after the other or in pipelines. For such a command, bash
    need not report its state. So bash does what it does under ``bash -c``: it becomes the last
    program. A signal that ends that program thus ends bash.
    """
    if len(command) > _MAX_CHARACTERS:
        return False
    position = 0
    is_first = True
    before = ""
    is_test = is_special = False
    while position < len(command):
        token = _TOKEN.match(command, position)
        if token is None:
            return False
        position = token.end()
        word = token["word"]
        if token["operator"]:
            is_first = True
        elif word and is_test and not is_first:
            if _may_assign(before, word):
                return False
            before = word
        elif word and is_special and not is_first:
            if "=" in word:
                return False
        elif word and is_first:
            is_first = False
            is_test, is_special, before = word in ("test", "["), word in _SPECIAL, ""
            known = word in BUILTINS and word not in _HARMLESS
            if known or "=" in word or not _COMMAND.fullmatch(word) or word.encode() in names:
                return False
    return True


def _may_assign(before: str, word: str) -> bool:
    """Whether two words of a test may be like ``-v 'a[y=7]'``: bash evaluates the subscript."""
    if _SPLIT.search(_QUOTED.sub("", word)):
        return True
    operator, operand = before.translate(_QUOTES), word.translate(_QUOTES)
    return ("$" in operator or operator == "-v") and ("$" in operand or "[" in operand)
