"""Shells, interpreters, and programs that start other programs in their own way."""

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

# Programs that start other programs in their own way, and the handler of each in `launchers`.
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

# Interpreters whose calls the guard does not know. So it takes every string in their code for a
# command that the code runs, unless the code only shows the string.
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

# Interpreters without their versions, and the letters of the options whose values are code.
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

# Builtins that change the meaning of words or paths, or run text.
TELLING_BUILTINS: Final = frozenset({"alias", "cd", "eval", "popd", "pushd", "source", "trap"})
