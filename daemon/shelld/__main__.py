"""Runs ``shelld`` and ``python -m shelld``.

The subcommands, such as ``shelld run``, are separate programs in `shelld.cli`. ``shelld attach``
starts a lasting daemon as ``shelld lasting NAME LINGER DESCRIPTOR OPTION ...``, with a listening
socket as the descriptor.

Exit codes:

* 0: end of file, a signal, or ``shutdown`` and ``exit``
* 1: ``exit`` without ``shutdown``, or the event loop has failed
* 2: the daemon cannot start, because arguments, files or streams cannot be used, or because the
  system has no memory or no room for a process or thread
* 3: answers could not be written, because the disk was full or the client did not read them in
  time
* 4: requests could not be read, because memory was short for a minute or our own code has failed
* 130: SIGINT has interrupted a subcommand or the start of the daemon
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Final

from shelld.process.no_memory import IMPORT_TEXTS

# If SIGINT ends a program, a shell reports this exit code.
_INTERRUPTED: Final = 128 + signal.SIGINT

# If there is no memory, an import may raise a SystemError with one of the first two texts.
_NO_MEMORY: Final = ("without exception set", "without setting an exc", *IMPORT_TEXTS)


def main() -> int:
    if not sys.flags.inspect:
        return _main()
    # With PYTHONINSPECT, a call of `sys.exit` would not end the interpreter. The interpreter would
    # print a traceback, run more code from stdin, and return another exit code.
    try:
        code = _main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def _main() -> int:
    # Garbage collection during the imports would take a tenth of the start-up time.
    gc.disable()
    try:
        # The parent may have blocked the signals that end this program.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _forget_working_directory()
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        # This handles SIGINT only during the start. A running daemon has its own handler of SIGINT.
        return _INTERRUPTED
    except (MemoryError, SystemError, ImportError) as error:
        # This handles a shortage of memory only during the start. A running daemon handles such
        # errors itself.
        is_lost = any(text in str(error) for text in _NO_MEMORY)
        if not (is_lost or isinstance(error, MemoryError)):
            raise
    with contextlib.suppress(OSError):
        os.write(2, b"shelld: cannot start: there is no memory\n")
    return 2


def _forget_working_directory() -> None:
    """Prevent imports of modules that a command has put into the working directory.

    `python -m shelld` without -P adds the working directory to the path of modules.
    """
    with contextlib.suppress(OSError):
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]


@contextlib.contextmanager
def _uninterrupted() -> Generator[None]:
    """Block SIGINT while the `with` block runs, because the block imports modules.

    A KeyboardInterrupt within an import may get lost, and it can crash msgspec while msgspec makes
    a class.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _subcommand(  # noqa: PLR0912 - one branch for each
    name: str,
) -> Callable[[Sequence[str]], int] | None:
    """Import and return the program that runs a subcommand. Import no other program."""
    match name:
        case "attach":
            from shelld.cli.attach import attach as program  # noqa: PLC0415
        case "bundle":
            from shelld.cli.bundle import bundle as program  # noqa: PLC0415
        case "completion":
            from shelld.cli.completion import completion as program  # noqa: PLC0415
        case "doctor":
            from shelld.cli.doctor import doctor as program  # noqa: PLC0415
        case "explain":
            from shelld.cli.explain import explain as program  # noqa: PLC0415
        case "help":
            from shelld.cli.help import show_help as program  # noqa: PLC0415
        case "list":
            from shelld.cli.daemons import list_daemons as program  # noqa: PLC0415
        case "mcp-config":
            from shelld.cli.mcp_config import mcp_config as program  # noqa: PLC0415
        case "run":
            from shelld.cli.run import run as program  # noqa: PLC0415
        case "shell":
            from shelld.cli.shell import shell as program  # noqa: PLC0415
        case "stop":
            from shelld.cli.daemons import stop as program  # noqa: PLC0415
        case "watch":
            from shelld.cli.watch import watch as program  # noqa: PLC0415
        case _:
            return None
    return program


def _run(arguments: list[str]) -> int:
    with _uninterrupted():
        from shelld.cli.commands import SUBCOMMANDS  # noqa: PLC0415

    match arguments:
        case ["help", name] if name in SUBCOMMANDS:
            arguments = [name, "--help"]
        case _:
            pass
    try:
        with _uninterrupted():
            program = _subcommand(arguments[0]) if arguments else None
    except ModuleNotFoundError as error:
        from shelld.cli.program import is_bundled  # noqa: PLC0415

        if error.name != "shelld_client" or not is_bundled():
            raise
        with contextlib.suppress(OSError):
            lacks = f"shelld: a bundle has no command {arguments[0]}: install shelld\n"
            os.write(2, lacks.encode())
        return 2
    if program is not None:
        return program(arguments[1:])
    with _uninterrupted():
        # Import this late, because a client may wait for a subcommand, and no subcommand needs
        # these modules.
        from shelld.start import run_daemon  # noqa: PLC0415

    return run_daemon(arguments)


if __name__ == "__main__":
    sys.exit(main())
