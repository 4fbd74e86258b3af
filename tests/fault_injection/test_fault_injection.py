"""Whatever fails, each request is answered once, the daemon goes on, and nothing is left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fault_injection.campaign import Outcome, Point, record_points, try_points

SAMPLE = 40


def violations(points: list[Point], folder: Path) -> list[Outcome]:
    return [outcome for outcome in try_points(points, folder) if outcome.violation is not None]


def test_a_sample_of_faults_breaks_no_promise(tmp_path: Path) -> None:
    points = record_points(tmp_path)
    assert {point.role for point in points} == {"daemon", "keeper", "runner"}
    assert {point.call is None for point in points} == {True, False}
    # Faults of the helpers need a daemon of their own each, so they are fewer.
    in_daemon = [point for point in points if point.role == "daemon"]
    in_helpers = [point for point in points if point.role != "daemon"]
    sample = [*random.sample(in_daemon, SAMPLE), *random.sample(in_helpers, SAMPLE // 8)]
    assert violations(sample, tmp_path) == []


@pytest.mark.long
def test_no_fault_breaks_a_promise(tmp_path: Path) -> None:
    assert violations(record_points(tmp_path), tmp_path) == []
