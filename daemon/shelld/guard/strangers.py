"""Finds the files that unknown programs overwrite, and the commands that they run.

Pure. An unknown program is in no table of `vocabulary`. The module searches the arguments of such
a program for words that many programs understand. Examples are orders such as ``wipe``, options
such as ``--output`` and ``--exec``, subcommands such as ``run``, and ``--`` before another command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from shelld.guard.vocabulary import ORDERS

# If an argument is one of these words, most programs only print help, or print what they would do.
_IDLE: Final = frozenset(
    {"help", "h", "dry-run", "dryrun", "simulate", "version", "test", "no-act", "pretend", "whatif"}
)
# The names of options whose value is a file to write. They can also be the keys of operands, as in
# ``dd of=FILE``.
_OUTPUTS: Final = frozenset({"o", "output", "out", "outfile", "output-file", "of", "dest"})
# If another argument names an image, the value of one of these options may be a disk. The program
# may write the image to this disk.
_DEVICES: Final = frozenset({"d", "dest", "dev", "device", "drive", "outdev", "target", "to"})
_IMAGE: Final = re.compile(r"\.(?:img|iso|raw|wic|dd|vdi|vmdk|qcow2?|hddimg|dmg)(?:\.\w{2,4})?\Z")
# Options whose value is a shell script.
_SCRIPTS: Final = frozenset(
    {
        *("call", "cmd", "command", "commands", "exec", "execute", "run", "script", "shell"),
        *("on-change", "on-click", "on-exit", "on-error", "on-success", "post-hook", "pre-hook"),
        *("sh", "shell-command", "run-command", "exec-command", "diff-cmd", "editor-cmd"),
    }
)
# After one of these subcommands, the operands are a command, or a shell script in one word.
_RUNS: Final = frozenset({"console", "cmd", "cmd.run", "exec", "execute", "run", "shell", "ssh"})
# If the arguments of an unknown program contain none of these words, the guard assumes that the
# program runs no command. "" stands for ``--``.
_TELLING: Final = _SCRIPTS | _RUNS | {""}
# The guard reads at most this many arguments of an unknown program.
_MAX_WORDS: Final = 64


def overwritten_by(arguments: Sequence[str]) -> list[str]:
    """Return the files that an unknown program may overwrite.

    Usually, the files are the values of options such as ``--output``. If one argument orders the
    program to write (see `ORDERS`), every argument counts as a file. The order can be an operand,
    an option or the value of an option, as in ``tool format /dev/sda``, ``tool --wipe /dev/sda``
    and ``tool --mode=erase /dev/sda``. ``--format`` is not an order, because in most programs it
    sets the output format.
    """
    words = {each.rpartition("=")[2] for each in arguments if each != "--format"}
    words = {each.lstrip("-").lower() for each in words}
    if not words.isdisjoint(_IDLE):
        return []
    if not words.isdisjoint(ORDERS):
        return [each.rpartition("=")[2] for each in arguments]
    given = _given(arguments)
    outputs = [value for name, value in given if name in _OUTPUTS]
    images = [at for at, each in enumerate(arguments) if _IMAGE.search(each)]
    if images:
        # If an argument names an image, the program may copy the image to the last argument, or to
        # the value of an option in `_DEVICES`.
        outputs += arguments[-1:] if images[0] < len(arguments) - 1 else []
        outputs += [value for name, value in given if name in _DEVICES]
    return outputs


def _given(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return all pairs of a name and a value, from options and operands such as ``NAME=VALUE``."""
    found: list[tuple[str, str]] = []
    for index, each in enumerate(arguments[:_MAX_WORDS]):
        name, equals, value = each.partition("=")
        if equals:
            found.append((name.lstrip("-"), value))
        elif each.startswith("-"):
            found += [(name.lstrip("-"), value) for value in arguments[index + 1 : index + 2]]
    return found


def command_behind_dashes(arguments: Sequence[str]) -> list[str]:
    """Return the words after ``--``, which may be a command."""
    return list(arguments[arguments.index("--") + 1 :]) if "--" in arguments else []


def commands_of(arguments: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the scripts and the commands that an unknown program may run."""
    names = {each.partition("=")[0].lstrip("-") for each in arguments}
    if names.isdisjoint(_TELLING):
        return [], []
    scripts = [
        value for name, value in _given(arguments) if name in _SCRIPTS and not value.startswith("-")
    ]
    commands = [command_behind_dashes(arguments)]
    at = next((at for at, each in enumerate(arguments[:_MAX_WORDS]) if each in _RUNS), None)
    if at is not None:
        rest = list(arguments[at + 1 : at + _MAX_WORDS])
        while rest and rest[0] in _BEFORE_SCRIPT:
            rest.pop(0)
        scripts += [each for each in rest[:1] if " " in each and each[0] != "-"]
        # The first word can be the name of a machine, so also try the words after it as a command.
        commands += [rest, rest[1:]]
    return scripts, [each for each in commands if each]


_BEFORE_SCRIPT: Final = frozenset({"-c", "-C", "--", "console"})
