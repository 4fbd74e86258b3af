"""One look that is enough for most commands: nothing in them could matter to the guard."""

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
    VERSION,
    WRAPPERS,
)

# To look at more words takes time from others; the guard follows long commands in a thread.
_MAX_CHARACTERS: Final = 4 * 1024

# A command of these characters is no more than it looks like.
_SIMPLE: Final = re.compile(r"[\w \n./:,=@%+&|;-]*")
# A number that is calculated and assigned. That may run what the value of a variable says, which
# the guard does not follow either.
_CALCULATED: Final = re.compile(r"=\$\(\([\w +*/%-]*\)\)(?=[\s;&|]|$)")
_SEPARATORS: Final = re.compile(r"[\s;&|=]+")
# Of words that are whole, as the name of a function is.
_ENDS_OF_WORDS: Final = re.compile(r"[\s;&|]+")
# The function that bash runs in place of a program that is not there.
_NOT_FOUND: Final = b"command_not_found_handle"
_SOURCES: Final = re.compile(r"(?:^|[;&|\n])[ \t]*\. ")

# Programs that rules are about, or that start others. "-" is the input of a program, which may be
# a script. What `WRITERS`, `SPEAKERS` and `EVERYDAY_WRAPPERS` could do takes "/dev", one of these
# programs, or characters that are not simple.
_TELLING: Final = frozenset(
    (*JUDGED, *WRAPPERS, *STARTERS, *SHELLS, *LANGUAGES, *LISTENERS, *TELLING_BUILTINS)
) | {"-", "-f-"}
_DIGIT: Final = re.compile("[0-9]")


def is_plainly_harmless(
    command: str,
    policy: Policy = DEFAULT_POLICY,
    defined: frozenset[bytes] = frozenset(),
) -> bool:
    """Whether nothing in a command could be a program that a rule is about, or starts others.

    For most commands that is enough to know. `defined` are the names of functions and aliases,
    which stand for something else.
    """
    if policy.block or len(command) > _MAX_CHARACTERS:
        return False
    if "$((" in command:
        command = _CALCULATED.sub("=0", command)
    if not _SIMPLE.fullmatch(command) or "/dev" in command or "mkfs" in command:
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
    # Interpreters have versions in their names.
    return LANGUAGES.keys().isdisjoint([name.rstrip(VERSION) for name in names])
