"""Writes the output of the subcommands to stdout and stderr.

No function raises `OSError`, although stdout and stderr may be closed, or may fail. A text may also
contain characters that the encoding of the stream lacks. Such characters are escaped.
"""

from __future__ import annotations

import sys

USAGE_ERROR = 2


def show(text: str, exit_code: int) -> int:
    """Write `text` and a newline to stdout; return `exit_code`, or 2 if that fails."""
    if sys.stdout is None:
        return refuse("cannot write to stdout: it is closed")
    try:
        sys.stdout.write(_escaped(text, sys.stdout.encoding) + "\n")
        sys.stdout.flush()
    except OSError as error:
        # If `sys.stdout` stayed the same, the interpreter would try to write the text again on
        # exit.
        sys.stdout = None
        return refuse(f"cannot write to stdout: {error.strerror}")
    return exit_code


def _escaped(text: str, encoding: str | None) -> str:
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def note(text: str) -> None:
    """Write `text` and a newline to stderr, if it can be written."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        sys.stderr = None


def refuse(reason: str) -> int:
    """Say on stderr why the program ends; return the exit code 2."""
    note(f"shelld: {reason}")
    return USAGE_ERROR
