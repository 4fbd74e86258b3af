"""The time to the first answer of a target that is reached over ssh and has only Python.

Each round has an empty home directory at the target. The first start sends the bundle, the second
start finds it in the cache of the target. `ssh_true` is the time that ssh itself takes.
Figures are median times in seconds, from `add_target` to the answer of the first command.

Usage: PYTHONPATH=tests/helpers python benchmarks/bootstrap.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from measure import RawDaemon, milliseconds, report
from ssh_server import ssh_server

# The Python from which this virtual environment was made. None of our packages are installed there.
_PYTHON = Path(os.path.realpath(sys.executable))


def _first_answer(hub: RawDaemon, argv: list[str]) -> None:
    hub.request("add_target", {"name": "bare", "argv": argv, "bootstrap": True})
    answer = hub.request("bash", {"command": "true", "target": "bare"})
    assert b'"exitCode":0' in answer, answer


def measure(folder: Path, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"first": [], "second": [], "ssh_true": []}
    with ssh_server(folder) as ssh:
        hub = RawDaemon()
        try:
            for number in range(rounds):
                home = folder / f"home{number}"
                home.mkdir()
                bare = ["env", "-i", f"HOME={home}", f"PATH={_PYTHON.parent}:/usr/bin:/bin"]
                start = partial(_first_answer, hub, [*ssh, shlex.join(bare)])
                for name in ("first", "second"):
                    times[name].append(milliseconds(start) / 1000)
                    hub.request("remove_target", {"name": "bare"})
                true = partial(subprocess.run, [*ssh, "true"], check=True, capture_output=True)
                times["ssh_true"].append(milliseconds(true) / 1000)
        finally:
            hub.close()
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # This machine also caches the bundle. Do not use the user's cache.
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        report("bootstrap over ssh, s", **measure(Path(folder), options.rounds))


if __name__ == "__main__":
    main()
