"""Starts the daemon: reads the options, claims the streams, starts the keeper, and serves.

`__main__` loads this module if the command line has no subcommand.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from shelld.cli.parser import parse_options
from shelld.cli.show import refuse
from shelld.keeper.pool import RunnerPool
from shelld.keeper.prctl import become_subreaper
from shelld.output.spool import may_hold_spool
from shelld.process.options import Options
from shelld.server.startup import (
    StartupError,
    claim_stdio,
    greeting_for,
    problem_with_bash,
    raise_file_limit,
    require_proc,
    undo_locale_coercion,
)


def run_daemon(arguments: list[str]) -> int:
    """Serve until the daemon ends; return its exit code."""
    # Handle these signals here until the event loop handles them. Until then, no request is read,
    # so no request needs an answer.
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
    undo_locale_coercion()
    # The system sends SIGXCPU at the soft limit of processor time. By default, this signal ends the
    # process. Use a handler, because commands would inherit SIG_IGN.
    if signal.getsignal(signal.SIGXCPU) is signal.SIG_DFL:
        signal.signal(signal.SIGXCPU, _do_nothing)
    # As a subreaper, this process adopts the orphans of a keeper or runner that a command has
    # killed.
    adopts = options.containment != "process-group" and become_subreaper()
    pool = RunnerPool(file_limit=raise_file_limit(), mechanism=options.containment, adopts=adopts)
    try:
        # The keeper starts while the imports of `_serve` run.
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
    from shelld.guard.policy import DEFAULT_POLICY  # noqa: PLC0415
    from shelld.process.logs import configure_logging, write_without_waiting  # noqa: PLC0415
    from shelld.server.one_client import OneClient  # noqa: PLC0415
    from shelld.server.service import Service  # noqa: PLC0415

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
    # Perhaps no process reads stderr, so this write must not block.
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
    """Return the reason why commands cannot run with these options, or "" if they can."""
    is_default = options.bash == Options().bash
    if problem := problem_with_bash(options.bash, is_trusted=is_default):
        return f"cannot run commands with {options.bash}: {problem}"
    if not may_hold_spool(options.spool_dir):
        return "cannot write to the spool directory"
    if options.sandbox is not None:
        from shelld.methods.context import policy_of  # noqa: PLC0415
        from shelld_protocol.errors import RpcError  # noqa: PLC0415

        try:
            policy_of(options)
        except RpcError as error:
            return f"cannot use the policy of the sandbox: {error.message}"
    return ""
