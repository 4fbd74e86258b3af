"""`python launcher.py [options]`: run the daemon with fault injectors in the daemon, its keeper and
its runners.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

sys.path.insert(0, TESTS)

from fault_injection.inject import install  # noqa: E402

# This program starts the injector, and then a keeper as usual. A runner is a fork of the keeper. In
# the fork, `main` gives the injector the role of a runner, and then calls the runner's own `main`.
BOOT = """
import os, sys
sys.path.insert(0, {tests!r})
given = {given!r}
os.environ.update(given)
from fault_injection.inject import install
injector = install({keeper!r})
for name in given if {is_inside!r} else ():
    del os.environ[name]
sys.path.append(sys.argv[1])
from shelld.keeper import runner
run = runner.main
def main(*args, **options):
    injector.role = {runner!r}
    injector.start_tracing()
    run(*args, **options)
runner.main = main
from shelld.keeper.{module} import main
main({arguments}*sys.argv[2:])
"""


def boot(keeper: str, runner: str, module: str, arguments: str, *, is_inside: bool) -> str:
    """Return the Python code for a keeper with an injector. `keeper` and `runner` are the roles of
    the processes.
    """
    given = {name: os.environ[name] for name in os.environ if name.startswith("SHELLD_FAULTS_")}
    return BOOT.format(
        tests=TESTS,
        given=given,
        keeper=keeper,
        runner=runner,
        module=module,
        arguments=arguments,
        is_inside=is_inside,
    )


def main() -> int:
    install("daemon")
    # Import the modules only now, so that every module finds the wrapped system calls.
    pool: Any = importlib.import_module("shelld.keeper.pool")
    pool._BOOT = boot("keeper", "runner", "keeper", "3, ", is_inside=False)
    # The environment of a sandbox does not have the path of the control file.
    engine: Any = importlib.import_module("shelld.sandbox.engine")
    engine._BOOT = boot("inside keeper", "inside runner", "inside", "", is_inside=True)
    program: Any = importlib.import_module("shelld.__main__")
    return int(program.main())


if __name__ == "__main__":
    sys.exit(main())
