"""`python launcher.py [options]`: the daemon, with a fault injector in it and in its helpers."""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

sys.path.insert(0, HERE)

from inject import install  # noqa: E402

# The keeper's own start, with the injector before it. A runner is a fork of the keeper: it is told
# to be one when its main function is called.
BOOT = f"""
import sys
sys.path.insert(0, {HERE!r})
from inject import install
injector = install("keeper")
sys.path.remove({HERE!r})
sys.path.append(sys.argv[1])
from shelld.keeper import runner
run = runner.main
def main(*args, **options):
    injector.role = "runner"
    injector.start_tracing()
    run(*args, **options)
runner.main = main
from shelld.keeper.supervisor import main
main(3, *sys.argv[2:])
"""


def main() -> int:
    install("daemon")
    sys.path.remove(HERE)
    from shelld.keeper import pool

    pool._BOOT = BOOT  # type: ignore[misc]  # pyright: ignore
    from shelld.__main__ import main as serve

    return serve()


if __name__ == "__main__":
    sys.exit(main())
