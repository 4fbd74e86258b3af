"""Lists the variables that bash treats specially."""

from __future__ import annotations

from typing import Final

from shelld.sessions.dump import OPTIONS_VARIABLE, POSIX_VARIABLE, TRAPS_VARIABLE

# Variables that describe one process of bash, or that every bash sets itself.
OWN_VARIABLES: Final = frozenset(
    b"""BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND
    BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL
    BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PIPESTATUS PPID PWD RANDOM SECONDS SHELLOPTS
    SHLVL SRANDOM UID _""".split()
) | {OPTIONS_VARIABLE, TRAPS_VARIABLE, POSIX_VARIABLE}
# The members of `OWN_VARIABLES` that bash takes from its environment, like ordinary variables.
LIKE_OTHERS: Final = frozenset((b"UID", b"EUID"))
# The members of `OWN_VARIABLES` that every bash exports, and shelld's own variables. If a command
# exports another member, the session keeps the export.
EXPORT_NOT_KEPT: Final = frozenset(
    (b"PWD", b"SHLVL", b"_", OPTIONS_VARIABLE, TRAPS_VARIABLE, POSIX_VARIABLE)
)
# Bash does not reliably take these variables from its environment. It never takes some of them,
# ignores PS4 for root, and takes OLDPWD only if it is a directory. So the script sets them as well.
NOT_IMPORTED: Final = frozenset(b"IFS IGNOREEOF OLDPWD OPTERR PS1 PS2 PS4".split())
# Each bash has these variables from its start. If a dump lacks such a variable, the command has
# unset it.
SET_AT_START: Final = tuple(
    b"""BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_LOADABLES_PATH BASH_SUBSHELL BASHPID
    COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS GROUPS HISTCMD HOSTNAME HOSTTYPE IFS LINENO
    MACHTYPE OLDPWD OPTERR OPTIND OSTYPE PATH PS4 PWD RANDOM SECONDS SHELL SHLVL SRANDOM
    TERM""".split()
)
