"""Lists shells, interpreters, and other programs that start programs."""

from __future__ import annotations

from typing import Final

SHELLS: Final = frozenset(
    [
        "ash",
        "bash",
        "bash-static",
        "csh",
        "dash",
        "elvish",
        "fish",
        "ksh",
        "ksh93",
        "lksh",
        "mksh",
        "mksh-static",
        "nu",
        "oksh",
        "osh",
        "posh",
        "rbash",
        "sh",
        "tcsh",
        "xonsh",
        "yash",
        "zsh",
        "zsh-static",
        "zsh5",
    ]
)

# Programs that start other programs, and for which `launchers` has a special handler. The value is
# the name of the handler.
STARTERS: Final = {
    "xargs": "xargs",
    "parallel": "parallel",
    "find": "find",
    "fd": "fd",
    "fdfind": "fd",
    "crontab": "crontab",
    "pee": "pee",
    "socat": "socat",
    "at": "at",
    "batch": "at",
    "sed": "sed",
    "gsed": "sed",
    "awk": "awk",
    "gawk": "awk",
    "mawk": "awk",
    "nawk": "awk",
    "docker": "docker",
    "podman": "docker",
    "nerdctl": "docker",
    "bwrap": "bwrap",
}

# The characters of a version number.
VERSION: Final = "0123456789."

# Interpreters in whose languages the guard knows no function names. So the guard treats every
# string in their code as a command that the code runs, unless the code only prints or compares the
# string.
FOREIGN_LANGUAGES: Final = {
    "R": "e",
    "bb": "e",
    "clojure": "e",
    "clj": "e",
    "crystal": "",
    "csi": "e",
    "elixir": "e",
    "erl": "",
    "ghc": "e",
    "gosh": "e",
    "groovy": "e",
    "guile": "c",
    "jshell": "",
    "julia": "eE",
    "kotlin": "e",
    "mongo": "",
    "mongosh": "",
    "octave": "",
    "osascript": "e",
    "racket": "e",
    "raku": "e",
    "redis-cli": "",
    "runghc": "",
    "sbcl": "",
    "scala": "e",
    "swift": "e",
}

# Maps the name of each interpreter, without a version, to the letters of the options that take
# code.
LANGUAGES: Final = {
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "nodejs": "ep",
    "bun": "ep",
    "deno": "",
    "php": "rBR",
    "lua": "e",
    "luajit": "e",
    "Rscript": "e",
    "tclsh": "",
    "pdb": "c",
    **FOREIGN_LANGUAGES,
}

# Builtins that change the meaning of words or paths, or that run text as a script.
TELLING_BUILTINS: Final = frozenset({"alias", "cd", "eval", "popd", "pushd", "source", "trap"})
