"""Defines the options of the command line with their ranges and their help."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, get_args

from shelld.cli.commands import listed_subcommands, no_such_command
from shelld.cli.numbers import integer_type, number_of
from shelld.process.options import EnvironmentMode, GuardMode, Mechanism, Options
from shelld_protocol.sandboxes import SandboxEngine, SandboxMode, SandboxPolicy
from shelld_protocol.structs import (
    MAX_RESOURCE,
    MIN_CPU_SECONDS,
    MIN_FILE_BYTES,
    MIN_MEMORY_BYTES,
    MIN_OPEN_FILES,
    MIN_PROCESSES,
    ResourceLimits,
)
from shelld_protocol.target_methods import MAX_TARGETS, is_target_name, problem_with_argv

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_LIMITS: Final = {
    "memory_bytes": MIN_MEMORY_BYTES,
    "processes": MIN_PROCESSES,
    "cpu_seconds": MIN_CPU_SECONDS,
    "file_bytes": MIN_FILE_BYTES,
    "open_files": MIN_OPEN_FILES,
}

_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}


def parse_options(arguments: Sequence[str]) -> Options:
    """Return the options from the command line, from variables and from a file (see `settings`).

    Exits with 0 after --help and --version. For bad options, prints the usage and exits with 2.
    """
    has_variables = any(name.startswith("SHELLD_") for name in os.environ)
    if not (arguments or has_variables):
        # Harnesses start the daemon without options. Do not import argparse for them, because that
        # would take a tenth of the start-up time.
        return Options()
    parser = option_parser()
    if arguments and not arguments[0].startswith("-"):
        parser.error(no_such_command(arguments[0]))
    values = vars(parser.parse_args(arguments))
    if has_variables or values["config"] is not None:
        from shelld.cli import settings  # noqa: PLC0415

        try:
            # The name of a target may occur only once. So if the command line has targets, they
            # replace all targets from the variables and the file. The same holds for bootstraps.
            names = {"targets": "target", "bootstraps": "bootstrap"}
            replaced = {name for dest, name in names.items() if values[dest]}
            words = settings.words(parser, values["config"], os.environ, replaced)
        except settings.SettingsError as error:
            parser.error(str(error))
        values = vars(parser.parse_args([*words, *arguments]))
    del values["stdio"], values["config"]
    _check_targets(parser, [*values["targets"], *values["bootstraps"]])
    values["targets"] = tuple(values["targets"])
    values["bootstraps"] = tuple(values["bootstraps"])
    values["limits"] = ResourceLimits(**dict(values["limits"]))
    return Options(**values)


def _size(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a function that parses a number of bytes with an optional unit: ``64M``."""

    def size(text: str) -> int:
        factor = _UNITS.get(text[-1:].upper())
        if factor is None:
            return number_of(text, minimum, maximum)
        return number_of(text[:-1], minimum, maximum, factor)

    size.__name__ = f"size from {minimum} to {maximum} bytes"
    return size


def _limit(text: str) -> tuple[str, int]:
    """Parse a limit on a resource: ``memory_bytes=512M``."""
    import argparse  # noqa: PLC0415

    name, _, value = text.partition("=")
    if name not in _LIMITS:
        raise argparse.ArgumentTypeError(f"no such limit: {name}; one of {', '.join(_LIMITS)}")
    parse = _size if name.endswith("_bytes") else integer_type
    try:
        return name, parse(_LIMITS[name], MAX_RESOURCE)(value)
    except ValueError:
        span = f"from {_LIMITS[name]} to {MAX_RESOURCE}"
        problem = f"{name} takes a number {span}, not {value or 'nothing'}"
        raise argparse.ArgumentTypeError(problem) from None


def _target(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse a target: ``box=ssh box shelld``. The command line is split into words as a shell would
    split it.
    """
    import argparse  # noqa: PLC0415
    import shlex  # noqa: PLC0415

    name, _, line = text.partition("=")
    if not is_target_name(name):
        raise argparse.ArgumentTypeError(f"not a valid name for a target: {name or 'nothing'}")
    try:
        argv = shlex.split(line)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a quote of {name} is not closed") from None
    if (problem := problem_with_argv(argv)) is not None:
        raise argparse.ArgumentTypeError(f"the command line of {name} {problem}")
    return name, tuple(argv)


def _check_targets(
    parser: argparse.ArgumentParser, targets: Sequence[tuple[str, tuple[str, ...]]]
) -> None:
    names = [name for name, _ in targets]
    if again := next((name for name in names if names.count(name) > 1), None):
        parser.error(f"argument --target: target {again} is given twice")
    if len(names) > MAX_TARGETS:
        parser.error(f"argument --target: at most {MAX_TARGETS} targets")


def _sandbox(text: str) -> SandboxPolicy | None:
    """Parse a policy: the name of a mode, or the path of a file."""
    if text == "off":
        return None
    if text in get_args(SandboxMode):
        return SandboxPolicy(mode=text)  # type: ignore[arg-type]
    import argparse  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from shelld.process.toml_file import TomlError  # noqa: PLC0415
    from shelld.sandbox.policy_file import load  # noqa: PLC0415

    try:
        return load(Path(text))
    except TomlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _shown(value: object, metavar: object) -> object:
    """Return a default value as a user would write it."""
    if metavar == "SIZE" and isinstance(value, int):
        for unit, factor in reversed(_UNITS.items()):
            if value % factor == 0:
                return f"{value // factor}{unit}"
    return value


def _path(text: str) -> str:
    """Make a path absolute, because commands do not start in the daemon's directory."""
    try:
        return os.path.abspath(text)
    except FileNotFoundError as error:
        # The working directory has been deleted.
        raise ValueError from error


_path.__name__ = "path"


def option_parser() -> argparse.ArgumentParser:
    import argparse  # noqa: PLC0415

    from shelld import __version__  # noqa: PLC0415
    from shelld.cli.arguments import ArgumentParser  # noqa: PLC0415

    commands = listed_subcommands().items()
    parser = ArgumentParser(
        prog="shelld",
        usage="shelld [OPTION ...]"
        + "".join(f"\n       shelld {name} {takes}" for name, (takes, _) in commands),
        description="Run shell commands for agents and editors: JSON-RPC 2.0 on stdin and stdout.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="SIZE is a number of bytes. A suffix K, M or G means KiB, MiB or GiB.\n\n"
        "Options are also taken from variables, as in SHELLD_MAX_SHELLS=9, and from --config.\n\n"
        "commands:\n"
        + "\n".join(f"  shelld {name:15}{purpose}" for name, (_, purpose) in commands),
    )
    parser.add_argument("--version", action="version", version=f"shelld {__version__}")
    parser.add_argument("--stdio", action="store_true", help="serve stdin and stdout (the default)")
    parser.add_argument(
        "--config", metavar="FILE", help="a TOML file of options, such as: max-shells = 32"
    )
    default = Options()
    count = integer_type(1, 1_000_000)
    milliseconds = integer_type(0, 60_000)

    def option(flag: str, *more: str, help: str, **settings: Any) -> None:  # noqa: A002
        name = flag.removeprefix("--").replace("-", "_")
        value = getattr(default, name)
        shown = (
            ""
            if value in (None, False)
            else f" (default: {_shown(value, settings.get('metavar'))})"
        )
        settings.setdefault("default", value)
        parser.add_argument(flag, *more, dest=name, help=help + shown, **settings)

    option(
        "--parent-pid",
        "--clientProcessId",
        type=integer_type(1, 2**31 - 1),
        metavar="PID",
        help="exit when this process ends",
    )
    option("--log-level", choices=LOG_LEVELS, help="log messages of this level and above")
    option("--log-file", metavar="FILE", help="log to FILE instead of stderr")
    option("--audit-log", metavar="FILE", help="append one JSON line per command to FILE")
    option(
        "--audit-max-bytes",
        type=_size(1, 2**40),
        metavar="SIZE",
        help="rotate the audit log at this size",
    )
    option("--bash", type=_path, metavar="PATH", help="the bash that runs commands")
    option(
        "--containment",
        choices=get_args(Mechanism),
        help="the strongest mechanism to use for finding and ending the processes of a command, "
        "if the system has it",
    )
    option(
        "--env",
        choices=get_args(EnvironmentMode),
        help="what commands take from the environment of shelld: everything, or only a few usual "
        "variables, such as PATH and HOME",
    )
    parser.add_argument(
        "--limit",
        dest="limits",
        action="append",
        default=[],
        type=_limit,
        metavar="NAME=VALUE",
        help="limit what the commands of a session use: memory_bytes, processes, cpu_seconds, "
        "file_bytes or open_files; repeatable",
    )
    parser.add_argument(
        "--target",
        dest="targets",
        action="append",
        default=[],
        type=_target,
        metavar="NAME=ARGV",
        help="name another daemon, started by the command line ARGV, to pass requests on to it; "
        "repeatable",
    )
    parser.add_argument(
        "--bootstrap",
        dest="bootstraps",
        action="append",
        default=[],
        type=_target,
        metavar="NAME=ARGV",
        help="like --target, for a machine with Python but without shelld: ARGV connects to it, "
        "and shelld is copied there; repeatable",
    )
    parser.add_argument(
        "--sandbox",
        default=default.sandbox,
        type=_sandbox,
        metavar="POLICY",
        help="what commands may reach: off, read-only, workspace, or a TOML file with a policy "
        "(default: off)",
    )
    option(
        "--sandbox-engine",
        choices=get_args(SandboxEngine),
        help="what enforces the policy; auto is bwrap",
    )
    option(
        "--default-timeout",
        type=integer_type(1_000, 600_000),
        metavar="MS",
        help="default timeout of foreground commands, in ms",
    )
    option(
        "--guard",
        choices=get_args(GuardMode),
        help="what to do about dangerous commands; block: refuse them; strict: also refuse "
        "commands that the guard cannot analyse; warn: run them and report them; off: no checks",
    )
    option("--guard-rules", metavar="FILE", help="a TOML file of commands to block or to allow")
    option("--grace", type=milliseconds, metavar="MS", help="time from SIGTERM to SIGKILL, in ms")
    option("--max-shells", type=count, metavar="N", help="maximum number of running shells")
    option(
        "--spare-shells",
        type=integer_type(0, 256),
        metavar="N",
        help="maximum number of spare shells, started ahead for the next commands",
    )
    option("--max-retained", type=count, metavar="N", help="maximum number of ended shells to keep")
    option(
        "--retain-seconds",
        type=integer_type(0, 2**40),
        metavar="S",
        help="time to keep an ended shell, in seconds",
    )
    option(
        "--retain-bytes",
        type=_size(4096, 2**40),
        metavar="SIZE",
        help="maximum output to keep per shell",
    )
    option(
        "--retain-total-bytes",
        type=_size(4096, 2**40),
        metavar="SIZE",
        help="maximum output to keep for all shells together; the output of ended shells is "
        "dropped first",
    )
    option("--spool-dir", metavar="DIR", help="keep output in DIR instead of $TMPDIR or /tmp")
    option(
        "--max-message-bytes",
        type=_size(1024, 2**31),
        metavar="SIZE",
        help="maximum size of a request",
    )
    option(
        "--max-in-flight", type=count, metavar="N", help="maximum number of requests in progress"
    )
    option(
        "--interactive-tools",
        action="store_true",
        help="let models give commands a terminal, type into them, and see their screens",
    )
    option(
        "--task-after",
        type=integer_type(0, 86_400_000),
        metavar="MS",
        help="time after which a call of an MCP host that supports tasks becomes a task, in ms",
    )
    return parser
