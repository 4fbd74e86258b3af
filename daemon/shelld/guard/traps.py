"""Follows the builtin ``trap``, whose action runs later.

When the action runs, variables can have other values. So the guard follows an action twice: where
the command sets the trap, and at the end of the shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shelld.guard.shell import Shell


def trap(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    action, *signals = [*(arguments[1:] if arguments[:1] == ["--"] else arguments), ""]
    names = [_name(each) for each in signals if each]
    if not action.startswith("-") and names:
        if action:
            shell.copy().run_script(action, "")
        if names != ["EXIT"]:
            # The action of the trap can run at any time, and can change shell options.
            shell.nounset = None
    elif action != "-":
        # ``trap EXIT`` removes the trap for EXIT. ``trap -p`` prints the traps.
        names, action = ([] if action.startswith("-") else [_name(action)]), "-"
    for name in names:
        shell.traps.pop(name, None)
        if action not in ("", "-"):
            shell.traps[name] = action
    return ""


def _name(signal: str) -> str:
    return "EXIT" if signal == "0" else signal.upper().removeprefix("SIG")


def run_traps(shell: Shell) -> None:
    """Follow the actions of all traps, because the shell ends here."""
    traps, shell.traps = shell.traps, {}
    for action in dict.fromkeys(traps.values()):
        shell.copy().run_script(action, "")
