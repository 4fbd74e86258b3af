"""Finds the commands in the languages of editors, pagers, git, databases and similar programs.

Pure. Such a program is called a speaker. The functions take the arguments and the input of a
speaker. They return the scripts that the speaker would pass to a shell. `vocabulary.SPEAKERS` says
where a speaker reads text in its language. `_COMMANDS` says which parts of that text are commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from shelld.guard.git import CONFIGURATION, scripts_in, settings_of
from shelld.guard.makefiles import with_variables
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import all_options
from shelld.guard.packages import PACKAGERS, scripts_of_package
from shelld.guard.specification import Specification, specification
from shelld.guard.vocabulary import SPEAKERS

_ASSIGNED: Final = re.compile(r"[\w.:-]++=(.*)", re.S)
# The guard searches at most `_MAX_TEXT` characters of a text, and follows at most `_MAX_COMMANDS`
# commands.
_MAX_TEXT: Final = 16 * 1024
_MAX_COMMANDS: Final = 32

# Each search takes linear time, because the repetitions are possessive, and no match contains a
# blank line.
_VI: Final = (
    r"""^:*+[^\S\n]*+(?>sil\w*+!?[^\S\n]++|)(?>exe\w*+[^\S\n]++["']|)[\d.,$%]*+"""
    r"""(?>(?:r(?:ead)?|w(?:rite)?)[^\S\n]*+(?=!)|)!++\s*+(.*)"""
)
_CALLED: Final = r"""\b%s\s*+\(?+\s*+(?:"((?>(?:[^"\\]|\\.)*))"|'([^']*+)')"""
_GIT: Final = (
    r"(?is)^(?:alias\.[^=\n]*+=!|(?:core\.(?:pager|editor|sshcommand|fsmonitor|askpass|gitproxy)"
    r"|pager\.[^=\n]*+|(?:sequence\.|gui\.)?editor|sequence\.editor|diff\.external|interactive\.difffilter"
    r"|[^=\n]*\.(?:cmd|textconv|command|helper|driver|clean|smudge|process|program))=)!?(.*)"
)
_MAKE: Final = (
    r"^\t[-@+]*(.*)",
    r"^[^\s#:=][^#:=]{0,500}+::?[^=;\n]*+;\s*+[-@+]*+(.*)",
    r"\$\(shell\s++([^()]*+)\)",
)
_PYTHON: Final = _CALLED % r"(?:system|popen|run|call|Popen)"
_GDB: Final = (r"^[^\S\n]*+(?:shell|!)\s*+(.*)", r"^[^\S\n]*+(?:pipe\s|\|).*?\|\s*+(.*)", _PYTHON)
_MYSQL: Final = (r"^[^\S\n]*+(?:system|\\!)\s++(.*)",)
_VIM: Final = (
    _VI,
    # The first of the next two patterns matches a shell command that follows another command and
    # ``|``. The second pattern matches the shell command of an ``autocmd``.
    r"[^\S\n]\|[^\S\n]*+!++\s*+(.*)",
    r"^:*+[^\S\n]*+au\w*+!?\s++\S++\s++\S++\s++:*+!++(.*)",
    r"^:*+[^\S\n]*+ter(?:m(?:inal)?)?!?\s++(.*)",
    _CALLED % r"(?:system(?:list)?|os\.execute|io\.popen|jobstart|termopen)",
    r"\bos\.execute\s*+\(\s*+\[\[([^\[\]]*+)\]\]",
)
_SSH: Final = (r"(?i)^(?:Proxy|Local|KnownHosts|Remote)Command(?:\s*+=\s*+|\s++)(.*)",)

_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("vim", "vi", "nvim", "view", "vimdiff", "gvim", "rvim", "rview", "evim", "ex"), _VIM
    ),
    "ed": (_VI, r"^[eE]?[^\S\n]*+!++(.*)"),
    **dict.fromkeys(("emacs", "emacsclient"), (_CALLED % r"shell-command(?:-to-string)?",)),
    "less": (r"(?:^|\s)\+*!(.*)",),
    "git": (_GIT,),
    **dict.fromkeys(("tar", "bsdtar"), (r"^exec=(.*)",)),
    **dict.fromkeys(("ssh", "scp", "sftp"), _SSH),
    "psql": (r"\\!\s*+(.*)", r"(?i)\bprogram\s++'((?>(?:[^']|'')*))'"),
    **dict.fromkeys(("mysql", "mariadb", "mycli", "litecli"), _MYSQL),
    "sqlite3": (r"^[^\S\n]*+\.(?:sh\w*+|sys\w*+)\s++(.*)",),
    "duckdb": (r"^[^\S\n]*+\.(?:sh\w*+|sys\w*+)\s++(.*)",),
    "sqlplus": (r"(?i)^[^\S\n]*+(?:!|ho(?:st)?\s)\s*+(.*)",),
    **dict.fromkeys(
        ("clickhouse-local", "clickhouse-client"), (r"(?i)\bexecutable\s*+\(\s*+'([^']*+)'",)
    ),
    "hg": (r"^(?:alias\.[^=\n]*+=!|(?:hooks|ui|extdiff|merge-tools|pager)\.[^=\n]*+=)(.*)",),
    "svn": (r"^config:tunnels:[^=\n]*+=(.*)",),
    "cmake": (r"(?i)\bexecute_process\s*+\(\s*+COMMAND\s++([^()]*+)",),
    "ninja": (r"^\s*+command\s*+=\s*+(.*)",),
    "pwsh": (r"(?m)(.+)",),
    **dict.fromkeys(("gdb", "rust-gdb", "cgdb"), _GDB),
    "bpftrace": (_CALLED % "system",),
    "kak": (r"%sh\{([^{}]*+)\}",),
    **dict.fromkeys(("pgcli", "usql"), (r"\\!\s*+(.*)",)),
    "lldb": (r"^[^\S\n]*+(?>platform\s++|)shell\s++(.*)", _PYTHON),
    **dict.fromkeys(("expect", "tclsh"), (r"(?:^|[;{\[])[^\S\n]*+(?:spawn|exec|system)\s++(.*)",)),
    **dict.fromkeys(("make", "gmake"), _MAKE),
    # Even a dry run of make runs the commands in ``$(shell ...)``.
    **dict.fromkeys(("make -n", "gmake -n"), _MAKE[2:]),
    "just": (r"^[ \t]++[-@]*+(.*)",),
    "rake": (_CALLED % r"(?:sh|system|exec)",),
    "task": (r"^[ \t]*+-[ \t]++(?>cmd:[ \t]*+|)['\"]?(.*?)['\"]?$",),
    "apt-get": (r"(?i)^[\w:-]*invoke(?:-success)?(?:::)?=(.*)",),
}

# In ``ed`` and ``ex``, text to insert comes after a line that matches this pattern. The text ends
# before a line that is only a dot.
_INPUT: Final = re.compile(r"[\d.,$+-]*+[aic]\s*+")
_EDITORS: Final = frozenset({"ed", "ex"})
# Some of these programs also change files themselves. For each such change, `_EFFECTS` has a
# pattern and a shell command with the same effect. The text that the pattern captures is the last
# argument of the shell command.
_WRITES_DISK: Final = (r"^:*+[\d.,$%]*+w(?:rite)?!?[^\S\n]++(/dev/\S++)", "true >")
# Matches a call in Emacs Lisp that starts a program without a shell. The strings in the call are
# the program and its arguments.
_STARTED: Final = re.compile(
    r"\((?:call-process|start-process|make-process|process-lines|call-process-region)\b([^()]*+)"
)
_STRING: Final = re.compile(r'(?<!\\)"((?>(?:[^"\\]|\\.)*))"')
_EFFECTS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    **dict.fromkeys(
        ("vim", "vi", "nvim", "vimdiff", "gvim", "rvim", "rview", "ex"),
        (
            _WRITES_DISK,
            (r"""\brmtree\s*+\(\s*+['"]([^'"]*+)['"]""", "rm -r --"),
            (r"""\bdelete\s*+\(\s*+['"]([^'"]*+)['"]\s*+,\s*+['"]rf['"]""", "rm -r --"),
        ),
    ),
    "ed": (_WRITES_DISK,),
    "emacs": ((r'\(delete-directory\s++"([^"]*+)"\s++t', "rm -r --"),),
    "tclsh": ((r"\bfile\s++delete\s++-force\s++(?:--\s++)?([^\s;\]]++)", "rm -r --"),),
}


def scripts_of(
    program: str,
    arguments: Sequence[str],
    exported: Callable[[str], str | None],
    content_of: Callable[[str], str],
    stdin: str,
) -> Iterator[str]:
    """Yield the scripts that a program passes to a shell.

    `exported` returns the value of an environment variable. `content_of` returns the content of a
    file.
    """
    spec = specification(SPEAKERS[program])

    def values_of(kind: str) -> list[str]:
        values = map(exported, spec.options.get(kind, ()))
        return [value for value in values if value is not None]

    more = [word for value in values_of("options") for word in _words_of(value)]
    arguments = [*more, *arguments]
    said, scripts, operands = _taken_apart(spec, arguments, content_of)
    said += values_of("tells")
    scripts += values_of("env")
    if "assigns" in spec.marks:
        scripts += [match[1] for match in map(_ASSIGNED.fullmatch, operands) if match is not None]
    given = spec.options.get("says", ())
    if "input" in given:
        said.append(_without_text(stdin) if program in _EDITORS else stdin)
    if program == "git":
        options, _ = all_options(arguments, *_valued(spec))
        said += settings_of(options, operands, exported, content_of(CONFIGURATION))
        scripts += scripts_in(arguments, operands)
    if program in PACKAGERS:
        scripts += scripts_of_package(program, operands, content_of)
    if "operands" in given:
        said += operands
    if "+" in given:
        said += [each[1:] for each in operands if each.startswith("+")]
    if any(spec.has("idle", name) for name, _ in all_options(arguments, *_valued(spec))[0]):
        program += " -n"
    behind = [shlex.join(operands[1:])] if "appends" in spec.marks else []
    scripts += [
        " ".join([found, *behind]) for text in said for found in _commands_in(program, text)
    ]
    for script in scripts[:_MAX_COMMANDS]:
        # In some languages, one of these characters can precede a command.
        yield script.lstrip("|!").removeprefix("-")


def _words_of(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        return options.split()


def _valued(spec: Specification) -> tuple[str, frozenset[str]]:
    return spec.letters, spec.names


def directories_of(program: str, arguments: Sequence[str]) -> list[str]:
    """A program may enter directories before it runs commands. Return them in order."""
    spec = specification(SPEAKERS[program])
    options, _ = all_options(arguments, *_valued(spec))
    return [value for name, value in options if value and spec.has("cd", name)]


def _taken_apart(
    spec: Specification, arguments: Sequence[str], content_of: Callable[[str], str]
) -> tuple[list[str], list[str], list[str]]:
    """Return three lists: texts in the program's language, shell scripts from options, and
    operands.
    """
    options, operands = all_options(arguments, *_valued(spec))
    given = [(name, value) for name, value in options if value is not None]
    said = [value for name, value in given if spec.has("says", name)]
    files = [value for name, value in given if spec.has("file", name)]
    for name in () if files else spec.options.get("default", ()):
        # The guard knows the content of a default file only if the command itself has written the
        # file.
        if content_of(name) != UNKNOWN:
            files = [name]
            break
    said += map(content_of, files)
    scripts = [value for name, value in given if spec.has("script", name)]
    return said, scripts, operands


def _without_text(script: str) -> str:
    """Remove the lines of inserted text from an editor's script."""
    lines: list[str] = []
    is_text = False
    for line in script.splitlines():
        if is_text:
            is_text = line != "."
        else:
            lines.append(line)
            is_text = _INPUT.fullmatch(line) is not None
    return "\n".join(lines)


def _commands_in(program: str, text: str) -> Iterator[str]:
    text = plain(text[:_MAX_TEXT])
    if program.startswith(("make", "gmake")):
        text = with_variables(text)
    for pattern in _COMMANDS.get(program, ()):
        for match in re.finditer(pattern, text, re.M):
            yield next((each for each in match.groups() if each is not None), "")
    for match in _STARTED.finditer(text) if program.startswith("emacs") else ():
        argv = _STRING.findall(match[1])
        # The first argument of some of these functions is a name for the process.
        yield shlex.join(argv)
        yield shlex.join(argv[1:])
    for pattern, command in _EFFECTS.get(program, ()):
        for match in re.finditer(pattern, text, re.M):
            yield f"{command} {shlex.quote(match[1])}"
