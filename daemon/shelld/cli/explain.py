"""``shelld explain COMMAND ...``: show what the guard sees in a command. Runs nothing.

A single argument is a command line. Several arguments are a program and its arguments, as in
``shelld explain ls -l``.

Exit codes: 0 for "allow", 1 for "block", 3 for "unresolved", 2 if arguments or files cannot be
used, or stdout cannot be written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shelld.cli.arguments import ArgumentParser
from shelld.cli.formats import printable
from shelld.cli.parser import parse_options
from shelld.cli.show import refuse, show
from shelld.cli.words import command_of
from shelld.guard import StartState
from shelld.guard.judgement import judge
from shelld.guard.policy import DEFAULT_POLICY
from shelld.guard.policy_file import load
from shelld.process.toml_file import TomlError
from shelld.process.user import home_without_variable
from shelld.sessions.text import current_directory
from shelld_protocol.structs import GuardVerdict

_EXIT_CODES: Final[dict[GuardVerdict, int]] = {"allow": 0, "block": 1, "unresolved": 3}


def explain(arguments: Sequence[str]) -> int:
    """Write the guard's verdict to stdout, and the commands that the guard has found. Return the
    exit code.
    """
    parser = ArgumentParser(
        prog="shelld explain",
        usage="%(prog)s [-h] [--guard-rules FILE] COMMAND ...",
        description="Show the guard's verdict on a command, in this directory and environment.",
        epilog="exit codes: 0 allow, 1 block, 3 unresolved",
    )
    # The command may contain words that look like options of `shelld explain`, so take all
    # remaining words as the command.
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="a command line as one argument, or a program and its arguments",
    )
    parser.add_argument(
        "--guard-rules", metavar="FILE", help="a TOML file of commands to block or to allow"
    )
    options = parser.parse_args(arguments)
    has_dashes = options.command[:1] == ["--"]
    words = options.command[1:] if has_dashes else options.command
    if not words:
        parser.error("the following arguments are required: COMMAND")
    if not has_dashes and any(word.partition("=")[0] == "--guard-rules" for word in words):
        parser.error("--guard-rules comes before COMMAND")
    try:
        command = command_of(words)
    except ValueError as error:
        parser.error(str(error))
    policy = DEFAULT_POLICY
    # Without --guard-rules, use the daemon's rules. The daemon takes them from a variable, or from
    # the file that SHELLD_CONFIG names.
    rules = options.guard_rules or parse_options([]).guard_rules
    if rules is not None:
        try:
            policy = load(Path(rules))
        except TomlError as error:
            return refuse(str(error))
    env = dict(os.environ)
    start = StartState(current_directory(), env, home=home_without_variable(env))
    verdict = judge(command, start, policy, traces=True)
    lines = [f"{verdict.verdict}: {verdict.reason}" if verdict.reason else verdict.verdict]
    if verdict.rule is not None:
        lines += [f"rule: {verdict.rule}", f"segment: {verdict.segment}"]
    lines += [f"  {line}" for line in verdict.trace]
    # The command may be a stranger's, and must not overwrite the verdict on the terminal.
    text = "\n".join(map(printable, "\n".join(lines).split("\n")))
    return show(text, _EXIT_CODES[verdict.verdict])
