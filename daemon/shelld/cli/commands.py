"""Lists the subcommands by name. Imports nothing that takes time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Maps each subcommand to its arguments and its purpose.
SUBCOMMANDS: Final = {
    "attach": ("[OPTION ...] [-- OPTION ...]", "join a lasting daemon, which outlives its client"),
    "bundle": ("[-o FILE]", "write shelld into one file that needs only Python"),
    "completion": ("bash|zsh|fish", "print a script that completes shelld in that shell"),
    "doctor": ("[--json] [-- OPTION ...]", "check what works on this machine"),
    "explain": ("[--guard-rules FILE] COMMAND ...", "show the guard's verdict on a command"),
    "help": ("[COMMAND]", "show this help, or the help of a command"),
    "list": ("[--json]", "show the lasting daemons"),
    "mcp-config": ("[--write] [HOST] [-- OPTION ...]", "print the configuration of an MCP host"),
    "run": ("[-q] [-t] [--timeout S] [OPTION ...] -- COMMAND ...", "run one command"),
    "shell": ("[OPTION ...]", "type commands into a session"),
    "stop": ("NAME", "end a lasting daemon"),
    "watch": ("[-n LINES] [NAME]", "look at the shells of a lasting daemon"),
}

# A bundle lacks these commands: it has no client, and does not know its path.
_NOT_IN_BUNDLES: Final = frozenset({"completion", "mcp-config", "run", "shell"})


def listed_subcommands() -> dict[str, tuple[str, str]]:
    """Return the subcommands that work here, with their arguments and their purposes."""
    from shelld.cli.program import is_bundled  # noqa: PLC0415

    lacking = _NOT_IN_BUNDLES if is_bundled() else frozenset[str]()
    return {name: each for name, each in SUBCOMMANDS.items() if name not in lacking}


def no_such_command(name: str) -> str:
    """Return the error for an unexpected word. Either no subcommand has this name, or only options
    are allowed there.
    """
    if name in SUBCOMMANDS:
        return f"{name} is a command, and only options may stand here"
    from difflib import get_close_matches  # noqa: PLC0415

    similar = get_close_matches(name, SUBCOMMANDS, 1)
    return f"no such command: {name}" + (f"; did you mean {similar[0]}?" if similar else "")


def split_options(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return a subcommand's own arguments, and the daemon's options, which follow ``--``."""
    if "--" not in arguments:
        return arguments, []
    at = list(arguments).index("--")
    return arguments[:at], arguments[at + 1 :]
