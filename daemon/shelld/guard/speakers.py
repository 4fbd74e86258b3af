"""Programs that run commands which their own language names: editors, pagers, git, databases.

Pure: from what such a program is given to the scripts that it would hand to a shell.
`vocabulary.SPEAKERS` says where its language is, `_COMMANDS` what in that language is a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from shelld.guard.markers import plain
from shelld.guard.options import options_of
from shelld.guard.specification import Specification, specification
from shelld.guard.vocabulary import SPEAKERS

# Of what a program says, how much is looked at, and how many commands of it are followed.
_MAX_TEXT: Final = 16 * 1024
_MAX_COMMANDS: Final = 32

_VI: Final = r"""^:*\s*(?:sil\w*!?\s+)?(?:exe\w*\s+["'])?(?:\d+|[.,$%])*!+\s*(.*)"""
_CALLED: Final = r"""\b%s\s*\(?\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')"""
_GIT: Final = (
    r"(?is)^(?:alias\.[^=]*=!|(?:core\.(?:pager|editor|sshcommand|fsmonitor|askpass|gitproxy)"
    r"|pager\.[^=]*|(?:sequence\.|gui\.)?editor|sequence\.editor|diff\.external"
    r"|[^=]*\.(?:cmd|textconv|command|helper|driver|clean|smudge|process|program))=)!?(.*)"
)
_MAKE: Final = (
    r"^\t[-@+]*(.*)",
    r"^[^\s#:=][^#:=]*::?[^=;\n]*;\s*[-@+]*(.*)",
    r"\$\(shell\s+([^()]*)\)",
)
_GDB: Final = (r"^\s*(?:shell|!)\s*(.*)",)
_MYSQL: Final = (r"^\s*(?:system|\\!)\s+(.*)",)
_VIM: Final = (_VI, _CALLED % "system(?:list)?")
_SSH: Final = (r"(?i)^(?:Proxy|Local|KnownHosts|Remote)Command(?:\s*=\s*|\s+)(.*)",)

_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("vim", "vi", "nvim", "view", "ex", "ed"), _VIM),
    **dict.fromkeys(("emacs", "emacsclient"), (_CALLED % r"shell-command(?:-to-string)?",)),
    "less": (r"^\+*!(.*)",),
    "git": (_GIT,),
    "tar": (r"^exec=(.*)",),
    **dict.fromkeys(("ssh", "scp", "sftp"), _SSH),
    "psql": (r"\\!\s*(.*)", r"(?i)\bprogram\s+'((?:[^']|'')*)'"),
    **dict.fromkeys(("mysql", "mariadb"), _MYSQL),
    "sqlite3": (r"^\s*\.(?:shell|system)\s+(.*)",),
    "gdb": _GDB,
    "lldb": (r"^\s*(?:platform\s+)?shell\s+(.*)",),
    **dict.fromkeys(("expect", "tclsh"), (r"(?:^|[;{\[])\s*(?:spawn|exec|system)\s+(.*)",)),
    **dict.fromkeys(("make", "gmake"), _MAKE),
    "apt-get": (r"(?i)^[\w:-]*invoke(?:-success)?(?:::)?=(.*)",),
}


def scripts_of(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    content_of: Callable[[str], str],
    stdin: str,
) -> Iterator[str]:
    """Return what a program hands to a shell.

    `environment` is what it sees, `content_of` returns what is known to be in a file.
    """
    spec = specification(SPEAKERS[program])
    said, scripts, operands = _taken_apart(spec, arguments, content_of)
    for name in spec.options.get("env", ()):
        if name in environment:
            scripts.append(environment[name])
    given = spec.options.get("says", ())
    if "input" in given:
        said.append(stdin)
    if "operands" in given:
        said += operands
    if "+" in given:
        said += [each[1:] for each in operands if each.startswith("+")]
    behind = [shlex.join(operands[1:])] if "appends" in spec.marks else []
    scripts += [
        " ".join([found, *behind]) for text in said for found in _commands_in(program, text)
    ]
    for script in scripts[:_MAX_COMMANDS]:
        # Some write a sign in front of what is a command.
        yield script.lstrip("|!").removeprefix("-")


def _taken_apart(
    spec: Specification, arguments: Sequence[str], content_of: Callable[[str], str]
) -> tuple[list[str], list[str], list[str]]:
    """Return what options say in the program's language, their scripts, and the operands."""
    said: list[str] = []
    scripts: list[str] = []
    operands: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            operands += rest
            break
        if not argument.startswith("-") or len(argument) == 1:
            operands.append(argument)
            continue
        if argument[1:] in spec.names and len(argument) > 2 and rest:
            # ``gdb -ex``, ``sqlite3 -cmd``: a long option with one dash.
            options = [(argument[1:], rest.pop(0))]
        else:
            options = [
                (name, value)
                for name, value in options_of(argument, rest, spec.letters, spec.names)
                if value is not None
            ]
        for name, value in options:
            if spec.has("says", name):
                said.append(value)
            elif spec.has("script", name):
                scripts.append(value)
            elif spec.has("file", name):
                said.append(content_of(value))
    return said, scripts, operands


def _commands_in(program: str, text: str) -> Iterator[str]:
    text = plain(text[:_MAX_TEXT])
    for pattern in _COMMANDS.get(program, ()):
        for match in re.finditer(pattern, text, re.M):
            yield next((each for each in match.groups() if each is not None), "")
