"""The cost of a sandbox: its first command, and each further one beside a command outside.

All commands run interleaved, in one session each; figures are medians.

Usage: python benchmarks/sandbox.py [--rounds N]
"""

from __future__ import annotations

import argparse
import sys

from measure import family_of, interleaved, milliseconds, proportional_mb, report
from shelld_client import Client, SandboxPolicy, Unavailable


def commands(rounds: int, pause: float, *, spares: bool) -> None:
    with Client.spawn(args=[] if spares else ["--spare-shells", "0"]) as shell:
        outside = shell.bash("true", session="outside")
        assert outside.sandbox is None
        pid = shell.server_info().pid
        before = sum(map(proportional_mb, family_of(pid)))
        shell.configure_session("inside", sandbox=SandboxPolicy(mode="workspace"))
        first = milliseconds(lambda: shell.bash("true", session="inside"))
        growth = sum(map(proportional_mb, family_of(pid))) - before
        medians = interleaved(
            rounds,
            pause,
            outside=lambda: shell.bash("true", session="outside"),
            inside=lambda: shell.bash("true", session="inside"),
        )
    ratio = medians["inside"] / medians["outside"]
    how = "spares" if spares else "no spares"
    name = f"true, {pause * 1000:.0f} ms apart, {how}"
    report(name, **medians, ratio=ratio, first=first, growth_mb=growth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    try:
        for spares in (True, False):
            commands(rounds, 0.01, spares=spares)
            commands(rounds, 0.0, spares=spares)
    except Unavailable as error:
        sys.exit(f"no sandbox here: {error}")


if __name__ == "__main__":
    main()
