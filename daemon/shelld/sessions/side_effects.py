"""Recognises commands that cannot change their session, or can change only a part of the session.

Pure and conservative. This module reads the words of a command. It knows the common words, and
assumes that every other word may change something. If this assumption is wrong, it only costs time.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.sessions.prelude import may_trap
from shelld.sessions.state import SET_LATE, ShellState
from shelld.sessions.text import to_bytes
from shelld.sessions.variables import NOT_IMPORTED, OWN_VARIABLES, SET_AT_START
from shelld.sessions.words import BUILTINS

# Plain words and variables, redirections to such words, and operators.
#
# The repetition in a name never gives back a character. Otherwise, the rest of a name could also
# count as a plain word, and a search would try all ways to divide all names.
_NAME: Final = r"\$(?:[A-Za-z_][A-Za-z0-9_]*+|[$?#!0-9])"
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
# Assignments. A value may contain arithmetic expansions, and the output of commands that consist of
# plain words. These commands run in another process, so they change nothing in bash itself.
_OUTPUT: Final = r"\$\((?!\()[A-Za-z0-9_./:=,@%+*?~|;& \t-]*\)"
# The operators ++ and -- are not allowed here, because they assign.
_SUM: Final = r"\$\(\((?:[A-Za-z0-9_ */%<>]|\+(?!\+)|-(?!-))*\)\)"
_VALUE: Final = (
    rf"""(?:[A-Za-z0-9_./:=,@%+*?~-]|\\[^\n]|'[^']*'|{_NAME}|{_OUTPUT}|{_SUM}"""
    rf"""|"(?:[^"$`\\!]|{_NAME}|{_OUTPUT}|{_SUM})*")*"""
)
_END: Final = r"(?=[ \t\n;|&]|\Z)"
_VARIABLE: Final = re.compile(
    rf"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<sign>\+?=)(?P<value>{_VALUE}))?{_END}"
)
_SUMS: Final = re.compile(_SUM)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A number, or an arithmetic expansion, whose value is a number.
_NUMBER: Final = re.compile(rf"-?[0-9]{{1,18}}|{_SUM}")
_NUMBER_VALUE: Final = re.compile(rb"-?[0-9]{1,18}")
# A line of a state's script that sets a variable to a number.
_NUMBER_LINE: Final = re.compile(rb'\w+="-?[0-9]{1,18}"\n')
# Variables that bash itself uses, changes or checks.
_SPECIAL_NAMES: Final = (
    OWN_VARIABLES | NOT_IMPORTED | frozenset(b"GLOBIGNORE OPTIND OPTARG POSIXLY_CORRECT".split())
)
_SPECIAL_STARTS: Final = (b"BASH", b"COMP_", *SET_LATE)
_COMMAND: Final = re.compile(r"[A-Za-z0-9_./:+-]+|\[")
# The builtins and reserved words that do not change bash.
_HARMLESS: Final = frozenset(
    ("[", ":", "echo", "exit", "false", "kill", "pwd", "test", "times", "true", "type")
)
# The harmless builtins that are special builtins in POSIX. With `set -k` in posix mode, bash keeps
# assignments among the arguments of a special builtin.
_SPECIAL: Final = frozenset((":", "exit", "times"))
_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"[^"]*\"""")
_QUOTES: Final = str.maketrans("", "", "'\"\\")
# Expansions that can become several words.
_SPLIT: Final = re.compile(r"(?<!\$)[*?]|\$[A-Za-z0-9_]")
# Reading the words of a longer command would delay other requests. Commands that only start
# programs are seldom longer.
_MAX_CHARACTERS: Final = 4 * 1024


NOTHING: Final[frozenset[bytes]] = frozenset()


def changes_of(command: str, state: ShellState) -> frozenset[bytes] | None:
    """Return the variables that a command can change in its session.

    If the command can change nothing, return `NOTHING`. If it may change anything, return None.

    A command that can change a variable may also change the directory. `state`: the state from
    which the command starts.

    Most commands only start programs, one after the other or in pipelines. After such a command,
    bash need not report its state, so bash needs no trap. Without a trap, bash replaces itself with
    the last program, as under ``bash -c``, so a signal that ends this program ends bash itself.
    Most other commands only assign variables or change the directory. After such a command, bash
    reports only the variables and the directory.
    """
    if len(command) > _MAX_CHARACTERS:
        return None
    names = _Reader(command, state).read()
    return None if names and _has_odd_words(state) else names


def _has_odd_words(state: ShellState) -> bool:
    """Return whether words may have another meaning, because of aliases or posix mode."""
    is_posix = b"-o posix" in state.options or b"POSIXLY_CORRECT" in state.env
    return is_posix or state.names != state.function_names


class _Reader:
    """Reads a command, word by word."""

    def __init__(self, command: str, state: ShellState) -> None:
        self._command = command
        self._state = state
        self._position = 0
        # Records, for each variable that the command may assign, whether the value is certainly a
        # number.
        self._assigned: dict[bytes, bool] = {}

    def read(self) -> frozenset[bytes] | None:
        """Return the variables that the command can change, or None if it may change anything."""
        is_first = True
        # The name of the command whose arguments are being read, and the last argument read.
        name = before = ""
        while self._position < len(self._command):
            is_argument = name == "export" and not is_first
            if (is_first or is_argument) and self._assigns(needs_value=is_first):
                continue
            token = _TOKEN.match(self._command, self._position)
            if token is None:
                return None
            self._position = token.end()
            word = token["word"]
            if token["operator"]:
                is_first = True
            elif word and is_first:
                is_first, name, before = False, word, ""
                if not self._is_known(word):
                    return None
            elif word:
                if not _is_plain(name, before, word):
                    return None
                before = word
        return frozenset(self._assigned)

    def _is_known(self, name: str) -> bool:
        """Return whether the reader knows what a command of this name can change."""
        if not _COMMAND.fullmatch(name) or name.encode() in self._state.names:
            return False
        if name == "cd":
            # If the session has unset PWD, `cd` sets it again.
            return b"PWD" not in self._state.declarations and self._may_assign(b"OLDPWD")
        return name not in BUILTINS or name in _HARMLESS or name == "export"

    def _assigns(self, *, needs_value: bool) -> bool:
        """Read an assignment. Without `needs_value`, also accept a name that gets no value, as in
        ``export NAME``.

        Return False if there is no assignment, or if the assignment may also change something else.
        """
        found = _VARIABLE.match(self._command, self._position)
        if found is None or (needs_value and found["value"] is None):
            return False
        name, value = found["name"].encode(), found["value"] or ""
        operands = (word for each in _SUMS.findall(value) for word in _IDENTIFIER.findall(each))
        if _is_special(name) or not all(self._is_number(word.encode()) for word in operands):
            return False
        if "$(" in value and may_trap(to_bytes(value), self._state):
            # The output of `trap` would show the trap of the short dump.
            return False
        is_number = not found["sign"]
        if found["sign"] == "=":
            is_number = _NUMBER.fullmatch(value) is not None
        if not self._may_assign(name, is_number=is_number):
            return False
        self._position = found.end()
        return True

    def _may_assign(self, name: bytes, *, is_number: bool = False) -> bool:
        """Record that a variable may change.

        Return False if the session's variable has an attribute other than export. For example, the
        variable is an array or an integer.

        `is_number`: whether the new value of the variable is a number.
        """
        line = self._state.declarations.get(name)
        if line is not None and not line.startswith((name + b"=", b"\\builtin export " + name)):
            return False
        # If the command does not reach the assignment, the variable keeps its old value. So the old
        # value must also be a number.
        self._assigned[name] = is_number and self._is_number(name)
        return True

    def _is_number(self, name: bytes) -> bool:
        """Return whether a variable holds a number or is unset.

        In an arithmetic expansion, bash evaluates any other value as an expression, which may
        assign variables.
        """
        if name in self._assigned:
            return self._assigned[name]
        if _is_special(name):
            return False
        line = self._state.declarations.get(name)
        if line is not None:
            return _NUMBER_LINE.fullmatch(line) is not None
        value = self._state.env.get(name)
        return name not in SET_AT_START if value is None else _is_number(value)


def _is_special(name: bytes) -> bool:
    return name in _SPECIAL_NAMES or name.startswith(_SPECIAL_STARTS)


def _is_number(value: bytes) -> bool:
    return _NUMBER_VALUE.fullmatch(value) is not None


def _is_plain(name: str, before: str, word: str) -> bool:
    """Return whether the argument `word`, which follows `before`, surely leaves bash unchanged."""
    if name == "export":
        return False
    if name in ("test", "["):
        return not _may_assign(before, word)
    return name not in _SPECIAL or "=" not in word


def _may_assign(before: str, word: str) -> bool:
    """Return whether two words of a test may assign a variable, as in ``-v 'a[y=7]'``."""
    if _SPLIT.search(_QUOTED.sub("", word)):
        return True
    operator, operand = before.translate(_QUOTES), word.translate(_QUOTES)
    return ("$" in operator or operator == "-v") and ("$" in operand or "[" in operand)
