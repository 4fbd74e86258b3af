"""Lists the programs that the guard knows. Each table is plain data, with one entry per program.

`quick` allows a simple command that names none of these programs. So a program that the guard must
judge needs an entry in these tables. The modules of this package import only `typing`, because the
first command waits until the package is imported.

Most tables are dictionaries whose keys are the names of programs. For wrappers, writers and
speakers, the value is a list of words. If a wrapper has several forms, such as ``docker exec`` and
``docker container exec``, a semicolon separates the lists of words of these forms.

The first word has the letters of the options that take a value, or is "-" if there are no such
options. The other words have the following meanings.

In all three kinds of tables:

    name=           This long option takes a value.
    idle:NAME       With this option, the program runs nothing and writes nothing.

In the tables of wrappers and speakers:

    cd:NAME         The value of this option is the directory in which the commands run.
    script:NAME     The value of this option is a shell script.

In the tables of wrappers:

    first:NAME      The value of this option is the program to start.
    argv:NAME       The value of this option is the program to start. The remaining arguments are
                    the arguments of this program.
    sub:WORD        This subcommand must come first.
    +N              N operands come before the program. "+all" stands for all operands.
    leads           If an option comes first, there are no operands before the program.
    assigns         NAME=VALUE may come before the program.
    joins           The remaining arguments, joined, are a shell script.
    bash            The remaining arguments are arguments of bash.
    shell           If there is no program, the wrapper starts a shell. The shell reads the input.
    shell:NAME      With this option, the wrapper starts such a shell.
    away            The program runs on another machine or in a container.

In the table of writers:

    to:NAME         The value of this option is a file. The program writes to this file.
    into:NAME       The value of this option is a directory. The program writes a file there for
                    each operand.
    all             The program writes to all operands.
    last            The program writes to the last operand.
    rest            The program writes to all operands except the first.
    key=NAME        In an operand NAME=FILE, as with dd, the program writes to FILE.
    if:NAME         The program writes only with this option, or with this word as an operand.
    order:WORD      The program writes if a line of its input begins with WORD. With "order:", the
                    program writes if it gets any input.

In the table of speakers:

    says:NAME       The value of this option is text in the program's language.
    says:+          Operands that begin with "+" are text in the program's language.
    says:operands   All operands are text in the program's language.
    says:input      The input is text in the program's language.
    file:NAME       The value of this option is a file with text in the program's language.
    default:NAME    If no file:NAME option is given, the program reads the file NAME. The file has
                    text in the program's language.
    appends         The words after the subcommand become arguments of the command, as with an
                    alias.
    env:NAME        The value of this environment variable is a shell script.
    tells:NAME      The value of this environment variable is text in the program's language.
    options:NAME    This environment variable has more options.
    assigns         In an operand NAME=VALUE, VALUE is a shell script.
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
