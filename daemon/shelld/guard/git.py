"""Finds the commands that git runs if its subcommand gets certain arguments. Pure.

`speakers` finds the commands in the options that every subcommand has.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from shelld.guard.options import Option, all_options

# In a URL of git-remote-ext(1), "% " is a space within a word. "%" and a letter, such as "%s",
# stand for the service or the repository.
_WORDS: Final = re.compile(r"(?>(?:%.|[^ %])+)", re.S)
_ESCAPED: Final = re.compile(r"%(.)", re.S)
# The guard stores the settings of ``git config`` as if they were in a file with this path.
CONFIGURATION: Final = "/dev/fd/git"
_PAGER: Final = "--open-files-in-pager="


def setting_in(arguments: Sequence[str]) -> str:
    """Return the setting that ``git config`` makes, as ``name=value``, or "" if it makes none."""
    _, operands = all_options(arguments, "Cc", ())
    if operands[:1] != ["config"] or len(operands) < 3:
        return ""
    return f"{operands[-2]}={operands[-1]}"


def settings_of(
    options: Sequence[Option],
    operands: Sequence[str],
    exported: Callable[[str], str | None],
    before: str,
) -> list[str]:
    """Return the settings that apply to a call of git, as ``name=value``.

    Each option ``--config-env`` gives one setting. `before` has the settings of earlier calls of
    ``git config``.
    """
    found: list[str] = []
    for name, value in options:
        if name == "config-env" and value:
            setting, _, variable = value.rpartition("=")
            found.append(f"{setting}={exported(variable) or ''}")
    if operands[:1] != ["config"]:
        own = f"alias.{''.join(operands[:1])}="
        settings = before.split("\0")
        found += [each for each in settings if each.startswith(own) or each[:6] != "alias."]
    return found


def scripts_in(arguments: Sequence[str], operands: Sequence[str]) -> list[str]:
    """Return the shell scripts in the arguments and URLs of a subcommand of git."""
    found = [_remote(each[5:]) for each in operands if each.startswith("ext::")]
    if operands[:1] == ["grep"]:
        found += [each[2:] for each in arguments if each.startswith("-O")]
        found += [each.removeprefix(_PAGER) for each in arguments if each.startswith(_PAGER)]
    elif operands[:1] == ["clone"]:
        found += [
            argument[2:] or "".join(arguments[index + 1 : index + 2])
            for index, argument in enumerate(arguments)
            if argument.startswith("-u")
        ]
    return found


def _remote(url: str) -> str:
    words = _WORDS.findall(url)
    return shlex.join(_ESCAPED.sub(_unescaped, word) for word in words)


def _unescaped(match: re.Match[str]) -> str:
    return match[1] if match[1] in " %" else ""
