"""Finds the commands that git runs because of its subcommand's own arguments. Pure.

`speakers` finds those in options that every subcommand has.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from shelld.guard.options import Option, all_options

# In a URL of git-remote-ext(1), a space after "%" is part of a word. Other letters after "%" stand
# for the repository and the service.
_WORDS: Final = re.compile(r"(?>(?:%.|[^ %])+)", re.S)
_ESCAPED: Final = re.compile(r"%(.)", re.S)
# The pretended file in which the guard keeps what ``git config`` has set.
CONFIGURATION: Final = "/dev/fd/git"
_PAGER: Final = "--open-files-in-pager="


def setting_in(arguments: Sequence[str]) -> str:
    """Return what ``git config`` sets, as ``name=value``; "" if it sets nothing."""
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
    """Return the settings of a call of git, as ``name=value``.

    Each option ``--config-env`` gives one. `before`: the settings of an earlier ``git config``.
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
    """Return the scripts in the arguments of a subcommand, and in URLs."""
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
