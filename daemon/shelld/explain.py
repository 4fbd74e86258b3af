"""``shelld explain COMMAND``: what the guard sees in a command. Nothing is run.

Exit codes: 0 for "allow", 1 for "block", 3 for "unresolved", 2 for arguments or files that cannot
be used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shelld.guard import Circumstances
from shelld.guard.judgement import judge
from shelld.guard.policy import DEFAULT_POLICY
from shelld.guard.policy_file import PolicyError, load
from shelld_protocol.structs import GuardVerdict

_EXIT_CODES: Final[dict[GuardVerdict, int]] = {"allow": 0, "block": 1, "unresolved": 3}


def explain(arguments: Sequence[str]) -> int:
    """Write the verdict and the commands that were found to stdout; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="shelld explain",
        description="Tell what the guard sees in a command, in this directory and environment.",
        epilog="exit codes: 0 allow, 1 block, 3 unresolved",
    )
    parser.add_argument("command", metavar="COMMAND")
    parser.add_argument("--guard-rules", metavar="FILE", help="what else to block and to allow")
    options = parser.parse_args(arguments)
    policy = DEFAULT_POLICY
    if options.guard_rules is not None:
        try:
            policy = load(Path(options.guard_rules))
        except PolicyError as error:
            sys.stderr.write(f"shelld: {error}\n")
            return 2
    circumstances = Circumstances(os.getcwd(), dict(os.environ))
    verdict = judge(options.command, circumstances, policy, traces=True)
    lines = [f"{verdict.verdict}: {verdict.reason}" if verdict.reason else verdict.verdict]
    if verdict.rule is not None:
        lines += [f"rule: {verdict.rule}", f"segment: {verdict.segment}"]
    lines += [f"  {line}" for line in verdict.trace]
    sys.stdout.write("\n".join(lines) + "\n")
    return _EXIT_CODES[verdict.verdict]
