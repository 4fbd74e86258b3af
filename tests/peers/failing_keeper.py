"""A daemon in which one function of the keeper or of the runners fails once, on demand.

Arguments: "keeper" or "runner", the name of a function such as "os.open", a directory, and the
arguments of the daemon. The function fails when the directory contains a file "armed", whose
content names an exception or an errno. The process in which it fails renames the file to "fired".
"""

from __future__ import annotations

import builtins
import errno
import importlib
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BOOT = """
import sys
sys.path.append(sys.argv[1])
sys.path.append({here!r})
import failing_keeper
from shelld.keeper import keeper
failing_keeper.break_function({process!r}, {function!r}, {directory!r})
keeper.main(3, *sys.argv[2:])
"""


def break_function(process: str, function: str, directory: str) -> None:
    keeper = os.getpid()
    # Keep the originals, since one of them is about to be replaced.
    rename, open_, read, close, getpid = os.rename, os.open, os.read, os.close, os.getpid
    armed, fired = f"{directory}/armed", f"{directory}/fired"

    def fail_if_armed() -> None:
        if (getpid() == keeper) != (process == "keeper"):
            return
        try:
            descriptor = open_(armed, os.O_RDONLY)
            name = read(descriptor, 100).decode()
            close(descriptor)
            # Of several processes, only one can rename the file.
            rename(armed, fired)
        except OSError:
            return
        if hasattr(errno, name):
            number = getattr(errno, name)
            raise OSError(number, os.strerror(number))
        raise getattr(builtins, name)

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if real is close:
                # A descriptor is closed even if close(2) fails.
                close(*args)
                fail_if_armed()
                return None
            fail_if_armed()
            return real(*args, **options)

        return call

    class Poll:
        def __init__(self) -> None:
            real = real_poll()
            self.register, self.unregister = real.register, real.unregister
            self.poll = failing(real.poll)

    real_poll: Callable[[], Any] = select.poll
    module, *path, name = function.split(".")
    owner: Any = importlib.import_module(module)
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, name, Poll if function == "select.poll" else failing(getattr(owner, name)))


def main() -> int:
    from shelld import __main__  # noqa: PLC0415 - not in the keeper, which imports this too
    from shelld.keeper import pool  # noqa: PLC0415

    process, function, directory = sys.argv[1:4]
    boot = BOOT.format(
        here=str(Path(__file__).parent), process=process, function=function, directory=directory
    )
    setattr(pool, "_BOOT", boot)  # noqa: B010 - private, and set only by this peer
    sys.argv[1:] = sys.argv[4:]
    return __main__.main()


if __name__ == "__main__":
    sys.exit(main())
