"""The cost of a sandbox: of its first command, and of each later command compared with a command
outside.

For comparison, the benchmark also runs the same command in three other ways. The first is `bash -c`
alone. The second is `bash -c` in a bubblewrap of its own, with the mounts and namespaces of the
same policy. The third runs if `--sandbox-runtime` names the directory of the npm package
@anthropic-ai/sandbox-runtime, which needs socat and ripgrep. All of these take turns. `inside` and
`outside` each run all their commands in one session. Figures are medians. The ratio of `inside` is
relative to `outside`; all other ratios are relative to `bash`.

Usage: python benchmarks/sandbox.py [--rounds N] [--sandbox-runtime DIRECTORY]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from measure import family_of, interleaved, milliseconds, proportional_mb, report
from shelld_client import Client, SandboxPolicy, Unavailable

_BRIDGE = Path(__file__).with_name("sandbox_runtime.mjs")
_ISOLATION = ("--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--die-with-parent")
_MOUNTS = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
_PRIVATE = ("--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run")

Way = Callable[[str], object]


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


def alone(command: str) -> None:
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)


def by_hand(command: str) -> None:
    """Run a command in a bubblewrap of its own, without shelld."""
    here = os.getcwd()
    words = ["bwrap", *_ISOLATION, *_MOUNTS, *_PRIVATE, "--bind", here, here, "--chdir", here]
    subprocess.run([*words, "bash", "-c", command], check=True, capture_output=True)


@contextlib.contextmanager
def sandbox_runtime(directory: Path) -> Generator[Way]:
    command = ["node", str(_BRIDGE), str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        asked, answers = bridge.stdin, bridge.stdout

        def run(line: str) -> None:
            asked.write(f"{line}\n")
            asked.flush()
            if (status := answers.readline()) != "0\n":
                raise RuntimeError(f"sandbox-runtime has ended a command with {status!r}")

        try:
            yield run
        finally:
            asked.close()


def beside_others(rounds: int, pause: float, runtime: Path | None) -> None:
    """Compare shelld's sandbox, which keeps running, with a new sandbox for each command."""
    with contextlib.ExitStack() as stack:
        shell = stack.enter_context(Client.spawn())
        shell.configure_session("inside", sandbox=SandboxPolicy(mode="workspace"))
        ways: dict[str, Way] = {
            "bash": alone,
            "outside": lambda command: shell.bash(command, session="outside"),
            "inside": lambda command: shell.bash(command, session="inside"),
            "bubblewrap": by_hand,
        }
        if runtime is not None:
            ways["sandbox_runtime"] = stack.enter_context(sandbox_runtime(runtime))
        for command in ("true", "sleep 0.1"):
            calls = {name: partial(way, command) for name, way in ways.items()}
            medians = interleaved(rounds, pause, **calls)
            ratios = {
                name: median / medians["outside" if name == "inside" else "bash"]
                for name, median in medians.items()
                if name not in ("bash", "outside")
            }
            report(f"{command}, ms", **medians)
            report(f"{command}, ratio", **ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--sandbox-runtime", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    try:
        for spares in (True, False):
            commands(options.rounds, 0.01, spares=spares)
            commands(options.rounds, 0.0, spares=spares)
        if shutil.which("bwrap") is not None:
            beside_others(options.rounds, 0.01, options.sandbox_runtime)
    except Unavailable as error:
        sys.exit(f"no sandbox here: {error}")


if __name__ == "__main__":
    main()
