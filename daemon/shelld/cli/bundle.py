"""``shelld bundle [-o FILE]``: write shelld into one file that runs with Python alone.

Prints the name of the file to stdout, unless the bundle itself goes to stdout.

Exit codes: 0 if the bundle was written, 2 if the arguments cannot be used, or the bundle cannot be
written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shelld import __version__
from shelld.cli.arguments import ArgumentParser
from shelld.cli.show import refuse, show
from shelld.targets.bundle import PLATFORM, BundleError, make_bundle, write_file


def bundle(arguments: Sequence[str]) -> int:
    """Write the bundle; return the exit code."""
    parser = ArgumentParser(
        prog="shelld bundle",
        usage="%(prog)s [-h] [-o FILE]",
        description="Write shelld and the packages that it needs into one file. The file runs on "
        f"machines like this one ({PLATFORM}), without any installation: python3 FILE.",
    )
    default = f"shelld-{__version__}.pyz"
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        default=default,
        help=f"the file, or - for stdout (default: {default})",
    )
    file: str = parser.parse_args(arguments).file
    try:
        data = make_bundle().data
        if is_stdout := _is_stdout(file):
            # Write to stdout, and do not replace the file behind it. That file may be deleted, or
            # may already begin with other content.
            with open(1, "wb", closefd=False) as stdout:
                stdout.write(data)
        else:
            write_file(Path(file), data, 0o755)
    except BundleError as error:
        return refuse(f"cannot make the bundle: {error}")
    except OSError as error:
        return refuse(f"cannot write the bundle: {error.strerror}")
    return 0 if is_stdout else show(file, 0)


def _is_stdout(file: str) -> bool:
    """Return whether a file is stdout. If the bundle goes to stdout, the name of the file must not
    follow the bundle.
    """
    if file == "-":
        return True
    try:
        return os.path.samestat(os.stat(file), os.fstat(1))
    except OSError:
        return False
