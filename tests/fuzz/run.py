"""Run one target under atheris.

Usage: python -m tests.fuzz.run TARGET [OPTION OF LIBFUZZER ...] [CORPUS]
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main() -> None:
    target = importlib.import_module(f"fuzz.{sys.argv.pop(1)}")
    # The tests do not depend on atheris, and atheris has no type hints.
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
