"""What bash runs to tell its state, the *dump*. Pure.

A dump has exported and other variables with their attributes, functions, aliases, options of
`shopt` and `set`, the umask, the directory stack and the working directory. `dump.bash` is the
program.
"""

from __future__ import annotations

from typing import Final

from shelld.sessions.quoting import quote
from shelld.sessions.scripts import lines_of

# Bash leaves these variables to the dump: the options as they were before the dump changed them,
# and the traps that the command has set.
OPTIONS_VARIABLE: Final = b"__shelld_options"
TRAPS_VARIABLE: Final = b"__shelld_traps"
POSIX_VARIABLE: Final = b"__shelld_posix"

# What `declare -p -` prints where a function has used `local -`. Bash does not tell which options
# of `set` there are outside.
LOCAL_OPTIONS: Final = b"declare -- -\n"

GLOBALS: Final = b"\n".join(lines_of("globals.bash"))
_DUMP: Final = b" ".join(lines_of("dump.bash"))


def dump_with(globals_word: bytes, before_functions: bytes) -> bytes:
    """Return the program, in one line.

    `globals_word`: a word of bash that stands for `GLOBALS`. `before_functions`: commands that run
    before bash tells of its functions, once nothing of the command can interfere, each with "; "
    at its end. In posix mode, bash exits if `eval` defines a function whose name is not an
    identifier; it has left that mode by then.
    """
    return _DUMP.replace(b"GLOBALS", globals_word).replace(b"BEFORE_FUNCTIONS ", before_functions)


DUMP: Final = dump_with(quote(GLOBALS), b"")
