"""The packages that the Makefile's targets install, read from a dry run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def installed_by(target: str, tmp_path: Path) -> list[str]:
    """Return pip's arguments for a target, one string per install, as if `.venv` did not exist."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    shown = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}/venv", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout
    return [line.partition(" install ")[2] for line in shown.splitlines() if " pip install" in line]


def test_demo_installs_runtime_dependencies_only(tmp_path: Path) -> None:
    (install,) = installed_by("demo", tmp_path)
    assert install.endswith("--editable .")
    assert "--group" not in install


@pytest.mark.parametrize("target", ["test", "lint", "types"])
def test_checks_install_the_development_group_too(target: str, tmp_path: Path) -> None:
    installs = installed_by(target, tmp_path)
    assert installs[0].endswith("--editable .")
    assert installs[-1].endswith("--group dev")


@pytest.mark.slow
def test_no_slow_test_starts_after_the_time_limit() -> None:
    path = "tests/e2e/test_output.py"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "slow and not long", path]
    env = {**os.environ, "SLOW_TESTS_UNTIL": "1", "ORDER_OF_TESTS": "any"}
    shown = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=True
    ).stdout
    assert "no time is left for slow tests: make test-slow runs all of them" in shown
    assert " passed" not in shown.splitlines()[-1]
