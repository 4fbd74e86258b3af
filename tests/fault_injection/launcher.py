"""`python launcher.py [options]`: run the daemon with fault injectors in it and in its helpers."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

sys.path.insert(0, TESTS)

from fault_injection.inject import install  # noqa: E402

# The keeper's usual start, preceded by the start of the injector. A runner is a fork of the keeper.
# Its injector learns that it is in a runner when the runner's main function is called.
BOOT = f"""
import sys
sys.path.insert(0, {TESTS!r})
from fault_injection.inject import install
injector = install("keeper")
sys.path.append(sys.argv[1])
from shelld.keeper import runner
run = runner.main
def main(*args, **options):
    injector.role = "runner"
    injector.start_tracing()
    run(*args, **options)
runner.main = main
from shelld.keeper.keeper import main
main(3, *sys.argv[2:])
"""


def main() -> int:
    install("daemon")
    # Import only now, so that every module finds the wrapped system calls.
    pool: Any = importlib.import_module("shelld.keeper.pool")
    pool._BOOT = BOOT
    program: Any = importlib.import_module("shelld.__main__")
    return int(program.main())


if __name__ == "__main__":
    sys.exit(main())
