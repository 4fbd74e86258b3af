"""Knows the files that another program runs later, such as hooks of git, cron tables and profiles.

Pure. If a command writes another command to such a file, the guard judges the written command as if
it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from shelld.guard.markers import UNKNOWN, plain

# The guard follows at most this many commands of one file.
_MAX_COMMANDS: Final = 32
# Paths of executable files. The first line of such a file may name an interpreter.
_PROGRAM: Final = re.compile(
    r"(?:.*/\.git/hooks|.*/\.husky|/etc/cron\.(?:hourly|daily|weekly|monthly)|/etc/init\.d"
    r"|/etc/rc\d\.d)/[\w.-]+|/etc/rc\.local"
)
# Paths of scripts that a shell runs when it starts.
_PROFILE: Final = re.compile(
    r".*/\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile"
    r"|zshrc|zshenv|zprofile|zlogin|zlogout|kshrc|mkshrc|cshrc|tcshrc|login|logout"
    r"|xinitrc|xprofile|xsession|xsessionrc|envrc|ssh/rc|config/fish/(?:conf\.d/)?[\w.-]+\.fish)"
    r"|/etc/(?:profile|bash\.bashrc|bashrc|zshrc|profile\.d/[\w.-]+)"
)
# Of these paths, the scripts for shells with another syntax: csh, tcsh and fish.
_FOREIGN: Final = re.compile(r".*/(?:\.(?:cshrc|tcshrc|login|logout)|[^/]*\.fish)")
# ``set -g NAME VALUE`` of fish, ``set NAME=VALUE`` and ``setenv NAME VALUE`` of csh.
_SETTING: Final = re.compile(
    r"(?<![\w.-])set(?:env)?(?:[^\S\n]+-[\w-]+)*[^\S\n]+(\w+)(?:[^\S\n]*=[^\S\n]*|[^\S\n]+)"
    r"""(\([^()\n]*\)[^\s;&|]*|"[^"\n]*"|'[^'\n]*'|[^\s;&|]+)"""
)
_USED: Final = re.compile(r"\$\{?([A-Za-z_]\w*)")
_MAX_NAMES: Final = 100
_TABLE: Final = re.compile(
    r"/etc/crontab|/etc/cron\.d/[\w.-]+|/var/spool/cron/(?:crontabs/)?[\w.-]+"
)
# Units of systemd, and entries of programs that a desktop starts.
_WITH_EXEC: Final = re.compile(
    r".*/systemd/(?:system|user)/.*\.service(?:\.d/[^/]*)?|.*/autostart/[^/]+\.desktop"
)
_ENTRY: Final = re.compile(r"[^\S\n]*+(?:@\w++|(?:[^\s#]\S*+\s++){4}\S++)[^\S\n]++(.*)")
_EXEC: Final = re.compile(r"^Exec(?:\w{4,20})?=[-@:+!|]*+(.*)", re.M)


def is_late_program(path: str) -> bool:
    return _PROGRAM.fullmatch(path) is not None


def late_scripts(path: str, text: str) -> Iterator[str]:
    """If `path` is a profile, a cron table, a systemd unit or a desktop entry, yield the shell
    scripts in `text`.
    """
    if _PROFILE.fullmatch(path):
        yield _translated(text) if _FOREIGN.fullmatch(path) else text
    elif _TABLE.fullmatch(path):
        lines = re.split(f"[\n{UNKNOWN}]", plain(text))
        entries = filter(None, map(_ENTRY.match, lines))
        for entry in islice(entries, _MAX_COMMANDS):
            # In cron tables in /etc, the name of a user comes before the command.
            is_of_system = path.startswith("/etc/")
            yield entry[1].partition(" ")[2] if is_of_system else entry[1]
    elif _WITH_EXEC.fullmatch(path):
        for entry in islice(_EXEC.finditer(plain(text)), _MAX_COMMANDS):
            yield entry[1]


def _translated(text: str) -> str:
    """Return a script of csh or fish with the assignments of a POSIX shell.

    These shells never replace a variable that is not set by nothing: fish drops the whole word, and
    csh ends the command. So such a variable becomes unknown.
    """
    names = islice(dict.fromkeys(match[1] for match in _USED.finditer(text)), _MAX_NAMES)
    unset = "".join(f"{name}=${{{name}-{UNKNOWN}}}\n" for name in names)
    return unset + _SETTING.sub(_assignment, text)


def _assignment(setting: re.Match[str]) -> str:
    name, value = setting.groups()
    # Further words are further members of a list.
    return f"{name}={UNKNOWN if '(' in value or '`' in value else value};:"
