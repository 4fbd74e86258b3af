"""A daemon in which one function of the keeper or of the runners fails once, on demand.

Arguments: "keeper" or "runner", the names of functions such as "os.open" with commas between them,
a directory, and the arguments of the daemon. If the directory contains a file "armed", a function
fails. The file contains the name of this function and the name of an exception or an errno. The
process in which the function fails renames the file to "fired".
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
failing_keeper.break_functions({process!r}, {functions!r}, {directory!r})
keeper.main(3, *sys.argv[2:])
"""


def break_functions(process: str, functions: str, directory: str) -> None:
    keeper = os.getpid()
    # Keep the original functions, because this code replaces one of them.
    rename, open_, read, close, getpid = os.rename, os.open, os.read, os.close, os.getpid
    armed, fired = f"{directory}/armed", f"{directory}/fired"

    def fail_if_armed(function: str) -> None:
        if (getpid() == keeper) != (process == "keeper"):
            return
        try:
            descriptor = open_(armed, os.O_RDONLY)
            broken, name = read(descriptor, 100).decode().split()
            close(descriptor)
            if broken != function:
                return
            # Of several processes, only one can rename the file.
            rename(armed, fired)
        except OSError:
            return
        if hasattr(errno, name):
            number = getattr(errno, name)
            raise OSError(number, os.strerror(number))
        raise getattr(builtins, name)

    def failing(function: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if real is close:
                # A descriptor is closed even if close(2) fails.
                close(*args)
                fail_if_armed(function)
                return None
            fail_if_armed(function)
            return real(*args, **options)

        return call

    class Poll:
        def __init__(self) -> None:
            real = real_poll()
            self.register, self.unregister = real.register, real.unregister
            self.poll = failing("select.poll", real.poll)

    real_poll: Callable[[], Any] = select.poll
    for function in functions.split(","):
        module, *path, name = function.split(".")
        owner: Any = importlib.import_module(module)
        for part in path:
            owner = getattr(owner, part)
        broken = Poll if function == "select.poll" else failing(function, getattr(owner, name))
        setattr(owner, name, broken)


def main() -> int:
    from shelld import __main__  # noqa: PLC0415 - not in the keeper, which imports this too
    from shelld.keeper import pool  # noqa: PLC0415

    process, functions, directory = sys.argv[1:4]
    boot = BOOT.format(
        here=str(Path(__file__).parent), process=process, functions=functions, directory=directory
    )
    setattr(pool, "_BOOT", boot)  # noqa: B010 - private, and set only by this peer
    sys.argv[1:] = sys.argv[4:]
    return __main__.main()


if __name__ == "__main__":
    sys.exit(main())
