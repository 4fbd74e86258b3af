"""The parser that all programs of the command line use for their arguments."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from shelld.cli.show import show

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class ArgumentParser(argparse.ArgumentParser):
    """Exits with 2 and a sentence if the help or the version cannot be written to stdout.

    `argparse` ignores such a failure, and exits with 0.
    """

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is not sys.stdout:
            # The message is the usage, which goes to stderr.
            super()._print_message(message, file)
        elif exit_code := show(message.rstrip("\n"), 0):
            sys.exit(exit_code)
