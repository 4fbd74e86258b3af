"""`python -m fault_injection`: try every point, or a sample; print violations and totals."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from fault_injection.campaign import Outcome, record_points, try_in_threads
from fault_injection.scenes import SCENES


def main() -> int:
    parser = argparse.ArgumentParser(prog="fault_injection", description=__doc__)
    parser.add_argument("--only", action="append", help="only points whose text contains this")
    parser.add_argument("--scene", action="append", choices=SCENES, help="only this scene")
    parser.add_argument("--sample", type=int, help="number of points, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    # A daemon often waits, so each processor gets two.
    jobs = 2 * (os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=jobs, help="number of daemons at a time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        only = options.only or [""]
        recorded = record_points(Path(folder), options.scene or ())
        points = [point for point in recorded if any(text in str(point) for text in only)]
        if options.sample is not None:
            points = random.Random(options.seed).sample(points, min(len(points), options.sample))
            points.sort(key=lambda point: (point.scene, point.step, point.role))
        print(f"{len(points)} points", flush=True)
        began = time.monotonic()
        outcomes: list[Outcome] = []
        for outcome in try_in_threads(points, Path(folder), options.jobs):
            outcomes.append(outcome)
            if outcome.violation is not None:
                print(f"VIOLATION {outcome.point}: {outcome.violation}", flush=True)
            if len(outcomes) % 100 == 0:
                print(f"... {len(outcomes)} in {time.monotonic() - began:.0f} s", flush=True)
    fired = sum(outcome.fired for outcome in outcomes)
    broken = sum(outcome.violation is not None for outcome in outcomes)
    print(f"{len(outcomes)} runs, {fired} faults, {broken} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
