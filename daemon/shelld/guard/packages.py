"""Finds the scripts that npm and similar programs run from package.json or a similar file.

Pure. The guard knows the scripts only if the command itself has written the file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from shelld.guard.markers import UNKNOWN, plain

# Maps each program to the name of the file that it reads, and to the member of this file that
# contains the scripts.
_FILES: Final = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json", "scripts")),
    "composer": ("composer.json", "scripts"),
    "deno": ("deno.json", "tasks"),
}
PACKAGERS: Final = frozenset(_FILES)
# After one of these subcommands comes the name of a script. `_SHORT` maps short subcommands to the
# scripts that they run.
_RUN: Final = frozenset({"run", "run-script", "rum", "urn", "task", "exec"})
_SHORT: Final = {"t": "test", "tst": "test"}
# The subcommands that install packages, and the scripts that an installation runs.
_INSTALLS: Final = frozenset({"", "install", "i", "ci", "add", "update"})
_AT_INSTALLATION: Final = (
    *("preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare"),
    *("pre-install-cmd", "post-install-cmd", "post-autoload-dump"),
)
_PUBLISHES: Final = frozenset({"publish", "pack"})
_AT_PUBLICATION: Final = ("prepublishOnly", "prepublish", "prepack", "prepare", "postpack")


def scripts_of_package(
    program: str, operands: Sequence[str], content_of: Callable[[str], str]
) -> list[str]:
    """Return the scripts that a package manager runs with these operands."""
    file, member = _FILES[program]
    scripts = _member(content_of(file), member)
    if not scripts:
        return []
    action, *rest = [*operands, ""]
    if action in _RUN and rest[0]:
        action, *rest = rest
    action = _SHORT.get(action, action)
    names: Sequence[str]
    if action in _INSTALLS:
        names = _AT_INSTALLATION
    elif action in _PUBLISHES:
        names = _AT_PUBLICATION
    else:
        names = (f"pre{action}", action, f"post{action}")
    more = shlex.join(each for each in rest if each)
    found: list[str] = []
    for name in names:
        for script in _scripts(scripts.get(name)):
            found.append(f"{script} {more}" if name == action and more else script)
    return found


def _member(text: str, name: str) -> dict[str, Any]:
    if UNKNOWN in text:
        return {}
    try:
        package = json.loads(plain(text))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(package, dict):
        return {}
    scripts = cast("dict[str, Any]", package).get(name)
    return cast("dict[str, Any]", scripts) if isinstance(scripts, dict) else {}


def _scripts(value: object) -> list[str]:
    """Return the scripts that a package file defines under one name.

    `value` is a string or a list of strings.
    """
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
