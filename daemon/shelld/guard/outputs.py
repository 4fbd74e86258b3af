"""Computes the output of a few programs, such as ``echo``, ``printf`` and ``base64 -d``.

Pure; runs nothing. From the outputs, the guard learns of commands that are hidden in a substitution
or piped to a shell. None means that an output is unknown.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Final

from shelld.guard.escapes import ansi_c
from shelld.guard.markers import UNKNOWN, cleaned
from shelld.guard.paths import normalized
from shelld.guard.patterns import linear_regex
from shelld.guard.rules import parse_arguments

# Characters. The guard treats longer output as unknown.
MAX_OUTPUT: Final = 64 * 1024


class Inputs:
    """The stdin of a program (None: unknown), the content of files, and the working directory."""

    def __init__(self, stdin: str | None, content_at: Callable[[str], str], cwd: str) -> None:
        self.stdin = stdin
        self.cwd = cwd
        self._content_at = content_at

    def read(self, operands: Sequence[str]) -> str | None:
        """Return the input of a filter: the files in its operands, or stdin. None if unknown."""
        names = list(operands) or ["-"]
        contents = [self._content(name) for name in names]
        known = [content for content in contents if content is not None]
        return "".join(known) if len(known) == len(names) else None

    def _content(self, name: str) -> str | None:
        if name in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            return self.stdin
        content = self._content_at(normalized(name, self.cwd))
        return None if content == UNKNOWN else content


def output_of(argv: Sequence[str], inputs: Inputs) -> str | None:
    """Return what a program writes to stdout, None if unknown."""
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


def _filter(change: Callable[[str], str]) -> Output:
    def output(arguments: Sequence[str], inputs: Inputs) -> str | None:
        parsed = parse_arguments(arguments)
        if parsed.flags:
            # Options change what the program writes.
            return None
        text = inputs.read(parsed.operands)
        return None if text is None or UNKNOWN in text else change(text)

    return output


def _cat(arguments: Sequence[str], inputs: Inputs) -> str | None:
    operands = [each for each in arguments if not each.startswith("-") or each == "-"]
    return inputs.read(operands)


def _tee(_arguments: Sequence[str], inputs: Inputs) -> str | None:
    return inputs.stdin


def _mktemp(arguments: Sequence[str], _inputs: Inputs) -> str | None:
    # Options such as ``-p`` name another directory.
    return f"/tmp/{UNKNOWN}\n" if {*arguments} <= {"-d", "--directory", "-q"} else None


def _lines(change: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    return lambda text: "".join(line + "\n" for line in change(text.splitlines()))


def _some_lines(*, first: bool) -> Output:
    def output(arguments: Sequence[str], inputs: Inputs) -> str | None:
        parsed = parse_arguments(arguments, "nc", ("lines", "bytes"))
        count = next((each[1:] for each in arguments if re.fullmatch(r"-\d+", each)), None)
        count = count or parsed.values.get("n") or parsed.values.get("lines") or "10"
        operands = [each for each in parsed.operands if not each.isdecimal() or each != count]
        text = inputs.read(operands)
        if text is None or "c" in parsed.flags or not count.isdecimal():
            return None
        lines = text.splitlines(keepends=True)
        number = int(count)
        return "".join(lines[:number] if first else lines[max(0, len(lines) - number) :])

    return output


def _base64(arguments: Sequence[str], inputs: Inputs) -> str | None:
    parsed = parse_arguments(arguments, "w", ("wrap",))
    operands = [each for each in parsed.operands if each not in ("enc", "base64")]
    text = inputs.read(operands)
    if text is None or UNKNOWN in text:
        return None
    if parsed.flags & {"d", "D", "decode"} or any("decode".startswith(f) for f in parsed.flags):
        return _decoded(text)
    return base64.b64encode(text.encode()).decode() + "\n"


def _text(data: bytes) -> str:
    return cleaned(data.decode("utf-8", "replace"))


def _decoded(text: str) -> str | None:
    compact = re.sub(r"\s+", "", text)
    try:
        data = base64.b64decode(compact + "=" * (-len(compact) % 4))
    except (binascii.Error, ValueError):
        return None
    return _text(data)


def _openssl(arguments: Sequence[str], inputs: Inputs) -> str | None:
    if "base64" not in arguments and "-base64" not in arguments and "-a" not in arguments:
        return None
    text = inputs.stdin
    return _decoded(text) if text is not None and "-d" in arguments else None


def _base32(arguments: Sequence[str], inputs: Inputs) -> str | None:
    text = inputs.read(parse_arguments(arguments).operands)
    if text is None or not parse_arguments(arguments).flags & {"d", "decode"}:
        return None
    return _text(base64.b32decode(re.sub(r"\s+", "", text)))


def _xxd(arguments: Sequence[str], inputs: Inputs) -> str | None:
    text = inputs.stdin
    if text is None or not {"r", "p"} <= set("".join(each.strip("-") for each in arguments)):
        return None
    return _text(bytes.fromhex(re.sub(r"\s+", "", text)))


def _tr_set(text: str) -> str:
    for name, members in (
        ("[:upper:]", "A-Z"),
        ("[:lower:]", "a-z"),
        ("[:digit:]", "0-9"),
        ("[:space:]", " \t\n"),
    ):
        text = text.replace(name, members)
    text = ansi_c(text)
    return re.sub(
        r"(.)-(.)",
        lambda match: "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1))),
        text,
        flags=re.S,
    )


def _tr(arguments: Sequence[str], inputs: Inputs) -> str | None:
    text = inputs.stdin
    flags = {letter for each in arguments if each.startswith("-") for letter in each[1:]}
    sets = [_tr_set(each) for each in arguments if not each.startswith("-") or each == "-"]
    if text is None or UNKNOWN in text or flags & {"c", "C", "s"}:
        return None
    if "d" in flags:
        return text.translate({ord(each): None for each in sets[0]})
    first, second = sets
    second = second.ljust(len(first), second[-1])
    return text.translate({ord(a): b for a, b in zip(first, second, strict=False)})


# The repetitions are atomic, so that text that does not match takes linear time.
_SUBSTITUTE: Final = re.compile(
    r"s([^\\\n])((?>(?:\\.|(?!\1)[^\\])*))\1((?>(?:\\.|(?!\1)[^\\])*))\1([gIi]*)", re.S
)


def _sed(arguments: Sequence[str], inputs: Inputs) -> str | None:
    parsed = parse_arguments(arguments, "ef", ("expression", "file"))
    scripts = [parsed.values[name] for name in ("e", "expression") if name in parsed.values]
    operands = parsed.operands
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    text = inputs.read(operands)
    if text is None or UNKNOWN in text or parsed.flags & {"n", "i", "f"}:
        return None
    for script in scripts:
        for command in script.split(";"):
            match = _SUBSTITUTE.fullmatch(command.strip())
            if match is None:
                return None
            _, pattern, new, flags = match.groups()
            pattern = re.sub(r"\\([(){}+?|])|([(){}+?|])", _other_way_round, pattern)
            if "&" in new or re.search(r"\\\d", new):
                return None
            new = re.sub(r"\\(\D)", r"\1", new).replace("\\", r"\\")
            compiled = linear_regex(f"(?i){pattern}" if "i" in flags.lower() else pattern)
            if compiled is None:
                return None
            count = 0 if "g" in flags else 1
            text = "\n".join(compiled.sub(new, line, count) for line in text.split("\n"))
    return text


def _other_way_round(match: re.Match[str]) -> str:
    """Swap escaped and plain metacharacters, to turn basic syntax into extended syntax."""
    return match[1] if match[1] is not None else "\\" + match[2]


def _cut(arguments: Sequence[str], inputs: Inputs) -> str | None:
    parsed = parse_arguments(arguments, "dfc", ("delimiter", "fields", "characters"))
    text = inputs.read(parsed.operands)
    characters = parsed.values.get("c") or parsed.values.get("characters")
    fields = parsed.values.get("f") or parsed.values.get("fields")
    if text is None or UNKNOWN in text:
        return None
    chosen = characters or fields or ""
    match = re.fullmatch(r"(\d*+)(-?)(\d*)", chosen)
    if match is None or chosen in ("", "-"):
        return None
    first = int(match[1] or 1) - 1
    last = int(match[3]) if match[3] else (None if match[2] else first + 1)
    delimiter = parsed.values.get("d") or parsed.values.get("delimiter") or "\t"
    lines = text.splitlines()
    if characters:
        return "".join(line[first:last] + "\n" for line in lines)
    return "".join(delimiter.join(line.split(delimiter)[first:last]) + "\n" for line in lines)


def _yes(arguments: Sequence[str], _inputs: Inputs) -> str:
    return (" ".join(arguments) or "y") + "\n"


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
        # Some of what every system has in its root.
        return None if parsed.flags & {"l", "s", "F", "i", "R"} else f"bin\netc\nusr\n{UNKNOWN}"
    return None


# The guard treats a sequence of more numbers than this as unknown.
_MAX_SEQ: Final = 1000


def _seq(arguments: Sequence[str], _inputs: Inputs) -> str | None:
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


Output = Callable[[Sequence[str], Inputs], str | None]

OUTPUTS: Final[dict[str, Output]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": _tee,
    "mktemp": _mktemp,
    "rev": _filter(_lines(lambda lines: [line[::-1] for line in lines])),
    "tac": _filter(_lines(lambda lines: lines[::-1])),
    "sort": _filter(_lines(sorted)),
    "uniq": _filter(_lines(lambda lines: [line for line, _ in itertools.groupby(lines)])),
    "head": _some_lines(first=True),
    "tail": _some_lines(first=False),
    "base64": _base64,
    "base32": _base32,
    "openssl": _openssl,
    "xxd": _xxd,
    "tr": _tr,
    "sed": _sed,
    "cut": _cut,
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
    "perl": _interpreter,
    "ruby": _interpreter,
    "node": _interpreter,
    "php": _interpreter,
    "awk": _awk,
    "gawk": _awk,
}
