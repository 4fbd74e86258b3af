"""Computes the output of a few programs, such as ``echo``, ``printf`` and ``base64 -d``.

Pure. The module runs nothing. The guard needs these outputs to find commands that come from a
substitution or that a shell reads from a pipe. None means that an output is unknown.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Sequence
from typing import Final

from shelld.guard.escapes import ansi_c
from shelld.guard.inputs import Inputs, Output
from shelld.guard.markers import ENDLESS, UNKNOWN
from shelld.guard.paths import normalized
from shelld.guard.rules import parse_arguments
from shelld.guard.text_filters import FILTERS

# The maximum length of an output in characters. The guard treats longer output as unknown.
MAX_OUTPUT: Final = 64 * 1024


def output_of(argv: Sequence[str], inputs: Inputs) -> str | None:
    """Return what a program writes to stdout, or None if it is unknown."""
    function = OUTPUTS.get(argv[0].rpartition("/")[2])
    if function is None:
        return None
    try:
        output = function(argv[1:], inputs)
    except (ValueError, IndexError, re.error):
        return None
    return None if output is None or len(output) > MAX_OUTPUT else output


def _echo(arguments: Sequence[str], _inputs: Inputs) -> str:
    rest = list(arguments)
    newline, escapes = "\n", False
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        newline = "" if "n" in rest[0] else newline
        escapes = "e" in rest[0] or (escapes and "E" not in rest[0])
        rest.pop(0)
    text = " ".join(rest)
    return (ansi_c(text, octal_zero=True) if escapes else text) + newline


_DIRECTIVE: Final = re.compile(r"%[-+ #0]*+\d*+(?:\.\d++)?([sbdiqcxXouf%])")


def _printf(arguments: Sequence[str], _inputs: Inputs) -> str | None:
    rest = list(arguments)
    if rest[:1] == ["-v"]:
        return ""
    if rest[:1] == ["--"]:
        rest.pop(0)
    form, *values = rest
    if UNKNOWN in form:
        return None
    form = ansi_c(form)
    output = ""
    while True:
        before = len(values)

        def directive(match: re.Match[str]) -> str:
            if match[1] == "%":
                return "%"
            value = values.pop(0) if values else ""
            if match[1] == "c":
                return value[:1]
            return ansi_c(value, octal_zero=True) if match[1] == "b" else value

        output += _DIRECTIVE.sub(directive, form)
        if not values or len(values) == before or len(output) > MAX_OUTPUT:
            return output


def _mktemp(arguments: Sequence[str], _inputs: Inputs) -> str | None:
    # With an option such as ``-p``, the file is in another directory, so the output is unknown.
    return f"/tmp/{UNKNOWN}\n" if {*arguments} <= {"-d", "--directory", "-q"} else None


def _yes(arguments: Sequence[str], _inputs: Inputs) -> str:
    return (" ".join(arguments) or "y") + "\n" + ENDLESS


def _dirname(arguments: Sequence[str], _inputs: Inputs) -> str:
    return "".join(
        (posixpath.dirname(each.rstrip("/") or "/") or ".") + "\n"
        for each in parse_arguments(arguments).operands
    )


def _basename(arguments: Sequence[str], _inputs: Inputs) -> str:
    name, *suffix = parse_arguments(arguments).operands
    result = posixpath.basename(name.rstrip("/")) or "/"
    return (result.removesuffix(suffix[0]) if suffix else result) + "\n"


def _realpath(arguments: Sequence[str], inputs: Inputs) -> str:
    operands = parse_arguments(arguments).operands
    return "".join(normalized(each, inputs.cwd) + "\n" for each in operands)


def _pwd(_arguments: Sequence[str], inputs: Inputs) -> str:
    return inputs.cwd + "\n"


def _which(arguments: Sequence[str], _inputs: Inputs) -> str:
    return "".join(each + "\n" for each in arguments if not each.startswith("-"))


def _command(arguments: Sequence[str], inputs: Inputs) -> str | None:
    if arguments and arguments[0] in ("-v", "-V"):
        return _which(arguments, inputs)
    return None


def _ls(arguments: Sequence[str], inputs: Inputs) -> str | None:
    parsed = parse_arguments(arguments)
    if "d" in parsed.flags and not parsed.flags & {"l", "s", "F", "i"}:
        return "".join(each + "\n" for each in parsed.operands) or ".\n"
    if [normalized(each, inputs.cwd) for each in parsed.operands or ["."]] == ["/"]:
        # Every system has these directories in its root. `UNKNOWN` stands for all other names in
        # the root.
        return None if parsed.flags & {"l", "s", "F", "i", "R"} else f"bin\netc\nusr\n{UNKNOWN}"
    return None


# A sequence may have at most this many numbers. The guard treats a longer sequence as unknown.
_MAX_SEQ: Final = 1000


def _seq(arguments: Sequence[str], _inputs: Inputs) -> str | None:
    if arguments[-1:] in (["inf"], ["infinity"]):
        return f"1\n{ENDLESS}"
    numbers = [int(each) for each in arguments]
    first, last = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    step = numbers[1] if len(numbers) == 3 else 1
    found = range(first, last + (1 if step > 0 else -1), step)
    return None if len(found) > _MAX_SEQ else "".join(f"{number}\n" for number in found)


_PRINTED: Final = re.compile(
    r"""\s*+(?:print|puts|say|echo|console\.log)\s*+\(?+\s*+"""
    r"""(["'])(.*?)(?<!\\)\1\s*+\)?+\s*+;?+\s*+""",
    re.S,
)


def _perl(arguments: Sequence[str], inputs: Inputs) -> str | None:
    return FILTERS["perl"](arguments, inputs) or _interpreter(arguments, inputs)


def _interpreter(arguments: Sequence[str], _inputs: Inputs) -> str | None:
    for option, code in itertools.pairwise(arguments):
        if option in ("-c", "-e", "-r", "-p"):
            match = _PRINTED.fullmatch(code)
            return None if match is None else ansi_c(match[2]) + "\n"
    return None


_PRINTED_BY_AWK: Final = re.compile(
    r"""\s*+BEGIN\s*+\{\s*+print\s*+"(.*?)"\s*+;?+\s*+\}\s*+""", re.S
)


def _awk(arguments: Sequence[str], _inputs: Inputs) -> str | None:
    match = _PRINTED_BY_AWK.fullmatch(arguments[0])
    return None if match is None else ansi_c(match[1]) + "\n"


OUTPUTS: Final[dict[str, Output]] = {
    **FILTERS,
    "echo": _echo,
    "printf": _printf,
    "mktemp": _mktemp,
    "yes": _yes,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "pwd": _pwd,
    "which": _which,
    "command": _command,
    "type": _which,
    "ls": _ls,
    "seq": _seq,
    "true": lambda _arguments, _inputs: "",
    "false": lambda _arguments, _inputs: "",
    ":": lambda _arguments, _inputs: "",
    "python": _interpreter,
    "python3": _interpreter,
    "perl": _perl,
    "ruby": _interpreter,
    "node": _interpreter,
    "php": _interpreter,
    "awk": _awk,
    "gawk": _awk,
}
