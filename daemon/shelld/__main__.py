"""``shelld`` and ``python -m shelld``.

The subcommands, such as ``shelld run``, are separate programs: see `shelld.cli`. ``shelld attach``
starts a lasting daemon as ``shelld lasting NAME LINGER DESCRIPTOR OPTION ...``, with a listening
socket as the descriptor.

Exit codes:

* 0: end of file, a signal, or ``shutdown`` and ``exit``
* 1: ``exit`` without ``shutdown``, or the event loop has failed
* 2: arguments, files or streams cannot be used, or the system has no room for a process or thread
  of the daemon, or no memory for its start
* 3: answers could not be written, because the disk was full or the client did not read them in
  time
* 4: requests could not be read, because memory was short for a minute or our own code has failed
* 130: a subcommand was interrupted, or the start of the daemon
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # At run time, `main` imports these, so that Ctrl-C during the imports shows no traceback.
    from shelld.keeper.pool import RunnerPool
    from shelld.process.options import Options

# The exit code of a shell for a program that SIGINT has ended.
_INTERRUPTED: Final = 128 + signal.SIGINT

# Texts of the errors of an import that has no memory. Python's own are SystemErrors, those of
# dlopen(3) are ImportErrors.
_NO_MEMORY: Final = ("without exception set", "without setting an exc", "failed to map segment")


def main() -> int:
    # Garbage collection during the imports would take a tenth of the start-up time.
    gc.disable()
    _forget_working_directory()
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        # Once the daemon runs, it has its own handler of SIGINT.
        return _INTERRUPTED
    except (MemoryError, SystemError, ImportError) as error:
        # Once the daemon runs, it handles such errors itself.
        is_lost = any(text in str(error) for text in _NO_MEMORY)
        if not (is_lost or isinstance(error, MemoryError)):
            raise
    os.write(2, b"shelld: cannot start: there is no memory\n")
    return 2


def _forget_working_directory() -> None:
    """Let no later import find a module that a command has put into the working directory.

    `python -m shelld` without -P adds that directory to the path of modules.
    """
    with contextlib.suppress(OSError):
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]


def _subcommand(  # noqa: PLR0912 - one branch for each
    name: str,
) -> Callable[[Sequence[str]], int] | None:
    """Return the program of a subcommand. Load no other."""
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
    from shelld.cli.parser import SUBCOMMANDS, parse_options  # noqa: PLC0415
    from shelld.cli.show import refuse  # noqa: PLC0415
    from shelld.server.startup import StartupError, claim_stdio, require_proc  # noqa: PLC0415

    match arguments:
        case ["help", name] if name in SUBCOMMANDS:
            arguments = [name, "--help"]
        case _:
            pass
    if arguments and (program := _subcommand(arguments[0])) is not None:
        return program(arguments[1:])
    # Handle these signals until the event loop does. No request has been read by then, so none
    # needs an answer.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end_quietly)
    lasting = None
    if arguments[:1] == ["lasting"] and len(arguments) >= 4:
        lasting, arguments = arguments[1:4], arguments[4:]
    options = parse_options(arguments)
    try:
        require_proc()
        return _start(options, claim_stdio(), lasting)
    except StartupError as error:
        return refuse(str(error))


def _end_quietly(_number: int, _frame: FrameType | None) -> None:
    """End at once. The keeper ends with this process."""
    os._exit(0)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _start(options: Options, streams: tuple[int, int], lasting: list[str] | None) -> int:
    from shelld.cli.show import refuse  # noqa: PLC0415
    from shelld.keeper.pool import RunnerPool  # noqa: PLC0415
    from shelld.keeper.prctl import become_subreaper  # noqa: PLC0415
    from shelld.server.startup import raise_file_limit, undo_locale_coercion  # noqa: PLC0415

    undo_locale_coercion()
    # The parent may have blocked the signals that stop the daemon.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # The system sends this signal at the soft limit of processor time. By default, it ends the
    # process. Use a handler, because commands would inherit SIG_IGN.
    if signal.getsignal(signal.SIGXCPU) is signal.SIG_DFL:
        signal.signal(signal.SIGXCPU, _do_nothing)
    # As a subreaper, this process adopts the orphans of a keeper or runner that a command has
    # killed.
    adopts = options.containment != "process-group" and become_subreaper()
    pool = RunnerPool(file_limit=raise_file_limit(), mechanism=options.containment, adopts=adopts)
    try:
        # The keeper starts while the imports below run.
        pool.prepare()
    except OSError as error:
        return refuse(f"cannot start the keeper: {error.strerror}")
    try:
        return _serve(options, streams, pool, lasting)
    finally:
        pool.close()


def _serve(
    options: Options, streams: tuple[int, int], pool: RunnerPool, lasting: list[str] | None
) -> int:
    from functools import partial  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from shelld.app import run  # noqa: PLC0415
    from shelld.audit import AuditLog  # noqa: PLC0415
    from shelld.cli.show import refuse  # noqa: PLC0415
    from shelld.guard.policy import DEFAULT_POLICY  # noqa: PLC0415
    from shelld.process.logs import configure_logging, write_without_waiting  # noqa: PLC0415
    from shelld.server.one_client import OneClient  # noqa: PLC0415
    from shelld.server.service import Service  # noqa: PLC0415
    from shelld.server.startup import greeting_for  # noqa: PLC0415

    try:
        configure_logging(options.log_level, options.log_file)
    except OSError as error:
        return refuse(f"cannot write the log file: {error.strerror}")
    if problem := _problem_with(options):
        return refuse(problem)
    policy = DEFAULT_POLICY
    if options.guard_rules is not None:
        from shelld.guard.policy_file import load  # noqa: PLC0415
        from shelld.process.toml_file import TomlError  # noqa: PLC0415

        try:
            policy = load(Path(options.guard_rules))
        except TomlError as error:
            return refuse(str(error))
    audit = None
    if options.audit_log is not None:
        try:
            audit = AuditLog(Path(options.audit_log), options.audit_max_bytes)
        except OSError as error:
            return refuse(f"cannot write the audit log: {error.strerror}")
    # Perhaps nobody reads stderr, so this write must not block.
    write_without_waiting(2, greeting_for(streams[0]).encode())
    make_service: Callable[[], Service] = partial(OneClient, streams)
    if lasting is not None:
        from shelld.lasting.start import lasting_of  # noqa: PLC0415
        from shelld.server.clients import Clients  # noqa: PLC0415

        try:
            make_service = partial(Clients, lasting_of(lasting))
        except (OSError, ValueError, OverflowError):
            return refuse("`shelld attach` starts lasting daemons")
    return run(options, make_service, pool, audit, policy)


def _problem_with(options: Options) -> str:
    """Return why commands cannot run with these options, or ""."""
    from shelld.process.options import Options  # noqa: PLC0415
    from shelld.server.startup import problem_with_bash  # noqa: PLC0415

    is_default = options.bash == Options().bash
    if problem := problem_with_bash(options.bash, is_trusted=is_default):
        return f"cannot run commands with {options.bash}: {problem}"
    spool = options.spool_dir
    if spool is not None and not os.access(spool, os.R_OK | os.W_OK | os.X_OK):
        return "cannot write to the spool directory"
    if options.sandbox is not None:
        from shelld.methods.context import policy_of  # noqa: PLC0415
        from shelld_protocol.errors import RpcError  # noqa: PLC0415

        try:
            policy_of(options)
        except RpcError as error:
            return f"cannot use the policy of the sandbox: {error.message}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
