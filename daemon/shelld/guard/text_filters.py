"""Computes the output of filters such as ``sed``, ``tr`` and ``base64 -d`` for a known input.

Pure. The module runs nothing. None means that an output is unknown.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Final

from shelld.guard.compression import PACKERS, bytes_of_text, text_of_bytes
from shelld.guard.escapes import ansi_c
from shelld.guard.inputs import Inputs, Output
from shelld.guard.jq import jq
from shelld.guard.line_filters import LINE_FILTERS
from shelld.guard.markers import ENDLESS, UNKNOWN
from shelld.guard.options import all_options, leading_options
from shelld.guard.patterns import linear_regex
from shelld.guard.rules import parse_arguments


def _cat(arguments: Sequence[str], inputs: Inputs) -> str | None:
    operands = [each for each in arguments if not each.startswith("-") or each == "-"]
    return inputs.read(operands)


def _tee(_arguments: Sequence[str], inputs: Inputs) -> str | None:
    return inputs.stdin


# The guard takes at most this many lines of endless output.
_MAX_REPEATED: Final = 64


def _some_lines(*, first: bool) -> Output:
    def output(arguments: Sequence[str], inputs: Inputs) -> str | None:
        parsed = parse_arguments(arguments, "nc", ("lines", "bytes"))
        count = next((each[1:] for each in arguments if re.fullmatch(r"-\d+", each)), None)
        count = count or parsed.values.get("n") or parsed.values.get("lines") or "10"
        operands = [each for each in parsed.operands if not each.isdecimal() or each != count]
        text = inputs.read(operands)
        if text is None or "c" in parsed.flags or not count.isdecimal():
            return None
        number = int(count)
        text, endless, _ = text.partition(ENDLESS)
        lines = text.splitlines(keepends=True)
        if endless and (number > _MAX_REPEATED or not first):
            return None
        lines *= number if endless else 1
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
    return base64.b64encode(bytes_of_text(text)).decode() + "\n"


def _decoded(text: str) -> str | None:
    compact = re.sub(r"\s+", "", text)
    try:
        data = base64.b64decode(compact + "=" * (-len(compact) % 4))
    except (binascii.Error, ValueError):
        return None
    return text_of_bytes(data)


def _openssl(arguments: Sequence[str], inputs: Inputs) -> str | None:
    if "base64" not in arguments and "-base64" not in arguments and "-a" not in arguments:
        return None
    text = inputs.stdin
    return _decoded(text) if text is not None and "-d" in arguments else None


def _base32(arguments: Sequence[str], inputs: Inputs) -> str | None:
    text = inputs.read(parse_arguments(arguments).operands)
    if text is None or not parse_arguments(arguments).flags & {"d", "decode"}:
        return None
    return text_of_bytes(base64.b32decode(re.sub(r"\s+", "", text)))


def _xxd(arguments: Sequence[str], inputs: Inputs) -> str | None:
    text = inputs.stdin
    if text is None or not {"r", "p"} <= set("".join(each.strip("-") for each in arguments)):
        return None
    return text_of_bytes(bytes.fromhex(re.sub(r"\s+", "", text)))


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


# The repetitions are atomic, so that a search takes linear time even if the text does not match.
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
    if parsed.flags & {"n", "i", "f"}:
        return None
    is_extended = bool(parsed.flags & {"E", "r", "regexp-extended"})
    return _edited("\n".join(scripts), text, is_extended=is_extended, groups=r"&|\\\d")


def _perl(arguments: Sequence[str], inputs: Inputs) -> str | None:
    """Return the output of ``perl -pe``. Its script edits each line."""
    options, operands = leading_options(arguments, "eE", (), "iIM")
    codes = [value or "" for name, value in options if name in ("e", "E")]
    names = {name for name, _ in options}
    if "p" not in names or names & {"i", "n"} or not codes:
        return None
    return _edited(";".join(codes), inputs.read(operands), is_extended=True, groups=r"\$|\\\d")


def _edited(script: str, text: str | None, *, is_extended: bool, groups: str) -> str | None:
    """Edit `text` as `script` says. Return the result, or None if the result is unknown.

    The guard knows only the command ``s``.

    `groups` is a pattern for the parts of a replacement that refer to the matched text.
    """
    if text is None:
        return None
    for command in re.split("[;\n]", script):
        match = _SUBSTITUTE.fullmatch(command.strip())
        if match is None:
            if command.strip():
                return None
            continue
        _, pattern, new, flags = match.groups()
        if not is_extended:
            pattern = re.sub(r"\\([(){}+?|])|([(){}+?|])", _other_way_round, pattern)
        if re.search(groups, new):
            return None
        new = re.sub(r"\\(\D)", r"\1", new).replace("\\", r"\\")
        compiled = linear_regex(f"(?i){pattern}" if "i" in flags.lower() else pattern)
        if compiled is None:
            return None
        count = 0 if "g" in flags else 1
        *lines, last = text.split("\n")
        # Do not edit the empty text after the last newline, because it is not a line.
        lines += [last] if last else []
        edited = "\n".join(
            line if UNKNOWN in line else compiled.sub(new, line, count) for line in lines
        )
        text = edited + ("" if last else "\n")
    return text


def _unchanged(_arguments: Sequence[str], inputs: Inputs) -> str | None:
    """Return the input unchanged, because the program changes at most the layout of the text."""
    return inputs.stdin


def _grep(arguments: Sequence[str], inputs: Inputs) -> str | None:
    options, operands = all_options(arguments, "efABCmD", ("regexp",))
    names = {name for name, _ in options}
    patterns = [value or "" for name, value in options if name in ("e", "regexp")]
    if not patterns:
        patterns, operands = operands[:1], operands[1:]
    if not patterns or not names <= {"e", "regexp", "E", "F", "h", "i", "v", "w", "a"}:
        return None
    text = inputs.read(operands)
    # Without ``-v``, unknown text makes the output unknown. With ``-v``, grep outputs most lines.
    # So with ``-v``, assume that grep outputs the unknown lines.
    if text is None or (UNKNOWN in text and "v" not in names):
        return None
    pattern = "|".join(patterns)
    if "F" in names:
        pattern = re.escape(pattern)
    elif "E" not in names:
        pattern = re.sub(r"\\([(){}+?|])|([(){}+?|])", _other_way_round, pattern)
    compiled = linear_regex(f"(?i){pattern}" if "i" in names else pattern)
    if compiled is None:
        return None
    lines = text.splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if UNKNOWN in line or (compiled.search(line.rstrip("\n")) is None) == ("v" in names)
    )


def _other_way_round(match: re.Match[str]) -> str:
    """Turn basic syntax into extended syntax, by swapping escaped and plain metacharacters."""
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


FILTERS: Final[dict[str, Output]] = {
    "cat": _cat,
    "tee": _tee,
    **LINE_FILTERS,
    **PACKERS,
    "head": _some_lines(first=True),
    "tail": _some_lines(first=False),
    "base64": _base64,
    "base32": _base32,
    "openssl": _openssl,
    "xxd": _xxd,
    "tr": _tr,
    "sed": _sed,
    "perl": _perl,
    "grep": _grep,
    "egrep": _grep,
    **dict.fromkeys(
        ("column", "dos2unix", "envsubst", "expand", "fmt", "fold", "iconv", "mbuffer", "pv"),
        _unchanged,
    ),
    "sponge": _unchanged,
    "jq": jq,
    "gojq": jq,
    "jaq": jq,
    "cut": _cut,
}
