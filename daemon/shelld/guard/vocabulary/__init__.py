"""Lists the programs that the guard knows. Each table is plain data, with one entry per program.

`quick` allows a simple command that names none of these programs. So a program that the guard must
judge needs an entry in these tables. The modules of this package import only `typing`, because the
first command waits until the package is imported.

Most tables are dictionaries whose keys are the names of programs. For wrappers, writers and
speakers, the value is a list of words. The first word has the letters of the options that take a
value, or is "-" if there are no such options. The other words are:

    name=           a long option that takes a value
    cd:NAME         an option whose value is the directory to run in
    script:NAME     an option whose value is a shell script
    first:NAME      an option whose value is the program
    argv:NAME       an option whose value is the program, followed by the program's arguments
    idle:NAME       an option with which the program runs nothing and writes nothing
    sub:WORD        a subcommand that must come first
    +N              the number of operands before the program; +all: all operands
    leads           the operands before the program are missing if an option comes first
    assigns         NAME=VALUE may come before the program
    joins           the remaining arguments, joined, are a shell script
    bash            the remaining arguments are arguments of bash
    shell           without a program, the wrapper starts a shell, which reads the input
    shell:NAME      an option with which the wrapper starts such a shell
    away            the program runs on another machine or in a container

    to:NAME         an option whose value is a file to write
    into:NAME       an option whose value is a directory to write the operands to
    all, last, rest the operands that are files to write; "rest" is all but the first
    key=NAME        an operand NAME=FILE, as with dd
    if:NAME         the program writes only with this option, or with this word as an operand
    order:WORD      the program writes if a line of its input begins with WORD ("order:": on any
                    input)

    says:NAME       an option whose value is in the program's language
    says:+          operands that begin with "+" are in the program's language
    says:operands   all operands are in the program's language
    says:input      the input is in the program's language
    file:NAME       an option whose value is a file in the program's language
    default:NAME    a file in the program's language, read if there is no file:NAME option
    appends         the words after the subcommand are added to the command, as with an alias
    env:NAME        an environment variable whose value is a shell script
    tells:NAME      an environment variable whose value is in the program's language
    options:NAME    an environment variable with more options
    assigns         the value in NAME=VALUE is a shell script
"""

from __future__ import annotations

from shelld.guard.vocabulary.judged import JUDGED, MAKERS, MKFS, OPTIONS, TREE_PROGRAMS
from shelld.guard.vocabulary.runners import (
    FOREIGN_LANGUAGES,
    LANGUAGES,
    SHELLS,
    STARTERS,
    TELLING_BUILTINS,
    VERSION,
)
from shelld.guard.vocabulary.speakers import LISTENERS, SPEAKERS
from shelld.guard.vocabulary.wrappers import EVERYDAY_WRAPPERS, WRAPPERS
from shelld.guard.vocabulary.writers import (
    DESTROYERS,
    DISK_TOOLS,
    LINKERS,
    ORDERS,
    TELLERS,
    WRITERS,
)

__all__ = [
    "DESTROYERS",
    "DISK_TOOLS",
    "EVERYDAY_WRAPPERS",
    "FOREIGN_LANGUAGES",
    "JUDGED",
    "LANGUAGES",
    "LINKERS",
    "LISTENERS",
    "MAKERS",
    "MKFS",
    "OPTIONS",
    "ORDERS",
    "SHELLS",
    "SPEAKERS",
    "STARTERS",
    "TELLERS",
    "TELLING_BUILTINS",
    "TREE_PROGRAMS",
    "VERSION",
    "WRAPPERS",
    "WRITERS",
]
