"""Finds the commands that interpreter code starts, and the files that it removes or writes.

Pure. Searches for the names of functions instead of parsing. An argument is known if it is a
literal, or a variable that the same code sets to a literal. Text in quotes is never a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

from shelld.guard.literals import with_arguments, with_line, with_plain_literals, with_values
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import leading_options
from shelld.guard.vocabulary import LANGUAGES, VERSION

# How many characters of code to search, and how many calls to follow.
_MAX_CODE: Final = 16 * 1024
_MAX_CALLS: Final = 32


# How many calls are looked at, how many characters of the arguments of each, and how many names in
# them. Code beyond these limits counts as harmless, as does code that cannot be followed.
_MAX_LOOKS: Final = 64
_MAX_ARGUMENTS: Final = 4 * 1024
_MAX_NAMES: Final = 16


# Stands for the user's home directory in `Commands.removed`.
OWN_HOME: Final = "~/."


class Commands(NamedTuple):
    """The effects of code, as far as its text shows them."""

    scripts: list[str]
    argvs: list[list[str]]
    removed: list[str]
    written: list[str]
    is_fork_bomb: bool


def language_of(program: str) -> str | None:
    """Return the language of an interpreter, ignoring a version in its name; None if unknown."""
    name = program.rstrip(VERSION)
    return name if name in LANGUAGES else None


def code_of(
    language: str, arguments: Sequence[str], stdin: str, content_of: Callable[[str], str]
) -> str:
    """Return the code that an interpreter runs: from options, a file or stdin."""
    letters = LANGUAGES[language]
    codes: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            if name in ("eval", "print"):
                codes.append(value if equals else "".join(rest[:1]))
        elif argument == "-m" and language == "python":
            return _timed(rest[1:]) if rest[:1] == ["timeit"] else ""
        elif argument.startswith("-") and len(argument) > 1:
            if argument[-1] in letters and len(argument) <= _LONGEST_GROUP:
                codes.append("".join(rest[:1]))
                del rest[:1]
            elif argument[1] in letters:
                codes.append(argument[2:])
            elif argument in ("-W", "-X") and language == "python":
                del rest[:1]
        elif language == "deno" and argument == "eval":
            codes += rest
            rest = []
        elif codes:
            rest.insert(0, argument)
            break
        else:
            # Node.js counts the file, too.
            given = [argument, *rest] if letters == "ep" else rest
            return with_arguments(content_of(argument), given)
    if not codes:
        return stdin
    code = with_arguments("\n".join(codes), rest)
    reads = language in _BACKTICKS and not rest and any(map(_READS.match, arguments))
    return _with_lines(code, stdin) if reads else code


def _with_lines(code: str, stdin: str) -> str:
    """Return code for each line of the input, if the input is known."""
    if stdin in ("", UNKNOWN):
        return code
    return "\n".join(with_line(code, line) for line in plain(stdin).splitlines()[:_MAX_LINES])


def _timed(arguments: Sequence[str]) -> str:
    """Return the code that Python's module timeit runs."""
    options, statements = leading_options(arguments, "nrsu", ("number", "repeat", "setup", "unit"))
    setups = [value or "" for name, value in options if name in ("s", "setup")]
    return "\n".join([*setups, *statements])


# Options with which Perl and Ruby run the code for each line of input, and how many lines to try.
_READS: Final = re.compile(r"-[al0-9w]{0,8}[np]")
_MAX_LINES: Final = 4
# The length of ``-wlne``, as in ``perl -wlne``: a longer option is not a group of letters.
_LONGEST_GROUP: Final = 5

# These patterns take linear time. A search that starts at a quote fails only if the quotation has
# no end. Then all later quotes of its kind are escaped, and no search starts at an escaped quote.
_LITERAL: Final = r"""(?<!\\)'(?>(?:[^'\\]|\\.)*)'|(?<!\\)"(?>(?:[^"\\]|\\.)*)"|`[^`]*+`"""
_CALLS: Final = (
    r"(?:\b(?:os\.execute|io\.popen|system|popen\d?|exec\w*|spawn\w*|run|call|check_call"
    r"|check_output|getoutput|getstatusoutput|Popen|shell_exec|passthru|proc_open|pcntl_exec"
    r"|Command|fork_exec)\b)"
)
_EVALUATES: Final = r"(?:\b(?:exec|eval)\b)"
_OPENS: Final = r"(?:\bopen\b)"
_REMOVES: Final = (
    r"(?:\b(?:rmtree|remove_tree|rmSync|rmdirSync|rm_rf|rm_r|remove_dir_all|rmdir_r|remove_entry"
    r"|remove_entry_secure|rimraf)\b)"
)
# The user's home directory, with nothing joined to it.
_HOME: Final = (
    r"""(?:(?:os\.path\.)?\bexpanduser\(\s*+(?:"~/?"|'~/?')\s*+\)|\bPath\.home\(\)"""
    r"""|(?:\brequire\((?:"os"|'os')\)\.|\bos\.)?\bhomedir\(\)|\bDir\.home\b|\bos\.environ\[(?:"HOME"|'HOME')\]"""
    r"""|\bprocess\.env\.HOME\b|\bENV\[(?:"HOME"|'HOME')\]|\$ENV\{HOME\})(?!\s*+(?:[/+.]|,(?!\s*+(?:\{|\w++\s*+=))))"""
)
_WRITES: Final = (
    rf"(?:writeFile(?:Sync)?|createWriteStream|file_put_contents|File\.(?:bin)?write)\s*+\(\s*+"
    rf"({_LITERAL})",
    rf"open\s*+\(\s*+({_LITERAL})\s*+,\s*+['\"][^'\"]*[wa+]",
    rf"open\s*+\(\s*+({_LITERAL})\s*+,[^()\n]{{0,80}}O_(?:WRONLY|RDWR)",
    rf"Path\s*+\(\s*+({_LITERAL})\s*+\)\s*+\.\s*+(?:write_\w|open\s*+\(\s*+['\"][^'\"]*[wa+])",
    r"""open\w{0,20}+[\s(][^;\n"']{0,200}+['"]\+?>>?['"]\s*+,\s*+(['"][^'"]*+['"])""",
    r"""open\w{0,20}+[\s(][^;\n"']{0,200}+(['"]\+?>>?[^'"]*+['"])""",
)
_FOREVER: Final = (
    r"\bwhile\s*+\(?+\s*+(?:1|true|True)\b|\bfor\s*\(\s*;\s*;|\bloop\b|\biter\s*\(\s*int"
    r"|\bfork\b[\s()]*\bwhile\b|\buntil\s+(?:0|false)\b|\bcount\s*\("
    r"|\bwhile\b(?:(?!\bwhile\b)[^\n:{])*\bfork\b[\s()]*+(?:\bor\b|\|\|)\s*(?:1|True)\b|\bredo\b"
)
_ENDS: Final = r"\b(?:wait\w*|exit\w*|break|accept|last|return)\b"
_FORK: Final = r"(?:\b|pcntl_)fork\b"
# Loops that start programs are common, but a harmless loop waits for something.
_STARTS: Final = r"\b(?:Popen|Process|spawn\w*)\s*\("
_PAUSES: Final = (
    r"\b(?:sleep|join|communicate|poll|recv\w*|read\w*|input|get|select|accept|listen|await|run"
    r"|check_\w+|spawnSync|append|push|if|next)\b"
)
_COMMENT: Final = r"^[^\S\n]*+(?:#|//).*$"
# Languages in which text between backticks is a command.
_BACKTICKS: Final = frozenset({"perl", "ruby", "php"})


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.M)


def commands_in(language: str, code: str) -> Commands:
    code = _compiled(_COMMENT).sub("", with_plain_literals(language, plain(code[:_MAX_CODE])))
    code = _compiled(_HOME).sub(repr(OWN_HOME), code)
    code = with_values(code[:_MAX_CODE])
    # Code in code.
    code = "\n".join([code, *(values[0] for values in _given(code, _EVALUATES))])
    scripts: list[str] = []
    argvs: list[list[str]] = []
    if language in _BACKTICKS:
        scripts += [match[1] for match in _compiled(r"`([^`]*)`").finditer(code)]
        quoted = _compiled(r"(?:qx|%x)\s*+[({\[/|!]([^)}\]/|!]*+/?[^)}\]|!]*+)").finditer(code)
        scripts += [match[1] for match in quoted]
    for values in _given(code, _OPENS) if language in _BACKTICKS else ():
        first, *others = values
        if first in ("-|", "|-"):
            argvs.append(others)
            scripts += others[:1] if len(others) == 1 else []
        elif first.startswith("|") or first.endswith("|"):
            scripts.append(first.strip("|"))
    for values in _given(code, _CALLS):
        argvs.append(values)
        if len(values) == 1 or " " in values[0]:
            scripts.append(values[0])
        # ``execvp("rm", ["rm", ...])`` names the program twice.
        argvs.append(values[1:])
    written = [_text(match[1]) for each in _WRITES for match in _compiled(each).finditer(code)]
    return Commands(
        scripts[:_MAX_CALLS],
        [argv for argv in argvs if argv][:_MAX_CALLS],
        [values[0] for values in _given(code, _REMOVES)][:_MAX_CALLS],
        [each.lstrip("+> ") for each in written[:_MAX_CALLS]],
        _is_fork_bomb(code),
    )


def _is_fork_bomb(code: str) -> bool:
    if _compiled(_ENDS).search(code):
        return False
    without = _compiled(_LITERAL).sub("''", code)
    if _compiled(_FOREVER).search(without) is None:
        return False
    if _compiled(_FORK).search(without) is not None:
        return True
    starts = _compiled(_STARTS).search(without) is not None
    return starts and _compiled(_PAUSES).search(without) is None


def _given(code: str, calls: str) -> Iterator[list[str]]:
    """Yield the known string arguments of each call, if there are any. `calls` is a pattern."""
    # Match literals first: text in quotes is not a call.
    pattern = _compiled(rf"{_LITERAL}|({calls})(?!\s*[:=])")
    found = (match for match in pattern.finditer(code) if match[1] is not None)
    # Calls can be nested, and looking at the arguments of each takes time.
    for match in islice(found, _MAX_LOOKS):
        end = _end_of_arguments(code, match.end())
        arguments = code[match.end() : min(end, match.end() + _MAX_ARGUMENTS)]
        values = _values_in(arguments)
        if not values:
            names = dict.fromkeys(_compiled(r"[A-Za-z_]\w*").findall(arguments))
            for name in islice(names, _MAX_NAMES):
                assigned = _compiled(rf"\b{name}\s*(?:=(?!=)|in\b)\s*(.*)").search(code)
                if assigned is not None:
                    end = _end_of_arguments(assigned[1], 0)
                    values += _values_in(assigned[1][:end])
        if values:
            yield values


def _values_in(text: str) -> list[str]:
    """Return the strings in code, with those joined that stand side by side or around ``+``."""
    # ``qw`` is a list of words.
    text = _compiled(r"\bqw\s*+[(\[{/|]([^)\]}|]*+)(?:[)\]}|]|\Z)").sub(_quoted_words, text)
    values: list[str] = []
    end = -1
    for match in _compiled(_LITERAL).finditer(text):
        between = text[end : match.start()].strip() if end >= 0 else None
        if between in ("+", ".", "..", "+ f") or (between in ("", "f") and match.start() > end):
            values[-1] += _text(match[0])
        else:
            values.append(_text(match[0]))
        end = match.end()
    return values


def _quoted_words(match: re.Match[str]) -> str:
    return ", ".join(f"'{word}'" for word in match[1].split())


def _text(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal[1:-1])


def _end_of_arguments(code: str, position: int) -> int:
    """Return the end of a call's arguments: a closing parenthesis, or the end of the statement."""
    depth = 0
    token = _compiled(rf"{_LITERAL}|[()\[\]{{}};\n]")
    while (match := token.search(code, position)) is not None:
        position = match.end()
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
            if depth <= 0:
                return position
        elif match[0] in ";\n" and depth <= 0:
            return match.start()
    return len(code)
