"""Defines the parser that the daemon and all subcommands use for their arguments."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from shelld.cli.show import note, show

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class ArgumentParser(argparse.ArgumentParser):
    """Parses arguments. If the help or the version cannot be written to stdout, exits with 2 and
    prints a message.

    `argparse` itself would ignore such a failure, and exit with 0. Options cannot be abbreviated,
    because an abbreviation can be another option: `--guard` is not `--guard-rules`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def print_usage(self, file: SupportsWrite[str] | None = None) -> None:
        # The file is stderr. If stderr is closed, `argparse` would write to stdout instead.
        if file is not None:
            super().print_usage(file)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is not sys.stdout:
            # The message is the usage or an error, and the file is stderr. If writing to stderr
            # fails, `note` ignores the failure, and the exit code does not change.
            note(message.rstrip("\n"))
        elif exit_code := show(message.rstrip("\n"), 0):
            sys.exit(exit_code)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            # An option has the value `--`, as in `--name=--`. Some versions of Python treat this
            # value as the end of the options, and return an empty list without checking the value.
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)
