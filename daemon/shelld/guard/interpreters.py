"""Finds the commands that interpreter code starts, and the files that it removes or writes.

Pure. Searches for the names of functions, and does not parse the code. An argument is known if it
is a literal, or a variable that the same code sets to a literal. Text in quotes is never a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from shelld.guard.calls import LITERAL, compiled, given, unquoted, unrolled
from shelld.guard.literals import (
    with_arguments,
    with_line,
    with_names,
    with_plain_literals,
    with_shifted,
    with_values,
)
from shelld.guard.markers import ACTIVE, UNKNOWN, plain
from shelld.guard.options import leading_options
from shelld.guard.trees import commands_on_trees, globs_removed
from shelld.guard.vocabulary import FOREIGN_LANGUAGES, LANGUAGES, SHELLS, VERSION

# The guard searches at most `_MAX_CODE` characters of code, and follows at most `_MAX_CALLS` calls.
_MAX_CODE: Final = 16 * 1024
_MAX_CALLS: Final = 32

# In `Commands.removed`, this path stands for the user's home directory.
OWN_HOME: Final = "~/."


class Commands(NamedTuple):
    """What the code of a program would do, as far as the guard can find out."""

    scripts: list[str]
    argvs: list[list[str]]
    removed: list[str]
    written: list[str]
    is_fork_bomb: bool
    removes_files: bool


def language_of(program: str) -> str | None:
    """Return the name of an interpreter without its version, or None if the guard does not know the
    interpreter.
    """
    name = program.rstrip(VERSION)
    return name if name in LANGUAGES else None


def code_of(
    language: str, arguments: Sequence[str], stdin: str, content_of: Callable[[str], str]
) -> str:
    """Return the code that an interpreter runs. The code comes from options, a file or stdin."""
    letters = LANGUAGES[language]
    codes: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith("--") or argument == "-eval":
            name, equals, value = argument.lstrip("-").partition("=")
            if name in ("eval", "print"):
                codes.append(value if equals else "".join(rest[:1]))
        elif argument == "-m" and language == "python":
            return _of_module(rest[0], rest[1:]) if rest else ""
        elif argument.startswith("-") and len(argument) > 1:
            if argument[-1] in letters and len(argument) <= _LONGEST_GROUP:
                codes.append("".join(rest[:1]))
                del rest[:1]
            elif argument[1] in letters:
                codes.append(argument[2:])
            elif argument in ("-W", "-X") and language == "python":
                del rest[:1]
        elif argument == "eval" and not letters:
            codes += rest
            rest = []
        elif codes:
            rest.insert(0, argument)
            break
        else:
            # Node.js passes a script its own path as one of the arguments.
            given = [argument, *rest] if letters == "ep" else rest
            return with_arguments(content_of(argument), given)
    if not codes:
        return stdin
    code = with_arguments("\n".join(codes), rest)
    code = with_shifted(code, rest) if language in _BACKTICKS else code
    reads = language in _BACKTICKS and not rest and any(map(_READS.match, arguments))
    return _with_lines(code, stdin) if reads else code


def _with_lines(code: str, stdin: str) -> str:
    """If the input is known, repeat the code for each line of the input.

    In each copy, a literal replaces the variable for the current line.
    """
    if stdin in ("", UNKNOWN):
        return code
    return "\n".join(with_line(code, line) for line in plain(stdin).splitlines()[:_MAX_LINES])


def _of_module(name: str, arguments: Sequence[str]) -> str:
    """Some Python modules, such as pdb, run code from their arguments. Return this code."""
    if name == "pdb":
        options, _ = leading_options(arguments, "c", ("command",))
        return "\n".join(value.lstrip("!") for _, value in options if value)
    return _timed(arguments) if name == "timeit" else ""


def _timed(arguments: Sequence[str]) -> str:
    """Return the code that Python's module timeit runs."""
    options, statements = leading_options(arguments, "nrsu", ("number", "repeat", "setup", "unit"))
    setups = [value or "" for name, value in options if name in ("s", "setup")]
    return "\n".join([*setups, *statements])


# With an option that matches this pattern, Perl and Ruby run the code for each line of input. The
# guard tries at most `_MAX_LINES` lines.
_READS: Final = re.compile(r"-[al0-9w]{0,8}[np]")
_MAX_LINES: Final = 4
# The length of ``-wlne``, as in ``perl -wlne``. A longer option is not a group of letters.
_LONGEST_GROUP: Final = 5

_CALLS: Final = (
    r"(?:\b(?:os\.execute|io\.popen|system|popen\d?|exec\w*|spawn\w*|run|call|check_call"
    r"|check_output|getoutput|getstatusoutput|Popen|shell_exec|passthru|proc_open|pcntl_exec"
    r"|Command|fork_exec)\b)"
)
_EVALUATES: Final = r"(?:\b(?:exec|eval)\b)"
_OPENS: Final = r"(?:\bopen\b)"
# The functions that write text to a started program.
_FEEDS: Final = r"(?:\b(?:communicate|write|print|printf|puts|say|end)\b)"
_REMOVES: Final = (
    r"(?:\b(?:rmtree|remove_tree|rmSync|rmdirSync|rm_rf|rm_r|remove_dir|remove_dir_all|rmdir_r|remove_entry"
    r"|remove_entry_secure|rimraf|removeItem|deleteDir|delete_directory_tree)\b!?"
    rf"|\bPathname(?:\.new)?(?=\s{{0,8}}\(\s{{0,8}}(?:{LITERAL})\s{{0,8}}\)\.(?:rmtree|delete)\b)"
    # Node.js and Julia have ``rm``, R has ``unlink``, and Deno has ``removeSync``.
    r"|\b(?:rm(?:dir)?|unlink|remove(?:Sync)?)\b(?=\s{0,8}\([^;\n]{0,200}?\brecursive\b))"
)
# Calls that remove files or trees, without an ``if`` or ``unless`` after them in the same line.
_REMOVES_FILES: Final = (
    r"\b(?:unlink(?:Sync)?|os\.remove|File\.delete|rmtree|rmdir|rm_rf)\b"
    r"(?![^\n]{0,200}\b(?:if|unless)\b)"
)
# Expressions for the user's home directory itself, not for a path below it.
_HOME: Final = (
    r"""(?:(?:os\.path\.)?\bexpanduser\(\s*+(?:"~/?"|'~/?')\s*+\)|\bPath\.home\(\)"""
    r"""|(?:\brequire\((?:"os"|'os')\)\.|\bos\.)?\bhomedir\(\)|\bDir\.home\b|\bos\.environ\[(?:"HOME"|'HOME')\]"""
    r"""|\bprocess\.env\.HOME\b|\bENV\[(?:"HOME"|'HOME')\]|\$ENV\{HOME\})(?!\s*+(?:[/+.]|,(?!\s*+(?:\{|\w++\s*+=))))"""
)
_WRITES: Final = (
    rf"(?:writeFile(?:Sync)?|createWriteStream|file_put_contents|File\.(?:bin)?write)\s*+\(\s*+"
    rf"({LITERAL})",
    rf"open\s*+\(\s*+({LITERAL})\s*+,\s*+['\"][^'\"]*[wa+]",
    rf"open\s*+\(\s*+({LITERAL})\s*+,[^()\n]{{0,80}}O_(?:WRONLY|RDWR)",
    rf"Path\s*+\(\s*+({LITERAL})\s*+\)\s*+\.\s*+(?:write_\w|open\s*+\(\s*+['\"][^'\"]*[wa+])",
    rf"\b(?:truncate|IO\.(?:bin)?write)\s*+\(\s*+({LITERAL})",
    rf"\b(?:copyfile|copy2?|move|copyFile(?:Sync)?|cp)\s*+\(\s*+(?:{LITERAL})\s*+,\s*+({LITERAL})",
    r"""open\w{0,20}+[\s(][^;\n"']{0,200}+['"](?:\+?>>?|\+<)[^'"]{0,20}['"]\s*+,\s*+(['"][^'"]*+['"])""",
    r"""open\w{0,20}+[\s(][^;\n"']{0,200}+(['"](?:\+?>>?|\+<)[^'"]*+['"])""",
)
_FOREVER: Final = (
    r"\bwhile\s*+\(?+\s*+(?:1|true|True)\b|\bfor\s*\(\s*;\s*;|\bloop\b|\biter\s*\(\s*(?:int|lambda)\b|\bwhile\s{0,8}\(\s{0,8}\)"
    r"|\bsetInterval\b|\bsub\s{1,8}(\w{1,40})\s{0,8}\{[^{}]{0,99}\bfork\b[^{}]{0,99}\b\1\b|\bfork\b[\s()]*\bwhile\b|\buntil\b\s{0,8}\(?\s{0,8}(?:0|false)\b|\bcount\s*\("
    r"|\bwhile\b(?:(?!\bwhile\b)[^\n:{])*\bfork\b[\s()]*+(?:\bor\b|\|\|)\s*(?:1|True)\b|\bredo\b"
)
_ENDS: Final = r"\b(?:wait\w*|exit\w*|break|accept|last|return)\b"
_FORK: Final = r"(?:\b|pcntl_)fork\b"
# The functions that start a process. Loops that call them are common, but a harmless loop also
# waits for something.
_STARTS: Final = r"\b(?:Popen|Process|Thread|spawn\w*|(?<=\.)exec)\s*\("
# A call that starts a command in the background, with ``&`` at the end of the command.
_IN_BACKGROUND: Final = (
    r"\b(?:system|execute|popen|shell_exec|exec)\b[\s(]{0,8}"
    r"(?:\"[^\"\n]*+(?<=&)\"|'[^'\n]*+(?<=&)')"
)
_PAUSES: Final = (
    r"\b(?:sleep|join|communicate|poll|recv\w*|read\w*|input|get|select|accept|listen|await|run"
    r"|check_\w+|spawnSync|append|push|if|next)\b"
)
_COMMENT: Final = r"^[^\S\n]*+(?:#|//).*$"
# In these languages, text between backticks is a command.
_BACKTICKS: Final = frozenset({"perl", "ruby", "php"})
# In these languages, text between backticks is a command if a dollar precedes the text.
_TAGGED: Final = frozenset({"bun", "node", "nodejs", "deno"})


def commands_in(language: str, code: str) -> Commands:
    code = compiled(_COMMENT).sub("", with_plain_literals(language, plain(code[:_MAX_CODE])))
    code = compiled(_HOME).sub(repr(OWN_HOME), code)
    code = with_values(with_names(code[:_MAX_CODE]))
    is_bomb = is_fork_bomb(code)
    # Add the strings that the code passes to ``eval``, because they also run as code.
    code = "\n".join([code, *(values[0] for values in given(code, _EVALUATES))])
    scripts, argvs = _started(language, code)
    if language in FOREIGN_LANGUAGES:
        scripts += _strings_in(code)
    for each in unrolled(code):
        more = _started(language, with_values(each))
        scripts += more[0]
        argvs += more[1]
    written = [unquoted(match[1]) for each in _WRITES for match in compiled(each).finditer(code)]
    argvs += commands_on_trees(code)
    removed = [values[0] for values in given(code, _REMOVES)] + [*globs_removed(code)]
    return Commands(
        scripts[:_MAX_CALLS],
        [argv for argv in argvs if argv][:_MAX_CALLS],
        [path.translate(ACTIVE) for path in removed[:_MAX_CALLS]],
        [each.lstrip("+<> ") for each in written[:_MAX_CALLS]],
        is_bomb or is_fork_bomb(code),
        compiled(_REMOVES_FILES).search(code) is not None,
    )


def _started(language: str, code: str) -> tuple[list[str], list[list[str]]]:
    """Return the shell scripts that code runs, and the argument lists of started programs."""
    scripts: list[str] = []
    argvs: list[list[str]] = []
    # If true, the code starts a shell, which may read text that the code writes.
    has_shell = False
    if language in _BACKTICKS:
        scripts += [match[1] for match in compiled(r"`([^`]*)`").finditer(code)]
        quoted = compiled(r"(?:qx|%x)\s*+[({\[/|!]([^)}\]/|!]*+/?[^)}\]|!]*+)").finditer(code)
        scripts += [match[1] for match in quoted]
    elif language in _TAGGED:
        scripts += [match[1] for match in compiled(r"\$`([^`]*)`").finditer(code)]
    for values in given(code, _OPENS) if language in _BACKTICKS else ():
        first, *others = values
        if first in ("-|", "|-"):
            argvs.append(others)
            scripts += others[:1] if len(others) == 1 else []
            has_shell = has_shell or _is_shell(others)
        elif first.startswith("|") or first.endswith("|"):
            scripts.append(first.strip("|"))
            has_shell = has_shell or _is_shell(first.strip("| ").split())
    for values in given(code, _CALLS):
        argvs.append(values)
        if len(values) == 1 or " " in values[0]:
            scripts.append(values[0])
        # In ``execvp("rm", ["rm", ...])``, the name of the program comes twice.
        argvs.append(values[1:])
        if _is_shell(values):
            has_shell = True
            scripts += [each for each in values[1:] if " " in each]
    for values in given(code, _FEEDS) if has_shell else ():
        scripts.append(values[0])
    return scripts, argvs


def _strings_in(code: str) -> Iterator[str]:
    """Yield the strings that code may run. Skips strings that the code only prints or compares."""
    for match in islice(compiled(LITERAL).finditer(code), _MAX_CALLS):
        if not compiled(_SHOWS).search(code[max(0, match.start() - _MAX_SHOWS) : match.start()]):
            yield unquoted(match[0])


_MAX_SHOWS: Final = 24
_SHOWS: Final = (
    r"(?:\b(?:print\w*|puts|put\w?|echo|say|write\w*|log|display|cat|message|format|show|return|alert"
    r"|notification|fwrite)\b|==|!=)[\s(!.]*\Z"
)


def _is_shell(argv: Sequence[str]) -> bool:
    return "".join(argv[:1]).rpartition("/")[2] in SHELLS


def is_fork_bomb(code: str) -> bool:
    """Return whether code starts processes in an endless loop, and waits for none of them."""
    if compiled(_ENDS).search(code):
        return False
    without = compiled(LITERAL).sub("''", code)
    if compiled(_FOREVER).search(without) is None:
        return False
    if compiled(_FORK).search(without) is not None:
        return True
    starts = compiled(_STARTS).search(without) or compiled(_IN_BACKGROUND).search(code)
    return starts is not None and compiled(_PAUSES).search(without) is None
