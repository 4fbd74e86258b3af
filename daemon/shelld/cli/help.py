"""``shelld help [COMMAND]``: show the help of shelld, or that of a subcommand."""

from __future__ import annotations

from collections.abc import Sequence

from shelld.cli.arguments import ArgumentParser
from shelld.cli.commands import no_such_command
from shelld.cli.parser import option_parser
from shelld.cli.show import show


def show_help(arguments: Sequence[str]) -> int:
    """Show the help of shelld; return the exit code. `__main__` handles `help COMMAND`."""
    parser = ArgumentParser(
        prog="shelld help",
        usage="%(prog)s [-h] [COMMAND]",
        description="Show the options and commands of shelld, or the help of a command.",
    )
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="a command of shelld")
    name = parser.parse_args(arguments).command
    if name is not None:
        parser.error(no_such_command(name))
    return show(option_parser().format_help().rstrip("\n"), 0)
