"""Handles programs that run a command for each item, or that read commands from text.

Each handler takes the shell, the arguments and stdin, and returns what the program writes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from shelld.guard import rules
from shelld.guard.awk import awk
from shelld.guard.containers import bwrap, docker
from shelld.guard.escapes import ansi_c
from shelld.guard.finders import fd, find
from shelld.guard.fork_bomb import FORK_BOMB
from shelld.guard.markers import ENDLESS, UNKNOWN, plain
from shelld.guard.options import leading_options
from shelld.guard.paths import normalized
from shelld.guard.sed import sed

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

_MAX_ITEMS: Final = 32

Handler = Callable[["Shell", Sequence[str], str], str]


_XARGS_NAMES: Final = frozenset(
    {"arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"}
)


def _xargs(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, command = leading_options(arguments, "adEILnPsR", _XARGS_NAMES, "ile")
    replaced: str | None = None
    separator: str | None = None
    for name, value in options:
        if name in ("I", "i", "replace"):
            replaced = value or "{}"
        elif name in ("0", "null"):
            separator = "\0"
        elif name in ("d", "delimiter"):
            separator = ansi_c(value or "") or None
        elif name in ("a", "arg-file"):
            stdin = shell.content_of(value or "", stdin)
    if not command:
        return stdin
    is_unlimited = ("P", "0") in options or ("max-procs", "0") in options
    if ENDLESS in stdin and is_unlimited:
        shell.report(FORK_BOMB)
    stdin = stdin.replace(ENDLESS, "")
    if separator is not None and UNKNOWN not in stdin:
        items = [item for item in stdin.split(separator) if item]
    else:
        # The output that the guard computes for find(1) consists of lines, even with ``-print0``.
        items = [_unquoted(each) for each in (_LINE if replaced else _ITEM).findall(stdin)]
    items = _followed(shell, items)
    child = shell.copy()
    # In the output that the guard computes for find(1), one `UNKNOWN` stands for all files below
    # the start directories.
    child.is_for_each = UNKNOWN in items
    if replaced is not None:
        commands = [[word.replace(replaced, item) for word in command] for item in items]
        return "".join([child.copy().execute(each, "") for each in commands])
    return child.execute([*command, *items], "")


# xargs(1) itself interprets quotes and backslashes.
_QUOTED: Final = r"""\\.|'[^'\n]*+'|"[^"\n]*+\""""
_ITEM: Final = re.compile(rf"(?>(?:{_QUOTED}|[^\s\\])+)", re.DOTALL)
_LINE: Final = re.compile(rf"(?>(?:{_QUOTED}|[^\n\\])+)", re.DOTALL)


def _unquoted(item: str) -> str:
    if not re.search(r"""['"\\]""", item):
        return item
    return "".join(
        each[1:] if each.startswith("\\") else each[1:-1] if each[0] in "'\"" else each
        for each in re.findall(rf"{_QUOTED}|.", item, re.DOTALL)
        if each not in ("'", '"')
    )


def _followed(shell: Shell, items: list[str]) -> list[str]:
    """Return the items to follow. If there are too many, mark the command as unresolved."""
    if len(items) > _MAX_ITEMS:
        shell.unresolved("it has too many items to be followed")
    return items[:_MAX_ITEMS]


def _parallel(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    separator = "\0" if {"-0", "--null"} & set(arguments) else "\n"
    names = (
        "jobs",
        "delay",
        "timeout",
        "wd",
        "workdir",
        "joblog",
        "retries",
        "max-args",
        "arg-file",
    )
    options, rest = leading_options(
        [f"./{each}" if each.startswith(":::") else each for each in arguments], "jPNnSaI", names
    )
    rest = [each.removeprefix("./") if each.startswith("./:::") else each for each in rest]
    shell = shell.copy()
    if ENDLESS in stdin and any((name, "0") in options for name in ("j", "P", "jobs")):
        shell.report(FORK_BOMB)
    stdin = stdin.replace(ENDLESS, "")
    for name, value in options:
        if name in ("wd", "workdir") and value:
            shell.cwd = normalized(value, shell.cwd)
        elif name in ("a", "arg-file"):
            stdin = shell.content_of(value or "", stdin)
    if "::::" in rest:
        index = rest.index("::::")
        rest, files = rest[:index], rest[index + 1 :]
        stdin = "\n".join(shell.content_of(each, stdin) for each in files)
    # The output that the guard computes for find(1) consists of lines, even with ``-print0``.
    items = [item for item in re.split(f"[\n{separator}]", stdin) if item]
    shell.is_for_each = UNKNOWN in items
    if any(name in ("pipe", "spreadstdin") for name, _ in options):
        return str(shell.run_script(" ".join(rest), stdin))
    if ":::" in rest:
        index = rest.index(":::")
        rest, items = rest[:index], [each for each in rest[index + 1 :] if each != ":::"]
    template = " ".join(rest)
    for item in _followed(shell, items):
        word = item if UNKNOWN in item else shlex.quote(plain(item))
        script = template.replace("{}", word) if "{}" in template else f"{template} {word}"
        shell.copy().run_script(script if template else item, "")
    return UNKNOWN


def _crontab(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    _, operands = leading_options(arguments, "u")
    table = shell.content_of(operands[0], stdin) if operands else stdin
    # Unknown text can end with a newline, so a new line can begin after it.
    for line in re.split(f"[\n{UNKNOWN}]", table)[:_MAX_ITEMS]:
        match = re.match(r"\s*+(?:@\w++|(?:\S++\s++){4}\S++)\s++(.*)", line)
        if match is not None and not line.lstrip().startswith("#"):
            shell.copy().run_script(match[1], "")
    return UNKNOWN


_ADDRESS: Final = re.compile(
    r"(?i)(exec|system|shell|open|gopen|create|file):([^,]*(?:,.*)?)", re.S
)


def _socat(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, addresses = leading_options(arguments, "bdDfhlLStTWx")
    given = {name for name, _ in options}
    for index, address in enumerate(addresses[:2]):
        match = _ADDRESS.match(address)
        kind, rest = (match[1].lower(), match[2]) if match else ("gopen", address)
        if kind in ("exec", "system", "shell"):
            # Drop the text after a comma, because it can be an option of the address.
            script = rest if "," not in rest else rest.partition(",")[0]
            shell.copy().run_script(script, stdin)
            continue
        path, _, ways = rest.partition(",")
        # With ``-u`` or ``-U``, socat only reads from one address and only writes to the other.
        is_read = ("u" in given and index == 0) or ("U" in given and index == 1)
        if not is_read and not re.search(r"\brdonly\b|\bo-rdonly\b", ways):
            shell.report(rules.overwrites(path, shell.place()))
    return UNKNOWN


def _at(shell: Shell, _arguments: Sequence[str], stdin: str) -> str:
    return shell.copy().run_text(stdin, "")


def _pee(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    return "".join([shell.copy().run_script(each, stdin) for each in arguments])


# Maps each name of a handler in `vocabulary.STARTERS` to the handler.
HANDLERS: Final[dict[str, Handler]] = {
    "xargs": _xargs,
    "parallel": _parallel,
    "find": find,
    "fd": fd,
    "crontab": _crontab,
    "at": _at,
    "pee": _pee,
    "socat": _socat,
    "sed": sed,
    "awk": awk,
    "docker": docker,
    "bwrap": bwrap,
}
