"""The program with which bash reports its state. Its output is the *dump*. Pure.

A dump holds the variables (exported or not) with their attributes, the functions, the aliases, the
options of `shopt` and `set`, the umask, the directory stack and the working directory. `dump.bash`
is the program, with two parts in `globals.bash` and `functions.bash`. Some commands can change only
certain variables and the directory. After such a command, bash runs `variables.bash` instead, which
writes a *short dump*.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shelld.sessions.quoting import quote
from shelld.sessions.scripts import lines_of

# Variables of the program. In this order, they hold: the options before the program changed any,
# the traps that the command has set, and whether POSIXLY_CORRECT was set.
OPTIONS_VARIABLE: Final = b"__shelld_options"
TRAPS_VARIABLE: Final = b"__shelld_traps"
POSIX_VARIABLE: Final = b"__shelld_posix"

# The output of `declare -p -` in a function that has used `local -`. In such a function, bash does
# not report the options of `set` that apply outside the function.
LOCAL_OPTIONS: Final = b"declare -- -\n"

GLOBALS: Final = b"\n".join(lines_of("globals.bash"))
_DUMP: Final = b" ".join(lines_of("dump.bash"))
_SHORT: Final = b" ".join(lines_of("variables.bash"))

# Two programs, each quoted as one word of bash.
GLOBALS_WORD: Final = quote(GLOBALS)
FUNCTIONS_WORD: Final = quote(b"\n".join(lines_of("functions.bash")))


def dump_program(
    own_directory: bytes,
    *,
    globals_word: bytes = GLOBALS_WORD,
    functions_word: bytes = b"",
    before_functions: bytes = b"",
    lists_options: bool = True,
) -> bytes:
    """Return the program, in one line.

    `own_directory`: a path to the daemon's directory. `globals_word`: the program in
    `globals.bash`, quoted as a word. `functions_word`: the program in `functions.bash`, quoted as a
    word, or b"" to leave out its check. The standard output of the program in `functions.bash` must
    be a file. `before_functions`: commands that shelld runs before bash reports its functions. Each
    command ends with "; ". When these commands run, nothing that the session's command has set up
    can interfere. Posix mode is off, because in posix mode, bash would exit if `eval` defined a
    function whose name is not an identifier. `lists_options`: whether bash lists the names of all
    options. The names are the same in all dumps, so bash need not list them again after the first
    dump.
    """
    program = _DUMP.replace(b"OWN_DIRECTORY", own_directory).replace(b"GLOBALS", globals_word)
    check = rb"\builtin eval %s; " % functions_word if functions_word else b""
    program = program.replace(b"CHECK_FUNCTIONS ", check)
    program = program.replace(b"SET_OPTIONS ", rb"\builtin set +o; " if lists_options else b"")
    # BASHOPTS does not always show whether dotglob is on, see `dump_parser`.
    program = program.replace(b" SHOPT_OPTIONS", b"" if lists_options else b" dotglob")
    # Replace this word last, because `before_functions` may contain the words that are replaced
    # above.
    return program.replace(b"BEFORE_FUNCTIONS ", before_functions)


def short_dump_program(names: Iterable[bytes], own_directory: bytes) -> bytes:
    """Return the program that reports only the variables `names` and the directory, in one line.

    `own_directory`: a path to the daemon's directory.
    """
    program = _SHORT.replace(b"OWN_DIRECTORY", own_directory)
    return program.replace(b"NAMES", b" ".join(sorted(names)))
