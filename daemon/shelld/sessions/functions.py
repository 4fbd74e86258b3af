"""Passes the functions of one bash on to the next.

Pure. There are two ways to pass on a function. The first way is an environment entry, like the
entries that bash itself makes for exported functions. Error messages then say "environment" in
place of a file name, as for any imported function. The second way is a definition in the script
that the next bash runs. The second way works for every function. In the script, `eval` runs each
definition. So if bash cannot parse a definition, it still runs the rest of the script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from shelld.sessions.arguments import MAX_ENTRY_BYTES, MAX_ENV_BYTES, entry_bytes
from shelld.sessions.quoting import quote
from shelld.sessions.words import BUILTINS

# Matches the first line of a function, its *head*, in the output of `declare -f`. Bash writes
# "function" before a name that is a reserved word.
_HEAD: Final = re.compile(rb"^(?:function )?([^\n]*) \(\) \n", re.MULTILINE)
# Bash also imports functions with other names, but only these names have no special meaning in a
# script or a pattern.
_PLAIN_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_.:-]*")
_ENTRY: Final = re.compile(rb"BASH_FUNC_(.+)%%", re.DOTALL)
# Matches the beginning of an extended pattern. How bash parses such a pattern depends on the option
# extglob. When bash imports functions, that option is off.
_EXTENDED: Final = re.compile(rb"[?*+@!]\(")


class Definitions(NamedTuple):
    """Definitions of functions.

    The next bash starts with `entries` in its environment and runs `script`.

    `private`: the functions in `entries` that were not exported.
    """

    entries: dict[bytes, bytes]
    script: bytes
    private: tuple[bytes, ...] = ()


def definitions(
    names: list[tuple[bytes, bytes]],
    text: bytes,
    lost: frozenset[bytes] = frozenset(),
    *,
    by_environment: bool,
) -> Definitions:
    """Return definitions of all functions in `text` except the `lost` ones.

    `text`: the output of `declare -f`. `names`: the output of `declare -F`, which has the
    attributes ("-f", perhaps with more letters) and the name of each function, in the order of
    `text`. `by_environment`: whether bash gets the functions in its environment.

    The script leaves extglob on.
    """
    known = {name for _, name in names[1:]}
    # The first head is at the start of the text. Every other function must have exactly one head.
    found = [head for head in _HEAD.finditer(text) if not head.start() or head[1] in known]
    if [head[1] for head in found] != [name for _, name in names]:
        # A line of a here-document looks like a head, so this code cannot tell where a function
        # ends.
        lines = [_evaluated(_with_keywords(text, found))]
        lines += [b"\\builtin unset -f -- %s\n" % quote(name) for name in sorted(lost)]
        return Definitions({}, _script(lines) if text else b"")
    entries: dict[bytes, bytes] = {}
    script: list[bytes] = []
    private: list[bytes] = []
    size = 0
    for index, (flags, name) in enumerate(names):
        if name in lost:
            continue
        end = found[index + 1].start() - 1 if index + 1 < len(found) else len(text)
        source = text[found[index].start() : end]
        if flags != b"-f":
            source = source.removesuffix(b"\ndeclare %s %s" % (flags, name))
        body = source[found[index].end() - found[index].start() :]
        key = entry_name(name)
        is_plain = _PLAIN_NAME.fullmatch(name) and name.decode() not in BUILTINS
        taken = entry_bytes(key, body)
        fits = taken <= MAX_ENTRY_BYTES and size + taken <= MAX_ENV_BYTES
        is_usual = flags in {b"-f", b"-fx"} and body[:2] == b"{ " and not _EXTENDED.search(body)
        # A function with the name of a builtin would interfere with the script.
        if by_environment and is_plain and fits and is_usual:
            entries[key] = b"() " + body
            size += taken
            if flags == b"-f":
                private.append(name)
        else:
            script.append(_definition(flags, name, source))
    return Definitions(entries, _script(script) if script else b"", tuple(private))


def entry_name(function: bytes) -> bytes:
    """Return the name of the environment entry from which bash imports a function."""
    return b"BASH_FUNC_%s%%%%" % function


def function_of(entry: bytes) -> bytes | None:
    """Return the name of the function that an environment entry defines; None for a variable.

    Bash may refuse to import the function.
    """
    match = _ENTRY.fullmatch(entry)
    return match[1] if match else None


def without_export(functions: Iterable[bytes]) -> bytes:
    """Return the line that takes the export attribute away from functions.

    This line is needed because bash exports each function that it imports.
    """
    names = b" ".join(functions)
    return b"\\builtin export -nf -- %s\n" % names if names else b""


def _with_keywords(text: bytes, found: list[re.Match[bytes]]) -> bytes:
    """Return the text with the word "function" before each unusual name.

    Without the word, `a=b ()` is a syntax error. `found`: the matches of `_HEAD` in the text. If a
    name has several matches, the word is not added, because one of the matches may be a line of a
    here-document.
    """
    count = Counter(head[1] for head in found)
    parts: list[bytes] = []
    position = 0
    for head in found:
        is_odd = not _PLAIN_NAME.fullmatch(head[1]) and not head[0].startswith(b"function ")
        if is_odd and count[head[1]] == 1:
            parts += (text[position : head.start()], b"function ")
            position = head.start()
    return b"".join((*parts, text[position:]))


def _script(definitions: list[bytes]) -> bytes:
    # With extglob on, bash can parse every function that it prints, even a function that was
    # defined with extglob off. For example, bash prints a space between `!` and a parenthesis.
    return b"\\builtin shopt -s extglob\n{\n%s} 2>/dev/null\n" % b"".join(definitions)


def _evaluated(text: bytes) -> bytes:
    return b"\\builtin eval %s\n" % quote(text)


def _definition(flags: bytes, name: bytes, source: bytes) -> bytes:
    # After this keyword, bash accepts any name unchanged, even the name of an alias.
    head = b"" if source.startswith(b"function ") else b"function "
    text = _evaluated(head + source)
    if b"=" in name:
        # `declare` would read such a name as an assignment, and `export` refuses such a name.
        if b"x" in flags:
            text = b"\\builtin set -a\n%s\\builtin set +a\n" % text
        if b"r" in flags:
            text += b"\\builtin readonly -f -- %s\n" % quote(name)
    elif flags != b"-f":
        text += b"\\builtin declare %s -- %s\n" % (flags, quote(name))
    return text
