"""Checks quickly whether a command is plainly harmless. Pure.

Most commands are plainly harmless, so the guard need not follow them.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.guard.policy import DEFAULT_POLICY, Policy
from shelld.guard.vocabulary import (
    JUDGED,
    LANGUAGES,
    LISTENERS,
    SHELLS,
    STARTERS,
    TELLING_BUILTINS,
    TREE_PROGRAMS,
    VERSION,
    WRAPPERS,
)

# The maximum length of a command in characters. A longer command would block the event loop for too
# long, so the guard judges it in a thread.
_MAX_CHARACTERS: Final = 4 * 1024

# A command of only these characters has no quotes, expansions or redirections.
_SIMPLE: Final = re.compile(r"[\w \n./:,=@%+&|;-]*")
# Matches an assignment whose value is an arithmetic expansion. If an earlier command has assigned
# code to a variable in the expansion, bash may run this code. docs/guard.md says that the guard
# does not follow such code.
_CALCULATED: Final = re.compile(r"=\$\(\([\w +*/%-]*\)\)(?=[\s;&|]|$)")
_SEPARATORS: Final = re.compile(r"[\s;&|=]+")
# Unlike `_SEPARATORS`, this pattern does not split words at ``=``, because the name of a function
# may contain ``=``.
_ENDS_OF_WORDS: Final = re.compile(r"[\s;&|]+")
# Bash runs this function if a program does not exist.
_NOT_FOUND: Final = b"command_not_found_handle"
_SOURCES: Final = re.compile(r"(?:^|[;&|\n])[ \t]*\. ")

# Programs that a rule judges, and programs that start other programs. "-" stands for stdin, which
# may be a script. mknod(1) is in this set because its arguments are the numbers of a disk, and not
# a path below /dev. ``git clean`` removes trees. `WRITERS`, `SPEAKERS` and `EVERYDAY_WRAPPERS` are
# not in this set. Their programs do harm only in a command that also contains "/dev", a program of
# this set, or a character outside `_SIMPLE`.
_TELLING: Final = frozenset(
    (
        *(*JUDGED, *TREE_PROGRAMS, *WRAPPERS, *STARTERS, *SHELLS, *LANGUAGES, *LISTENERS),
        *TELLING_BUILTINS,
    )
) | {"-", "-f-", "mknod", "clean"}
# These strings show that a command may name a disk, make a file system, or use the option
# ``--remove-files`` of tar, which can be abbreviated.
_TELLING_PARTS: Final = ("/dev", "mkfs", "--rem")
_DIGIT: Final = re.compile("[0-9]")


def is_plainly_harmless(
    command: str,
    policy: Policy = DEFAULT_POLICY,
    defined: frozenset[bytes] = frozenset(),
) -> bool:
    """Return whether a command is plainly harmless.

    Such a command has only simple characters, and contains no name of a program that could do harm.

    If the result is false, the guard must judge the command. `defined` has the names of functions
    and aliases, which can run any command.
    """
    if policy.block or len(command) > _MAX_CHARACTERS:
        return False
    if "$((" in command:
        command = _CALCULATED.sub("=0", command)
    if not _SIMPLE.fullmatch(command) or any(each in command for each in _TELLING_PARTS):
        return False
    words = _SEPARATORS.split(command)
    if defined:
        spoken = {word.encode() for word in (*words, *_ENDS_OF_WORDS.split(command))}
        if _NOT_FOUND in defined or not defined.isdisjoint(spoken):
            return False
    names = [word.rpartition("/")[2] for word in words]
    if not _TELLING.isdisjoint(names) or (". " in command and _SOURCES.search(command)):
        return False
    if _DIGIT.search(command) is None:
        return True
    # The name of an interpreter may contain its version.
    return LANGUAGES.keys().isdisjoint([name.rstrip(VERSION) for name in names])
